//! What holds along any sequence of events, whatever the rules and budgets.

use proptest::prelude::*;

use super::{active, after, rules};
use crate::budget::{Budgets, InterruptionCharge, Spent};
use crate::id::WorkerId;
use crate::job::{Event, EventKind, Hold, Job, Outcome, State, Transition, decide};
use crate::retry::{Jitter, OnExhaustion};
use crate::time::{Span, Timestamp};
use uuid::Uuid;

fn events() -> impl Strategy<Value = Event<'static>> {
    let worker = (0..3u128).prop_map(|n| Some(WorkerId(Uuid::from_u128(n))));
    prop_oneof![
        2 => Just(Event::Activate),
        4 => Just(Event::Due),
        12 => (worker, any::<bool>()).prop_map(|(worker, starts)| Event::Claim { worker, starts }),
        6 => Just(Event::Start),
        1 => Just(Event::Complete),
        4 => any::<bool>().prop_map(|retryable| Event::Fail { error_type: "e.f", retryable }),
        2 => Just(Event::TimeOut),
        4 => Just(Event::Interrupt),
        2 => Just(Event::CutOff),
        2 => Just(Event::Release),
        2 => Just(Event::Requeue),
        4 => (any::<bool>(), any::<bool>()).prop_map(|(alone, mass)| Event::Lose { alone, mass }),
        2 => Just(Event::ExpireVisibility),
        1 => Just(Event::Cancel),
        1 => Just(Event::Expire),
        1 => Just(Event::Strand),
        3 => Just(Event::Replay),
    ]
}

fn jobs() -> impl Strategy<Value = Job> {
    let state = prop_oneof![
        Just(State::Scheduled),
        Just(State::Available),
        Just(State::Pending),
        Just(State::Active)
    ];
    (state, 1..5u32, any::<bool>(), proptest::option::of(0..60_000i64)).prop_map(
        |(state, max, letters, expires)| {
            let mut rules = rules(max);
            rules.expires_at = expires.map(Timestamp);
            if letters {
                rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
            }
            if state == State::Active { active(rules, false) } else { Job::new(state, rules) }
        },
    )
}

fn budgets() -> impl Strategy<Value = Budgets> {
    (1..4u32, 0..4u32, any::<bool>()).prop_map(|(losses, interruptions, charge)| Budgets {
        losses,
        interruptions,
        interruption_charge: if charge {
            InterruptionCharge::Charge
        } else {
            InterruptionCharge::Free
        },
    })
}

/// Plays events and shows every step that was not refused.
fn play(
    mut job: Job,
    budgets: &Budgets,
    events: &[(Event<'static>, u64)],
    mut check: impl FnMut(&Job, Event<'_>, &Transition, &Job),
) {
    let mut now = Timestamp(0);
    for (event, wait) in events {
        now = now.after(Span(*wait));
        let Ok(step) = decide(&job, *event, budgets, Jitter::NONE, now) else { continue };
        let next = after(&job, &step);
        check(&job, *event, &step, &next);
        job = next;
    }
}

fn total(spent: Spent) -> [u32; 3] {
    [spent.failures, spent.losses, spent.interruptions]
}

proptest! {
    #[test]
    fn terminal_state_changes_only_by_a_replay_into_a_new_life(
        job in jobs(), budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        play(job, &budgets, &events, |before, event, _, next| {
            if before.state.is_terminal() && next.state != before.state {
                assert_eq!(event.kind(), EventKind::Replay);
                assert_eq!(before.state, State::Discarded);
            }
            let replayed = event.kind() == EventKind::Replay;
            assert_eq!(next.life.get(), before.life.get() + u32::from(replayed));
        });
    }

    #[test]
    fn epoch_rises_by_one_at_a_claim_and_never_else(
        job in jobs(), budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        play(job, &budgets, &events, |before, event, step, next| {
            let claimed = event.kind() == EventKind::Claim;
            assert_eq!(next.epoch.0, before.epoch.0 + u64::from(claimed));
            assert_eq!((step.from, step.epoch), (before.state, before.epoch));
        });
    }

    #[test]
    fn budgets_never_shrink_within_a_life_and_rise_by_at_most_one(
        job in jobs(), budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        play(job, &budgets, &events, |before, _, _, next| {
            if before.life == next.life {
                for (old, new) in total(before.spent).into_iter().zip(total(next.spent)) {
                    assert!(new == old || new == old + 1);
                }
            } else {
                assert_eq!(next.spent, Spent::default());
            }
            // The last charged attempt ends the job, so there is never one more.
            assert!(next.spent.failures <= next.rules.retry.max_attempts);
        });
    }

    #[test]
    fn cancelled_and_expired_jobs_are_never_claimed(
        job in jobs(), budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        let mut cancelled = false;
        play(job, &budgets, &events, |_, event, _, next| {
            cancelled |= event.kind() == EventKind::Cancel;
            assert!(!cancelled || next.state == State::Cancelled);
        });
    }

    #[test]
    fn exactly_the_active_are_held_and_a_dropped_hold_has_an_outcome(
        job in jobs(), budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        play(job, &budgets, &events, |before, _, step, next| {
            let may_hold = matches!(next.state, State::Active | State::Cancelled);
            assert!(next.holder.is_none() || may_hold, "{next:?}");
            assert!(next.state != State::Active || next.holder.is_some());
            if before.holder.is_some() && next.holder.is_none() {
                assert!(matches!(step.hold, Hold::Drop(_)));
            }
        });
    }

    #[test]
    fn job_that_may_start_once_starts_at_most_once_in_a_life(
        budgets in budgets(),
        events in prop::collection::vec((events(), 0..5_000u64), 1..60),
    ) {
        let mut taken_as_started = false;
        play(Job::new(State::Available, rules(1)), &budgets, &events, |_, event, step, _| {
            match event.kind() {
                EventKind::Claim => {
                    assert!(!taken_as_started, "a second start");
                    taken_as_started = true;
                }
                // The worker's or the client's own word that the attempt does not count.
                EventKind::Release | EventKind::Requeue | EventKind::Replay => {
                    taken_as_started = false;
                }
                EventKind::Activate | EventKind::Due | EventKind::Start | EventKind::Complete
                | EventKind::Fail | EventKind::TimeOut | EventKind::Interrupt | EventKind::CutOff
                | EventKind::Lose | EventKind::ExpireVisibility | EventKind::Cancel
                | EventKind::Expire | EventKind::Strand => {}
            }
            if step.hold == Hold::Drop(Outcome::Interrupted) {
                assert_eq!(step.to, State::Discarded);
            }
        });
    }
}
