//! Workers of the SDK, with its default settings, in this process: the only file here that
//! knows the SDK.
//!
//! They have a runtime with threads of their own, as a worker's process would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_sdk::{AttemptContext, Control, Delivery, Ended, Handler, RunError, Summary, Worker};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::enqueue::PROMPT;
use super::place::Place;
use crate::clock::{self, Moment};
use crate::exit::Failure;

/// Longest time without any job being run before a drain is given up.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a worker to end after it was told to.
const STOP_MAX: Duration = Duration::from_secs(60);

/// A worker at work.
struct Hands {
    runtime: Runtime,
    control: Control,
    running: JoinHandle<Result<Summary, RunError>>,
}

impl Hands {
    fn start<H: Handler>(place: &Place, types: &[&str], handler: H) -> Result<Self, Failure> {
        let worker = Worker::builder(place.config().server.clone())
            .token(place.config().token.clone())
            .tls(place.config().tls.clone())
            .name("bench")
            .queues([place.queue()])
            .types(types.iter().copied())
            .build()
            .map_err(|error| Failure::usage(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::failed(format!("worker: {error}")))?;
        let (control, orders) = outlast_sdk::control();
        let running = runtime.spawn(worker.run(handler, orders));
        Ok(Self { runtime, control, running })
    }

    /// Lets it report what it ran, and ends it.
    async fn stop(mut self) -> Result<(), Failure> {
        self.control.terminate();
        let ended = tokio::time::timeout(STOP_MAX, &mut self.running).await;
        self.runtime.shutdown_background();
        let cannot = |what: String| Failure::failed(format!("the measuring worker {what}"));
        let ended = ended.map_err(|_elapsed| cannot("did not stop".to_owned()))?;
        let ended = ended.map_err(|error| cannot(format!("broke: {error}")))?;
        ended.map(drop).map_err(|error| cannot(format!("ended: {error}")))
    }

    /// What has gone wrong when no job comes any more.
    async fn stuck(self, what: &str) -> Failure {
        let why = match self.stop().await {
            Ok(()) => "is another worker serving the same queue?".to_owned(),
            Err(failure) => failure.message,
        };
        Failure::failed(format!("{what}: {why}"))
    }
}

/// Counts, and says when it has counted enough.
struct Counting {
    left: Arc<AtomicUsize>,
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

/// Runs so many jobs of these types; returns the time from the worker's start to the start of
/// the last handler. All are reported when it returns; if there are more jobs, a few more than
/// asked for are run before it has stopped.
pub(super) async fn drain(place: &Place, types: &[&str], jobs: usize) -> Result<Duration, Failure> {
    if jobs == 0 {
        return Ok(Duration::ZERO);
    }
    let left = Arc::new(AtomicUsize::new(jobs));
    let done = Arc::new(Notify::new());
    let handler = Counting { left: Arc::clone(&left), done: Arc::clone(&done) };
    let begun = clock::moment();
    let hands = Hands::start(place, types, handler)?;
    let mut seen = jobs;
    while tokio::time::timeout(STANDSTILL_MAX, done.notified()).await.is_err() {
        let now = left.load(Ordering::Relaxed);
        if now == seen {
            return Err(hands.stuck(&format!("{now} of {jobs} jobs were not run")).await);
        }
        seen = now;
    }
    let took = clock::moment().since(begun);
    hands.stop().await?;
    Ok(took)
}

struct Telling {
    started: mpsc::UnboundedSender<Moment>,
}

impl Handler for Telling {
    async fn run(&self, _delivery: Delivery, _context: AttemptContext) -> Ended {
        // The receiver outlives every job it waits for.
        self.started.send(clock::moment()).unwrap_or_default();
        Ended::completed("")
    }
}

/// A worker that tells when each of its jobs starts.
pub(super) struct Watch {
    hands: Hands,
    starts: mpsc::UnboundedReceiver<Moment>,
}

impl Watch {
    pub(super) fn start(place: &Place) -> Result<Self, Failure> {
        let (started, starts) = mpsc::unbounded_channel();
        let hands = Hands::start(place, &[PROMPT], Telling { started })?;
        Ok(Self { hands, starts })
    }

    /// When the next job's handler starts.
    pub(super) async fn next(&mut self) -> Option<Moment> {
        tokio::time::timeout(STANDSTILL_MAX, self.starts.recv()).await.ok().flatten()
    }

    pub(super) async fn stop(self) -> Result<(), Failure> {
        self.hands.stop().await
    }

    pub(super) async fn stuck(self) -> Failure {
        self.hands.stuck("a job was enqueued and did not start").await
    }
}
