use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId};
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::QueueSettings;
use outlast_core::selector::Placement;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::command::{ClassKey, Route, WorkerRole};
use outlast_store::queue::QueueRecord;
use outlast_store::reply::{Blocked, Claims};
use outlast_store_rules::apply::limit::Limits;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::engine::profile::Profile;
use crate::engine::session_facts::NOT_POLLING_AFTER;
use crate::engine::sessions::AttachedAs;
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
        lacking: BTreeMap::new(),
        stale: Vec::new(),
    };
    let (outputs, _) = mpsc::unbounded_channel();
    let mut session = Session::new(
        AttachedAs { worker: worker(n), number: 1, name: "w" },
        Arc::new(profile),
        outputs,
        CancellationToken::new().drop_guard(),
    );
    session.capacity.slots = slots;
    for job in 0..in_flight {
        let attempt = InFlightAttempt {
            epoch: Epoch(1),
            delivered: BootTime(0),
            progress: AttemptProgress::Started,
            isolated: false,
            validated: None,
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

/// Sessions, and the classes that they may take jobs of.
struct Scene {
    sessions: Sessions,
    classes: Classes,
}

impl From<(Sessions, Classes)> for Scene {
    fn from((sessions, classes): (Sessions, Classes)) -> Self {
        Self { sessions, classes }
    }
}

fn check(attached: impl Into<Scene>, expected: &[(u128, u32)]) {
    let Scene { sessions, classes } = attached.into();
    let planned = plan(&sessions, &classes);
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
fn jobs_are_fetched_ahead_only_when_all_slots_are_filled() {
    let full = || {
        let mut full = session(1, 2, 2);
        full.capacity.prefetch = 5;
        full
    };
    check(known(vec![full()], "default", false, 100), &[(1, 5)]);
    let sessions = |ready| known(vec![full(), session(2, 4, 1)], "default", false, ready);
    check(sessions(3), &[(2, 3)]);
    check(sessions(100), &[(2, 3), (1, 5)]);
    // The last few wait for a slot.
    check(sessions(4), &[(2, 3)]);
}

/// While the store took longer to answer than a worker to run what it had, each plan found free
/// slots, and none fetched ahead: a drain fell to a fifth, and stayed there.
#[test]
fn worker_with_free_slots_gets_jobs_ahead_in_the_same_plan() {
    let mut quick = session(1, 10, 0);
    quick.capacity.prefetch = 100;
    check(known(vec![quick], "default", false, 1_000), &[(1, 10), (1, 100)]);
}

/// The slots of jobs that had ended were once filled by the batch after the one that stored it.
#[test]
fn slot_is_free_once_its_job_is_reported_as_completed() {
    let planned = |sessions: &mut Sessions, classes: &Classes| -> Vec<u32> {
        plan(sessions, classes).iter().map(|claim| claim.max).collect()
    };
    let (mut sessions, classes) = known(vec![session(1, 2, 2)], "default", false, 9);
    let [first, second] = [0, 1].map(|job| JobId(Uuid::from_u128(job)));
    let report = |sessions: &mut Sessions, job, epoch, completed| {
        sessions.get_mut(worker(1)).unwrap().reported(job, Epoch(epoch), completed);
    };
    report(&mut sessions, first, 1, false);
    report(&mut sessions, second, 2, true);
    assert_eq!(planned(&mut sessions, &classes), [0; 0], "one runs, and one is another's");
    report(&mut sessions, first, 1, true);
    report(&mut sessions, first, 1, true);
    assert_eq!(planned(&mut sessions, &classes), [1]);
    sessions.get_mut(worker(1)).unwrap().release(first, Epoch(1));
    assert_eq!(planned(&mut sessions, &classes), [1]);
    sessions.get_mut(worker(1)).unwrap().release(second, Epoch(1));
    assert_eq!(planned(&mut sessions, &classes), [2]);
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
    let (sessions, classes) = known(attached, "default", true, 4);
    let planned = plan(&sessions, &classes);
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

pub(crate) const fn claim(classes: &[ClassId], max: u32, is_prefetch: bool) -> ClaimOf<'_> {
    ClaimOf { classes, max, is_prefetch }
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
    let both = claim(&[ClassId(1), ClassId(2)], 5, false);
    classes.claimed(both, &[ClassId(1)], &passed_over(ClassId(2)));
    assert!(!classes.is_claimable(ClassId(1)) && classes.is_claimable(ClassId(2)));
    // The claim got nothing at all: it is repeated after a moment, not at once.
    classes.claimed(both, &[], &passed_over(ClassId(2)));
    assert!(!classes.has_claimable());
}

fn limited(concurrency: Option<u32>, rate: Option<Rate>) -> Limits {
    let (name, scope) = (LimitName::new("all").unwrap(), Scope::Queue("default".into()));
    [Limit { name, scope, concurrency, rate }].into_iter().collect()
}

/// A session with all slots busy, which takes jobs ahead of these.
fn with_prefetch(prefetch: u32) -> Session {
    let mut session = session(1, 2, 2);
    session.capacity.prefetch = prefetch;
    session
}

/// A claim that got few jobs of a limited class once ended prefetch of it for a second.
#[test]
fn after_a_short_claim_ahead_of_free_slots_the_next_one_waits_for_the_limit_and_asks_for_less() {
    let (sessions, mut classes) = known(vec![with_prefetch(100)], "default", false, 1_000);
    classes.set_limits(limited(Some(50), None));
    let most = |classes: &Classes| {
        plan(&sessions, classes)
            .iter()
            .map(|claim| (claim.max, claim.is_prefetch))
            .collect::<Vec<_>>()
    };
    assert_eq!(most(&classes), [(100, true)]);
    // Others of its jobs may be let start, but only a walk would find them.
    let kept = Claims { kept: vec![ClassId(1)], ..Claims::default() };
    classes.claimed(claim(&[ClassId(1)], 100, true), &[ClassId(1); 20], &kept);
    assert_eq!(most(&classes), []);
    assert!(classes.is_claimable(ClassId(1)), "a free slot gets them");
    classes.unblock();
    assert_eq!(most(&classes), [(40, true)]);
    classes.claimed(claim(&[ClassId(1)], 40, true), &[ClassId(1); 40], &Claims::default());
    assert_eq!(most(&classes), [(80, true)]);
    classes.claimed(claim(&[ClassId(1)], 80, true), &[], &kept);
    classes.unblock();
    assert_eq!(most(&classes), [(8, true)]);
}

/// For about a second after another server had set a rate, its jobs were fetched ahead as others are,
/// and their starts could bunch up past it.
#[test]
fn every_claim_ahead_of_free_slots_says_so_whatever_limits_are_known_here() {
    let mut half_full = with_prefetch(100);
    half_full.capacity.slots = 3;
    let (sessions, classes) = known(vec![half_full], "default", false, 1_000);
    let planned = plan(&sessions, &classes);
    let planned: Vec<_> = planned.iter().map(|claim| (claim.max, claim.is_prefetch)).collect();
    assert_eq!(planned, [(1, false), (100, true)]);
}

/// Workers took jobs without a limit ahead, so that no slot was ever free for the others, however
/// urgent these were.
#[test]
fn limited_jobs_are_not_kept_from_the_slots_by_short_jobs_without_a_limit() {
    let (sessions, mut classes) = known(vec![with_prefetch(100)], "other", false, 0);
    let key = classes.get(ClassId(1)).unwrap().key.clone();
    for (id, queue) in [(ClassId(2), "default"), (ClassId(3), "free")] {
        classes.learn(id, &ClassKey { queue: queue.into(), ..key.clone() }, BootTime(0));
        classes.add_ready(id, 1_000, BootTime(0));
    }
    let mut sessions = sessions;
    let session = sessions.get_mut(worker(1)).unwrap();
    let queues = vec!["*".into()];
    session.profile = Arc::new(Profile { queues, ..Profile::clone(&session.profile) });
    classes.set_limits(limited(Some(50), None));
    let planned = plan(&sessions, &classes);
    assert_eq!(*planned[0].classes, [ClassId(2), ClassId(3)]);
    // A rate counts starts: its jobs are for free slots, so slots must become free.
    classes.set_limits(limited(None, Rate::new(1_000, Span::from_secs(1))));
    assert_eq!(plan(&sessions, &classes), []);
    sessions.get_mut(worker(1)).unwrap().capacity.slots = 3;
    let planned = plan(&sessions, &classes);
    assert_eq!((planned.len(), planned[0].max, planned[0].is_prefetch), (1, 1, false));
    assert_eq!(*planned[0].classes, [ClassId(2), ClassId(3)]);
    // Others went before these, or the rate is shut: no slot waits for them until the next look.
    classes.claimed(planned[0].asks(), &[ClassId(3)], &Claims::default());
    sessions.get_mut(worker(1)).unwrap().capacity.slots = 2;
    let ahead = plan(&sessions, &classes);
    assert_eq!((ahead.len(), &*ahead[0].classes), (1, &[ClassId(3)][..]));
    classes.set_limits(limited(None, Rate::new(1_000, Span::from_secs(1))));
    assert_eq!(plan(&sessions, &classes), []);
    let until = Some(Timestamp(1));
    let blocked = vec![Blocked { class: ClassId(2), until }];
    classes.claimed(
        planned[0].asks(),
        &[],
        &Claims { blocked, passed_over: vec![ClassId(3)], ..Claims::default() },
    );
    let planned = plan(&sessions, &classes);
    assert!(planned.iter().all(|claim| *claim.classes == [ClassId(3)]), "{planned:?}");
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
    check(placed(sessions(3), &[("", "zone=a", 2)]), &[(3, 1), (1, 1)]);
    check(placed(sessions(4), &[("", "zone=a", 1)]), &[(1, 1)]);
    // Most of what is preferred is not what one has, but more than another.
    check(placed(sessions(0), &[("", "zone in (a, b), zone=b, gpu", 1)]), &[(2, 1)]);
    check(placed(sessions(4), &[("", "zone in (a, b), zone=c", 1)]), &[(2, 1)]);
}

/// What a queue asks of workers.
fn asking(queue: &str, requires: &str, prefers: &str) -> Limits {
    let placement =
        Placement { requires: requires.parse().unwrap(), prefers: prefers.parse().unwrap() };
    let settings = QueueSettings { placement, ..QueueSettings::default() };
    let (queue, set_by, set_at) = (queue.into(), String::new(), Timestamp(0));
    Limits::of(Vec::new(), vec![QueueRecord { queue, settings, set_by, set_at }])
}

#[test]
fn what_a_queue_asks_is_asked_of_the_workers_of_all_its_jobs() {
    let sessions = || vec![session(1, 4, 0), in_zone("a", session(2, 4, 3))];
    let placed = |limits: Limits, wanted| {
        let (mut sessions, mut classes) = placed(sessions(), wanted);
        // It was judged before the change, too.
        let _before = plan(&sessions, &classes);
        assert!(classes.set_limits(limits.clone()), "they differ");
        assert!(!classes.set_limits(limits));
        sessions.forget_fits();
        (sessions, classes)
    };
    check(placed(asking("default", "zone=a", ""), &[("", "", 9)]), &[(2, 1)]);
    check(placed(asking("default", "zone=b", ""), &[("", "", 9)]), &[]);
    check(placed(asking("default", "!zone", ""), &[("", "", 1)]), &[(1, 1)]);
    check(placed(asking("default", "!zone", ""), &[("zone", "", 1)]), &[]);
    check(placed(asking("other", "zone=b", ""), &[("", "", 1)]), &[(1, 1)]);
    check(placed(asking("default", "", "zone"), &[("", "", 1)]), &[(2, 1)]);
    // What the jobs prefer themselves counts first.
    check(placed(asking("default", "", "zone, zone=a"), &[("", "!zone", 1)]), &[(1, 1)]);
}

/// A session that the first so many jobs avoid, in the order of their numbers.
fn avoided(session: Session, jobs: u128, waits: bool) -> Session {
    avoided_by(session, (1..=jobs).collect(), waits)
}

fn avoided_by(mut session: Session, jobs: Vec<u128>, waits: bool) -> Session {
    let jobs = jobs.into_iter().map(|n| JobId(Uuid::from_u128(n))).collect();
    session.restrictions.avoided.insert(ClassId(1), Avoided { jobs, waits });
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
    check(both, 4, &[(2, 1), (1, 3)]);
    // Both are avoided.
    let both = vec![avoided(session(1, 4, 0), 1, false), avoided(session(2, 4, 1), 1, false)];
    check(both, 2, &[(1, 2), (2, 2)]);
    // Workers of other servers get a moment, for the retries only.
    check(vec![avoided(session(1, 4, 0), 2, true)], 2, &[]);
    check(vec![avoided(session(1, 4, 0), 2, true)], 3, &[(1, 3)]);
}

#[test]
fn a_claim_leaves_retries_to_others_that_take_jobs_in_their_place() {
    let check = |sessions: Vec<Session>, ready: u64, expected: &[(u128, u32, Vec<u128>)]| {
        let (sessions, classes) = known(sessions, "default", false, ready);
        let planned: Vec<_> = plan(&sessions, &classes)
            .into_iter()
            .map(|it| {
                let avoids = it.avoids.iter().map(|job| job.0.as_u128()).collect();
                (it.worker.0.as_u128(), it.max, avoids)
            })
            .collect();
        assert_eq!(planned, expected);
    };
    // Each takes what the other has failed.
    let both = vec![
        avoided_by(session(1, 4, 0), vec![1, 2], false),
        avoided_by(session(2, 4, 0), vec![3, 4], false),
    ];
    check(both, 4, &[(1, 4, vec![1, 2]), (2, 4, vec![3, 4])]);
    // Which of all that are due soon is the one that is claimable, only the store knows.
    let both = vec![
        avoided_by(session(1, 4, 0), vec![1, 2], false),
        avoided_by(session(2, 4, 0), vec![3, 4], false),
    ];
    check(both, 1, &[(1, 1, vec![1, 2]), (2, 1, vec![3, 4])]);
    // What the other has no room for, the worker takes itself.
    let full = vec![avoided(session(1, 4, 0), 3, false), session(2, 4, 2)];
    check(full, 3, &[(2, 2, vec![]), (1, 1, vec![1, 2])]);
    check(vec![avoided(session(1, 4, 0), 3, false)], 3, &[(1, 3, vec![])]);
    // While workers of other servers have their chance, it takes none of them.
    check(vec![avoided(session(1, 4, 0), 2, true)], 3, &[(1, 3, vec![1, 2])]);
}

const SHARED: ClassId = ClassId(1_000_000);

/// Sessions of a profile each, which serves its own queue and `shared`, and classes of these queues.
fn with_own_queues(count: u128, ready: u64) -> (Sessions, Classes) {
    let (mut sessions, mut classes) = known(Vec::new(), "default", false, 0);
    let key = classes.get(ClassId(1)).unwrap().key.clone();
    for (n, id) in (1..=count).zip(2..) {
        let mut own = session(n, 10, 0);
        let queue = format!("q{n}");
        let queues = vec![queue.clone(), "shared".into()];
        own.profile = Arc::new(Profile { queues, ..Profile::clone(&own.profile) });
        own.capacity.prefetch = 5;
        sessions.insert(own);
        classes.learn(ClassId(id), &ClassKey { queue, ..key.clone() }, BootTime(0));
        classes.add_ready(ClassId(id), ready, BootTime(0));
    }
    classes.learn(SHARED, &ClassKey { queue: "shared".into(), ..key }, BootTime(0));
    (sessions, classes)
}

/// The jobs of the longest queue were once all that a plan gave out, to whichever workers.
#[test]
fn workers_with_a_queue_each_are_all_busy_after_one_plan() {
    let (sessions, classes) = with_own_queues(1_000, 1);
    let planned = plan(&sessions, &classes);
    let workers: std::collections::BTreeSet<_> = planned.iter().map(|claim| claim.worker).collect();
    assert_eq!((planned.len(), workers.len()), (1_000, 1_000));
    assert!(planned.iter().all(|claim| claim.max == 1));
    // Its own jobs and nothing of the others is what a worker fetches ahead.
    let (sessions, mut classes) = with_own_queues(3, 10);
    classes.add_ready(ClassId(2), 90, BootTime(0));
    let ahead = |classes: &Classes| -> Vec<(WorkerId, u32)> {
        let planned = plan(&sessions, classes).into_iter();
        planned.map(|claim| (claim.worker, claim.max)).filter(|(_, max)| *max != 10).collect()
    };
    assert_eq!(ahead(&classes), [(worker(1), 5)]);
    // What all can take goes to all.
    classes.add_ready(SHARED, 100, BootTime(0));
    assert_eq!(ahead(&classes), [1, 2, 3].map(|n| (worker(n), 5)));
}

#[test]
fn what_some_have_no_room_for_goes_to_others_in_the_same_plan() {
    let sessions = vec![session(1, 20, 2), session(2, 2, 0), session(3, 4, 0)];
    check(known(sessions, "default", false, 21), &[(2, 2), (3, 4), (1, 15)]);
}

/// A claim once looked at each of 20,000 classes.
#[test]
fn of_very_many_classes_a_claim_takes_from_some_and_the_next_from_others() {
    let mut one = session(1, 10, 0);
    one.profile = Arc::new(Profile { queues: vec!["*".into()], ..Profile::clone(&one.profile) });
    let (sessions, mut classes) = known(vec![one], "default", false, 0);
    let key = classes.get(ClassId(1)).unwrap().key.clone();
    for n in 2..=201 {
        let queue = format!("q{n}");
        classes.learn(ClassId(n), &ClassKey { queue, ..key.clone() }, BootTime(0));
        classes.add_ready(ClassId(n), 1, BootTime(0));
    }
    let mut looked: HashMap<ClassId, usize> = HashMap::new();
    for _ in 0..4 {
        let planned = plan(&sessions, &classes);
        assert_eq!((planned.len(), planned[0].max, planned[0].classes.len()), (1, 10, 64));
        planned[0].classes.iter().for_each(|id| *looked.entry(*id).or_default() += 1);
    }
    assert_eq!(looked.len(), 200);
    assert!(looked.values().all(|times| *times <= 2));
    // More are looked at where there are too few jobs.
    let mut sessions = sessions;
    sessions.get_mut(worker(1)).unwrap().capacity.slots = 150;
    let planned = plan(&sessions, &classes);
    assert_eq!((planned[0].max, planned[0].classes.len()), (150, 150));
}

/// Workers of a profile each, such as those with a label of their own, each took one of the last few
/// jobs ahead, though a slot of another one was to be free a moment later.
#[test]
fn the_last_few_jobs_are_not_fetched_ahead_however_many_profiles_there_are() {
    let full = |n: u128| {
        let mut full = in_zone(&n.to_string(), session(n, 2, 2));
        full.capacity.prefetch = 5;
        full
    };
    let sessions = || (1..=4).map(full).collect();
    check(known(sessions(), "default", false, 4), &[]);
    check(known(sessions(), "default", false, 8), &[(1, 2), (2, 2), (3, 2), (4, 2)]);
}

/// More than a claim takes at most: the rest of the slots is not fetched ahead, of which limits keep
/// half.
#[test]
fn slots_that_are_still_free_wait_for_the_next_plan() {
    let mut large = session(1, 2_000, 0);
    large.capacity.prefetch = 100;
    check(known(vec![large], "default", false, 5_000), &[(1, 512)]);
}

/// Idle sessions of one profile, and many classes of jobs that they cannot run: half of these jobs must
/// run alone.
pub(in crate::engine) fn idle_and_unable(count: u128, of_classes: i64) -> (Sessions, Classes) {
    let (mut sessions, mut classes) = known(Vec::new(), "default", false, 0);
    let profile = Arc::clone(&session(1, 1, 0).profile);
    for n in 1..=count {
        let mut idle = session(n, 10, 0);
        idle.profile = Arc::clone(&profile);
        idle.restrictions.alone = Alone::Ran;
        sessions.insert(idle);
    }
    let key = classes.get(ClassId(1)).unwrap().key.clone();
    for id in 2..2 + of_classes {
        let (job_type, isolated) = (format!("other-{id}"), id % 2 == 0);
        classes.learn(ClassId(id), &ClassKey { job_type, isolated, ..key.clone() }, BootTime(0));
        classes.add_ready(ClassId(id), 1, BootTime(0));
    }
    (sessions, classes)
}

/// Each idle worker was once tested for each class.
#[test]
fn classes_are_looked_up_once_for_all_idle_workers_of_a_profile() {
    let (sessions, classes) = idle_and_unable(200, 200);
    assert_eq!(plan(&sessions, &classes), []);
    let looks = sessions.get(worker(1)).unwrap().looks();
    assert!(looks <= 500, "{looks} looks");
}
