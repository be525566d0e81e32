use outlast_store::command::{ClassKey, Route};
use outlast_store::reply::{Blocked, Claims};
use uuid::Uuid;

use super::*;
use crate::clock::boot_time;
use crate::engine::dispatch::plan;
use crate::engine::dispatch::tests::{claim, idle_and_unable, session};
use crate::engine::estimate::Estimate;
use crate::engine::sessions::Alone;

const ALONE: ClassId = ClassId(1);
const OTHER: ClassId = ClassId(2);
const NOW: BootTime = BootTime(1_000);

fn worker(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

fn learn(classes: &mut Classes, id: ClassId, isolated: bool, ready: u64) {
    let key = ClassKey {
        queue: "default".into(),
        job_type: "noop".into(),
        route: Route::Plain,
        tenant: isolated.then(|| id.0.to_string()),
        isolated,
        keyed: false,
        placement: Default::default(),
    };
    classes.learn(id, &key, NOW);
    classes.add_ready(id, ready, NOW);
}

/// A fleet of three that is full, and always will be: a job that must run alone, and many others.
fn full_fleet() -> (Sessions, Classes, Isolation) {
    let (mut sessions, mut classes) = (Sessions::default(), Classes::default());
    for (n, in_flight) in [(1, 4), (2, 3), (3, 5)] {
        sessions.insert(session(n, u32::try_from(in_flight).unwrap(), in_flight));
    }
    learn(&mut classes, ALONE, true, 1);
    learn(&mut classes, OTHER, false, 1_000);
    (sessions, classes, Isolation::default())
}

/// The store lets this server lead for the class.
fn lead(isolation: &mut Isolation, class: ClassId) {
    assert!(isolation.leads(class, Span::from_secs(6), NOW));
}

/// Looks, long enough after the last time.
fn look(isolation: &mut Isolation, sessions: &mut Sessions, classes: &Classes) -> Vec<Ask> {
    let now = isolation.looked.map_or(NOW, |looked| looked.after(LOOK_EVERY));
    isolation.update(sessions, classes, now)
}

fn reserved(sessions: &mut Sessions) -> Vec<WorkerId> {
    let mut found: Vec<WorkerId> = sessions
        .iter_mut()
        .filter(|it| it.restrictions.reserved.is_some())
        .map(|it| it.worker)
        .collect();
    found.sort_unstable();
    found
}

/// No worker of a full fleet is ever idle by chance.
#[test]
fn worker_with_the_fewest_attempts_is_kept_free_until_it_is_idle() {
    let (mut sessions, mut classes, mut isolation) = full_fleet();
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [Ask::Lead(ALONE)]);
    assert_eq!(reserved(&mut sessions), [], "another server may lead");
    lead(&mut isolation, ALONE);
    assert_eq!(look(&mut isolation, &mut sessions, &classes), []);
    assert_eq!(reserved(&mut sessions), [worker(2)]);
    for left in (0..3).rev() {
        let session = sessions.get_mut(worker(2)).unwrap();
        let job = *session.in_flight.keys().next().unwrap();
        session.in_flight.remove(&job);
        assert_eq!(look(&mut isolation, &mut sessions, &classes), []);
        let planned = plan(&sessions, &classes);
        let expected: &[_] = if left > 0 { &[] } else { &[(worker(2), [ALONE].into(), 1, true)] };
        let planned: Vec<_> =
            planned.into_iter().map(|it| (it.worker, it.classes, it.max, it.alone)).collect();
        assert_eq!(planned, expected, "{left} left");
    }
    // While the claim is under way, and then the job, nothing else joins it.
    let session = sessions.get_mut(worker(2)).unwrap();
    (session.pending, session.restrictions.alone) = (1, Alone::Claiming);
    classes.set_ready(ALONE, Estimate::None);
    // Without a pause: the next job of another class is not to wait for a look.
    let now = isolation.looked.unwrap();
    assert_eq!(isolation.update(&mut sessions, &classes, now), [Ask::Resign(ALONE)]);
    assert_eq!(reserved(&mut sessions), []);
    assert_eq!(plan(&sessions, &classes), []);
}

#[test]
fn another_server_that_leads_is_asked_again_when_its_lease_is_over() {
    let (mut sessions, classes, mut isolation) = full_fleet();
    isolation.update(&mut sessions, &classes, NOW);
    isolation.waits(ALONE, BootTime(4_000));
    assert_eq!(isolation.update(&mut sessions, &classes, BootTime(3_900)), []);
    assert_eq!(reserved(&mut sessions), []);
    assert_eq!(isolation.update(&mut sessions, &classes, BootTime(4_000)), [Ask::Lead(ALONE)]);
    let asked = isolation.update(&mut sessions, &classes, BootTime(4_100));
    assert_eq!(asked, [], "asked a moment ago");
}

