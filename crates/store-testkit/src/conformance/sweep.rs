//! What comes due by time alone, and what waited too long for a worker.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Outcome, State};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    Command, First, LogChunk, Prune, ReportedOutcome, Strand, Stream, Sweep,
};
use outlast_store::event::EventQuery;
use outlast_store::query::LogQuery;
use outlast_store::reply::{Reply, Stranded, Swept};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{VISIBILITY, World, failed, forget};

cases![
    due_jobs_become_available_in_their_order,
    expired_jobs_are_discarded_wherever_they_wait,
    job_that_is_held_past_its_expiry_is_left_alone_and_expires_when_it_comes_back,
    sweep_stops_at_its_limit_and_says_so,
    held_jobs_past_their_expiry_do_not_fill_a_sweep,
    next_due_is_the_earliest_of_everything_that_waits,
    nothing_is_due_after_a_sweep_that_found_no_more,
    stranded_job_fails_with_the_seed_s_error,
    stranding_counts_from_the_later_of_readiness_and_the_last_worker,
    stranding_leaves_the_isolated_twin_alone,
    prune_deletes_what_ended_long_ago_and_keeps_dead_letters,
    prune_goes_on_behind_the_dead_letters_it_has_seen,
    prune_keeps_workers_that_live,
    events_go_by_whole_days,
    history_of_a_job_that_is_kept_is_kept_however_old,
    class_without_jobs_goes_and_comes_back_under_another_number,
    class_whose_only_job_waits_in_its_isolated_twin_stays,
    class_that_a_batch_uses_before_its_prune_stays,
];

fn later<H: Harness>(world: &mut World<'_, H>, after: u64) -> JobId {
    let mut job = world.job();
    job.first = First::At(world.now().after(Span(after)));
    world.add(job)
}

fn due_jobs_become_available_in_their_order<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids = [later(world, 300), later(world, 100), later(world, 200)];
    world.wait(Span(200));
    let moved: Vec<_> = world.sweep().moved.iter().map(|moved| moved.job).collect();
    assert_eq!(moved, [ids[1], ids[2]]);
    let job = world.read(ids[1]);
    assert_eq!((job.state, job.since, job.due), (State::Available, world.now(), None));
    let taken: Vec<_> = world.claim(hand, 5).iter().map(|claimed| claimed.job.id).collect();
    assert_eq!(taken, [ids[1], ids[2]]);
}

fn expired_jobs_are_discarded_wherever_they_wait<H: Harness>(world: &mut World<'_, H>) {
    let expires = world.now().after(Span(500));
    let ids = [First::Now, First::At(expires.after(Span(1))), First::OnActivation].map(|first| {
        let mut job = world.job();
        (job.first, job.rules.expires_at) = (first, Some(expires));
        world.add(job)
    });
    world.wait(Span(499));
    assert_eq!(world.sweep().moved, []);
    world.wait(Span(1));
    assert_eq!(world.sweep().moved.len(), 3);
    for id in ids {
        let job = world.read(id);
        assert_eq!((job.state, &*job.ended_by), (State::Discarded, "expired"));
        assert_eq!((job.finished, job.due), (None, None));
    }
}

fn expiring<H: Harness>(world: &mut World<'_, H>, after: u64) -> JobId {
    let mut job = world.job();
    job.rules.expires_at = Some(world.now().after(Span(after)));
    world.add(job)
}

fn job_that_is_held_past_its_expiry_is_left_alone_and_expires_when_it_comes_back<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = expiring(world, 500);
    let claimed = world.run(hand);
    world.wait(Span(500));
    assert_eq!(world.sweep().moved, []);
    assert_eq!(world.read(id).state, State::Active);
    world.finish(&claimed, hand, ReportedOutcome::Interrupted).unwrap();
    assert_eq!(world.claim(hand, 1).len(), 0);
    assert_eq!(world.sweep().moved.len(), 1);
    assert_eq!(world.read(id).state, State::Discarded);
}

fn sweep_stops_at_its_limit_and_says_so<H: Harness>(world: &mut World<'_, H>) {
    for n in 0..5 {
        later(world, 10 + n);
    }
    world.wait(Span(100));
    let sweep = Command::Sweep(Sweep { limit: 3, watched: Span(0) });
    let Reply::Swept(Swept { moved, more }) = world.one(sweep.clone()) else { panic!() };
    assert_eq!((moved.len(), more), (3, true));
    let Reply::Swept(Swept { moved, more }) = world.one(sweep) else { panic!() };
    assert_eq!((moved.len(), more), (2, false));
}

