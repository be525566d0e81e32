//! Ceilings of this machine, taken in the same run: what a figure is to be read against.
//!
//! - how often a small append can be made durable, one after the other
//! - what PostgreSQL inserts and gives out, where it is measured
//! - what SQLite commits with the durability that the store asks for
//! - what HTTP alone answers to the same client with the same requests

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use outlast_server::ceiling::answer_all;
use outlast_store_sqlite::ceiling::commit_rows;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::connection::Address;
use super::enqueue;
use super::figures::{rate, rounded};
use super::produce::{Extent, Producers};
use crate::clock;
use crate::config::client::ClientConfig;
use crate::exit::Failure;

/// Rows a commit in the second SQLite figure.
const BATCH_ROWS: usize = 100;
/// What a small write costs the disk.
const BLOCK_BYTES: usize = 4096;

/// Measures all of them in `folder`, and in PostgreSQL if one is named, each for `length`.
pub(super) async fn measure(
    folder: &Path,
    database: Option<&str>,
    length: Duration,
    producers: usize,
) -> Result<Value, Failure> {
    let fsync = fsync(folder, length)?;
    let commits = rows(&folder.join("commits.db"), 1, length)?;
    let rows = rows(&folder.join("rows.db"), BATCH_ROWS, length)?;
    let http = http(length, producers).await?;
    let mut found = json!({
        "fsync_per_second": rounded(fsync),
        "sqlite_commits_per_second": rounded(commits),
        "sqlite_rows_per_second": rounded(rows),
        "http_per_second": rounded(http),
    });
    if let Some(url) = database {
        let measured = outlast_store_postgres::ceiling::measure(url, producers, length).await;
        let postgres = measured.map_err(|error| unusable(&error))?;
        found["postgres_commits_per_second"] = rounded(postgres.single_rows);
        found["postgres_rows_per_second"] = rounded(postgres.many_rows);
        found["postgres_claims_per_second"] = rounded(postgres.claimed_rows);
    }
    Ok(found)
}

/// Why PostgreSQL cannot be measured.
pub(super) fn unusable(error: &outlast_store_postgres::OpenError) -> Failure {
    Failure::failed(format!("cannot measure PostgreSQL: {error}"))
        .with_hint("the role of --database must be allowed to create databases")
}

/// Durable appends of a block a second, one after the other.
fn fsync(folder: &Path, length: Duration) -> Result<f64, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::failed(format!("cannot write to {}: {error}", folder.display()))
    };
    let path = folder.join("fsync");
    let mut file = std::fs::File::create(&path).map_err(cannot)?;
    let block = [0_u8; BLOCK_BYTES];
    let (begun, mut count) = (clock::moment(), 0_usize);
    while count == 0 || clock::moment().since(begun) < length {
        file.write_all(&block).and_then(|()| file.sync_data()).map_err(cannot)?;
        count += 1;
    }
    let rate = rate(count, clock::moment().since(begun));
    std::fs::remove_file(&path).map_err(cannot)?;
    Ok(rate)
}

fn rows(path: &Path, rows_a_commit: usize, length: Duration) -> Result<f64, Failure> {
    let (begun, mut asked) = (clock::moment(), 0_usize);
    let go_on = || {
        asked += 1;
        // However short the time is, one commit is measured.
        asked == 1 || clock::moment().since(begun) < length
    };
    let count = commit_rows(path, rows_a_commit, go_on)
        .map_err(|error| Failure::failed(format!("cannot measure SQLite: {error}")))?;
    Ok(rate(count, clock::moment().since(begun)))
}

/// Requests a second that the same client gets out of a server that only answers. It has
/// threads of its own, as a server's process would.
async fn http(length: Duration, producers: usize) -> Result<f64, Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("cannot measure HTTP: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(cannot)?;
    let listening = runtime.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = listening.await.map_err(std::io::Error::other).and_then(|bound| bound);
    let rate = match listener {
        Ok(listener) => {
            let server = listener.local_addr().map_err(cannot)?;
            runtime.spawn(answer_all(listener));
            let config = ClientConfig::plain(format!("http://{server}"));
            requests(&Address::of(&config)?, length, producers).await
        }
        Err(error) => Err(cannot(error)),
    };
    runtime.shutdown_background();
    rate
}

async fn requests(address: &Address, length: Duration, producers: usize) -> Result<f64, Failure> {
    let request = enqueue::request(address, "bench", enqueue::NOOP);
    let mut producers = Producers::connect(address, producers).await?;
    producers.send(&request, Extent::Time(length / 10)).await?;
    let produced = producers.send(&request, Extent::Time(length)).await?;
    Ok(rate(produced.lengths.len(), produced.took))
}
