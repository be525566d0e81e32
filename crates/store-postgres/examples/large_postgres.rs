//! A large store, and how long every read of it takes.
//!
//! `cargo run --release -p outlast-store-postgres --example large_postgres -- URL [FINISHED SCHEDULED WORKERS]`
//! fills an empty store (10,000,000 jobs that have ended, 1,000,000 scheduled, 10,000 workers, in
//! a few minutes and 7 GB) and prints each read's median of five; one that is filled is measured.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

use outlast_store::Store as _;
use outlast_store_postgres::{Options, PostgresStore};
use outlast_store_testkit::conformance::large::{reads, sized};
use tokio::time::Instant;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("usage: large URL [FINISHED SCHEDULED WORKERS]")?;
    let mut number = |standard: u64| args.next().map_or(Ok(standard), |text| text.parse());
    let size = (number(10_000_000)?, number(1_000_000)?, number(10_000)?);
    let options = Options { unsafe_no_fsync: true, clock: None };
    let store = PostgresStore::open(&url, &options).await?;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("set search_path = outlast, public").await?;
    let filled = client.query_one("select exists (select 1 from job_row)", &[]).await?;
    if !filled.try_get::<_, bool>(0)? {
        let begun = Instant::now();
        let now = store.now().await?.0;
        let sql = sized(include_str!("../tests/large.sql"), size.0, size.1, size.2, now);
        client.batch_execute("set synchronous_commit = off; set work_mem = '256MB'").await?;
        client.batch_execute(&sql).await?;
        println!("filled in {} s", begun.elapsed().as_secs());
    }
    client.batch_execute("vacuum analyze").await?;
    println!("| read | answer | ms |\n|---|---|---|");
    for read in reads() {
        let mut took = Vec::new();
        let mut answer = String::new();
        for _ in 0..5 {
            let begun = Instant::now();
            answer = read.run(&store).await?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        let median = took.get(2).copied().unwrap_or_default().as_secs_f64() * 1e3;
        println!("| {} | {answer} | {median:.1} |", read.name());
    }
    store.close().await?;
    Ok(())
}