fn held_jobs_past_their_expiry_do_not_fill_a_sweep<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for n in 0..3 {
        expiring(world, 10 + n);
    }
    assert_eq!(world.claim(hand, 3).len(), 3);
    let waits = expiring(world, 20);
    world.wait(Span(20));
    let sweep = Command::Sweep(Sweep { limit: 2, watched: Span(0) });
    let Reply::Swept(Swept { moved, more }) = world.one(sweep) else { panic!() };
    assert_eq!((moved.len(), more), (1, false));
    assert_eq!(world.read(waits).state, State::Discarded);
}

fn next_due<H: Harness>(world: &World<'_, H>) -> Option<Timestamp> {
    world.ask(world.store().next_due())
}

fn next_due_is_the_earliest_of_everything_that_waits<H: Harness>(world: &mut World<'_, H>) {
    let start = world.now();
    assert_eq!(next_due(world), None);
    let mut job = world.job();
    job.timeout = Some(Span(VISIBILITY.0 - 1));
    world.add(job);
    assert_eq!(next_due(world), None);
    world.fetch(None, 1);
    assert_eq!(next_due(world), Some(start.after(Span(VISIBILITY.0 - 1))));
    expiring(world, 5000);
    assert_eq!(next_due(world), Some(start.after(Span(5000))));
    let timer = later(world, 3000);
    assert_eq!(next_due(world), Some(start.after(Span(3000))));
    world.cancel(timer).unwrap();
    assert_eq!(next_due(world), Some(start.after(Span(5000))));
}

/// Otherwise a server that sleeps until the next deadline would never sleep.
fn nothing_is_due_after_a_sweep_that_found_no_more<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    expiring(world, 10);
    world.take(hand);
    let cancelled = expiring(world, 10);
    world.take(hand);
    world.cancel(cancelled).unwrap();
    let ended = expiring(world, 10);
    world.cancel(ended).unwrap();
    later(world, 10);
    expiring(world, 20);
    world.fetch(None, 1);
    world.wait(Span(VISIBILITY.0 * 2));
    assert!(!world.sweep().more);
    assert!(!world.sweep().more);
    let due = next_due(world);
    assert!(due.is_none_or(|due| due > world.now()), "due {due:?} at {:?}", world.now());
}

fn patient<H: Harness>(world: &mut World<'_, H>, patience: u64) -> JobId {
    let mut job = world.job();
    job.scheduled_timeout = ScheduledTimeout::After(Span(patience));
    world.add(job)
}

fn strand<H: Harness>(world: &mut World<'_, H>, of: JobId, since: Timestamp) -> Stranded {
    let class = world.read(of).job.class;
    let reason = "no eligible worker: none is registered".to_owned();
    match world.one(Command::Strand(Strand { class, since, reason, limit: 10 })) {
        Reply::Stranded(stranded) => stranded,
        other => panic!("not a strand's reply: {other:?}"),
    }
}

fn stranded_job_fails_with_the_seed_s_error<H: Harness>(world: &mut World<'_, H>) {
    let since = world.now();
    let id = patient(world, 300_000);
    let never = world.add_plain();
    world.wait(Span(320_000));
    let stranded = strand(world, id, since);
    assert_eq!((stranded.moved.len(), stranded.next), (1, None));
    let job = world.read(id);
    assert_eq!((job.state, &*job.ended_by), (State::Discarded, "stranded"));
    assert_eq!(job.finished, Some(world.now()));
    let error: serde_json::Value = serde_json::from_str(&job.error.unwrap()).unwrap();
    let expected = serde_json::json!({
        "error": "Execution timeout: worker did not pick up task within 300 seconds (scheduled for 320 seconds)",
        "failed_by": "execution_timeout_monitor",
        "timeout_seconds": 300,
        "age_seconds": 320,
        "original_status": "requested",
        "reason": "no eligible worker: none is registered",
    });
    assert_eq!(error, expected);
    assert_eq!(world.read(never).state, State::Available);
}

fn stranding_counts_from_the_later_of_readiness_and_the_last_worker<H: Harness>(
    world: &mut World<'_, H>,
) {
    let early = patient(world, 1000);
    world.wait(Span(900));
    let worker_left = world.now();
    world.wait(Span(200));
    let late = patient(world, 1000);
    let now = world.now();
    world.wait(Span(799));
    let stranded = strand(world, early, worker_left);
    assert_eq!((stranded.moved.len(), stranded.next), (0, Some(worker_left.after(Span(1000)))));
    world.wait(Span(1));
    let stranded = strand(world, early, worker_left);
    assert_eq!(stranded.moved.iter().map(|moved| moved.job).collect::<Vec<_>>(), [early]);
    assert_eq!(stranded.next, Some(now.after(Span(1000))));
    assert_eq!(world.read(late).state, State::Available);
}

