//! What this machine manages without Outlast, measured in the same run: the baseline that each
//! figure is read against.
//!
//! - `fsync`: small durable appends, one after the other
//! - `postgres`: rows inserted and claimed, if PostgreSQL is measured
//! - `sqlite`: rows committed with the durability that the store asks for
//! - `http`: the same requests from the same client, answered at once

mod http;
mod postgres;
mod sqlite;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use outlast_cli_core::clock;
use outlast_cli_core::exit::Failure;
use serde_json::{Value, json};

use crate::figures::{rate, rounded};

/// Rows per commit in the second SQLite figure.
const BATCH_ROWS: usize = 100;
/// What a small write costs the disk.
const BLOCK_BYTES: usize = 4096;

/// Measures all of them in `folder`, and in PostgreSQL if one is named, each for `length`.
pub(crate) async fn measure(
    folder: &Path,
    database: Option<&str>,
    length: Duration,
    producers: usize,
) -> Result<Value, Failure> {
    let fsync = fsync(folder, length)?;
    let commits = sqlite::rows(&folder.join("commits.db"), 1, length)?;
    let rows = sqlite::rows(&folder.join("rows.db"), BATCH_ROWS, length)?;
    let http = http::requests(length, producers).await?;
    let mut found = json!({
        "fsync_per_second": rounded(fsync),
        "sqlite_commits_per_second": rounded(commits),
        "sqlite_rows_per_second": rounded(rows),
        "http_per_second": rounded(http),
    });
    if let Some(url) = database {
        let rows = postgres::measure(url, producers, length).await?;
        found["postgres_commits_per_second"] = rounded(rows.single);
        found["postgres_rows_per_second"] = rounded(rows.many);
        found["postgres_claims_per_second"] = rounded(rows.claimed);
    }
    Ok(found)
}

/// Durable appends of a block per second, one after the other.
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
