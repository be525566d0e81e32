//! First figures: enqueue over HTTP, drain and latency through the SDK, memory, and the
//! machine's own fsync rate beside them, from one run.
//!
//! `cargo run --release -p outlast-bench -- --outlast PATH` starts that binary's server on
//! a temporary store, measures, prints a table on standard error and JSON on standard
//! output, and ends what it started.

mod drain;
mod enqueue;
mod fsync;
mod http;
mod server;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};

/// Producers at the same time.
const PRODUCERS: usize = 16;
/// Jobs a producer enqueues.
const JOBS_EACH: usize = 8_000;
/// Jobs drained.
const DRAIN_JOBS: usize = 100_000;
/// Jobs whose latency is taken, one at a time.
const LATENCY_JOBS: usize = 2_000;
/// Rounds of each measurement.
const ROUNDS: usize = 3;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut program = PathBuf::from("target/release/outlast");
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--outlast" => program = args.next().context("--outlast needs a path")?.into(),
            other => anyhow::bail!("unknown argument {other}: try --outlast PATH"),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&program))?;
    #[expect(clippy::print_stdout, reason = "the report is what this program is for")]
    {
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(())
}

async fn measure(program: &std::path::Path) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let fsync = fsync::rate(folder.path())?;
    say(&format!("fsync: {fsync:.0}/s"));
    let server = server::Server::start(program, folder.path()).await?;
    let idle_memory = server.resident_kib()?;
    say(&format!("server idle: {idle_memory} KiB resident"));

    let latency = drain::latency(&server.address, LATENCY_JOBS).await?;
    say(&format!("latency: p50 {:.3} ms, p99 {:.3} ms", latency.0, latency.1));
    let mut enqueue = Vec::new();
    let mut drain = Vec::new();
    let mut bulk = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        enqueue::single(&server.address, PRODUCERS, JOBS_EACH).await?;
        enqueue.push(rate(PRODUCERS * JOBS_EACH, begun));
        let jobs = drain::all(&server.address, PRODUCERS * JOBS_EACH).await?;
        drain.push(jobs);
        let begun = Instant::now();
        enqueue::bulk(&server.address, 4, DRAIN_JOBS / 4).await?;
        bulk.push(rate(DRAIN_JOBS, begun));
        drain.push(drain::all(&server.address, DRAIN_JOBS).await?);
        say(&format!("enqueue {enqueue:.0?}/s, bulk {bulk:.0?}/s, drain {drain:.0?}/s"));
    }
    let loaded_memory = server.resident_kib()?;
    server.stop().await?;
    Ok(json!({
        "results": [
            { "name": "enqueue", "producers": PRODUCERS, "per_second": median(&enqueue), "rounds": enqueue },
            { "name": "bulk", "per_second": median(&bulk), "rounds": bulk },
            { "name": "drain", "per_second": median(&drain), "rounds": drain },
            { "name": "latency", "p50_ms": latency.0, "p99_ms": latency.1 },
        ],
        "ceilings": { "fsync_per_second": fsync },
        "server_resident_kib": { "idle": idle_memory, "after": loaded_memory },
    }))
}

fn rate(count: usize, begun: Instant) -> f64 {
    as_f64(count) / begun.elapsed().as_secs_f64()
}

/// Counts here are far below what a float holds exactly.
fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn median(rounds: &[f64]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[expect(clippy::print_stderr, reason = "progress of a measurement")]
fn say(text: &str) {
    eprintln!("{text}");
}
