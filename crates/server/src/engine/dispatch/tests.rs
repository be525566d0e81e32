use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId};
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::selector::Placement;
use outlast_core::time::{BootTime, Span};
use outlast_store::apply::limit::Limits;
use outlast_store::command::{ClassKey, Route, WorkerRole};
use outlast_store::reply::Claims;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::engine::profile::Profile;
use crate::engine::session_facts::NOT_POLLING_AFTER;
use crate::engine::sessions::{AttemptProgress, Avoided, InFlightAttempt, Session};

fn worker(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

pub(in crate::engine) fn session(n: u128, slots: u32, in_flight: u128) -> Session {
    let profile = Profile {
        role: WorkerRole::Sdk,
        queues: vec!["default".into()],
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        types: ["noop".to_owned()].into(),
    };
    let (outputs, _) = mpsc::unbounded_channel();
    let mut session = Session::new(
        (worker(n), 1),
        ("w", Arc::new(profile)),
        outputs,
        CancellationToken::new().drop_guard(),
    );
    session.slots = slots;
    for job in 0..in_flight {
        let attempt = InFlightAttempt {
            epoch: Epoch(1),
            delivered: BootTime(0),
            progress: AttemptProgress::Started,
            isolated: false,
        };
        session.in_flight.insert(JobId(Uuid::from_u128(job)), attempt);
    }
    session
}

fn known(attached: Vec<Session>, queue: &str, isolated: bool, ready: u64) -> (Sessions, Classes) {
    let key = ClassKey {
        queue: queue.into(),
        job_type: "noop".into(),
        route: Route::Plain,
        tenant: None,
        isolated,
        keyed: false,
        placement: Default::default(),
    };
    let (mut sessions, mut classes) = (Sessions::default(), Classes::default());
    classes.learn(ClassId(1), &key, BootTime(0));
    classes.add_ready(ClassId(1), ready, BootTime(0));
    for session in attached {
        sessions.insert(session);
    }
    (sessions, classes)
}

fn check((mut sessions, classes): (Sessions, Classes), expected: &[(u128, u32)]) {
    let planned = plan(&mut sessions, &classes);
    let planned: Vec<_> = planned.iter().map(|claim| (claim.worker, claim.max)).collect();
    let expected: Vec<_> = expected.iter().map(|(n, max)| (worker(*n), *max)).collect();
    assert_eq!(planned, expected);
}

#[test]
fn single_job_goes_to_the_least_loaded() {
    let sessions = vec![session(1, 10, 5), session(2, 10, 1), session(3, 10, 9)];
    check(known(sessions, "default", false, 1), &[(2, 1)]);
}

#[test]
fn many_jobs_are_shared_and_never_exceed_the_room() {
    let sessions = vec![session(1, 10, 8), session(2, 10, 0)];
    check(known(sessions, "default", false, 100), &[(2, 10), (1, 2)]);
}

#[test]
fn full_quiet_or_not_polling_sessions_get_nothing() {
    let mut quiet = session(2, 10, 0);
    quiet.running = false;
    let silent = session(3, 10, 0);
    silent.facts.set_poll_age(NOT_POLLING_AFTER);
    check(known(vec![session(1, 4, 4), quiet, silent], "default", false, 9), &[]);
}

#[test]
fn queue_that_nobody_serves_is_claimed_by_nobody() {
    check(known(vec![session(1, 10, 0)], "other", false, 9), &[]);
}

#[test]
fn prefetch_is_used_only_when_all_slots_are_taken() {
    let mut full = session(1, 2, 2);
    full.prefetch = 5;
    check(known(vec![full], "default", false, 100), &[(1, 5)]);
    let mut full = session(1, 2, 2);
    full.prefetch = 5;
    let sessions = vec![full, session(2, 2, 1)];
    check(known(sessions, "default", false, 100), &[(2, 1)]);
}

#[test]
fn isolated_job_goes_alone_to_an_idle_worker() {
    let sessions = vec![session(1, 10, 1), session(2, 10, 0)];
    check(known(sessions, "default", true, 5), &[(2, 1)]);
}

/// Each plan once found a worker for one of them.
#[test]
fn isolated_jobs_go_to_all_idle_workers_at_once() {
    let attached = (1..=5).map(|n| session(n, 10, 0)).collect();
    let (mut sessions, classes) = known(attached, "default", true, 4);
    let planned = plan(&mut sessions, &classes);
    assert!(planned.iter().all(|claim| claim.alone && claim.max == 1), "{planned:?}");
    let workers: std::collections::BTreeSet<_> = planned.iter().map(|claim| claim.worker).collect();
    assert_eq!((planned.len(), workers.len()), (4, 4));
}

/// Claims were once planned twice while they were on their way to the store.
#[test]
fn jobs_asked_for_and_not_answered_yet_take_room() {
    let mut asked = session(1, 10, 2);
    asked.pending = 7;
    check(known(vec![asked], "default", false, 100), &[(1, 1)]);
    let mut asked = session(1, 10, 0);
    asked.pending = 1;
    check(known(vec![asked], "default", true, 5), &[]);
}

fn passed_over(class: ClassId) -> Claims {
    Claims { passed_over: vec![class], ..Claims::default() }
}

#[test]
fn short_claim_proves_nothing_about_a_class_of_which_it_met_locked_jobs_only() {
    let (_, mut classes) = known(Vec::new(), "default", false, 5);
    let key = classes.get(ClassId(1)).map(|class| class.key.clone()).unwrap();
    classes.learn(ClassId(2), &ClassKey { job_type: "other".into(), ..key }, BootTime(0));
    classes.add_ready(ClassId(2), 5, BootTime(0));
    let both = [ClassId(1), ClassId(2)];
    classes.claimed(&both, &[ClassId(1)], 5, &passed_over(ClassId(2)));
    assert!(!classes.is_claimable(ClassId(1)) && classes.is_claimable(ClassId(2)));
    // The claim got nothing at all: it is repeated after a moment, not at once.
    classes.claimed(&both, &[], 5, &passed_over(ClassId(2)));
    assert!(!classes.has_claimable());
}

/// Prefetched jobs hold slots of their limits while they wait behind others: the store takes few.
#[test]
fn jobs_of_a_limit_are_prefetched_as_long_as_it_has_room_and_those_of_a_rate_never() {
    let mut prefetching = session(1, 2, 0);
    prefetching.prefetch = 10;
    prefetching.pending = 2;
    let (mut sessions, mut classes) = known(vec![prefetching], "default", false, 100);
    let limit = |concurrency, rate| -> Limits {
        let limit = Limit {
            name: LimitName::new("all").unwrap(),
            scope: Scope::Queue("default".into()),
            concurrency,
            rate,
        };
        [limit].into_iter().collect()
    };
    classes.set_limits(limit(Some(50), None));
    let planned = plan(&mut sessions, &classes);
    assert!(planned[0].is_prefetch, "{planned:?}");
    // The store has jobs for free slots only.
    let kept = Claims { kept: vec![ClassId(1)], ..Claims::default() };
    classes.claimed(&[ClassId(1)], &[ClassId(1)], 10, &kept);
    assert_eq!(plan(&mut sessions, &classes), []);
    sessions.iter_mut().for_each(|session| session.pending = 0);
    let planned = plan(&mut sessions, &classes);
    assert!(!planned[0].is_prefetch, "a free slot gets them: {planned:?}");
    sessions.iter_mut().for_each(|session| session.pending = 2);
    // The backlog was read.
    classes.set_limits(limit(Some(50), None));
    assert_eq!(plan(&mut sessions, &classes).len(), 1);
    classes.set_limits(limit(None, Rate::new(1_000, Span::from_secs(1))));
    assert_eq!(plan(&mut sessions, &classes), []);
}

fn in_zone(zone: &str, mut session: Session) -> Session {
    let mut profile = Profile::clone(&session.profile);
    profile.labels.insert("zone".into(), zone.into());
    session.profile = Arc::new(profile);
    session
}

/// Sessions, and classes of `ready` jobs each that prefer and require this.
fn placed(attached: Vec<Session>, wanted: &[(&str, &str, u64)]) -> (Sessions, Classes) {
    let (sessions, mut classes) = known(attached, "default", false, 0);
    for ((requires, prefers, ready), n) in wanted.iter().zip(2..) {
        let key = classes.get(ClassId(1)).unwrap().key.clone();
        let placement =
            Placement { requires: requires.parse().unwrap(), prefers: prefers.parse().unwrap() };
        classes.learn(ClassId(n), &ClassKey { placement, ..key }, BootTime(0));
        classes.add_ready(ClassId(n), *ready, BootTime(0));
    }
    (sessions, classes)
}

#[test]
fn jobs_go_to_workers_that_have_what_they_require() {
    let sessions = || vec![session(1, 4, 0), in_zone("a", session(2, 4, 3))];
    check(placed(sessions(), &[("zone=a", "", 9)]), &[(2, 1)]);
    check(placed(sessions(), &[("zone=b", "", 9)]), &[]);
    check(placed(sessions(), &[("!zone", "", 1)]), &[(1, 1)]);
}

#[test]
fn preferred_workers_come_first_while_they_have_room_and_no_job_waits_for_them() {
    let sessions = |busy: u128| {
        let preferred = in_zone("a", session(3, 4, busy));
        vec![session(1, 4, 0), in_zone("b", session(2, 4, 0)), preferred]
    };
    check(placed(sessions(2), &[("", "zone=a", 2)]), &[(3, 2)]);
    check(placed(sessions(3), &[("", "zone=a", 2)]), &[(1, 1), (2, 1)]);
    check(placed(sessions(4), &[("", "zone=a", 1)]), &[(1, 1)]);
    // Most of what is preferred is not what one has, but more than another.
    check(placed(sessions(0), &[("", "zone in (a, b), zone=b, gpu", 1)]), &[(2, 1)]);
    check(placed(sessions(4), &[("", "zone in (a, b), zone=c", 1)]), &[(2, 1)]);
}

fn avoided(mut session: Session, jobs: u64, waits: bool) -> Session {
    session.avoided.insert(ClassId(1), Avoided { jobs, waits });
    session
}

#[test]
fn a_retry_avoids_a_worker_while_another_has_room_and_no_other_job_waits_for_that() {
    let check = |sessions: Vec<Session>, ready: u64, expected: &[(u128, u32)]| {
        check(known(sessions, "default", false, ready), expected);
    };
    check(vec![avoided(session(1, 4, 0), 1, false), session(2, 4, 3)], 1, &[(2, 1)]);
    check(vec![avoided(session(1, 4, 0), 1, false), session(2, 4, 4)], 1, &[(1, 1)]);
    check(vec![avoided(session(1, 4, 0), 1, false)], 1, &[(1, 1)]);
    // Others wait, too: the retry is at their front and goes to the other worker.
    let both = vec![avoided(session(1, 4, 0), 1, false), session(2, 4, 3)];
    check(both, 4, &[(2, 1), (1, 2)]);
    // Both are avoided.
    let both = vec![avoided(session(1, 4, 0), 1, false), avoided(session(2, 4, 1), 1, false)];
    check(both, 2, &[(1, 1), (2, 1)]);
    // Workers of other servers get a moment, for the retries only.
    check(vec![avoided(session(1, 4, 0), 2, true)], 2, &[]);
    check(vec![avoided(session(1, 4, 0), 2, true)], 3, &[(1, 3)]);
}
