//! Orders: cancel, activate, replay, dead letters, tenants.

use std::num::NonZeroU32;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::{Outcome, Refusal, State};
use outlast_core::retry::OnExhaustion;
use outlast_core::time::Span;
use outlast_store::command::{
    Command, First, ForgetDeadLetter, HandleLetters, JobAction, JobOrder, LetterKey,
    ReportedOutcome, Seen,
};
use outlast_store::query::{JobQuery, Page};
use outlast_store::reply::{MoveRefusal, NotFound, Reply};
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::world::{World, failed, forget, order, rules};

cases![
    every_job_that_has_not_ended_can_be_cancelled_once,
    cancelled_job_never_runs_though_its_time_comes,
    cancel_of_a_running_job_is_at_once_and_holds_until_the_report,
    pending_job_runs_only_once_it_is_activated,
    job_that_waits_for_a_time_runs_when_it_is_asked_to,
    replay_starts_a_new_life_with_fresh_budgets,
    replay_of_an_expired_job_expires_again,
    only_discarded_jobs_are_replayed,
    forgotten_dead_letter_leaves_the_job_discarded,
    dead_letter_is_unhandled_once_in_each_life,
    job_of_another_tenant_is_not_found,
    order_for_a_job_as_it_was_seen_is_refused_once_it_moved,
    reset_drops_everything,
];

fn every_job_that_has_not_ended_can_be_cancelled_once<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let retryable = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    let available = world.add_plain();
    let (mut later, mut pending) = (world.job(), world.job());
    later.first = First::At(world.now().after(Span(1000)));
    pending.first = First::OnActivation;
    let ids = [retryable, available, world.add(later), world.add(pending)];
    for id in ids {
        let moved = world.cancel(id).unwrap();
        assert_eq!((moved.state, moved.holder), (State::Cancelled, None));
        let job = world.read(id);
        assert_eq!((job.state, &*job.ended_by), (State::Cancelled, "cancelled"));
        assert_eq!((job.finished, job.due), (Some(world.now()), None));
        let again = Err(MoveRefusal::Refused(Refusal::Terminal(State::Cancelled)));
        assert_eq!(world.cancel(id), again);
    }
    assert_eq!(world.claim(hand, 10).len(), 0);
}

fn cancelled_job_never_runs_though_its_time_comes<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut later = world.job();
    later.first = First::At(world.now().after(Span(1000)));
    let id = world.add(later);
    world.cancel(id).unwrap();
    world.wait(Span(1000));
    assert_eq!(world.sweep().moved, []);
    assert_eq!(world.claim(hand, 1).len(), 0);
}

fn cancel_of_a_running_job_is_at_once_and_holds_until_the_report<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    let moved = world.cancel(id).unwrap();
    assert_eq!((moved.state, moved.holder), (State::Cancelled, Some(hand.worker)));
    assert_eq!(moved.outcome, None);
    let late = world.finish(&claimed, hand, ReportedOutcome::Completed);
    let terminal = Refusal::Terminal(State::Cancelled);
    assert_eq!(late, Err(MoveRefusal::Refused(terminal)));
    let job = world.read(id);
    assert_eq!((job.state, job.holder, job.result), (State::Cancelled, None, None));
    assert_eq!(world.attempts(id)[0].outcome, Some(Outcome::Cancelled));
}

fn pending_job_runs_only_once_it_is_activated<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut pending = world.job();
    pending.first = First::OnActivation;
    let id = world.add(pending);
    assert_eq!(world.claim(hand, 1).len(), 0);
    world.moved(Command::Order(order(JobAction::Activate, id))).unwrap();
    let again = world.moved(Command::Order(order(JobAction::Activate, id)));
    assert_eq!(again, Err(MoveRefusal::Refused(Refusal::WrongState(State::Available))));
    assert_eq!(world.take(hand).job.id, id);
}

