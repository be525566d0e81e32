//! The rules, from three sides: the table of all pairs (which is the documentation),
//! named sentences, and what must hold along any sequence of events.

mod properties;
mod table;

use super::*;
use crate::budget::{Budgets, InterruptionCharge};
use crate::evidence::EvidenceCode;
use crate::retry::{Jitter, OnExhaustion};
use crate::time::Timestamp;
use uuid::Uuid;

const NOW: Timestamp = Timestamp(1_000_000);

fn rules(max_attempts: u32) -> Rules {
    let retry = RetryPolicy { max_attempts, jitter: false, ..RetryPolicy::standard() };
    Rules { retry, ..Rules::standard() }
}

fn worker() -> WorkerId {
    WorkerId(Uuid::from_u128(7))
}

/// A job that a worker holds, started or not.
fn active(rules: Rules, started: bool) -> Job {
    let holder = Holder { worker: Some(worker()), started: started.then_some(NOW) };
    let job = Job::new(State::Active, rules);
    Job { epoch: Epoch(1), holder: Some(holder), ..job }
}

fn judged(job: &Job, event: Event<'_>) -> Result<Transition, Refusal> {
    decide(job, event, &Budgets::DEFAULT, Jitter::NONE, NOW)
}

/// The job after a transition, as a store would have it.
fn after(job: &Job, transition: &Transition) -> Job {
    Job {
        state: transition.to,
        epoch: transition.next_epoch,
        life: transition.life,
        spent: transition.spent,
        isolated: transition.isolated,
        holder: match transition.hold {
            Hold::None => job.holder,
            Hold::Take(holder) | Hold::Keep(holder) => Some(holder),
            Hold::Drop(_) => None,
        },
        rules: job.rules.clone(),
    }
}

#[expect(clippy::fn_params_excessive_bools, reason = "the event's own fields")]
fn lose(alone: bool, mass: bool) -> Event<'static> {
    Event::Lose { alone, mass }
}

fn fail() -> Event<'static> {
    Event::Fail { error_type: "error", retryable: true }
}

#[test]
fn attempt_that_never_started_charges_nothing_the_first_time_its_worker_dies() {
    let lost = judged(&active(rules(3), false), lose(true, false)).unwrap();
    assert_eq!(lost.spent, Spent::default());
    assert_eq!(lost.hold, Hold::Drop(Outcome::Undelivered));
    assert_eq!(lost.place, Place::Ready(Turn::Front));
}

/// A job that killed its worker before its start was stored was once handed out forever.
#[test]
fn job_whose_workers_die_before_its_start_is_known_is_isolated_and_given_up() {
    let mut job = Job::new(State::Available, rules(3));
    let mut outcomes = Vec::new();
    for _death in 0..4 {
        let claim = Event::Claim { worker: Some(worker()), starts: false };
        let in_flight = after(&job, &judged(&job, claim).unwrap());
        let lost = judged(&in_flight, lose(in_flight.isolated, false)).unwrap();
        outcomes.push((lost.spent.losses, lost.isolated, lost.dead_letter));
        job = after(&in_flight, &lost);
    }
    let poison = Some(DeadLetterReason::PoisonSuspect);
    assert_eq!(outcomes, [(0, false, None), (1, false, None), (2, true, None), (3, true, poison)]);
}

/// Several jobs that kill their workers look like a mass loss. They were once handed out forever.
#[test]
fn jobs_that_always_die_with_most_workers_are_isolated_and_given_up_in_the_end() {
    for started in [true, false] {
        let mut job = Job::new(State::Available, rules(3));
        let (mut isolated_at, mut given_up_at) = (None, None);
        for death in 1..=30 {
            let claim = Event::Claim { worker: Some(worker()), starts: started };
            let in_flight = after(&job, &judged(&job, claim).unwrap());
            let lost = judged(&in_flight, lose(in_flight.isolated, true)).unwrap();
            job = after(&in_flight, &lost);
            if lost.isolated {
                isolated_at.get_or_insert(death);
            }
            if lost.to == State::Discarded {
                given_up_at = Some(death);
                break;
            }
        }
        // An attempt of which no start is known is free a few times.
        let free = if started { 0 } else { 4 };
        assert_eq!((isolated_at, given_up_at), (Some(4 + free), Some(7 + free)));
    }
}

