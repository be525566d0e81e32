//! Jobs of which there is one at a time.

use outlast_core::id::JobId;
use outlast_core::job::{Outcome, State};
use outlast_core::time::Span;
use outlast_store::command::{Command, First, JobAction, NewJob, ReportedOutcome};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::idempotency::{EnqueueOnce, EnqueuedOnce};
use outlast_store::reply::{EnqueueRefusal, Enqueued, Reply};
use outlast_store::store::Store as _;
use outlast_store::unique::{KeyOutcome, OnConflict, States, Unique};

use crate::conformance::Harness;
use crate::conformance::world::{Hand, World, failed, rules};

cases![
    every_policy_meets_a_job_in_every_state,
    job_of_another_key_is_in_the_way_of_none,
    ignored_job_leaves_nothing_behind,
    replaced_job_is_cancelled_and_its_worker_is_named,
    replaced_job_that_was_cancelled_keeps_its_attempt,
    job_keeps_the_time_of_the_scheduled_one_it_replaces,
    period_counts_from_when_the_other_job_was_stored,
    cancelled_job_is_in_the_way_until_its_attempt_has_ended,
    job_without_a_key_is_in_the_way_of_none,
    latest_job_has_the_key,
    same_key_twice_in_one_batch_meets_itself,
    key_passes_on_several_times_in_one_batch,
    moves_of_the_same_batch_count,
    request_is_refused_whole_for_one_job_that_is_not_unique,
    key_twice_in_one_request_is_refused,
    request_takes_each_of_its_keys,
    known_id_is_refused_and_nothing_is_replaced,
    job_that_repeats_its_own_id_finds_itself,
    replay_asks_no_key,
    request_that_found_another_job_leaves_no_idempotency_key,
    pruned_job_takes_its_key_along,
    keys_survive_a_crash,
    reset_drops_unique_keys,
];

const KEY: u8 = 7;

fn unique(on_conflict: OnConflict) -> Unique {
    Unique { fingerprint: [KEY; 32], states: States::LIVE, period: None, on_conflict }
}

fn job<H: Harness>(world: &mut World<'_, H>, on_conflict: OnConflict) -> NewJob {
    NewJob { unique: Some(unique(on_conflict)), ..world.job() }
}

fn store<H: Harness>(world: &mut World<'_, H>, job: &NewJob) -> Result<Enqueued, EnqueueRefusal> {
    match world.one(Command::Enqueue(Box::new(job.clone()))) {
        Reply::Enqueued(stored) => stored,
        other => panic!("not an enqueue's reply: {other:?}"),
    }
}

/// Stores a job that takes the key.
fn first<H: Harness>(world: &mut World<'_, H>) -> JobId {
    let job = job(world, OnConflict::Reject);
    world.add(job)
}

/// Stores a job that takes the key, and moves it into a state.
fn in_state<H: Harness>(world: &mut World<'_, H>, hand: Hand, state: State) -> JobId {
    let mut new = job(world, OnConflict::Reject);
    match state {
        State::Scheduled => new.first = First::At(world.now().after(Span(60_000))),
        State::Pending => new.first = First::OnActivation,
        State::Discarded => new.rules = rules(1),
        _ => {}
    }
    let id = world.add(new);
    match state {
        State::Scheduled | State::Pending | State::Available => {}
        State::Cancelled => drop(world.cancel(id).unwrap()),
        State::Active | State::Completed | State::Retryable | State::Discarded => {
            let claimed = world.run(hand);
            let reported = match state {
                State::Completed => ReportedOutcome::Completed,
                State::Active => return id,
                _ => failed(),
            };
            world.finish(&claimed, hand, reported).unwrap();
        }
    }
    assert_eq!(world.read(id).state, state);
    id
}

fn every_policy_meets_a_job_in_every_state<H: Harness>(world: &mut World<'_, H>) {
    for on_conflict in OnConflict::ALL {
        for state in State::ALL {
            world.one(Command::Reset);
            let hand = world.worker();
            let holder = in_state(world, hand, state);
            let mut other = State::ALL
                .into_iter()
                .fold(States::EMPTY, |all, it| if it == state { all } else { all.with(it) });
            // What does not count is not in the way.
            let mut free = job(world, on_conflict);
            free.unique = Some(Unique { states: other, ..unique(on_conflict) });
            let stored = store(world, &free).unwrap();
            assert_eq!((stored.id, &stored.by_key), (free.id, &None), "{on_conflict:?} {state}");
            assert_eq!(world.read(holder).state, state);
            // Its key is that job's now. Give it back to one in the state.
            world.one(Command::Reset);
            let hand = world.worker();
            let holder = in_state(world, hand, state);
            other = States::EMPTY.with(state);
            let mut new = job(world, on_conflict);
            new.unique = Some(Unique { states: other, ..unique(on_conflict) });
            meets(world, &new, holder, state);
        }
    }
}