#[test]
fn leadership_is_renewed_and_without_an_answer_it_ends() {
    let (mut sessions, classes, mut isolation) = full_fleet();
    isolation.update(&mut sessions, &classes, NOW);
    lead(&mut isolation, ALONE);
    isolation.update(&mut sessions, &classes, BootTime(1_100));
    assert_eq!(reserved(&mut sessions), [worker(2)]);
    let asked = isolation.update(&mut sessions, &classes, BootTime(4_000));
    assert_eq!((asked, reserved(&mut sessions)), (vec![Ask::Lead(ALONE)], vec![worker(2)]));
    let asked = isolation.update(&mut sessions, &classes, BootTime(7_000));
    assert_eq!((asked, reserved(&mut sessions)), (vec![Ask::Lead(ALONE)], vec![]));
}

#[test]
fn reservation_ends_when_no_job_waits_or_another_worker_is_idle() {
    let (mut sessions, mut classes, mut isolation) = full_fleet();
    look(&mut isolation, &mut sessions, &classes);
    lead(&mut isolation, ALONE);
    look(&mut isolation, &mut sessions, &classes);
    sessions.insert(session(4, 4, 0));
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [Ask::Resign(ALONE)]);
    assert_eq!(reserved(&mut sessions), []);
    sessions.remove(worker(4));
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [Ask::Lead(ALONE)]);
    lead(&mut isolation, ALONE);
    classes.set_ready(ALONE, Estimate::None);
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [Ask::Resign(ALONE)]);
    assert!(!isolation.leads(ALONE, Span::from_secs(6), NOW), "the answer came too late");
}

/// Worker after worker was drained for a job that a limit held back, within a second each.
#[test]
fn no_worker_is_kept_free_for_a_job_that_waits_for_a_limit() {
    let (mut sessions, mut classes, mut isolation) = full_fleet();
    look(&mut isolation, &mut sessions, &classes);
    lead(&mut isolation, ALONE);
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), [worker(2)]);
    let blocked = vec![Blocked { class: ALONE, until: None }];
    let planned = claim(&[ALONE], 1, false);
    classes.claimed(planned, &[], &Claims { blocked, ..Claims::default() });
    classes.unblock();
    assert!(classes.is_claimable(ALONE), "a worker that is idle by itself may try");
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), []);
    let later = boot_time().after(Span::from_secs(61));
    assert_eq!(isolation.update(&mut sessions, &classes, later), [Ask::Lead(ALONE)]);
}

/// An idle worker once ended the reservations of all classes, and took one job.
#[test]
fn idle_worker_serves_one_class() {
    let (mut sessions, mut classes, mut isolation) = full_fleet();
    (4..=20).for_each(|n| drop(sessions.insert(session(n, 5, 5))));
    learn(&mut classes, ClassId(3), true, 1);
    let asked = look(&mut isolation, &mut sessions, &classes);
    assert_eq!(asked, [Ask::Lead(ALONE), Ask::Lead(ClassId(3))]);
    lead(&mut isolation, ALONE);
    lead(&mut isolation, ClassId(3));
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), [worker(1), worker(2)]);
    sessions.insert(session(21, 4, 0));
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [Ask::Resign(ALONE)]);
    assert_eq!(reserved(&mut sessions).len(), 1);
}

#[test]
fn worker_that_leaves_or_takes_no_more_work_is_replaced() {
    let (mut sessions, classes, mut isolation) = full_fleet();
    look(&mut isolation, &mut sessions, &classes);
    lead(&mut isolation, ALONE);
    look(&mut isolation, &mut sessions, &classes);
    sessions.get_mut(worker(2)).unwrap().running = false;
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), [worker(1)]);
    sessions.remove(worker(1));
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), [worker(3)]);
}

/// One attempt of a day once kept its worker reserved for a day.
#[test]
fn worker_that_does_not_become_idle_is_given_up_for_another() {
    let (mut sessions, classes, mut isolation) = full_fleet();
    let mut held = Vec::new();
    for second in 0..=35 {
        let now = BootTime(1_000 + second * 1_000);
        isolation.update(&mut sessions, &classes, now);
        assert!(isolation.leads(ALONE, Span::from_secs(6), now));
        let now_held = reserved(&mut sessions);
        if held.last() != Some(&now_held) {
            held.push(now_held);
        }
    }
    assert_eq!(held, [vec![], vec![worker(2)], vec![worker(1)], vec![worker(2)]]);
}

