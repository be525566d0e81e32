//! Workers of the SDK with default settings, in this process: the only file here that uses the SDK.
//!
//! They run on threads of their own, as a worker's process would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::Failure;
use outlast_sdk::{AttemptContext, Control, Delivery, Handler, Outcome, RunError, Summary, Worker};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::jobs::PROMPT;
use crate::target::Target;

/// A drain fails when no job has run for this long.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a worker to stop.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A worker that is running.
struct BenchWorker {
    runtime: Runtime,
    control: Control,
    running: JoinHandle<Result<Summary, RunError>>,
}

impl BenchWorker {
    fn start<H: Handler>(target: &Target, types: &[&str], handler: H) -> Result<Self, Failure> {
        let worker = Worker::builder(target.config().server.clone())
            .token(target.config().token.clone())
            .tls(target.config().tls.clone())
            .name("bench")
            .queues([target.queue()])
            .types(types.iter().copied())
            .build()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::failed(format!("worker: {error}")))?;
        let (control, orders) = outlast_sdk::control();
        let running = runtime.spawn(worker.run(handler, orders));
        Ok(Self { runtime, control, running })
    }

    /// Waits until it has reported its jobs, and stops it.
    async fn stop(mut self) -> Result<(), Failure> {
        self.control.terminate();
        let ended = tokio::time::timeout(STOP_MAX, &mut self.running).await;
        self.runtime.shutdown_background();
        let cannot = |what: String| Failure::failed(format!("the measuring worker {what}"));
        let ended = ended.map_err(|_elapsed| cannot("did not stop".to_owned()))?;
        let ended = ended.map_err(|error| cannot(format!("broke: {error}")))?;
        ended.map(drop).map_err(|error| cannot(format!("ended: {error}")))
    }

    /// Stops it, and says why no more jobs arrive.
    async fn stuck(self, what: &str) -> Failure {
        let why = match self.stop().await {
            Ok(()) => "is another worker serving the same queue?".to_owned(),
            Err(failure) => failure.message,
        };
        Failure::failed(format!("{what}: {why}"))
    }
}

/// Counts jobs down, and signals when none is left.
struct Counting {
    left: Arc<AtomicUsize>,
    done: Arc<Notify>,
}

impl Handler for Counting {
    async fn run(&self, _delivery: Delivery, _context: AttemptContext) -> Outcome {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
        Outcome::completed("")
    }
}

/// Runs `jobs` jobs of these types; returns the time from the worker's start to the start of
/// the last handler. All are reported when it returns; if there are more jobs, a few more than
/// asked for are run before it has stopped.
pub(crate) async fn drain(
    target: &Target,
    types: &[&str],
    jobs: usize,
) -> Result<Duration, Failure> {
    if jobs == 0 {
        return Ok(Duration::ZERO);
    }
    let left = Arc::new(AtomicUsize::new(jobs));
    let done = Arc::new(Notify::new());
    let handler = Counting { left: Arc::clone(&left), done: Arc::clone(&done) };
    let begun = clock::moment();
    let worker = BenchWorker::start(target, types, handler)?;
    let mut seen = jobs;
    while tokio::time::timeout(STANDSTILL_MAX, done.notified()).await.is_err() {
        let now = left.load(Ordering::Relaxed);
        if now == seen {
            return Err(worker.stuck(&format!("{now} of {jobs} jobs were not run")).await);
        }
        seen = now;
    }
    let took = clock::moment().since(begun);
    worker.stop().await?;
    Ok(took)
}

struct ReportStart {
    started: mpsc::UnboundedSender<Moment>,
}

impl Handler for ReportStart {
    async fn run(&self, _delivery: Delivery, _context: AttemptContext) -> Outcome {
        // The receiver outlives every job it waits for.
        self.started.send(clock::moment()).unwrap_or_default();
        Outcome::completed("")
    }
}

/// A worker that reports when each of its jobs starts.
pub(crate) struct Watch {
    worker: BenchWorker,
    starts: mpsc::UnboundedReceiver<Moment>,
}

impl Watch {
    pub(crate) fn start(target: &Target) -> Result<Self, Failure> {
        let (started, starts) = mpsc::unbounded_channel();
        let worker = BenchWorker::start(target, &[PROMPT], ReportStart { started })?;
        Ok(Self { worker, starts })
    }

    /// When the next job's handler starts.
    pub(crate) async fn next(&mut self) -> Option<Moment> {
        tokio::time::timeout(STANDSTILL_MAX, self.starts.recv()).await.ok().flatten()
    }

    pub(crate) async fn stop(self) -> Result<(), Failure> {
        self.worker.stop().await
    }

    pub(crate) async fn stuck(self) -> Failure {
        self.worker.stuck("a job was enqueued and did not start").await
    }
}