/// A job that counts is in the way of `new`.
fn meets<H: Harness>(world: &mut World<'_, H>, new: &NewJob, holder: JobId, state: State) {
    let on_conflict = new.unique.unwrap().on_conflict;
    let outcome = store(world, new);
    let (before, after) = (world.read(holder), world.find(new.id));
    match on_conflict {
        OnConflict::Reject => {
            assert_eq!(outcome, Err(EnqueueRefusal::NotUnique { holder, state }));
            assert_eq!((before.state, after), (state, None));
        }
        OnConflict::Ignore => {
            let stored = outcome.unwrap();
            assert!(stored.is_old());
            assert_eq!((stored.id, stored.state, stored.at), (holder, state, before.job.created));
            assert_eq!((before.state, after), (state, None));
        }
        OnConflict::Replace | OnConflict::ReplaceExceptSchedule => {
            let stored = outcome.unwrap();
            let Some(KeyOutcome::Replaced { job, moved }) = stored.by_key else {
                panic!("{state} job was not replaced");
            };
            assert_eq!((stored.id, job, moved.is_some()), (new.id, holder, !state.is_terminal()));
            let ended = if state.is_terminal() { state } else { State::Cancelled };
            let kept = state == State::Scheduled && on_conflict != OnConflict::Replace;
            let begun = if kept { State::Scheduled } else { State::Available };
            assert_eq!((before.state, after.unwrap().state), (ended, begun));
        }
    }
}

fn job_of_another_key_is_in_the_way_of_none<H: Harness>(world: &mut World<'_, H>) {
    first(world);
    let mut other = job(world, OnConflict::Reject);
    other.unique = Some(Unique { fingerprint: [8; 32], ..unique(OnConflict::Reject) });
    assert_eq!(store(world, &other).unwrap().by_key, None);
}

fn ignored_job_leaves_nothing_behind<H: Harness>(world: &mut World<'_, H>) {
    let holder = first(world);
    let before = events(world);
    let again = job(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, holder);
    assert_eq!(events(world), before);
    let counts = world.ask(world.store().tally());
    assert_eq!(counts.iter().map(|it| it.counts.state(State::Available)).sum::<u64>(), 1);
}

fn events<H: Harness>(world: &World<'_, H>) -> Vec<(EventName, Option<JobId>)> {
    let all = EventQuery::all(1000);
    let page = world.ask(world.store().events(all));
    page.events.into_iter().map(|(_, event)| (event.kind, event.job)).collect()
}

fn replaced_job_is_cancelled_and_its_worker_is_named<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let old = in_state(world, hand, State::Active);
    let new = job(world, OnConflict::Replace);
    let stored = store(world, &new).unwrap();
    let Some(KeyOutcome::Replaced { moved: Some(moved), .. }) = stored.by_key else {
        panic!("a running job is replaced");
    };
    assert_eq!((moved.job, moved.state, moved.holder), (old, State::Cancelled, Some(hand.worker)));
    let logged = [(EventName::JobCancelled, Some(old)), (EventName::JobEnqueued, Some(new.id))];
    assert!(events(world).ends_with(&logged), "{:?}", events(world));
}

fn replaced_job_that_was_cancelled_keeps_its_attempt<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let old = first(world);
    let claimed = world.run(hand);
    let new = job(world, OnConflict::Replace);
    store(world, &new).unwrap();
    assert!(world.read(old).holder.is_some(), "until its process tree has ended");
    let moved = world.finish(&claimed, hand, ReportedOutcome::Interrupted);
    assert!(matches!(moved.map(|it| it.outcome), Ok(Some(Outcome::Cancelled)) | Err(_)));
    assert_eq!(world.read(old).state, State::Cancelled);
    assert_eq!(world.take(hand).job.id, new.id);
}

fn job_keeps_the_time_of_the_scheduled_one_it_replaces<H: Harness>(world: &mut World<'_, H>) {
    let at = world.now().after(Span(1000));
    let mut old = job(world, OnConflict::Reject);
    old.first = First::At(at);
    world.add(old);
    let mut new = job(world, OnConflict::ReplaceExceptSchedule);
    new.first = First::At(world.now().after(Span(5000)));
    assert_eq!(store(world, &new).unwrap().state, State::Scheduled);
    assert_eq!(world.read(new.id).due, Some(at));
    let last = job(world, OnConflict::Replace);
    assert_eq!(store(world, &last).unwrap().state, State::Available);
}