/// Each worker that ran such a job once took the next one, until none took anything else.
#[test]
fn many_such_jobs_do_not_keep_the_others_from_running() {
    let (mut sessions, mut classes) = (Sessions::default(), Classes::default());
    let mut ran_alone = session(1, 4, 0);
    ran_alone.restrictions.alone = Alone::Ran;
    sessions.insert(ran_alone);
    learn(&mut classes, ALONE, true, 100);
    learn(&mut classes, OTHER, false, 100);
    let planned = plan(&sessions, &classes);
    assert_eq!((planned.len(), &planned[0].classes, planned[0].max), (1, &[OTHER].into(), 4));
    classes.set_ready(OTHER, Estimate::None);
    assert!(plan(&sessions, &classes)[0].alone);
}

#[test]
fn at_most_a_tenth_of_the_workers_is_kept_free_or_runs_such_jobs() {
    for (workers, alone, expected) in
        [(3, 0, 1), (19, 0, 1), (30, 0, 3), (30, 2, 1), (30, 3, 0), (100, 0, 4)]
    {
        let (mut sessions, mut classes) = (Sessions::default(), Classes::default());
        for n in 1..=workers {
            let mut one = session(n, 2, 2);
            one.restrictions.alone = if n <= alone { Alone::Claiming } else { Alone::No };
            sessions.insert(one);
        }
        (1..=6).for_each(|class| learn(&mut classes, ClassId(class), true, 3));
        let mut isolation = Isolation::default();
        let asked = look(&mut isolation, &mut sessions, &classes);
        for ask in asked {
            let Ask::Lead(class) = ask else { panic!("{ask:?}") };
            lead(&mut isolation, class);
        }
        look(&mut isolation, &mut sessions, &classes);
        assert_eq!(reserved(&mut sessions).len(), expected, "{alone} of {workers}");
    }
}

/// Each worker was once tested for each of these classes.
#[test]
fn classes_are_looked_up_once_for_all_workers_of_a_profile() {
    let (mut sessions, classes) = idle_and_unable(200, 200);
    let asked = look(&mut Isolation::default(), &mut sessions, &classes);
    assert_eq!(asked, []);
    let looks = sessions.get(worker(1)).unwrap().looks();
    assert!(looks <= 200, "{looks} looks");
}

/// The server with the only worker that is never idle led for hours, and those of others that soon
/// would have been were not kept free.
#[test]
fn server_whose_only_worker_does_not_become_idle_lets_others_lead() {
    let (mut sessions, classes, mut isolation) = full_fleet();
    (1..=2).for_each(|n| drop(sessions.remove(worker(n))));
    let mut seen = Vec::new();
    for second in 1..=60 {
        for ask in isolation.update(&mut sessions, &classes, BootTime(second * 1_000)) {
            let led = ask == Ask::Lead(ALONE);
            assert!(!led || isolation.leads(ALONE, LEASE, BootTime(second * 1_000)));
        }
        let kept_free = !reserved(&mut sessions).is_empty();
        if seen.last().is_none_or(|(_, before)| *before != kept_free) {
            seen.push((second, kept_free));
        }
    }
    // It leads again after a while, and then waits for longer.
    assert_eq!(seen, [(1, false), (2, true), (12, false), (21, true), (41, false), (50, true)]);
}

/// With fewer than 20 workers, a class for which another server led kept all others waiting.
#[test]
fn effort_goes_to_another_class_while_another_server_leads() {
    let (mut sessions, mut classes, mut isolation) = full_fleet();
    learn(&mut classes, ClassId(3), true, 1);
    let asked = look(&mut isolation, &mut sessions, &classes);
    assert_eq!(asked, [Ask::Lead(ALONE)]);
    assert_eq!(look(&mut isolation, &mut sessions, &classes), [], "it may be let lead");
    isolation.waits(ALONE, BootTime(5_000));
    let asked = look(&mut isolation, &mut sessions, &classes);
    assert_eq!(asked, [Ask::Lead(ClassId(3))]);
    lead(&mut isolation, ClassId(3));
    look(&mut isolation, &mut sessions, &classes);
    assert_eq!(reserved(&mut sessions), [worker(2)]);
    // One at a time here: the first has its turn when the other ends.
    assert_eq!(isolation.update(&mut sessions, &classes, BootTime(5_500)), [Ask::Lead(ClassId(3))]);
    classes.set_ready(ClassId(3), Estimate::None);
    let now = isolation.looked.unwrap();
    let asked = isolation.update(&mut sessions, &classes, now);
    assert_eq!(asked, [Ask::Resign(ClassId(3)), Ask::Lead(ALONE)]);
}
