//! What one server does for all of them.

use outlast_core::id::Epoch;
use outlast_core::leadership::{Leadership, LeadershipRefusal};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    Command, LeadershipFence, LeadershipRequest, Prune, RETENTION, ReportedOutcome,
};
use outlast_store::reply::{Pruned, Reply};
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::World;

cases![
    leadership_is_one_server_s_until_its_lease_is_over,
    holder_keeps_its_leadership_by_asking_again,
    leadership_given_back_is_another_s_at_once,
    duties_do_not_meet,
    leadership_survives_a_crash_and_a_reset,
    prune_of_a_server_whose_leadership_was_taken_over_does_nothing,
    prune_without_the_leadership_does_nothing,
    leadership_taken_in_a_batch_counts_for_the_commands_after_it,
    leaders_of_what_nobody_leads_any_more_are_forgotten,
];

const A: Uuid = Uuid::from_u128(1);
const B: Uuid = Uuid::from_u128(2);
const LEASE: Span = Span(1000);

fn request(name: &str, holder: Uuid, hold: Option<Span>) -> Command {
    Command::Leadership(LeadershipRequest { name: name.to_owned(), holder, hold })
}

fn reply<H: Harness>(
    world: &mut World<'_, H>,
    command: Command,
) -> Result<Leadership, LeadershipRefusal> {
    match world.one(command) {
        Reply::Leadership(outcome) => outcome,
        other => panic!("not a reply about leadership: {other:?}"),
    }
}

fn hold<H: Harness>(
    world: &mut World<'_, H>,
    holder: Uuid,
) -> Result<Leadership, LeadershipRefusal> {
    reply(world, request(RETENTION, holder, Some(LEASE)))
}

fn prune(holder: Uuid, epoch: u64) -> Command {
    let leadership = LeadershipFence { name: RETENTION.to_owned(), holder, epoch: Epoch(epoch) };
    let all = Timestamp(i64::MAX);
    Command::Prune(Prune {
        leadership,
        finished_before: all,
        workers_before: all,
        limit: 10,
        from_start: true,
    })
}

fn leadership_is_one_server_s_until_its_lease_is_over<H: Harness>(world: &mut World<'_, H>) {
    let first = Leadership { holder: A, epoch: Epoch(1), until: world.now().after(LEASE) };
    assert_eq!(hold(world, A), Ok(first));
    world.wait(Span(LEASE.0 - 1));
    assert_eq!(hold(world, B), Err(LeadershipRefusal::Elsewhere(first)));
    world.wait(Span(1));
    let second = Leadership { holder: B, epoch: Epoch(2), until: world.now().after(LEASE) };
    assert_eq!(hold(world, B), Ok(second));
    assert_eq!(hold(world, A), Err(LeadershipRefusal::Elsewhere(second)));
}

fn holder_keeps_its_leadership_by_asking_again<H: Harness>(world: &mut World<'_, H>) {
    for _ in 0..3 {
        let until = world.now().after(LEASE);
        assert_eq!(hold(world, A), Ok(Leadership { holder: A, epoch: Epoch(1), until }));
        world.wait(Span(LEASE.0 - 1));
        assert!(hold(world, B).is_err());
    }
}

fn leadership_given_back_is_another_s_at_once<H: Harness>(world: &mut World<'_, H>) {
    let back = request(RETENTION, A, None);
    assert_eq!(reply(world, back.clone()), Err(LeadershipRefusal::NeverTaken));
    hold(world, A).unwrap();
    world.wait(Span(1));
    assert_eq!(reply(world, back.clone()).map(|leadership| leadership.until), Ok(world.now()));
    let taken = hold(world, B).unwrap();
    assert_eq!(taken.epoch, Epoch(2));
    assert_eq!(reply(world, back), Err(LeadershipRefusal::Elsewhere(taken)));
}

fn duties_do_not_meet<H: Harness>(world: &mut World<'_, H>) {
    hold(world, A).unwrap();
    let other = reply(world, request("other", B, Some(LEASE))).unwrap();
    assert_eq!((other.holder, other.epoch), (B, Epoch(1)));
    assert!(hold(world, A).is_ok());
}

fn leadership_survives_a_crash_and_a_reset<H: Harness>(world: &mut World<'_, H>) {
    let taken = hold(world, A).unwrap();
    world.crash();
    assert_eq!(hold(world, B), Err(LeadershipRefusal::Elsewhere(taken)));
    world.one(Command::Reset);
    assert_eq!(hold(world, B), Err(LeadershipRefusal::Elsewhere(taken)));
}

fn prune_of_a_server_whose_leadership_was_taken_over_does_nothing<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let id = world.add_plain();
    let claimed = world.run(hand);
    world.finish(&claimed, hand, ReportedOutcome::Completed).unwrap();
    hold(world, A).unwrap();
    world.wait(LEASE);
    let taken = hold(world, B).unwrap();
    for stale in [prune(A, 1), prune(A, 2), prune(B, 1)] {
        assert_eq!(world.one(stale), Reply::Pruned(Err(LeadershipRefusal::Elsewhere(taken))));
        assert!(world.find(id).is_some());
    }
    let Reply::Pruned(Ok(Pruned { jobs, .. })) = world.one(prune(B, 2)) else { panic!() };
    assert_eq!((jobs, world.find(id)), (1, None));
}

/// Each class that ever had a job that must run alone left its leader behind.
fn leaders_of_what_nobody_leads_any_more_are_forgotten<H: Harness>(world: &mut World<'_, H>) {
    hold(world, A).unwrap();
    for (name, lease) in [("isolate:1", LEASE), ("isolate:2", Span(9 * LEASE.0))] {
        reply(world, request(name, A, Some(lease))).unwrap();
    }
    world.wait(Span(LEASE.0 + 1));
    world.one(prune(A, 1));
    let taken = |world: &mut World<'_, H>, name| reply(world, request(name, B, Some(LEASE)));
    assert_eq!(taken(world, "isolate:1").map(|it| it.epoch), Ok(Epoch(1)));
    assert!(taken(world, "isolate:2").is_err(), "its lease is not over");
    assert_eq!(hold(world, B).map(|it| it.epoch), Ok(Epoch(2)), "the prune was its leader's");
}

fn prune_without_the_leadership_does_nothing<H: Harness>(world: &mut World<'_, H>) {
    assert_eq!(world.one(prune(A, 0)), Reply::Pruned(Err(LeadershipRefusal::NeverTaken)));
}

fn leadership_taken_in_a_batch_counts_for_the_commands_after_it<H: Harness>(
    world: &mut World<'_, H>,
) {
    let take = |holder| request(RETENTION, holder, Some(Span::ZERO));
    let replies =
        world.apply(vec![take(A), prune(A, 1), take(B), prune(A, 1), prune(B, 2)]).replies;
    assert!(matches!(replies[1], Reply::Pruned(Ok(_))), "{replies:?}");
    assert!(
        matches!(replies[3], Reply::Pruned(Err(LeadershipRefusal::Elsewhere(_)))),
        "{replies:?}"
    );
    assert!(matches!(replies[4], Reply::Pruned(Ok(_))), "{replies:?}");
}
