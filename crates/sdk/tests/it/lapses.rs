use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Hello, Phase, RefusalCode};
use outlast_sdk::clock::boot_now;
use outlast_sdk::{AttemptContext, Delivery, Handler, LogStream, Outcome, StopReason};
use tokio::sync::Notify;
use tonic::Status;

use crate::control::Gate;
use crate::support::{
    LEASE, Running, Server, builder, ending, eventually, job, lapsed, number, renewed, run,
};

#[tokio::test]
async fn a_lapsed_worker_stops_what_it_held_and_registers_as_another() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, first) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    let old = first.worker_id.clone();
    server.answer_beats(move |beat| Ok(if beat.worker_id == old { lapsed() } else { renewed() }));

    let (mut stream, next) = server.attach(1).await;

    assert_ne!(next.worker_id, first.worker_id);
    assert!(!next.resumed && next.held.is_empty());
    eventually("the old attempt is stopped", || gate.stops() == [(1, StopReason::Stale)]).await;
    stream.deliver([job(2)]);
    gate.started_reach(2).await;
    gate.open();
    assert_eq!(number(&stream.accept().await.0), 2, "nothing is said about the old one");
}

#[tokio::test]
async fn a_refused_attachment_is_a_lapse_too() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Gate::default());
    let (stream, first) = server.attach(1).await;
    stream.drop_connection();
    let (stream, _) = server.hello().await;
    stream.refuse(RefusalCode::Lapsed);
    let (_, next) = server.hello().await;
    assert_ne!(next.worker_id, first.worker_id);
    assert!(!next.resumed);
}

/// A switch for a server that does not answer beats.
fn deaf_when(server: &Server) -> Arc<AtomicBool> {
    let deaf = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&deaf);
    server.answer_beats(move |_| {
        if seen.load(Ordering::SeqCst) { Err(Status::unavailable("deaf")) } else { Ok(renewed()) }
    });
    deaf
}

#[tokio::test]
async fn an_attempt_that_must_not_overlap_ends_before_the_lease_and_others_run_on() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(1).await;
    let mut forbidden = job(1);
    forbidden.overlap_forbidden = true;
    stream.deliver([forbidden, job(2)]);
    gate.started_reach(2).await;

    deaf_when(&server).store(true, Ordering::SeqCst);

    eventually("the forbidden one is stopped", || !gate.stops().is_empty()).await;
    assert_eq!(gate.stops(), [(1, StopReason::DeadlineNear)]);
    assert_eq!(gate.running(), 1);
}

#[tokio::test]
async fn nothing_is_reported_on_a_lease_that_may_have_passed() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    let deaf = deaf_when(&server);
    deaf.store(true, Ordering::SeqCst);
    let began = boot_now();
    let lease = u64::try_from(LEASE.as_millis()).unwrap();
    eventually("a lease has passed", || boot_now().since(began).as_millis() > lease).await;
    gate.open();
    eventually("the attempt ended", || gate.running() == 0).await;
    let quiet = tokio::time::timeout(LEASE, stream.finished()).await;
    assert!(quiet.is_err(), "not a word without a lease");

    deaf.store(false, Ordering::SeqCst);

    assert_eq!(ending(&stream.accept().await.1), outlast_proto::v1::Ending::Completed);
}

/// Prints when the test wants it, says so, and ends when it must.
struct Witness {
    cue: Arc<Notify>,
    printed: Arc<Notify>,
}

impl Handler for Witness {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        self.cue.notified().await;
        context.log(LogStream::Stdout, "said while away\n").await;
        self.printed.notify_one();
        context.stopped().await;
        Outcome::cancelled("told to")
    }
}

/// Runs a job whose worker lapses after the job has printed while it was away.
async fn lapses_after_it_printed(
    server: &mut Server,
    before: impl FnOnce(&Running),
) -> (Running, Hello) {
    let (cue, printed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let witness = Witness { cue: Arc::clone(&cue), printed: Arc::clone(&printed) };
    let worker = run(builder(server), witness);
    let (stream, first) = server.attach(1).await;
    stream.deliver([job(1)]);
    server.beats_reach(2).await;
    before(&worker);
    stream.drop_connection();
    let (refused, _) = server.hello().await;
    cue.notify_one();
    printed.notified().await;
    refused.refuse(RefusalCode::Lapsed);
    (worker, first)
}

/// It was dropped without a word, though it may say why the worker was away.
#[tokio::test]
async fn output_of_an_attempt_that_lapsed_is_stored_all_the_same() {
    let mut server = Server::start();
    let (_worker, first) = lapses_after_it_printed(&mut server, |_| {}).await;

    let (mut stream, next) = server.attach(1).await;
    assert_ne!(next.worker_id, first.worker_id);
    let chunk = stream
        .until(|said| match said {
            Said::Logs(logs) => logs.chunks.into_iter().next(),
            _ => None,
        })
        .await;
    assert_eq!((number(&chunk.attempt.unwrap()), &*chunk.bytes), (1, &b"said while away\n"[..]));
}

/// It was dropped without a mark when its worker was on its way out.
#[tokio::test]
async fn output_of_an_attempt_that_lapsed_in_a_drain_is_stored_before_its_worker_leaves() {
    let mut server = Server::start();
    let (worker, first) =
        lapses_after_it_printed(&mut server, |worker| worker.control.terminate()).await;

    let (mut stream, next) = server.attach(1).await;
    assert_eq!(next.phase(), Phase::Draining);
    assert_ne!(next.worker_id, first.worker_id);
    let chunk = stream
        .until(|said| match said {
            Said::Logs(logs) => logs.chunks.into_iter().next(),
            _ => None,
        })
        .await;
    assert_eq!((number(&chunk.attempt.unwrap()), &*chunk.bytes), (1, &b"said while away\n"[..]));
    stream.until(|said| matches!(said, Said::Goodbye(_)).then_some(())).await;
    drop(stream);
    worker.result().await.unwrap();
}