fn stranding_leaves_the_isolated_twin_alone<H: Harness>(world: &mut World<'_, H>) {
    let id = patient(world, 1000);
    for _ in 0..2 {
        let hand = world.worker();
        world.run(hand);
        world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    }
    assert!(world.read(id).isolated);
    world.wait(Span(2000));
    let since = world.now();
    assert_eq!(strand(world, id, since).moved, []);
    assert_eq!(world.read(id).state, State::Available);
}

fn prune<H: Harness>(world: &mut World<'_, H>, before: Timestamp) -> (u32, u32) {
    let pruned = world.prune(before);
    (pruned.jobs, pruned.workers)
}

fn prune_goes_on_behind_the_dead_letters_it_has_seen<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    for _ in 0..2 {
        let mut job = world.job();
        job.rules = crate::conformance::world::rules(1);
        job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
        world.add(job);
        let claimed = world.run(hand);
        world.finish(&claimed, hand, failed()).unwrap();
        world.wait(Span(1));
    }
    let completed = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    world.wait(Span(1));
    let mut deleted = Vec::new();
    for from_start in [true, false, true, false, false, false] {
        let before = world.now();
        let leadership = world.retention();
        let reply = world.one(Command::Prune(Prune {
            leadership,
            finished_before: before,
            workers_before: Timestamp(0),
            limit: 1,
            from_start,
        }));
        let Reply::Pruned(Ok(pruned)) = reply else { panic!("{reply:?}") };
        deleted.push(pruned.jobs);
    }
    assert_eq!(deleted, [0, 0, 0, 0, 1, 0]);
    assert!(world.find(completed).is_none());
}

fn prune_deletes_what_ended_long_ago_and_keeps_dead_letters<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let completed = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let mut job = world.job();
    job.rules = crate::conformance::world::rules(1);
    job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    let letter = world.add(job);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    let in_flight = world.add_plain();
    world.run(hand);
    world.cancel(in_flight).unwrap();
    let waiting = world.add_plain();
    let expired = expiring(world, 1);
    world.wait(Span(1));
    world.sweep();
    let at = world.now();
    assert_eq!(prune(world, Timestamp(at.0 - 1)).0, 0);
    assert_eq!(prune(world, Timestamp(at.0 + 1)).0, 2);
    assert_eq!((world.find(completed), world.find(expired)), (None, None));
    assert_eq!(world.attempts(completed), []);
    for kept in [letter, in_flight, waiting] {
        assert!(world.find(kept).is_some());
    }
    assert_eq!(world.attempts(in_flight).last().unwrap().outcome, None::<Outcome>);
}

fn prune_keeps_workers_that_live<H: Harness>(world: &mut World<'_, H>) {
    let (lives, gone) = (world.worker(), world.worker());
    world.move_worker(gone.worker, WorkerEvent::Goodbye).unwrap();
    world.wait(Span(1000));
    let now = world.now();
    assert_eq!(prune(world, now).1, 1);
    let left: Vec<_> = world.ask(world.store().workers()).iter().map(|row| row.id).collect();
    assert_eq!(left, [lives.worker]);
}

const DAY: Span = Span(24 * 3600 * 1000);

fn event_count<H: Harness>(world: &World<'_, H>) -> usize {
    let names = vec!["job.enqueued".to_owned()];
    let query = EventQuery { names, ..EventQuery::all(100) };
    world.ask(world.store().events(query)).events.len()
}

fn events_go_by_whole_days<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    world.wait(Span::from_secs(3600));
    prune(world, world.now());
    assert_eq!(event_count(world), 1);
    world.wait(DAY);
    world.add_plain();
    let before = Timestamp(world.now().0 - 3600 * 1000);
    prune(world, before);
    assert_eq!(event_count(world), 1);
    world.wait(DAY);
    world.wait(DAY);
    prune(world, world.now());
    assert_eq!(event_count(world), 0);
    world.add_plain();
    assert_eq!(event_count(world), 1);
}

fn print<H: Harness>(world: &mut World<'_, H>, job: JobId, n: u32) {
    let (stream, bytes) = (Stream::Stdout, vec![b'x']);
    let chunk = LogChunk { job, epoch: Epoch(1), n, stream, bytes };
    assert_eq!(world.one(Command::Log(chunk)), Reply::Done);
}

