//! Work that outlives its handler, and checkpoints that outrun the link.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Ending, Report, StopAttempt, order, report};
use outlast_sdk::{AttemptContext, Delivery, Handler, LEASE_OVER_EXIT_CODE, Outcome};
use tonic::Status;

use crate::support::{Server, Stream, builder, ending, eventually, job, key, number, run};

/// Hands the context of job one to another thread, and returns at once.
#[derive(Clone, Default)]
struct Leaver {
    left: Arc<Mutex<Vec<AttemptContext>>>,
}

impl Handler for Leaver {
    async fn run(&self, delivery: Delivery, context: AttemptContext) -> Outcome {
        if delivery.attempt.job.0.as_bytes()[0] == 1 {
            self.left.lock().unwrap().push(context);
        }
        Outcome::completed("1")
    }
}

#[tokio::test]
async fn an_end_is_not_called_proved_while_work_of_the_attempt_goes_on() {
    let mut server = Server::start();
    let handler = Leaver::default();
    let _worker = run(builder(&server), handler.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.tree_empty), (Ending::Completed, false));
    assert!(handler.left.lock().unwrap()[0].is_over());
}

#[tokio::test]
async fn where_overlap_is_forbidden_the_end_is_told_when_the_work_has_ended() {
    let mut server = Server::start();
    let handler = Leaver::default();
    let _worker = run(builder(&server), handler.clone());
    let (mut stream, _) = server.attach(1).await;
    let mut forbidden = job(1);
    forbidden.overlap_forbidden = true;
    stream.deliver([forbidden]);
    eventually("it is over", || {
        handler.left.lock().unwrap().first().is_some_and(AttemptContext::is_over)
    })
    .await;
    // What is reported before it cannot be its end: another job ends first.
    stream.deliver([job(2)]);
    let (first, _) = stream.accept().await;
    assert_eq!(number(&first), 2);
    handler.left.lock().unwrap().clear();
    let (second, end) = stream.accept().await;
    assert_eq!((number(&second), ending(&end), end.tree_empty), (1, Ending::Completed, true));
}

/// Leaves the context of job one with others, and does not stop.
#[derive(Clone, Default)]
struct Deaf {
    left: Leaver,
}

impl Handler for Deaf {
    async fn run(&self, delivery: Delivery, context: AttemptContext) -> Outcome {
        let is_first = delivery.attempt.job.0.as_bytes()[0] == 1;
        let outcome = self.left.run(delivery, context).await;
        if is_first { std::future::pending().await } else { outcome }
    }
}

impl Deaf {
    fn with_first<T>(&self, look: impl Fn(&AttemptContext) -> T) -> Option<T> {
        self.left.left.lock().unwrap().first().map(look)
    }

    /// Job one is cancelled, and its handler was dropped.
    async fn cancelled(&self, stream: &mut Stream) {
        stream.deliver([job(1)]);
        eventually("it runs", || self.with_first(|_| ()).is_some()).await;
        let stop = StopAttempt { attempt: Some(key(1, 1)), why: "cancelled".into() };
        stream.order(order::What::Stop(stop));
        eventually("it is over", || self.with_first(AttemptContext::is_over) == Some(true)).await;
    }
}

#[tokio::test]
async fn a_cancelled_attempt_has_ended_when_its_work_has() {
    let mut server = Server::start();
    let handler = Deaf::default();
    let stops_fast = builder(&server).stop_window(Duration::from_millis(50));
    let _worker = run(stops_fast, handler.clone());
    let (mut stream, _) = server.attach(1).await;
    handler.cancelled(&mut stream).await;
    // What is reported before it cannot be its end: another job ends first.
    stream.deliver([job(2)]);
    let (first, _) = stream.accept().await;
    assert_eq!(number(&first), 2);
    handler.left.left.lock().unwrap().clear();
    let (second, end) = stream.accept().await;
    assert_eq!((number(&second), ending(&end), end.tree_empty), (1, Ending::Interrupted, true));
}

