use std::time::Duration;

use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Ending, Phase, SetPhase, order};
use outlast_sdk::{AttemptContext, Delivery, Handler, Outcome, StageEvent, StopReason};

use crate::control::Gate;
use crate::support::{Server, Stream, builder, ending, eventually, job, number, run};

async fn phase(stream: &mut Stream) -> Phase {
    stream
        .until(|said| match said {
            Said::Phase(change) => Some(change.phase()),
            _ => None,
        })
        .await
}

#[tokio::test]
async fn a_quiet_worker_offers_nothing_and_hands_back_what_comes_anyway() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;

    worker.control.send(StageEvent::StopSignal);
    let offered = stream
        .until(|said| match said {
            Said::Capacity(capacity) if capacity.slots == 0 => Some(capacity),
            _ => None,
        })
        .await;
    assert_eq!(offered.prefetch, 0);
    assert_eq!(phase(&mut stream).await, Phase::Quiet);
    stream.deliver([job(2)]);
    let (key, end) = stream.accept().await;
    assert_eq!((number(&key), ending(&end), end.ran_ms), (2, Ending::NotStarted, None));

    worker.control.send(StageEvent::ContinueSignal);
    assert_eq!(phase(&mut stream).await, Phase::Running);
    assert_eq!(gate.started(), [1]);
}

#[tokio::test]
async fn an_ordered_quiet_is_not_undone_by_a_signal() {
    let mut server = Server::start();
    let worker = run(builder(&server), Gate::default());
    let (mut stream, _) = server.attach(1).await;
    let set = |phase: Phase| {
        order::What::Phase(SetPhase { phase: phase.into(), by: "ann".into(), standing: false })
    };
    stream.order(set(Phase::Quiet));
    assert_eq!(phase(&mut stream).await, Phase::Quiet);
    worker.control.send(StageEvent::ContinueSignal);
    stream.deliver([job(1)]);
    assert_eq!(ending(&stream.accept().await.1), Ending::NotStarted);
    stream.order(set(Phase::Running));
    assert_eq!(phase(&mut stream).await, Phase::Running);
}

#[tokio::test]
async fn a_drain_lets_attempts_end_beats_on_and_says_goodbye_last() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;

    worker.control.terminate();
    assert_eq!(phase(&mut stream).await, Phase::Draining);
    let before = server.beats().len();
    server.beats_reach(before + 3).await;
    gate.open();
    let (_, end) = stream.accept().await;
    assert_eq!(ending(&end), Ending::Completed);
    let why = stream
        .until(|said| match said {
            Said::Goodbye(goodbye) => Some(goodbye.why),
            _ => None,
        })
        .await;
    assert_eq!(why, "drained");
    drop(stream);

    let summary = worker.result().await.unwrap();
    assert_eq!((summary.completed, summary.unanswered), (1, 0));
    let last = server.beats().pop().unwrap();
    assert_eq!((last.phase(), last.in_flight), (Phase::Draining, 0));
}

#[tokio::test]
async fn what_outlasts_the_grace_is_interrupted() {
    let mut server = Server::start();
    let gate = Gate::default();
    let grace = Duration::from_millis(200);
    let worker = run(builder(&server).shutdown_timeout(grace), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    worker.control.terminate();
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Interrupted, "shutdown"));
    assert_eq!(gate.stops(), [(1, StopReason::Interrupted)]);
    drop(stream);
    assert_eq!(worker.result().await.unwrap().interrupted, 1);
}

#[tokio::test]
async fn the_second_signal_forces_and_the_third_leaves_at_once() {
    let mut server = Server::start();
    let worker = run(builder(&server).force_window(Duration::from_secs(60)), Deaf);
    let (mut stream, _) = server.attach(1).await;
    let mut once = job(1);
    once.max_attempts = 1;
    stream.deliver([once]);
    stream.until(|said| matches!(said, Said::Reports(_)).then_some(())).await;
    worker.control.terminate();
    worker.control.terminate();
    assert_eq!(phase(&mut stream).await, Phase::Draining);
    worker.control.terminate();
    assert!(worker.result().await.unwrap().left_at_once);
}

#[tokio::test]
async fn a_handler_that_hears_nothing_is_dropped_in_the_end() {
    let mut server = Server::start();
    let builder = builder(&server)
        .shutdown_timeout(Duration::from_millis(50))
        .stop_window(Duration::from_millis(200));
    let worker = run(builder, Deaf);
    let (mut stream, _) = server.attach(1).await;
    let mut once = job(1);
    once.max_attempts = 1;
    stream.deliver([once]);
    stream.until(|said| matches!(said, Said::Reports(_)).then_some(())).await;
    worker.control.terminate();
    let (_, end) = stream.accept().await;
    assert_eq!(ending(&end), Ending::Interrupted);
    drop(stream);
    assert_eq!(worker.result().await.unwrap().interrupted, 1);
}

#[tokio::test]
async fn a_drain_ends_in_bounded_time_though_nobody_answers() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    drop(stream);
    drop(server);
    worker.control.terminate();
    gate.open();
    assert_eq!(worker.result().await.unwrap().unanswered, 1);
}

#[tokio::test]
async fn a_worker_without_its_guardian_ends_everything_and_fails() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    worker.control.send(StageEvent::GuardianGone);
    let (_, end) = stream.accept().await;
    // A loss, and no interruption by a shutdown.
    assert_eq!((ending(&end), &*end.evidence_code), (Ending::Lost, "guardian_killed"));
    eventually("it was forced", || gate.stops() == [(1, StopReason::Forced)]).await;
    drop(stream);
    assert!(worker.result().await.is_err());
}

/// Never ends by itself.
struct Deaf;

impl Handler for Deaf {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        context.started();
        std::future::pending().await
    }
}
