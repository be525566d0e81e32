//! The audit of limits: gates that count wrongly are found and corrected, and others are left alone.

use std::num::NonZeroU32;

use outlast_core::id::JobId;
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::GateId;
use outlast_store::command::{AskedByQueues, Claim, Command, Recount, ReportedOutcome};
use outlast_store::event::{Event, EventQuery};
use outlast_store::limit::{GateQuery, Miscount};
use outlast_store::reply::Reply;
use outlast_store::store::Store as _;

use crate::conformance::Harness;
use crate::conformance::limit::per_tenant;
use crate::conformance::world::{Hand, World, finish};

cases![
    count_that_is_right_is_left_alone,
    count_that_is_too_high_is_corrected_and_jobs_go_on,
    count_that_is_too_low_is_corrected_and_holds_back,
    gate_that_nothing_holds_is_corrected_too,
    look_goes_on_after_a_gate,
    what_the_batch_itself_claims_and_ends_counts,
    recount_without_the_leadership_does_nothing,
    correction_is_in_the_event_log,
];

impl<H: Harness> World<'_, H> {
    fn miscount(&self, by: i32) {
        self.harness().miscount(self.store(), by);
    }

    fn suspects(&self) -> Vec<GateId> {
        self.ask(self.store().miscounted_gates(None, 10))
    }

    fn recounting(&mut self, gates: Vec<GateId>) -> Command {
        let leadership = self.retention();
        Command::Recount(Recount { leadership, gates })
    }

    fn recount(&mut self, gates: Vec<GateId>) -> Vec<Miscount> {
        let command = self.recounting(gates);
        match self.one(command) {
            Reply::Recounted(Ok(corrected)) => corrected,
            other => panic!("not a recount's reply: {other:?}"),
        }
    }

    fn recount_events(&self) -> Vec<Event> {
        let names = vec!["limit.recounted".to_owned()];
        let (after, queues, job, worker, limit) = (None, Vec::new(), None, None, 100);
        let query = EventQuery { after, names, queues, job, worker, ..EventQuery::all(limit) };
        self.ask(self.store().events(query)).events.into_iter().map(|(_, event)| event).collect()
    }

    /// The gates of what runs of tenant `a`.
    fn gates_of_tenant(&self) -> Vec<GateId> {
        let query = GateQuery { name: per_tenant(1).name, limit: 10 };
        self.ask(self.store().gates(query)).into_iter().map(|gate| gate.id).collect()
    }
}

/// Two jobs of a tenant of which at most two may run: one runs, and one waits for a worker.
fn one_of_two<H: Harness>(world: &mut World<'_, H>) -> (Hand, JobId) {
    world.limit(per_tenant(2));
    let hand = world.worker();
    let [_, second] = [(); 2].map(|()| world.of_tenant("a"));
    assert_eq!(world.grab(hand, 1).jobs.len(), 1);
    (hand, second)
}

fn count_that_is_right_is_left_alone<H: Harness>(world: &mut World<'_, H>) {
    let (hand, second) = one_of_two(world);
    assert_eq!(world.suspects(), []);
    let gates = world.gates_of_tenant();
    assert_eq!(gates.len(), 1);
    assert_eq!(world.recount([gates, vec![GateId(7)]].concat()), []);
    assert_eq!(world.recount_events(), []);
    assert_eq!(world.grab_ids(hand, 10), [second]);
}

fn count_that_is_too_high_is_corrected_and_jobs_go_on<H: Harness>(world: &mut World<'_, H>) {
    let (hand, second) = one_of_two(world);
    world.miscount(3);
    let claims = world.claims_by(hand.claimant(), world.all_classes(), 10).unwrap();
    assert_eq!((claims.jobs.len(), claims.blocked.len()), (0, 1), "a slot was lost");
    let gates = world.gates_of_tenant();
    assert_eq!(world.suspects(), gates);
    let corrected = world.recount(gates.clone());
    let limit = Some(per_tenant(2).name);
    let value = Some("a".to_owned());
    assert_eq!(corrected, [Miscount { gate: gates[0], limit, value, counted: 4, held: 1 }]);
    assert_eq!(world.suspects(), []);
    assert_eq!(world.grab_ids(hand, 10), [second]);
    world.crash();
    assert_eq!(world.suspects(), []);
}