fn period_counts_from_when_the_other_job_was_stored<H: Harness>(world: &mut World<'_, H>) {
    let holder = first(world);
    let of = |world: &mut World<'_, H>, period| {
        let mut new = job(world, OnConflict::Reject);
        new.unique = Some(Unique { period, ..unique(OnConflict::Reject) });
        store(world, &new).is_ok()
    };
    world.wait(Span(999));
    assert!(!of(world, Some(Span(1000))));
    assert!(!of(world, None));
    world.wait(Span(1));
    assert!(!of(world, Some(Span(1001))), "the new policy says how long");
    assert!(of(world, Some(Span(1000))));
    assert_eq!(world.read(holder).state, State::Available);
    assert!(!of(world, Some(Span(1000))), "the new one has the key now");
}

fn cancelled_job_is_in_the_way_until_its_attempt_has_ended<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let old = first(world);
    let claimed = world.run(hand);
    world.cancel(old).unwrap();
    let new = job(world, OnConflict::Reject);
    let refused = EnqueueRefusal::NotUnique { holder: old, state: State::Cancelled };
    assert_eq!(store(world, &new), Err(refused));
    drop(world.finish(&claimed, hand, ReportedOutcome::Interrupted));
    assert!(store(world, &new).is_ok());
}

fn job_without_a_key_is_in_the_way_of_none<H: Harness>(world: &mut World<'_, H>) {
    world.add_plain();
    first(world);
    world.add_plain();
}

fn latest_job_has_the_key<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    in_state(world, hand, State::Completed);
    let second = first(world);
    let refused = EnqueueRefusal::NotUnique { holder: second, state: State::Available };
    let third = job(world, OnConflict::Reject);
    assert_eq!(store(world, &third), Err(refused));
    world.cancel(second).unwrap();
    assert!(store(world, &third).is_ok());
}

fn same_key_twice_in_one_batch_meets_itself<H: Harness>(world: &mut World<'_, H>) {
    let jobs: Vec<NewJob> = OnConflict::ALL.map(|it| job(world, it)).into();
    let enqueue = |job: &NewJob| Command::Enqueue(Box::new(job.clone()));
    let replies = world.apply(jobs.iter().map(enqueue).collect()).replies;
    let outcome = |at: usize| match &replies[at] {
        Reply::Enqueued(outcome) => outcome.clone(),
        other => panic!("not an enqueue's reply: {other:?}"),
    };
    assert_eq!(outcome(0).unwrap().id, jobs[0].id);
    assert_eq!(outcome(1).unwrap().id, jobs[0].id);
    assert_eq!(outcome(2).unwrap().id, jobs[2].id);
    assert_eq!(outcome(3).unwrap().id, jobs[3].id);
    let states = [0, 2, 3].map(|at: usize| world.read(jobs[at].id).state);
    assert_eq!(states, [State::Cancelled, State::Cancelled, State::Available]);
    let again = job(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, jobs[3].id);
}

/// A job that is not in the way gives its key away unread.
fn key_passes_on_several_times_in_one_batch<H: Harness>(world: &mut World<'_, H>) {
    let old = first(world);
    let mut jobs = Vec::new();
    for _ in 0..4 {
        let states = States::EMPTY.with(State::Completed);
        let unique = Unique { states, ..unique(OnConflict::Reject) };
        jobs.push(NewJob { unique: Some(unique), ..world.job() });
    }
    let enqueue = |job: &NewJob| Command::Enqueue(Box::new(job.clone()));
    let replies = world.apply(jobs.iter().map(enqueue).collect()).replies;
    assert!(replies.iter().all(|reply| matches!(reply, Reply::Enqueued(Ok(_)))), "{replies:?}");
    assert_eq!(world.read(old).state, State::Available);
    let again = job(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, jobs[3].id);
}

fn moves_of_the_same_batch_count<H: Harness>(world: &mut World<'_, H>) {
    let old = first(world);
    let (refused, taken) = (job(world, OnConflict::Reject), job(world, OnConflict::Reject));
    let enqueue = |job: &NewJob| Command::Enqueue(Box::new(job.clone()));
    let cancel = Command::Order(crate::conformance::world::order(JobAction::Cancel, old));
    let replies = world.apply(vec![enqueue(&refused), cancel, enqueue(&taken)]).replies;
    assert!(matches!(replies[0], Reply::Enqueued(Err(EnqueueRefusal::NotUnique { .. }))));
    assert!(matches!(&replies[2], Reply::Enqueued(Ok(stored)) if stored.id == taken.id));
}

fn all<H: Harness>(
    world: &mut World<'_, H>,
    jobs: &[NewJob],
) -> Result<Vec<Enqueued>, (usize, EnqueueRefusal)> {
    match world.one(Command::EnqueueAll(jobs.to_vec())) {
        Reply::EnqueuedAll(stored) => stored,
        other => panic!("not a bulk enqueue's reply: {other:?}"),
    }
}

fn with_key<H: Harness>(world: &mut World<'_, H>, key: u8, on_conflict: OnConflict) -> NewJob {
    let unique = Unique { fingerprint: [key; 32], ..unique(on_conflict) };
    NewJob { unique: Some(unique), ..world.job() }
}

