//! Producers: each a connection of its own, each waiting for its answer.

use anyhow::Context as _;

use crate::http::Connection;

const JOB: &str = r#"{"type":"bench.noop","args":[{"n":1}],"options":{"queue":"bench"}}"#;
/// Jobs in one bulk request.
const BULK: usize = 1_000;

/// Enqueues `each` jobs from each of `producers`, one request a job.
pub(crate) async fn single(address: &str, producers: usize, each: usize) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..producers {
        let mut connection = Connection::open(address).await?;
        tasks.spawn(async move {
            for _ in 0..each {
                let (status, _) = connection.post("/ojs/v1/jobs", JOB).await?;
                anyhow::ensure!(status == 201, "enqueue answered {status}");
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("producer panicked")??;
    }
    Ok(())
}

/// Enqueues `each` jobs from each of `producers`, a thousand a request.
pub(crate) async fn bulk(address: &str, producers: usize, each: usize) -> anyhow::Result<()> {
    let jobs = vec![JOB; BULK].join(",");
    let body = format!("{{\"jobs\":[{jobs}]}}");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..producers {
        let mut connection = Connection::open(address).await?;
        let body = body.clone();
        tasks.spawn(async move {
            for _ in 0..each / BULK {
                let (status, answer) = connection.post("/ojs/v1/jobs/batch", &body).await?;
                let shown = String::from_utf8_lossy(&answer);
                anyhow::ensure!(status == 201, "bulk answered {status}: {shown:.300}");
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("producer panicked")??;
    }
    Ok(())
}
