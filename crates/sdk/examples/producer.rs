//! Enqueues a report, follows it, and prints what came of it. See the example `worker`.

use std::time::Duration;

use outlast_sdk::{BoxError, Client, EventFilter, NewJob, Retry};
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct Report {
    title: &'static str,
    rows: u32,
}

#[derive(Debug, Deserialize)]
struct Built {
    rows: u32,
    resumed_at: u32,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().init();
    let server = std::env::args().nth(1);
    let server = server.as_deref().unwrap_or("http://127.0.0.1:8080");
    let client = Client::new(server)?;

    let report = NewJob::new("report.build", Report { title: "spring", rows: 50 })
        .queue("reports")
        .timeout(Duration::from_secs(60))
        .retry(Retry::attempts(5).initial_interval(Duration::from_millis(500)))
        .meta("asked_by", "the example");
    // Stored when this returns. It may repeat itself: the key makes one job of it.
    let job = client.enqueue(report).await?;
    tracing::info!(id = %job.id, "enqueued");

    let mut events = client.events(EventFilter::default().job(job.id));
    tracing::info!(first = events.next().await?.event_type, "followed");

    let job = client.wait(job.id, Duration::from_secs(60)).await?.completed()?;
    let Built { rows, resumed_at } = job.result_as()?;
    tracing::info!(rows, resumed_at, attempt = job.attempt, "built");
    Ok(())
}