fn request_is_refused_whole_for_one_job_that_is_not_unique<H: Harness>(world: &mut World<'_, H>) {
    let replaced = with_key(world, 1, OnConflict::Reject);
    let replaced = world.add(replaced);
    let holder = first(world);
    let jobs =
        [with_key(world, 1, OnConflict::Replace), world.job(), job(world, OnConflict::Reject)];
    let refusal = EnqueueRefusal::NotUnique { holder, state: State::Available };
    assert_eq!(all(world, &jobs), Err((2, refusal)));
    assert_eq!(world.read(replaced).state, State::Available);
    assert!(jobs.iter().all(|job| world.find(job.id).is_none()));
}

fn key_twice_in_one_request_is_refused<H: Harness>(world: &mut World<'_, H>) {
    let jobs = [job(world, OnConflict::Ignore), job(world, OnConflict::Ignore)];
    assert_eq!(all(world, &jobs), Err((1, EnqueueRefusal::RepeatedKey(jobs[1].id))));
    assert_eq!(world.find(jobs[0].id), None);
}

fn request_takes_each_of_its_keys<H: Harness>(world: &mut World<'_, H>) {
    let (old, kept) =
        (with_key(world, 1, OnConflict::Reject), with_key(world, 2, OnConflict::Reject));
    let (old, kept) = (world.add(old), world.add(kept));
    let jobs = [
        with_key(world, 1, OnConflict::Replace),
        with_key(world, 2, OnConflict::Ignore),
        world.job(),
        with_key(world, 3, OnConflict::Reject),
    ];
    let stored = all(world, &jobs).unwrap();
    let ids: Vec<JobId> = stored.iter().map(|it| it.id).collect();
    assert_eq!(ids, [jobs[0].id, kept, jobs[2].id, jobs[3].id]);
    assert_eq!(world.read(old).state, State::Cancelled);
    let again = with_key(world, 3, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, jobs[3].id);
}

fn known_id_is_refused_and_nothing_is_replaced<H: Harness>(world: &mut World<'_, H>) {
    let known = world.add_plain();
    let holder = first(world);
    for on_conflict in [OnConflict::Replace, OnConflict::ReplaceExceptSchedule] {
        let mut new = job(world, on_conflict);
        for id in [known, holder] {
            new.id = id;
            assert_eq!(store(world, &new), Err(EnqueueRefusal::DuplicateId(id)));
        }
    }
    assert_eq!(world.read(holder).state, State::Available);
}

fn job_that_repeats_its_own_id_finds_itself<H: Harness>(world: &mut World<'_, H>) {
    let mut new = job(world, OnConflict::Ignore);
    new.id = first(world);
    assert_eq!(store(world, &new).map(|stored| stored.id), Ok(new.id));
}

fn replay_asks_no_key<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let old = in_state(world, hand, State::Discarded);
    let new = first(world);
    world.replay(old).unwrap();
    assert_eq!(
        (world.read(old).state, world.read(new).state),
        (State::Available, State::Available)
    );
    let again = job(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, new);
}

fn request_that_found_another_job_leaves_no_idempotency_key<H: Harness>(world: &mut World<'_, H>) {
    let holder = first(world);
    let once = |job: &NewJob| {
        let (key, request) = ([1; 32], [1; 32]);
        let jobs = vec![job.clone()];
        Command::EnqueueOnce(Box::new(EnqueueOnce { key, request, keep: Span(1000), jobs }))
    };
    let ids = |reply| match reply {
        Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(stored))) => stored[0].id,
        other => panic!("not stored: {other:?}"),
    };
    let new = job(world, OnConflict::Ignore);
    assert_eq!(ids(world.one(once(&new))), holder);
    world.cancel(holder).unwrap();
    assert_eq!(ids(world.one(once(&new))), new.id);
    let later = job(world, OnConflict::Ignore);
    let before = Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(vec![new.id])));
    assert_eq!(world.one(once(&later)), before);
}

fn pruned_job_takes_its_key_along<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let old = in_state(world, hand, State::Completed);
    world.wait(Span(1000));
    let now = world.now();
    world.prune(now);
    assert_eq!(world.find(old), None);
    let states = States::LIVE.with(State::Completed);
    let mut new = job(world, OnConflict::Reject);
    new.unique = Some(Unique { states, ..unique(OnConflict::Reject) });
    assert!(store(world, &new).is_ok());
}

fn keys_survive_a_crash<H: Harness>(world: &mut World<'_, H>) {
    let holder = first(world);
    world.crash();
    let again = job(world, OnConflict::Ignore);
    assert_eq!(store(world, &again).unwrap().id, holder);
}

fn reset_drops_unique_keys<H: Harness>(world: &mut World<'_, H>) {
    first(world);
    world.one(Command::Reset);
    first(world);
}