fn history_of_a_job_that_is_kept_is_kept_however_old<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = crate::conformance::world::rules(1);
    job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    let letter = world.add(job);
    let claimed = world.run(hand);
    print(world, letter, 0);
    print(world, letter, 1);
    world.finish(&claimed, hand, failed()).unwrap();
    let gone = world.add_plain();
    let claimed = world.run(hand);
    print(world, gone, 0);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let lines = |world: &World<'_, H>, job| {
        let page = world.ask(world.store().logs(LogQuery { job, after: 0, limit: 10 }));
        page.lines.iter().map(|line| line.id).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        world.wait(Span(DAY.0 * 3));
        prune(world, Timestamp(world.now().0 - 1000));
        assert_eq!((world.attempts(letter).len(), lines(world, letter).len()), (1, 2));
        assert_eq!((world.attempts(gone).len(), lines(world, gone).len()), (0, 0));
    }
    // What is there is known, and what comes is numbered on.
    for n in [1, 0, 2] {
        print(world, letter, n);
    }
    assert_eq!(lines(world, letter), [1, 2, 3]);
    world.one(Command::ForgetDeadLetter(forget(letter)));
    prune(world, world.now());
    assert_eq!((world.find(letter), world.attempts(letter).len()), (None, 0));
    assert_eq!(lines(world, letter), Vec::<u64>::new());
}

fn add_to<H: Harness>(world: &mut World<'_, H>, queue: &str) -> JobId {
    let mut job = world.job();
    job.class.queue = queue.into();
    world.add(job)
}

fn classes<H: Harness>(world: &World<'_, H>) -> Vec<(i64, String)> {
    let tally = world.ask(world.store().tally());
    tally.into_iter().map(|class| (class.id.0, class.key.queue)).collect()
}

fn pruned_classes<H: Harness>(world: &mut World<'_, H>) -> u32 {
    let before = world.now();
    world.prune(before).classes
}

fn class_without_jobs_goes_and_comes_back_under_another_number<H: Harness>(
    world: &mut World<'_, H>,
) {
    let queues = ["invented", "kept", "latest"];
    let ids = queues.map(|queue| add_to(world, queue));
    for id in [ids[0], ids[2]] {
        world.cancel(id).unwrap();
    }
    world.wait(Span(1));
    assert_eq!(pruned_classes(world), 0);
    assert_eq!((world.find(ids[0]), world.find(ids[2])), (None, None));
    assert_eq!(pruned_classes(world), 1);
    let named = |id: i64, queue: &str| (id, queue.to_owned());
    assert_eq!(classes(world), [named(2, "kept"), named(3, "latest")]);
    let again = add_to(world, "invented");
    assert_eq!(classes(world).last(), Some(&named(4, "invented")));
    // Now the one that was the latest may go.
    assert_eq!((pruned_classes(world), pruned_classes(world)), (1, 0));
    assert_eq!(classes(world), [named(2, "kept"), named(4, "invented")]);
    let hand = world.worker();
    let mut taken: Vec<_> = world.claim(hand, 10).iter().map(|claimed| claimed.job.id).collect();
    taken.sort_unstable();
    let mut wanted = vec![ids[1], again];
    wanted.sort_unstable();
    assert_eq!(taken, wanted);
    world.crash();
    assert_eq!(classes(world), [named(2, "kept"), named(4, "invented")]);
}

fn class_whose_only_job_waits_in_its_isolated_twin_stays<H: Harness>(world: &mut World<'_, H>) {
    let id = add_to(world, "default");
    for _ in 0..2 {
        let hand = world.worker();
        world.run(hand);
        world.move_worker(hand.worker, WorkerEvent::Died).unwrap();
    }
    assert!(world.read(id).isolated);
    add_to(world, "latest");
    world.wait(Span(1));
    assert_eq!(pruned_classes(world), 0);
    let hand = world.worker();
    let claimed = world.claim(hand, 1).remove(0);
    assert_eq!(claimed.job.id, id);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    world.wait(Span(1));
    // The job, then both classes.
    assert_eq!((pruned_classes(world), pruned_classes(world)), (0, 2));
    assert_eq!(classes(world).len(), 1);
}

fn class_that_a_batch_uses_before_its_prune_stays<H: Harness>(world: &mut World<'_, H>) {
    let before = add_to(world, "used");
    add_to(world, "latest");
    world.cancel(before).unwrap();
    world.wait(Span(1));
    let now = world.now();
    world.prune(now);
    let leadership = world.retention();
    let prune = || {
        let (finished_before, workers_before) = (now, now);
        Command::Prune(Prune {
            leadership: leadership.clone(),
            finished_before,
            workers_before,
            limit: 100,
            from_start: true,
        })
    };
    let jobs = [(); 2].map(|()| {
        let mut job = world.job();
        job.class.queue = "used".into();
        job
    });
    let ids = jobs.clone().map(|job| job.id);
    let [first, second] = jobs.map(|job| Command::Enqueue(Box::new(job)));
    world.apply(vec![first, prune()]);
    assert_eq!(classes(world)[0], (1, "used".to_owned()));
    world.cancel(ids[0]).unwrap();
    world.wait(Span(1));
    let now = world.now();
    world.prune(now);
    world.apply(vec![prune(), second]);
    assert_eq!(classes(world).last(), Some(&(3, "used".to_owned())));
    assert_eq!(world.read(ids[1]).state, State::Available);
}
