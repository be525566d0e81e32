//! A large store, and how long every read of it takes.
//!
//! `cargo run --release -p outlast-store-sqlite --example large -- FILE [FINISHED SCHEDULED WORKERS]`
//! fills an empty store (10,000,000 jobs that have ended, 1,000,000 scheduled, 10,000 workers, in
//! a few minutes and 3 GB) and prints each read's median of five; one that is filled is measured.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

use std::path::Path;

use outlast_store::Store as _;
use outlast_store_sqlite::{Options, SqliteStore};
use outlast_store_testkit::conformance::large::{reads, sized};
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: large FILE [FINISHED SCHEDULED WORKERS]")?;
    let mut number = |standard: u64| args.next().map_or(Ok(standard), |text| text.parse());
    let size = (number(10_000_000)?, number(1_000_000)?, number(10_000)?);
    SqliteStore::migrate(Path::new(&path))?;
    let db = Connection::open(&path)?;
    let filled: bool =
        db.query_row("select exists (select 1 from job_row)", [], |row| row.get(0))?;
    if !filled {
        let begun = millis(ClockId::Monotonic);
        db.execute_batch("pragma synchronous = off; pragma cache_size = -400000")?;
        let sql = sized(
            include_str!("../tests/large.sql"),
            size.0,
            size.1,
            size.2,
            whole(ClockId::Realtime),
        );
        // A transaction for each statement: all in one would fill the disk twice.
        db.execute_batch(&sql)?;
        db.execute_batch("pragma wal_checkpoint(truncate)")?;
        println!("filled in {:.0} s", (millis(ClockId::Monotonic) - begun) / 1000.0);
    }
    drop(db);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let store = SqliteStore::open(Path::new(&path), &Options::default())?;
    println!("| read | answer | ms |\n|---|---|---|");
    for read in reads() {
        let mut took = Vec::new();
        let mut answer = String::new();
        for _ in 0..5 {
            let begun = millis(ClockId::Monotonic);
            answer = runtime.block_on(read.run(&store))?;
            took.push(millis(ClockId::Monotonic) - begun);
        }
        took.sort_by(f64::total_cmp);
        println!("| {} | {answer} | {:.1} |", read.name(), took.get(2).copied().unwrap_or(0.0));
    }
    runtime.block_on(store.close())?;
    Ok(())
}

fn millis(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

fn whole(clock: ClockId) -> i64 {
    clock_gettime(clock).tv_sec * 1000
}