#[tokio::test]
async fn a_drain_does_not_wait_for_ever_for_work_of_a_cancelled_attempt() {
    let mut server = Server::start();
    let handler = Deaf::default();
    let stops_fast = builder(&server)
        .stop_window(Duration::from_millis(50))
        .shutdown_timeout(Duration::from_millis(50));
    let worker = run(stops_fast, handler.clone());
    let (mut stream, _) = server.attach(1).await;
    handler.cancelled(&mut stream).await;
    worker.control.terminate();
    let (only, end) = stream.accept().await;
    assert_eq!((number(&only), ending(&end), end.tree_empty), (1, Ending::Interrupted, false));
    drop(stream);
    worker.result().await.unwrap();
    assert_eq!(handler.with_first(AttemptContext::is_over), Some(true), "its work goes on");
}

#[tokio::test]
async fn a_worker_may_refuse_jobs_that_forbid_overlap() {
    let mut server = Server::start();
    let _worker = run(builder(&server).refuse_overlap_forbidden(), Leaver::default());
    let (mut stream, _) = server.attach(1).await;
    let mut forbidden = job(1);
    forbidden.overlap_forbidden = true;
    stream.deliver([forbidden]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Failed, "overlap_refused"));
    assert!(end.not_retryable && end.ran_ms.is_none());
}

/// Writes checkpoints without a pause, then fails.
struct Scribbler;

const WRITTEN: u32 = 20_000;

impl Handler for Scribbler {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        for n in 0..WRITTEN {
            assert!(context.checkpoint(n.to_le_bytes().to_vec()));
            if n % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Outcome::failed("done", "with writing")
    }
}

#[tokio::test]
async fn of_many_checkpoints_few_are_sent_and_the_last_is_never_lost() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Scribbler);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let mut sent = 0;
    let end = stream
        .until(|said| {
            let Said::Reports(batch) = said else { return None };
            batch.reports.into_iter().find_map(|Report { what, .. }| match what {
                Some(report::What::Finished(end)) => Some(end),
                Some(report::What::Checkpoint(_)) => {
                    sent += 1;
                    None
                }
                _ => None,
            })
        })
        .await;
    assert_eq!(end.checkpoint, (WRITTEN - 1).to_le_bytes().to_vec());
    assert!(sent < WRITTEN / 10, "{sent} of {WRITTEN} were sent");
}

/// Works on a thread that cannot be ended, and sends it nothing.
struct Blocker;

impl Handler for Blocker {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        std::thread::spawn(move || {
            let _context = context;
            loop {
                std::thread::park();
            }
        });
        std::future::pending().await
    }
}

pub(crate) const CHILD_SERVER: &str = "OUTLAST_TEST_CHILD_SERVER";

/// The worker of the test below, in a process of its own; without a server it has nothing to
/// show.
#[tokio::test]
async fn child_that_serves_a_blocker() {
    let Some(url) = std::env::var_os(CHILD_SERVER) else { return };
    let (_control, queue) = outlast_sdk::control();
    let worker = outlast_sdk::Worker::builder(url.to_str().unwrap())
        .types(["t"])
        .heartbeat_interval(crate::support::INTERVAL)
        .build()
        .unwrap();
    let _ = worker.run(Blocker, queue).await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "what ends its own process needs one of its own")]
async fn a_process_ends_itself_before_an_attempt_that_forbids_overlap_outlives_its_lease() {
    let mut server = Server::start();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "unstoppable::child_that_serves_a_blocker", "--nocapture"])
        .env(CHILD_SERVER, &server.url)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (mut stream, _) = server.attach(1).await;
    let mut forbidden = job(1);
    forbidden.overlap_forbidden = true;
    forbidden.max_attempts = 1;
    stream.deliver([forbidden]);
    stream.until(|said| matches!(said, Said::Reports(_)).then_some(())).await;
    assert!(child.try_wait().unwrap().is_none(), "it lives while its lease is renewed");

    server.answer_beats(|_| Err(Status::unavailable("deaf")));

    let mut status = None;
    eventually("the process ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().code(), Some(LEASE_OVER_EXIT_CODE));
}
