use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{
    Deliveries, Hello, Phase, PhaseChange, RefusalCode, SetPhase, Verdict, order, server_message,
};
use outlast_sdk::clock::boot_now;
use outlast_sdk::{Outcome, RunError};

use crate::control::{Call, Gate};
use crate::support::{LEASE, Server, builder, ending, job, key, number, run};

#[tokio::test]
async fn a_worker_introduces_itself_offers_its_slots_and_runs_what_it_gets() {
    let mut server = Server::start();
    let worker = run(builder(&server), Call(|_| Outcome::completed("{\"ok\":true}")));
    let (mut stream, hello) = server.attach(1).await;
    assert_eq!((hello.name.as_str(), hello.role.as_str(), hello.resumed), ("tested", "sdk", false));
    assert_eq!(hello.types, ["t"]);
    let capacity = stream.until(|said| match said {
        Said::Capacity(capacity) => Some(capacity),
        _ => None,
    });
    let capacity = capacity.await;
    assert_eq!((capacity.slots, capacity.prefetch), (2, 0));

    stream.deliver([job(1)]);
    let (key, end) = stream.accept().await;

    assert_eq!(number(&key), 1);
    assert_eq!(ending(&end), outlast_proto::v1::Ending::Completed);
    assert_eq!(end.result_json, "{\"ok\":true}");
    assert!(end.tree_empty && end.ran_ms.is_some());
    worker.control.terminate();
    assert_eq!(worker.result().await.unwrap().completed, 1);
}

#[tokio::test]
async fn a_lost_session_is_attached_again_with_everything_that_is_held() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, first) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    gate.started_reach(2).await;
    stream.drop_connection();

    let (mut stream, again) = server.attach(2).await;

    assert_eq!(again.worker_id, first.worker_id);
    assert!(again.resumed);
    let mut held: Vec<_> = again.held.iter().map(number).collect();
    held.sort_unstable();
    assert_eq!(held, [1, 2]);
    gate.open();
    stream.accept().await;
    assert_eq!(gate.started().len(), 2, "nothing ran twice");
}

#[tokio::test]
async fn a_report_is_sent_again_until_it_is_answered() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Call(|_| Outcome::completed("1")));
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, first) = stream.finished().await;
    stream.drop_connection();

    let (mut stream, hello) = server.attach(2).await;
    assert_eq!(hello.held, [key(1, 1)], "an unanswered report is still held");
    let (_, second) = stream.accept().await;
    assert_eq!(first, second);
    stream.drop_connection();

    let (_stream, hello) = server.attach(3).await;
    assert_eq!(hello.held, []);
}

#[tokio::test]
async fn a_report_made_while_the_server_was_away_reaches_it() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    stream.drop_connection();
    let (mut stream, _) = server.hello().await;
    gate.open();
    crate::support::eventually("the attempt ended", || gate.running() == 0).await;

    stream.welcome(2, Vec::new());

    let (key, end) = stream.accept().await;
    assert_eq!((number(&key), ending(&end)), (1, outlast_proto::v1::Ending::Completed));
}

#[tokio::test]
async fn deliveries_of_an_older_session_are_discarded() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(7).await;
    let old = Deliveries { deliveries: vec![job(1)] };
    stream.send_as(6, server_message::Body::Deliveries(old));
    stream.deliver([job(2)]);
    gate.started_reach(1).await;
    assert_eq!(gate.started(), [2]);
}

#[tokio::test]
async fn what_the_welcome_does_not_know_is_stopped() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    gate.started_reach(2).await;
    stream.drop_connection();
    let (mut stream, _) = server.hello().await;

    stream.welcome(2, vec![key(1, 1)]);

    let (key, end) = stream.finished().await;
    assert_eq!((number(&key), ending(&end)), (1, outlast_proto::v1::Ending::Cancelled));
    stream.answer(&key, Verdict::StaleEpoch);
    assert_eq!(gate.running(), 1, "the other one goes on");
}

#[tokio::test]
async fn an_unavailable_server_is_tried_again_and_a_final_refusal_ends_the_worker() {
    let mut server = Server::start();
    let worker = run(builder(&server), Gate::default());
    let (stream, _) = server.hello().await;
    stream.refuse(RefusalCode::Unavailable);
    let (stream, again) = server.hello().await;
    assert!(!again.resumed);
    stream.refuse(RefusalCode::Version);
    match worker.result().await {
        Err(RunError::Refused(reason)) => assert_eq!(reason, "as scripted"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_known_worker_ends_nothing_that_runs() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, first) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    stream.drop_connection();
    for _ in 0..2 {
        let (stream, _) = server.hello().await;
        stream.refuse(RefusalCode::Version);
    }
    is_let_in_with_its_job(&mut server, &gate, &first).await;
}

/// The worker attaches as the one it was, and its job goes on to its end.
async fn is_let_in_with_its_job(server: &mut Server, gate: &Gate, first: &Hello) {
    let (mut stream, again) = server.attach(2).await;
    assert_eq!(again.worker_id, first.worker_id);
    assert_eq!((gate.running(), gate.stops().len()), (1, 0));
    gate.open();
    assert_eq!(number(&stream.accept().await.0), 1);
}

/// A worker that offers other types attaches again. A server that did not know its
/// token any more made it kill all that ran.
#[tokio::test]
async fn a_worker_whose_token_is_gone_when_its_packs_change_kills_nothing_within_its_lease() {
    let mut server = Server::start();
    let gate = Gate::default();
    let worker = run(builder(&server), gate.clone());
    let (stream, first) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    worker.control.offer(vec!["other".to_owned()], "{}".to_owned());
    for _ in 0..2 {
        let (stream, hello) = server.hello().await;
        assert_eq!((hello.resumed, &*hello.types), (true, &["other".to_owned()][..]));
        stream.deny();
    }
    is_let_in_with_its_job(&mut server, &gate, &first).await;
}

/// Another server may take the heartbeats of a worker that this one does not let in.
#[tokio::test]
async fn a_worker_whose_token_is_gone_keeps_its_jobs_while_its_lease_is_renewed() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    gate.started_reach(1).await;
    stream.deny();
    let (began, lease) = (boot_now(), u64::try_from(LEASE.as_millis()).unwrap());
    while boot_now().since(began).as_millis() < 2 * lease {
        server.hello().await.0.deny();
    }
    let (mut stream, _) = server.attach(2).await;
    assert_eq!((gate.running(), gate.stops().len()), (1, 0));
    gate.open();
    assert_eq!(number(&stream.accept().await.0), 1);
}

#[tokio::test]
async fn a_fault_makes_a_worker_quiet_with_the_reason_until_it_has_recovered() {
    let mut server = Server::start();
    let worker = run(builder(&server), Gate::default());
    let (mut stream, _) = server.attach(1).await;
    worker.control.fault("no process left");
    let announced = stream.until(phase_of).await;
    assert_eq!(announced.phase(), Phase::Quiet);
    assert!(announced.why.contains("no process left"), "{announced:?}");
    // A resume by others does not take a fault back.
    let resume = SetPhase { phase: Phase::Running.into(), by: "somebody".into(), standing: false };
    stream.order(order::What::Phase(resume));
    assert_eq!(stream.until(phase_of).await.phase(), Phase::Quiet);
    worker.control.recovered();
    assert_eq!(stream.until(phase_of).await.phase(), Phase::Running);
}

fn phase_of(said: Said) -> Option<PhaseChange> {
    match said {
        Said::Phase(change) => Some(change),
        _ => None,
    }
}
