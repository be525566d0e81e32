use std::collections::BTreeMap;

use outlast_core::queue::QueueSettings;
use outlast_core::selector::Placement;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_store::command::{Route, WorkerRole};
use outlast_store::queue::QueueRecord;
use outlast_store::record::Unhealthy;
use outlast_store_rules::apply::limit::Limits;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::engine::session_facts::NOT_POLLING_AFTER;
use crate::engine::sessions::{AttachedAs, Session};
use crate::engine::shared_state::SharedState;
use crate::engine::wait_reason::{self, Eligible, eligible};
use crate::handlers::InForce;

const LEASE: Span = Span::from_secs(15);

fn id(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

/// A worker as the store has it: a handler for `noop`, and this queue.
fn record(n: u128, queue: &str, standing: Standing) -> WorkerRecord {
    WorkerRecord {
        id: id(n),
        name: format!("w{n}"),
        role: WorkerRole::Sdk,
        standing,
        concurrency: 1,
        queues: vec![queue.into()],
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        last_heartbeat: Timestamp(4_000),
        created: Timestamp(1),
        updated: Timestamp(1),
        renewal: 1,
        session: 1,
        attachment: 1,
        lease: LEASE,
        lease_until: Timestamp(19_000),
        in_flight: 0,
        oldest_claim: None,
        evidence: String::new(),
        about: r#"{"types":["noop"]}"#.into(),
        plain_id: None,
        unhealthy: None,
        given: None,
        previous: None,
        followed_by: None,
        evidence_code: None,
    }
}

fn brief(of: &WorkerRecord) -> WorkerBrief {
    WorkerBrief {
        id: of.id,
        standing: of.standing,
        renewal: of.renewal,
        lease: of.lease,
        last_heartbeat: of.last_heartbeat,
        updated: of.updated,
        lapsed_holding: false,
        unhealthy: of.unhealthy.is_some(),
    }
}

fn standing(phase: Phase, liveness: Liveness) -> Standing {
    Standing { phase, liveness }
}

fn shared_by(workers: &[WorkerRecord]) -> SharedState {
    let shared = SharedState::new(BootTime(0), InForce::default());
    shared.fleet.set(workers.iter().map(brief).collect(), workers, BootTime(0));
    shared
}

fn class(queue: &str) -> ClassKey {
    ClassKey {
        queue: queue.into(),
        job_type: "noop".into(),
        route: Route::Plain,
        tenant: None,
        isolated: false,
        keyed: false,
        placement: Default::default(),
    }
}

/// Why a job waits that may run beside others.
fn reason(key: &ClassKey, shared: &SharedState) -> String {
    wait_reason::reason(key, false, shared)
}

/// Sessions of other servers count, too.
#[test]
fn a_live_worker_that_no_session_here_knows_of_makes_a_class_eligible() {
    let shared = shared_by(&[record(1, "default", Standing::NEW)]);
    assert_eq!(eligible(&class("default"), &shared), Eligible::Yes);
    assert_eq!(reason(&class("default"), &shared), "waits for its turn");
    assert_eq!(eligible(&class("other"), &shared), Eligible::No);
}

#[test]
fn whether_a_class_is_eligible_follows_the_condition_of_the_workers_that_can_run_it() {
    for (phase, liveness, expected) in [
        (Phase::Running, Liveness::Live, Eligible::Yes),
        (Phase::Running, Liveness::Suspect, Eligible::Away),
        (Phase::Quiet, Liveness::Live, Eligible::No),
        (Phase::Draining, Liveness::Live, Eligible::No),
        (Phase::Running, Liveness::Lapsed, Eligible::No),
        (Phase::Running, Liveness::Gone, Eligible::No),
    ] {
        let shared = shared_by(&[record(1, "default", standing(phase, liveness))]);
        assert_eq!(eligible(&class("default"), &shared), expected, "{phase:?} {liveness:?}");
    }
}

#[test]
fn a_reason_tells_an_unhealthy_worker_from_one_that_was_ordered_quiet() {
    let quiet = record(1, "default", standing(Phase::Quiet, Liveness::Live));
    let trouble = Unhealthy { reason: "no licence".into(), since: Timestamp(1) };
    let unhealthy = WorkerRecord { unhealthy: Some(trouble), ..quiet.clone() };
    let words = |worker| reason(&class("default"), &shared_by(&[worker]));
    assert!(words(quiet).contains(", quiet"));
    assert!(words(unhealthy).contains(", unhealthy"));
}

/// "5 not serving queue gpu" would be wrong where one lives.
#[test]
fn a_reason_counts_live_workers_and_names_the_dead_that_could() {
    let gone = standing(Phase::Running, Liveness::Gone);
    let mut workers = vec![record(1, "default", Standing::NEW)];
    workers.extend((2..=5).map(|n| record(n, "default", gone)));
    let words = reason(&class("gpu"), &shared_by(&workers));
    assert_eq!(words, "no eligible worker: 1 not serving queue gpu");
    workers.push(record(6, "gpu", gone));
    let words = reason(&class("gpu"), &shared_by(&workers));
    assert!(words.ends_with("1 worker with a handler for noop is inactive"), "{words}");
    let words = reason(&class("gpu"), &shared_by(&[]));
    assert_eq!(words, "no eligible worker: no live worker has a handler for noop");
}

fn labelled(n: u128, labels: &[(&str, &str)]) -> WorkerRecord {
    let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    WorkerRecord { labels, ..record(n, "default", Standing::NEW) }
}

fn requiring(requires: &str) -> ClassKey {
    let placement = Placement { requires: requires.parse().unwrap(), ..Placement::default() };
    ClassKey { placement, ..class("default") }
}

#[test]
fn a_reason_names_what_no_live_worker_has_that_is_required() {
    let mut workers =
        vec![labelled(1, &[("zone", "a")]), labelled(2, &[("zone", "b"), ("spot", "")])];
    let shared = shared_by(&workers);
    let words = |requires: &str| reason(&requiring(requires), &shared);
    for (requires, why) in [
        ("gpu=true", "2 live workers, neither has gpu=true"),
        ("gpu, zone in (a, b)", "2 live workers, neither has gpu"),
        ("zone=a, spot", "2 live workers, neither has all of spot, zone=a"),
        ("zone notin (a, b)", "2 live workers, neither matches zone notin (a,b)"),
    ] {
        assert_eq!(words(requires), format!("no eligible worker: {why}"));
    }
    assert_eq!(words("zone=a, !spot"), "waits for its turn");
    workers.push(labelled(3, &[]));
    workers.push(record(4, "other", Standing::NEW));
    let shared = shared_by(&workers);
    let words = |requires: &str| reason(&requiring(requires), &shared);
    assert_eq!(
        words("pool=gpu"),
        "no eligible worker: 1 not serving queue default, 3 live workers, none has pool=gpu"
    );
    assert_eq!(words("!zone"), "waits for its turn");
    let one = shared_by(&workers[..1]);
    let words = |requires: &str| reason(&requiring(requires), &one);
    assert_eq!(words("gpu"), "no eligible worker: 1 live worker without gpu");
    assert_eq!(words("!zone"), "no eligible worker: 1 live worker, which does not match !zone");
}

/// Makes a queue ask something of workers.
fn set_queue(shared: &SharedState, requires: &str) {
    let placement = Placement { requires: requires.parse().unwrap(), ..Placement::default() };
    let record = QueueRecord {
        queue: "default".into(),
        settings: QueueSettings { placement, ..QueueSettings::default() },
        set_by: "operator".into(),
        set_at: Timestamp(0),
    };
    shared.set_limits(Limits::of(Vec::new(), vec![record]));
}

#[test]
fn what_a_queue_requires_counts_as_if_its_jobs_did_and_the_reason_names_the_queue() {
    let workers = [labelled(1, &[("zone", "a")]), labelled(2, &[("zone", "b"), ("spot", "")])];
    let shared = shared_by(&workers);
    let words = || reason(&class("default"), &shared);
    assert_eq!(words(), "waits for its turn");
    for (requires, why) in [
        ("gpu=true", "2 live workers, neither has gpu=true"),
        ("zone=a, spot", "2 live workers, neither has all of spot, zone=a"),
        ("!zone", "2 live workers, neither matches !zone"),
    ] {
        set_queue(&shared, requires);
        assert_eq!(eligible(&class("default"), &shared), Eligible::No, "{requires}");
        let why = format!("no eligible worker: {why} (required by queue default)");
        assert_eq!(words(), why);
        assert_eq!(
            reason(&class("other"), &shared),
            "no eligible worker: 2 not serving queue other"
        );
    }
    set_queue(&shared, "zone=a");
    assert_eq!(words(), "waits for its turn");
    // One lacks what the job wants, the other what its queue wants.
    assert_eq!(
        reason(&requiring("spot"), &shared),
        "no eligible worker: 1 live worker without spot, 1 live worker without zone=a (required by \
         queue default)"
    );
    let clients = shared_by(&[]);
    clients.long_polls.elsewhere("default".into(), None, boot_time());
    for (requires, expected) in [("!spot", Eligible::Yes), ("gpu", Eligible::No)] {
        set_queue(&clients, requires);
        assert_eq!(eligible(&class("default"), &clients), expected, "{requires}");
    }
    let words = reason(&class("default"), &clients);
    assert!(words.ends_with(", clients that fetch from queue default have no labels"), "{words}");
}

#[test]
fn an_action_is_lacking_where_a_worker_fits_but_for_it() {
    let runtime = "python".into();
    let route = Route::Action { runtime, labels: BTreeMap::new(), proof: false };
    let key = ClassKey { job_type: "shop.import".into(), route, ..class("default") };
    let offering = |types: &str| {
        let about = format!(r#"{{"types":[{types}]}}"#);
        let mut worker = WorkerRecord { about, ..labelled(1, &[]) };
        worker.role = WorkerRole::Action;
        worker.runtimes = vec!["python".into()];
        shared_by(&[worker])
    };
    let lacks = |shared: &SharedState| wait_reason::lacks_action(&key, shared);
    assert!(lacks(&offering(r#""shop.export""#)));
    assert!(!lacks(&offering(r#""shop.import""#)));
    assert!(!lacks(&shared_by(&[])), "no worker at all");
}

#[test]
fn workers_match_by_what_is_known_about_them_and_plain_clients_by_nothing() {
    let about = r#"{"types":["noop"],"version":"1.2.3","containment":"pidns"}"#;
    let said = [("pool", "gpu"), ("containment", "none"), ("runtime/node", "true")];
    let mut worker = WorkerRecord { about: about.into(), ..labelled(1, &said) };
    worker.runtimes = vec!["python".into()];
    let shared = shared_by(&[worker]);
    for (requires, expected) in [
        ("pool=gpu, outlast_version=1.2.3, version=1.2.3, containment=pidns", Eligible::Yes),
        ("runtime/python", Eligible::Yes),
        ("runtime/node", Eligible::No),
    ] {
        assert_eq!(eligible(&requiring(requires), &shared), expected, "{requires}");
    }
    let shared = shared_by(&[]);
    shared.long_polls.elsewhere("default".into(), None, boot_time());
    assert_eq!(eligible(&requiring("!spot"), &shared), Eligible::Yes);
    assert_eq!(eligible(&requiring("gpu"), &shared), Eligible::No);
    let words = reason(&requiring("gpu"), &shared);
    assert!(words.ends_with(", clients that fetch from queue default have no labels"), "{words}");
}

#[test]
fn what_is_found_of_a_class_holds_until_the_profiles_change() {
    let mut workers = vec![record(1, "default", Standing::NEW)];
    let shared = shared_by(&workers);
    assert_eq!(eligible(&class("gpu"), &shared), Eligible::No);
    // A beat is no news.
    workers[0].renewal += 1;
    shared.fleet.set(workers.iter().map(brief).collect(), &[], BootTime(0));
    assert_eq!(shared.fleet.crews().fits.lock().unwrap().len(), 1);
    let new = record(2, "gpu", Standing::NEW);
    assert_eq!(shared.fleet.unknown(&[brief(&workers[0]), brief(&new)]), [id(2)]);
    shared.fleet.set(vec![brief(&workers[0]), brief(&new)], &[new], BootTime(0));
    assert_eq!(eligible(&class("gpu"), &shared), Eligible::Yes);
    // It registers again, with something else.
    let mut other = record(2, "mail", Standing::NEW);
    other.updated = Timestamp(2);
    assert_eq!(shared.fleet.unknown(&[brief(&other)]), [id(2)]);
    shared.fleet.set(vec![brief(&workers[0]), brief(&other)], &[other], BootTime(0));
    assert_eq!(eligible(&class("gpu"), &shared), Eligible::No);
}

#[test]
fn sessions_here_are_known_at_once_and_show_whether_they_poll() {
    let shared = shared_by(&[]);
    let profile = shared.fleet.intern(Profile::of(&record(1, "default", Standing::NEW)));
    let (outputs, _produced) = mpsc::unbounded_channel();
    let closer = CancellationToken::new().drop_guard();
    let mut session =
        Session::new(AttachedAs { worker: id(1), number: 1, name: "w1" }, profile, outputs, closer);
    shared.fleet.attached(Arc::clone(&session.facts));
    assert_eq!(eligible(&class("default"), &shared), Eligible::Yes);
    assert!(
        session.facts.set_poll_age(NOT_POLLING_AFTER)
            && !session.facts.set_poll_age(NOT_POLLING_AFTER)
    );
    shared.fleet.changed();
    let words = reason(&class("default"), &shared);
    assert_eq!(words, "no eligible worker: w1 beats but has not polled for 10 s");
    assert!(session.facts.set_poll_age(Span::ZERO));
    session.set_running(false);
    shared.fleet.changed();
    assert_eq!(eligible(&class("default"), &shared), Eligible::No);
    shared.fleet.detached(id(1));
    let words = reason(&class("default"), &shared);
    assert_eq!(words, "no eligible worker: no live worker has a handler for noop");
}

/// A server to which the worker was not attached used to say that the job waits for its turn.
#[test]
fn a_worker_that_does_not_poll_at_another_server_is_not_eligible_here_either() {
    let shared = shared_by(&[record(1, "default", Standing::NEW)]);
    let words = || reason(&class("default"), &shared);
    let now = boot_time();
    shared.fleet.polled(id(1), NOT_POLLING_AFTER, now);
    assert_eq!(words(), "no eligible worker: w1 beats but has not polled for 10 s");
    shared.fleet.polled(id(1), Span::ZERO, now);
    assert_eq!(words(), "waits for its turn");
    // A server that is gone signals no more.
    let long_ago = BootTime(now.0.saturating_sub(LEASE.0));
    shared.fleet.polled(id(1), NOT_POLLING_AFTER, long_ago);
    assert_eq!(words(), "waits for its turn");
    // It attaches here; and loses its session while it does not poll.
    let profile = shared.fleet.intern(Profile::of(&record(1, "default", Standing::NEW)));
    let session = |number| {
        let (outputs, _produced) = mpsc::unbounded_channel();
        let closer = CancellationToken::new().drop_guard();
        let of = AttachedAs { worker: id(1), number, name: "w1" };
        Session::new(of, Arc::clone(&profile), outputs, closer)
    };
    let stuck = session(1);
    assert!(shared.fleet.attached(Arc::clone(&stuck.facts)), "the hint is taken back");
    assert_eq!(eligible(&class("default"), &shared), Eligible::Yes);
    stuck.facts.set_poll_age(NOT_POLLING_AFTER);
    shared.fleet.detached(id(1));
    assert_eq!(words(), "no eligible worker: w1 beats but has not polled for 10 s");
    assert_eq!(eligible(&class("default"), &shared), Eligible::Away, "no job is failed for it");
    assert!(shared.fleet.attached(Arc::clone(&session(2).facts)), "the hint is taken back");
    assert_eq!(words(), "waits for its turn");
}

/// Containment is part of what makes a worker eligible.
#[test]
fn a_class_that_needs_proof_of_death_fits_only_workers_whose_containment_gives_it() {
    for (labels, about, fits) in [
        ("", r#"{"containment":"pidns","types":["a.b"]}"#, true),
        ("", r#"{"containment":"subreaper","types":["a.b"]}"#, false),
        // What it says of itself as a label is not what it found.
        ("pidns", r#"{"containment":"subreaper","types":["a.b"]}"#, false),
        ("pidns", r#"{"types":["a.b"]}"#, false),
    ] {
        let mut worker = record(1, "default", Standing::NEW);
        (worker.role, worker.about) = (WorkerRole::Action, about.into());
        worker.runtimes = vec!["shell".into()];
        if !labels.is_empty() {
            worker.labels = [("containment".to_owned(), labels.to_owned())].into();
        }
        let class = |proof| ClassKey {
            job_type: "a.b".into(),
            route: Route::Action { runtime: "shell".into(), labels: BTreeMap::new(), proof },
            ..class("default")
        };
        let shared = shared_by(&[worker]);
        assert_eq!(eligible(&class(false), &shared), Eligible::Yes, "{about}");
        assert_eq!(eligible(&class(true), &shared) == Eligible::Yes, fits, "{about}");
    }
}
