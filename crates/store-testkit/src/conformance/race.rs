//! Ends that race: whatever comes second finds the job ended and changes nothing.

use outlast_core::job::State;
use outlast_core::time::Span;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    AskedByQueues, Command, JobAction, LapseScope, ReportedOutcome, Sweep,
};
use outlast_store::record::JobRecord;
use outlast_store::reply::Claimed;

use crate::conformance::Harness;
use crate::conformance::world::{
    Hand, LEASE, VISIBILITY, World, failed, finish, lapse, order, rules,
};

cases![
    of_any_two_ends_of_a_native_attempt_one_wins,
    of_any_two_ends_of_a_plain_attempt_one_wins,
    of_any_two_ends_in_one_batch_one_wins,
    claim_after_a_lapse_in_the_same_batch_is_refused,
    renewal_before_a_lapse_in_the_same_batch_wins,
    beat_after_a_lapse_is_refused,
];

/// Ways in which an attempt may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Fail,
    TimeOut,
    Interrupt,
    Cancel,
    Lapse,
    Goodbye,
    Silence,
}

const NATIVE: [End; 7] =
    [End::Complete, End::Fail, End::TimeOut, End::Interrupt, End::Cancel, End::Lapse, End::Goodbye];
const PLAIN: [End; 5] = [End::Complete, End::Fail, End::TimeOut, End::Cancel, End::Silence];

fn command<H: Harness>(
    world: &World<'_, H>,
    end: End,
    claimed: &Claimed,
    hand: Option<Hand>,
) -> Command {
    let fence = hand.map_or_else(
        || outlast_store::command::Fence { epoch: Some(claimed.epoch), ..Default::default() },
        |hand| hand.fence(claimed.epoch),
    );
    let report = |reported| finish(claimed.job.id, fence.clone(), reported);
    let worker = |hand: Option<Hand>| hand.expect("only a native worker lapses").worker;
    match end {
        End::Complete => report(ReportedOutcome::Completed),
        End::Fail => report(failed()),
        End::TimeOut => report(ReportedOutcome::TimedOut),
        End::Interrupt => report(ReportedOutcome::Interrupted),
        End::Cancel => Command::Order(order(JobAction::Cancel, claimed.job.id)),
        End::Lapse => {
            let worker = worker(hand);
            lapse(worker, world.row(worker).renewal, LapseScope::Everything)
        }
        End::Goodbye => Command::Worker(outlast_store::command::WorkerMove {
            worker: worker(hand),
            event: WorkerEvent::Goodbye,
            ordered: None,
            session: None,
            by: "test".into(),
            evidence: "said so".into(),
        }),
        End::Silence => Command::Sweep(Sweep { limit: 10, watched: Span::from_secs(86_400) }),
    }
}

/// What must not change after the first end: all but who holds a cancelled job.
fn outcome(job: JobRecord) -> JobRecord {
    JobRecord { holder: None, error: None, started: None, ..job }
}

fn one_wins<H: Harness>(world: &mut World<'_, H>, first: End, second: End, hand: Option<Hand>) {
    let mut job = world.job();
    job.rules = rules(1);
    let id = world.add(job);
    let claimed = match hand {
        Some(hand) => world.run(hand),
        None => world.fetch(None, 1).remove(0),
    };
    world.wait(if hand.is_some() { LEASE } else { VISIBILITY });
    let (one, other) =
        (command(world, first, &claimed, hand), command(world, second, &claimed, hand));
    world.one(one);
    let after_first = world.read(id);
    assert!(after_first.state.is_terminal(), "{first:?} ends a job that may start once");
    world.one(other);
    let after_both = world.read(id);
    assert_eq!(outcome(after_both), outcome(after_first), "{first:?} then {second:?}");
    let ended = world.attempts(id).iter().filter(|attempt| attempt.outcome.is_some()).count();
    assert!(ended <= 1, "{first:?} then {second:?}: the attempt ended {ended} times");
}

fn of_any_two_ends_of_a_native_attempt_one_wins<H: Harness>(world: &mut World<'_, H>) {
    for first in NATIVE {
        for second in NATIVE {
            let hand = world.worker();
            one_wins(world, first, second, Some(hand));
        }
    }
}

