//! A worker with two handlers. Beside it run `outlast dev`, then the example `producer`.

use std::time::Duration;

use outlast_sdk::{BoxError, HandlerError, JobContext, Worker};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Report {
    title: String,
    rows: u32,
}

#[derive(Serialize)]
struct Built {
    rows: u32,
    resumed_at: u32,
}

/// Async: many of these run at the same time on a few threads.
async fn build_report(report: Report, job: JobContext) -> Result<Built, BoxError> {
    if report.rows == 0 {
        // No other attempt could do better.
        return Err(HandlerError::permanent("empty_report", "a report has rows").into());
    }
    let resumed_at = job.last_checkpoint()?.unwrap_or(0);
    for row in resumed_at..report.rows {
        tokio::select! {
            // The job was cancelled, or this process must end: the next attempt goes on.
            () = job.cancelled() => return Err("stopped between two rows".into()),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        job.checkpoint(&(row + 1))?;
        job.progress(f64::from(row + 1) / f64::from(report.rows), &report.title);
    }
    Ok(Built { rows: report.rows, resumed_at })
}

/// Blocking: each has a thread of its own.
fn count_lines(path: String, _job: JobContext) -> Result<usize, BoxError> {
    Ok(std::fs::read_to_string(path)?.lines().count())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().init();
    let server = std::env::args().nth(1);
    let server = server.as_deref().unwrap_or("http://127.0.0.1:8080");
    let worker = Worker::builder(server)
        .name("reports")
        .queues(["reports"])
        .concurrency(4)
        .heartbeat_interval(Duration::from_secs(1))
        .shutdown_timeout(Duration::from_secs(20))
        .handle("report.build", build_report)
        .handle_blocking("file.count_lines", count_lines)
        .build()?;
    // Until SIGTERM or SIGINT: then what runs may finish; a second one ends it at once.
    let summary = worker.run_with_signals().await?;
    tracing::info!(?summary, "worker has left");
    Ok(())
}