fn job_that_waits_for_a_time_runs_when_it_is_asked_to<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut later = world.job();
    later.first = First::At(world.now().after(Span::from_secs(3600)));
    let id = world.add(later);
    assert_eq!(world.claim(hand, 1).len(), 0);
    let moved = world.moved(Command::Order(order(JobAction::RunNow, id))).unwrap();
    assert_eq!(moved.state, State::Available);
    let again = world.moved(Command::Order(order(JobAction::RunNow, id)));
    assert_eq!(again, Err(MoveRefusal::Refused(Refusal::WrongState(State::Available))));
    let claimed = world.take(hand);
    assert_eq!(claimed.job.id, id);
    // A retry comes before its wait is over, with what it has spent.
    world.finish(&claimed, hand, failed()).unwrap();
    world.moved(Command::Order(order(JobAction::RunNow, id))).unwrap();
    assert_eq!((world.take(hand).job.id, world.read(id).spent.failures), (id, 1));
}

/// A job that used up its attempts and is a dead letter.
fn dead_letter<H: Harness>(world: &mut World<'_, H>) -> JobId {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = rules(1);
    job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    let id = world.add(job);
    let claimed = world.run(hand);
    world.finish(&claimed, hand, failed()).unwrap();
    id
}

fn letters<H: Harness>(world: &World<'_, H>) -> Vec<JobId> {
    let query = JobQuery::dead_letters(Page { limit: 10, cursor: None });
    let page = world.ask(world.store().dead_letters(query));
    let letters = page.letters.iter().map(|letter| letter.job.job.id).collect::<Vec<_>>();
    assert_eq!(page.total, u64::try_from(letters.len()).ok());
    letters
}

fn replay_starts_a_new_life_with_fresh_budgets<H: Harness>(world: &mut World<'_, H>) {
    let id = dead_letter(world);
    assert_eq!(letters(world), [id]);
    let moved = world.replay(id).unwrap();
    assert_eq!((moved.from, moved.state), (State::Discarded, State::Available));
    let job = world.read(id);
    assert_eq!((job.life.get(), job.spent.failures, job.attempt), (2, 0, 0));
    assert_eq!((job.finished, job.error, job.dead_letter), (None, None, None));
    assert_eq!(letters(world), []);
    let hand = world.worker();
    let claimed = world.run(hand);
    assert_eq!((claimed.epoch.0, claimed.attempt), (2, 1));
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let lives: Vec<_> = world.attempts(id).iter().map(|of| (of.epoch.0, of.life.get())).collect();
    assert_eq!(lives, [(1, 1), (2, 2)]);
}

fn replay_of_an_expired_job_expires_again<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.rules.expires_at = Some(world.now().after(Span(1000)));
    let id = world.add(job);
    world.wait(Span(1000));
    for _ in 0..2 {
        world.sweep();
        let job = world.read(id);
        assert_eq!((job.state, &*job.ended_by), (State::Discarded, "expired"));
        world.replay(id).unwrap();
    }
    assert_eq!(world.read(id).life.get(), 3);
}

fn only_discarded_jobs_are_replayed<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let wrong = |state| Err(MoveRefusal::Refused(Refusal::WrongState(state)));
    assert_eq!(world.replay(id), wrong(State::Available));
    let claimed = world.run(hand);
    assert_eq!(world.replay(id), wrong(State::Active));
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    let terminal = Err(MoveRefusal::Refused(Refusal::Terminal(State::Completed)));
    assert_eq!(world.replay(id), terminal);
}

fn forgotten_dead_letter_leaves_the_job_discarded<H: Harness>(world: &mut World<'_, H>) {
    let id = dead_letter(world);
    let of_next_life = ForgetDeadLetter { life: NonZeroU32::new(2), ..forget(id) };
    let not_found = Reply::Forgotten(Err(NotFound));
    assert_eq!(world.one(Command::ForgetDeadLetter(of_next_life)), not_found);
    assert_eq!(letters(world), [id]);
    let of_this_life = ForgetDeadLetter { life: NonZeroU32::new(1), ..forget(id) };
    assert_eq!(world.one(Command::ForgetDeadLetter(of_this_life)), Reply::Forgotten(Ok(())));
    assert_eq!(world.one(Command::ForgetDeadLetter(forget(id))), Reply::Forgotten(Err(NotFound)));
    assert_eq!(letters(world), []);
    assert_eq!((world.read(id).state, world.read(id).dead_letter), (State::Discarded, None));
}

