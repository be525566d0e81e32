use std::process::{Command, Stdio};
use std::sync::mpsc;

use outlast_core::id::{Epoch, JobId};
use outlast_core::lease::in_flight_digest;
use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{BeatReply, Ending, Phase};
use outlast_sdk::{Control, Outcome, RunError, StageEvent, Summary, control};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::control::{Call, Gate};
use crate::support::{INTERVAL, Server, builder, ending, eventually, job, key, renewed, run};
use crate::unstoppable::CHILD_SERVER;

#[tokio::test]
async fn beats_say_what_is_held_and_the_list_only_when_asked() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, hello) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    gate.started_reach(2).await;
    eventually("a beat with both", || {
        server.beats().last().is_some_and(|beat| beat.in_flight == 2)
    })
    .await;
    let beat = server.beats().pop().unwrap();
    let expected =
        in_flight_digest([1_u8, 2].map(|n| (JobId(uuid::Uuid::from_bytes([n; 16])), Epoch(1))));
    assert_eq!((beat.held_digest, beat.worker_id), (expected, hello.worker_id));
    assert!(server.beats().iter().all(|beat| beat.held.is_empty()));

    server.answer_beats(|_| Ok(BeatReply { send_held: true, ..renewed() }));

    eventually("a beat with the list", || {
        server.beats().last().is_some_and(|beat| beat.held.len() == 2)
    })
    .await;
}

#[tokio::test]
async fn a_beats_answer_does_not_slow_the_beats_down() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Gate::default());
    server.answer_beats(|_| {
        let hour = 3_600_000;
        Ok(BeatReply { heartbeat_interval_ms: hour, lease_ms: hour, ..renewed() })
    });
    let (_stream, _) = server.attach(1).await;
    server.beats_reach(5).await;
}

#[tokio::test]
async fn a_beat_may_stop_an_attempt_and_order_a_drain() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    server.answer_beats(|_| {
        let mut reply = renewed();
        reply.stop = vec![key(1, 1)];
        reply.phase = Phase::Draining.into();
        Ok(reply)
    });
    stream.accept().await;
    drop(stream);
    assert_eq!(worker.result().await.unwrap().stopped, 1);
}

/// A worker on a runtime of its own, with one thread, so that a handler can block it.
fn run_apart(
    server: &Server,
    handler: impl outlast_sdk::Handler,
) -> (Control, std::thread::JoinHandle<Result<Summary, RunError>>) {
    let (control, queue) = control();
    let worker = builder(server).build().unwrap();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(worker.run(handler, queue))
    });
    (control, thread)
}

#[tokio::test]
async fn beats_go_on_while_the_runtime_is_blocked_and_tell_of_it() {
    let mut server = Server::start();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let handler = Call(move |_| {
        let _ = blocked.lock().unwrap().recv();
        Outcome::completed("1")
    });
    let (control, thread) = run_apart(&server, handler);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let long = u64::try_from(INTERVAL.as_millis()).unwrap() * 8;

    eventually("a beat tells of the loop's silence", || {
        server.beats().last().is_some_and(|beat| beat.last_poll_age_ms >= long)
    })
    .await;

    release.send(()).unwrap();
    stream.accept().await;
    control.send(StageEvent::TerminateSignal);
    drop(stream);
    thread.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_beat_that_is_not_answered_does_not_stop_the_next() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Gate::default());
    let (_stream, _) = server.attach(1).await;
    server.answer_beats(|_| Err(tonic::Status::unavailable("no")));
    let before = server.beats().len();
    server.beats_reach(before + 3).await;
}

/// A log of the application that panics at the first word of the heartbeat's thread.
struct Trap;

impl Subscriber for Trap {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!event.metadata().target().ends_with("heartbeat"), "the log is full");
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The worker of the test below, in a process of its own; without a server it has nothing to
/// show.
#[tokio::test]
async fn child_whose_heartbeat_thread_panics() {
    let Some(url) = std::env::var_os(CHILD_SERVER) else { return };
    tracing::subscriber::set_global_default(Trap).unwrap();
    let (_control, queue) = control();
    let worker = outlast_sdk::Worker::builder(url.to_str().unwrap())
        .types(["t"])
        .heartbeat_interval(INTERVAL)
        .build()
        .unwrap();
    worker.run(Gate::default(), queue).await.map_err(|error| error.to_string()).unwrap();
}

/// Its attempts were once recorded as ended by a shutdown, and the worker as drained.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "what loses a thread needs a process of its own")]
async fn the_end_of_the_heartbeat_thread_is_a_loss_and_a_failure_of_the_worker() {
    let mut server = Server::start();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "heartbeats::child_whose_heartbeat_thread_panics", "--nocapture"])
        .env(CHILD_SERVER, &server.url)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    stream.until(|said| matches!(said, Said::Reports(_)).then_some(())).await;

    server.answer_beats(|_| Err(tonic::Status::unavailable("no")));

    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), &*end.evidence_code), (Ending::Lost, "engine_killed"), "{end:?}");
    assert!(end.evidence.contains("heartbeat thread"), "{end:?}");
    let goodbye = stream
        .until(|said| match said {
            Said::Goodbye(goodbye) => Some(goodbye),
            _ => None,
        })
        .await;
    assert_eq!(goodbye.evidence_code, "engine_killed", "{goodbye:?}");
    assert!(goodbye.why.contains("heartbeat thread"), "{goodbye:?}");
    drop(stream);
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("the heartbeat thread has ended"), "{said}");
}