fn of_any_two_ends_of_a_plain_attempt_one_wins<H: Harness>(world: &mut World<'_, H>) {
    for first in PLAIN {
        for second in PLAIN {
            one_wins(world, first, second, None);
        }
    }
}

/// The server keeps to one command a job in a batch, but workers' and sweeps' commands
/// choose their own jobs.
fn of_any_two_ends_in_one_batch_one_wins<H: Harness>(world: &mut World<'_, H>) {
    for (first, second) in [
        (End::Complete, End::Lapse),
        (End::Lapse, End::Complete),
        (End::Cancel, End::Goodbye),
        (End::Goodbye, End::Cancel),
        (End::Fail, End::Goodbye),
        (End::Lapse, End::Goodbye),
    ] {
        let hand = world.worker();
        let mut job = world.job();
        job.rules = rules(1);
        let id = world.add(job);
        let claimed = world.run(hand);
        world.wait(LEASE);
        let both = [first, second].map(|end| command(world, end, &claimed, Some(hand)));
        world.apply(both.into());
        let expected = match first {
            End::Complete => State::Completed,
            End::Cancel => State::Cancelled,
            End::Fail | End::Lapse | End::Goodbye => State::Discarded,
            End::TimeOut | End::Interrupt | End::Silence => unreachable!("not in the list"),
        };
        assert_eq!(world.read(id).state, expected, "{first:?} then {second:?}");
        assert_eq!(world.attempts(id).len(), 1, "{first:?} then {second:?}");
        assert_eq!(world.read(id).holder, None, "{first:?} then {second:?}");
    }
}

fn claim_after_a_lapse_in_the_same_batch_is_refused<H: Harness>(world: &mut World<'_, H>) {
    use outlast_store::command::{Claim, ClaimFrom, Claimant};
    use outlast_store::reply::Reply;
    let hand = world.worker();
    let id = world.add_plain();
    world.wait(LEASE);
    let class = world.read(id).job.class;
    let renewal = world.row(hand.worker).renewal;
    let replies = world
        .apply(vec![
            lapse(hand.worker, renewal, LapseScope::Everything),
            Command::Claim(Claim {
                claimant: Claimant::Native { worker: hand.worker, session: hand.session },
                from: ClaimFrom::Classes([class].into()),
                max: std::num::NonZeroU32::MIN,
                is_prefetch: false,
                avoids: Vec::new(),
                asked: AskedByQueues::default(),
            }),
        ])
        .replies;
    assert!(matches!(replies[0], Reply::WorkerMoved(Ok(_))), "{:?}", replies[0]);
    assert!(matches!(replies[1], Reply::Claimed(Err(_))), "{:?}", replies[1]);
    assert_eq!(world.read(id).state, State::Available);
}

fn renewal_before_a_lapse_in_the_same_batch_wins<H: Harness>(world: &mut World<'_, H>) {
    use outlast_store::command::Renew;
    use outlast_store::reply::{Reply, WorkerMoveRefusal};
    let hand = world.worker();
    let id = world.add_plain();
    world.run(hand);
    world.wait(LEASE);
    let renewal = world.row(hand.worker).renewal;
    let renew = Renew { worker: hand.worker, lease: LEASE, in_flight: 1 };
    let replies = world
        .apply(vec![Command::Renew(renew), lapse(hand.worker, renewal, LapseScope::Everything)])
        .replies;
    assert_eq!(replies[1], Reply::WorkerMoved(Err(WorkerMoveRefusal::Renewed)));
    assert_eq!(world.read(id).state, State::Active);
}

fn beat_after_a_lapse_is_refused<H: Harness>(world: &mut World<'_, H>) {
    use outlast_core::worker::liveness::WorkerRefusal;
    use outlast_store::command::Renew;
    use outlast_store::reply::{RenewRefusal, Reply};
    let hand = world.worker();
    world.bury(hand.worker);
    let renew = Renew { worker: hand.worker, lease: LEASE, in_flight: 0 };
    let refused = Reply::Renewed(Err(RenewRefusal::Refused(WorkerRefusal::Lapsed)));
    assert_eq!(world.one(Command::Renew(renew)), refused);
}