fn dead_letter_is_unhandled_once_in_each_life<H: Harness>(world: &mut World<'_, H>) {
    let id = dead_letter(world);
    let unhandled = |world: &World<'_, H>| -> Vec<LetterKey> {
        world.ask(world.store().unhandled_letters(10)).iter().map(|letter| letter.key).collect()
    };
    let of = |life| LetterKey { job: id, life: NonZeroU32::new(life).unwrap() };
    let handle = |life| Command::HandleLetters(HandleLetters { letters: vec![of(life)] });
    assert_eq!(unhandled(world), [of(1)]);
    // What is said of a later or an earlier life changes nothing.
    assert_eq!(world.one(handle(2)), Reply::Done);
    assert_eq!(unhandled(world), [of(1)]);
    world.one(handle(1));
    assert_eq!((unhandled(world), letters(world)), (Vec::new(), vec![id]));
    world.replay(id).unwrap();
    let hand = world.worker();
    let claimed = world.run(hand);
    let hopeless = ReportedOutcome::Failed { error_type: "e".into(), retryable: false };
    world.finish(&claimed, hand, hopeless).unwrap();
    world.one(handle(1));
    assert_eq!(unhandled(world), [of(2)]);
    world.one(Command::ForgetDeadLetter(forget(id)));
    assert_eq!(unhandled(world), []);
}

fn job_of_another_tenant_is_not_found<H: Harness>(world: &mut World<'_, H>) {
    let mut job = world.job();
    job.class.tenant = Some("acme".into());
    let id = world.add(job);
    let of =
        |tenant: &str| JobOrder { tenant: Some(tenant.into()), ..order(JobAction::Cancel, id) };
    assert_eq!(world.moved(Command::Order(of("other"))), Err(MoveRefusal::NotFound));
    assert_eq!(world.read(id).state, State::Available);
    assert!(world.moved(Command::Order(of("acme"))).is_ok());
}

fn order_for_a_job_as_it_was_seen_is_refused_once_it_moved<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let id = world.add_plain();
    let order = |state, epoch, started| JobOrder {
        expected: Some(Seen { state, epoch: Epoch(epoch), started }),
        ..order(JobAction::Cancel, id)
    };
    let waiting = order(State::Available, 0, false);
    let claimed = world.claim(hand, 1).remove(0);
    assert_eq!(world.moved(Command::Order(waiting)), Err(MoveRefusal::Moved));
    let in_flight = order(State::Active, claimed.epoch.0, false);
    world.start(&claimed, hand).unwrap();
    assert_eq!(world.moved(Command::Order(in_flight)), Err(MoveRefusal::Moved));
    assert_eq!(world.read(id).state, State::Active);
    let running = order(State::Active, claimed.epoch.0, true);
    assert!(world.moved(Command::Order(running)).is_ok());
}

fn reset_drops_everything<H: Harness>(world: &mut World<'_, H>) {
    dead_letter(world);
    let running = world.add_plain();
    world.fetch(Some("me"), 1);
    assert_eq!(world.one(Command::Reset), Reply::Done);
    assert_eq!(world.find(running), None);
    assert_eq!(world.ask(world.store().workers()), []);
    assert_eq!(world.ask(world.store().queues()), []);
    assert_eq!(world.ask(world.store().backlog()), []);
    assert_eq!(world.ask(world.store().next_due()), None);
    assert_eq!(letters(world), []);
    let again = world.add_plain();
    assert_eq!(world.read(again).state, State::Available);
}
