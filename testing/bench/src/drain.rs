//! Workers: no-op handlers through the SDK, with its default settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use outlast_sdk::{AttemptContext, Delivery, Ended, Handler, Worker, control};
use tokio::sync::{Notify, mpsc};

use crate::http::Connection;

/// Longest wait for a drain or for one job.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts, and says when it has counted enough.
struct Counting {
    left: AtomicUsize,
    done: Arc<Notify>,
}

impl Handler for Counting {
    async fn run(&self, _delivery: Delivery, _context: AttemptContext) -> Ended {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
        Ended::completed("")
    }
}

/// Drains `jobs` jobs of queue `bench` with one worker of default settings; returns jobs a
/// second from its start to the last handler.
pub(crate) async fn all(address: &str, jobs: usize) -> anyhow::Result<f64> {
    let done = Arc::new(Notify::new());
    let handler = Counting { left: AtomicUsize::new(jobs), done: Arc::clone(&done) };
    let worker = Worker::builder(format!("http://{address}"))
        .name("bench")
        .queues(["bench"])
        .types(["bench.noop"])
        .build()?;
    let (control, queue) = control();
    let begun = Instant::now();
    let running = tokio::spawn(worker.run(handler, queue));
    tokio::time::timeout(PATIENCE, done.notified()).await.context("drain took too long")?;
    let rate = crate::rate(jobs, begun);
    control.terminate();
    running.await??;
    Ok(rate)
}

struct Telling {
    started: mpsc::UnboundedSender<Instant>,
}

impl Handler for Telling {
    async fn run(&self, _delivery: Delivery, _context: AttemptContext) -> Ended {
        // The receiver outlives every job it waits for.
        let _ = self.started.send(Instant::now());
        Ended::completed("")
    }
}

/// Enqueues `jobs` jobs one at a time on an idle system; returns the median and the 99th
/// percentile, in milliseconds, from sending the request to the handler's start.
pub(crate) async fn latency(address: &str, jobs: usize) -> anyhow::Result<(f64, f64)> {
    let (started, mut starts) = mpsc::unbounded_channel();
    let worker = Worker::builder(format!("http://{address}"))
        .name("latency")
        .queues(["latency"])
        .types(["bench.latency"])
        .build()?;
    let (control, queue) = control();
    let running = tokio::spawn(worker.run(Telling { started }, queue));
    let mut connection = Connection::open(address).await?;
    let job = r#"{"type":"bench.latency","args":[],"options":{"queue":"latency"}}"#;
    let mut lengths = Vec::with_capacity(jobs);
    for round in 0..jobs + 50 {
        let sent = Instant::now();
        let (status, _) = connection.post("/ojs/v1/jobs", job).await?;
        anyhow::ensure!(status == 201, "enqueue answered {status}");
        let start = tokio::time::timeout(PATIENCE, starts.recv())
            .await
            .context("job did not start")?
            .context("worker ended")?;
        // The first rounds warm connections and caches.
        if round >= 50 {
            lengths.push(start.saturating_duration_since(sent).as_secs_f64() * 1000.0);
        }
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    control.terminate();
    running.await??;
    lengths.sort_by(f64::total_cmp);
    let at = |share: usize| lengths.get(lengths.len() * share / 100).copied().unwrap_or(0.0);
    Ok((at(50), at(99)))
}