#[test]
fn attempt_that_never_started_charges_nothing_after_a_few_mass_losses() {
    let job = Job { epoch: Epoch(4), ..active(rules(3), false) };
    assert_eq!(judged(&job, lose(true, true)).unwrap().spent, Spent::default());
    assert_eq!(judged(&job, lose(true, false)).unwrap().spent.losses, 1);
}

#[test]
fn lost_job_goes_to_the_front_and_keeps_its_retries() {
    let lost = judged(&active(rules(3), true), lose(false, false)).unwrap();
    assert_eq!(lost.spent, Spent { losses: 1, ..Spent::default() });
    assert_eq!((lost.to, lost.place), (State::Available, Place::Ready(Turn::Front)));
    assert!(!lost.isolated);
}

#[test]
fn second_loss_isolates_but_not_after_a_mass_loss() {
    let spent = Spent { losses: 1, ..Spent::default() };
    let job = Job { spent, ..active(rules(3), true) };
    assert!(judged(&job, lose(false, false)).unwrap().isolated);
    assert!(!judged(&job, lose(false, true)).unwrap().isolated);
}

#[test]
fn neighbours_are_never_blamed_for_a_loss() {
    let spent = Spent { losses: 40, ..Spent::default() };
    let job = Job { spent, ..active(rules(3), true) };
    for event in [lose(false, false), lose(true, true), lose(false, true)] {
        assert_eq!(judged(&job, event).unwrap().to, State::Available, "{event:?}");
    }
    let alone = judged(&job, lose(true, false)).unwrap();
    assert_eq!(alone.dead_letter, Some(DeadLetterReason::PoisonSuspect));
}

#[test]
fn job_that_may_start_once_is_never_run_again_after_a_loss_or_shutdown() {
    for started in [false, true] {
        let job = active(rules(1), started);
        for event in [lose(true, false), lose(false, true), Event::Interrupt, Event::CutOff] {
            let ended = judged(&job, event).unwrap();
            assert_eq!(ended.dead_letter, Some(DeadLetterReason::AtMostOnce), "{event:?}");
            assert_eq!(ended.to, State::Discarded, "{event:?}");
        }
        // Only the worker's own word that it never started gives it back.
        assert_eq!(judged(&job, Event::Release).unwrap().to, State::Available);
    }
}

#[test]
fn interruptions_beyond_the_budget_count_as_failures_and_alarm() {
    let spent = Spent { interruptions: Budgets::DEFAULT.interruptions, ..Spent::default() };
    let over = judged(&Job { spent, ..active(rules(3), true) }, Event::Interrupt).unwrap();
    assert_eq!(over.spent.failures, 1);
    assert_eq!(over.alarm, Some(Alarm::InterruptionBudgetSpent));
    let free = judged(&active(rules(3), true), Event::Interrupt).unwrap();
    assert_eq!((free.spent.failures, free.place), (0, Place::Ready(Turn::Front)));
}

#[test]
fn interruptions_are_charged_when_the_operator_says_so() {
    let budgets = Budgets { interruption_charge: InterruptionCharge::Charge, ..Budgets::DEFAULT };
    let job = active(rules(3), true);
    let moved = decide(&job, Event::Interrupt, &budgets, Jitter::NONE, NOW).unwrap();
    assert_eq!((moved.to, moved.spent.failures), (State::Retryable, 1));
}

/// Four outages longer than the lease once made a healthy job a poison suspect, and thirteen a
/// failed one.
#[test]
fn outages_that_end_an_attempt_are_never_charged_to_its_job() {
    let budgets = Budgets { interruption_charge: InterruptionCharge::Charge, ..Budgets::DEFAULT };
    let mut job = active(rules(3), true);
    for _ in 0..50 {
        let event = Event::of_reported_loss(Some(EvidenceCode::Lease), true);
        let ended = decide(&job, event, &budgets, Jitter::NONE, NOW).unwrap();
        assert_eq!(ended.hold, Hold::Drop(Outcome::Interrupted));
        assert_eq!((ended.place, ended.isolated), (Place::Ready(Turn::Front), false));
        assert_eq!((ended.spent, ended.alarm), (Spent::default(), None));
        let claim = Event::Claim { worker: Some(worker()), starts: true };
        let ready = after(&job, &ended);
        job = after(&ready, &judged(&ready, claim).unwrap());
    }
}