fn count_that_is_too_low_is_corrected_and_holds_back<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for _ in 0..2 {
        world.of_tenant("a");
    }
    let running = world.grab(hand, 1).jobs.remove(0);
    let gates = world.gates_of_tenant();
    world.miscount(-1);
    assert_eq!(world.suspects(), gates);
    assert_eq!(world.recount(gates)[0].held, 1);
    assert_eq!(world.grab_ids(hand, 10), []);
    world.finish(&running, hand, ReportedOutcome::Completed).unwrap();
    assert_eq!(world.grab_ids(hand, 10).len(), 1);
}

fn gate_that_nothing_holds_is_corrected_too<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    world.of_tenant("a");
    let running = world.grab(hand, 1).jobs.remove(0);
    world.miscount(2);
    world.finish(&running, hand, ReportedOutcome::Completed).unwrap();
    let suspects = world.suspects();
    let corrected = world.recount(suspects);
    assert_eq!((corrected[0].counted, corrected[0].held), (2, 0));
    assert_eq!(world.suspects(), []);
    let next = world.of_tenant("a");
    assert_eq!(world.grab_ids(hand, 10), [next]);
}

fn look_goes_on_after_a_gate<H: Harness>(world: &mut World<'_, H>) {
    world.limit(per_tenant(1));
    let hand = world.worker();
    for n in 0..5 {
        world.of_tenant(&format!("t{n}"));
    }
    assert_eq!(world.grab(hand, 5).jobs.len(), 5);
    world.miscount(1);
    let all = world.suspects();
    assert!(all.len() == 5 && all.is_sorted(), "{all:?}");
    let after = |nth: usize, max| world.ask(world.store().miscounted_gates(Some(all[nth]), max));
    assert_eq!(after(0, 2), all[1..3]);
    assert_eq!(after(2, 10), all[3..]);
    assert_eq!(after(4, 10), []);
}

fn what_the_batch_itself_claims_and_ends_counts<H: Harness>(world: &mut World<'_, H>) {
    let (hand, second) = one_of_two(world);
    let gates = world.gates_of_tenant();
    let recount = world.recounting(gates);
    let claim = Command::Claim(Claim {
        claimant: hand.claimant(),
        from: world.all_classes(),
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    });
    let replies = world.apply(vec![claim, recount.clone()]).replies;
    assert_eq!(replies[1], Reply::Recounted(Ok(Vec::new())));
    assert_eq!(world.in_flight("tenant"), 2);
    let fence = hand.fence(world.read(second).epoch);
    let replies = world.apply(vec![finish(second, fence, ReportedOutcome::Completed), recount]);
    assert_eq!(replies.replies[1], Reply::Recounted(Ok(Vec::new())));
    assert_eq!(world.in_flight("tenant"), 1);
    assert_eq!(world.suspects(), []);
}

fn recount_without_the_leadership_does_nothing<H: Harness>(world: &mut World<'_, H>) {
    one_of_two(world);
    world.miscount(1);
    let gates = world.suspects();
    let mut leadership = world.retention();
    leadership.epoch = leadership.epoch.next();
    let reply = world.one(Command::Recount(Recount { leadership, gates: gates.clone() }));
    let refused = matches!(reply, Reply::Recounted(Err(LeadershipRefusal::Elsewhere(_))));
    assert!(refused, "{reply:?}");
    assert_eq!(world.suspects(), gates);
}

fn correction_is_in_the_event_log<H: Harness>(world: &mut World<'_, H>) {
    one_of_two(world);
    world.miscount(1);
    let gates = world.suspects();
    world.recount(gates);
    let events = world.recount_events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&*events[0].evidence, &*events[0].by),
        ("tenant:a counted 2, and 1 held it", "audit")
    );
}
