use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::id::{Epoch, JobId};
use outlast_core::time::BootTime;
use outlast_store::command::{ClassKey, Route, WorkerRole};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::engine::profile::Profile;
use crate::engine::roster::{DEAF_AFTER, HeldHere, HeldProgress, Session};

fn worker(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

fn session(n: u128, slots: u32, held: u128) -> Session {
    let profile = Profile {
        role: WorkerRole::Sdk,
        queues: vec!["default".into()],
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        types: ["noop".to_owned()].into(),
    };
    let (push, _) = mpsc::unbounded_channel();
    let mut session = Session::new(
        (worker(n), 1),
        ("w", Arc::new(profile)),
        push,
        CancellationToken::new().drop_guard(),
    );
    session.slots = slots;
    for job in 0..held {
        let attempt = HeldHere {
            epoch: Epoch(1),
            delivered: BootTime(0),
            progress: HeldProgress::Started,
            isolated: false,
        };
        session.held.insert(JobId(Uuid::from_u128(job)), attempt);
    }
    session
}

fn roster(sessions: Vec<Session>, queue: &str, isolated: bool, ready: u64) -> Roster {
    let key = ClassKey {
        queue: queue.into(),
        job_type: "noop".into(),
        route: Route::Plain,
        tenant: None,
        isolated,
    };
    let mut roster = Roster::default();
    roster.learn(ClassId(1), &key, BootTime(0));
    roster.add_ready(ClassId(1), ready, BootTime(0));
    for session in sessions {
        roster.sessions.insert(session.worker, session);
    }
    roster
}

fn check(roster: &mut Roster, expected: &[(u128, u32)]) {
    let planned: Vec<_> = plan(roster).iter().map(|claim| (claim.worker, claim.max)).collect();
    let expected: Vec<_> = expected.iter().map(|(n, max)| (worker(*n), *max)).collect();
    assert_eq!(planned, expected);
}

#[test]
fn single_job_goes_to_the_least_loaded() {
    let sessions = vec![session(1, 10, 5), session(2, 10, 1), session(3, 10, 9)];
    check(&mut roster(sessions, "default", false, 1), &[(2, 1)]);
}

#[test]
fn many_jobs_are_shared_and_never_exceed_the_room() {
    let sessions = vec![session(1, 10, 8), session(2, 10, 0)];
    check(&mut roster(sessions, "default", false, 100), &[(2, 10), (1, 2)]);
}

#[test]
fn full_quiet_or_deaf_sessions_get_nothing() {
    let mut quiet = session(2, 10, 0);
    quiet.running = false;
    let deaf = session(3, 10, 0);
    deaf.facts.polled(DEAF_AFTER);
    check(&mut roster(vec![session(1, 4, 4), quiet, deaf], "default", false, 9), &[]);
}

#[test]
fn queue_that_nobody_serves_is_claimed_by_nobody() {
    check(&mut roster(vec![session(1, 10, 0)], "other", false, 9), &[]);
}

#[test]
fn prefetch_is_used_only_when_all_slots_are_taken() {
    let mut full = session(1, 2, 2);
    full.prefetch = 5;
    check(&mut roster(vec![full], "default", false, 100), &[(1, 5)]);
    let mut full = session(1, 2, 2);
    full.prefetch = 5;
    let sessions = vec![full, session(2, 2, 1)];
    check(&mut roster(sessions, "default", false, 100), &[(2, 1)]);
}

#[test]
fn isolated_job_goes_alone_to_an_idle_worker() {
    let sessions = vec![session(1, 10, 1), session(2, 10, 0)];
    check(&mut roster(sessions, "default", true, 5), &[(2, 1)]);
}

/// Claims were once planned twice while they were on their way to the store.
#[test]
fn jobs_asked_for_and_not_answered_yet_take_room() {
    let mut asked = session(1, 10, 2);
    asked.pending = 7;
    check(&mut roster(vec![asked], "default", false, 100), &[(1, 1)]);
    let mut asked = session(1, 10, 0);
    asked.pending = 1;
    check(&mut roster(vec![asked], "default", true, 5), &[]);
}

#[test]
fn short_claim_proves_nothing_about_a_class_of_which_it_met_locked_jobs_only() {
    let mut roster = roster(vec![session(1, 10, 0)], "default", false, 5);
    let other = ClassKey { job_type: "other".into(), ..roster.classes[&ClassId(1)].key.clone() };
    roster.learn(ClassId(2), &other, BootTime(0));
    roster.add_ready(ClassId(2), 5, BootTime(0));
    let both = [ClassId(1), ClassId(2)];
    roster.claimed(&both, &[ClassId(1)], 5, &[ClassId(2)]);
    assert_eq!(roster.waiting, [ClassId(2)].into());
    // Nothing was had at all: it is asked for again after a moment, not at once.
    roster.claimed(&both, &[], 5, &[ClassId(2)]);
    assert!(roster.waiting.is_empty());
}