#[test]
fn reported_loss_without_an_outage_is_charged_as_a_loss() {
    for code in EvidenceCode::ALL.into_iter().filter(|code| *code != EvidenceCode::Lease) {
        assert_eq!(Event::of_reported_loss(Some(code), true), lose(true, false), "{code:?}");
    }
    assert_eq!(Event::of_reported_loss(None, false), lose(false, false));
}

#[test]
fn silent_plain_client_spends_an_attempt_and_a_loss() {
    let moved = judged(&active(rules(3), true), Event::ExpireVisibility).unwrap();
    assert_eq!(moved.spent, Spent { failures: 1, losses: 1, interruptions: 0 });
    let last = judged(&active(rules(1), true), Event::ExpireVisibility).unwrap();
    assert_eq!(last.to, State::Discarded);
}

#[test]
fn last_failure_discards_and_is_a_dead_letter_only_if_asked() {
    let spent = Spent { failures: 2, ..Spent::default() };
    let mut job = Job { spent, ..active(rules(3), true) };
    assert_eq!(judged(&job, fail()).unwrap().dead_letter, None);
    job.rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    assert_eq!(judged(&job, fail()).unwrap().dead_letter, Some(DeadLetterReason::Exhausted));
}

#[test]
fn error_that_must_not_be_retried_ends_the_job_with_attempts_left() {
    let mut job = active(rules(3), true);
    job.rules.retry.non_retryable = vec!["auth.*".into()];
    let event = Event::Fail { error_type: "auth.expired", retryable: true };
    assert_eq!(judged(&job, event).unwrap().to, State::Discarded);
    let final_by_report = Event::Fail { error_type: "error", retryable: false };
    assert_eq!(judged(&job, final_by_report).unwrap().to, State::Discarded);
}

#[test]
fn late_report_on_a_cancelled_job_only_frees_what_it_held() {
    let job = active(rules(3), true);
    let cancelled = after(&job, &judged(&job, Event::Cancel).unwrap());
    assert!(cancelled.holder.is_some());
    let late = judged(&cancelled, Event::Complete).unwrap();
    assert_eq!(late.answer, Answer::TooLate(State::Cancelled));
    assert_eq!(late.hold, Hold::Drop(Outcome::Cancelled));
    let vacated = after(&cancelled, &late);
    assert_eq!(judged(&vacated, Event::Complete), Err(Refusal::Terminal(State::Cancelled)));
}

#[test]
fn expired_job_is_refused_to_a_claimant() {
    let claim = Event::Claim { worker: Some(worker()), starts: false };
    for (expires, refused) in [(NOW, true), (Timestamp(NOW.0 + 1), false)] {
        let rules = Rules { expires_at: Some(expires), ..rules(3) };
        let claimed = judged(&Job::new(State::Available, rules), claim);
        assert_eq!(claimed.is_err(), refused, "{expires:?}");
    }
}

#[test]
fn report_about_an_older_epoch_or_from_another_worker_is_fenced_off() {
    let job = Job { epoch: Epoch(4), ..active(rules(3), true) };
    let other = WorkerId(Uuid::from_u128(8));
    let superseded = Refusal::Superseded { reported: Epoch(3), current: Epoch(4) };
    let not_holder = Refusal::NotHolder { current: Epoch(4) };
    assert_eq!(fence(&job, Some(Epoch(3)), Some(worker())), Err(superseded));
    assert_eq!(fence(&job, Some(Epoch(4)), Some(other)), Err(not_holder));
    assert_eq!(fence(&job, None, Some(other)), Err(not_holder));
    assert_eq!(fence(&job, Some(Epoch(4)), Some(worker())), Ok(()));
    assert_eq!(fence(&job, None, None), Ok(()));
}
