//! Random shapes, every `when`, every end, in random orders, with cancels, retries and replays.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A step before it is text.
#[derive(Clone, Debug)]
struct Drawn {
    parents: u16,
    when: u8,
    items: u8,
    concurrency: u8,
    reads: u8,
    goes_on: bool,
    is_workflow: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (any::<u16>(), 0..6_u8, 0..8_u8, 0..4_u8, 0..6_u8, any::<bool>(), any::<bool>()).prop_map(
        |(parents, when, items, concurrency, reads, goes_on, is_workflow)| Drawn {
            parents,
            when,
            items,
            concurrency,
            reads,
            goes_on,
            is_workflow,
        },
    )
}

/// Returns a definition whose steps are written in the order that `places` gives.
fn definition(steps: &[Drawn], places: &[u16]) -> Definition {
    let described: Vec<_> =
        steps.iter().enumerate().map(|(index, step)| describe(index, step)).collect();
    let mut order: Vec<_> = (0..steps.len()).collect();
    order.sort_by_key(|index| places[*index]);
    let list: Vec<_> = order.into_iter().map(|index| described[index].clone()).collect();
    Definition::read(&json!({"steps": list})).unwrap()
}

fn describe(index: usize, step: &Drawn) -> Value {
    // A quarter of all edges that may be.
    let parents = (0..index).filter(|parent| (step.parents >> parent) & 5 == 5);
    let named: Vec<_> = parents.map(|parent| format!("s{parent}")).collect();
    let target = if step.is_workflow { "workflow" } else { "action" };
    let mut made = json!({"name": format!("s{index}"), target: "x.y", "after": named});
    if step.goes_on {
        made["on_failure"] = "continue".into();
    }
    if let Some(parent) = named.last() {
        made["when"] = match step.when {
            0 => json!("failure"),
            1 => json!("always"),
            2 => json!(format!("steps.{parent}.status == 'completed'")),
            // Has no value where the parent has no list.
            3 => json!(format!("steps.{parent}.result.size() > 0")),
            _ => json!("success"),
        };
        match step.reads {
            0 => made["with"] = json!({"x": format!("${{{{ steps.{parent}.result.n }}}}")}),
            1 => made["for_each"] = json!(format!("${{{{ steps.{parent}.result }}}}")),
            2 => made["for_each"] = json!(format!("${{{{ steps.{parent}.result.list }}}}")),
            _ => {}
        }
    }
    if made.get("for_each").is_none() && step.items < 5 {
        made["for_each"] = (0..step.items).collect();
    }
    if made.get("for_each").is_some() && step.concurrency > 0 {
        made["concurrency"] = step.concurrency.into();
    }
    made
}

fn shapes() -> impl Strategy<Value = Definition> {
    (vec(drawn(), 1..12), vec(any::<u16>(), 12))
        .prop_map(|(steps, places)| definition(&steps, &places))
}

/// Chains, groups and batches within each other.
fn forms() -> impl Strategy<Value = Definition> {
    let job = Just(json!({"type": "t"}));
    let nested = job.prop_recursive(3, 20, 4, |inner| {
        let members = vec(inner.clone(), 1..4);
        prop_oneof![
            members.clone().prop_map(|steps| json!({"type": "chain", "steps": steps})),
            vec(inner.clone(), 0..4).prop_map(|jobs| json!({"type": "group", "jobs": jobs})),
            (members, inner, 1..8_u8).prop_map(|(jobs, callback, which)| {
                let keys = ["on_complete", "on_success", "on_failure"];
                let chosen = keys.iter().enumerate().filter(|(bit, _)| which >> bit & 1 == 1);
                let callbacks: serde_json::Map<_, _> =
                    chosen.map(|(_, key)| ((*key).to_owned(), callback.clone())).collect();
                json!({"type": "batch", "jobs": jobs, "callbacks": callbacks})
            }),
        ]
    });
    vec(nested, 1..4).prop_map(|steps| {
        Definition::of_standard(&json!({"type": "chain", "steps": steps})).unwrap()
    })
}

/// Picks one of several.
fn pick<T: Copy>(from: &[T], choice: u32) -> Option<T> {
    from.get(usize::try_from(choice).unwrap().checked_rem(from.len())?).copied()
}

fn outcome(choice: u32) -> Outcome {
    // Half of them complete, or few steps would follow others.
    if choice.is_multiple_of(2) {
        return Outcome::Completed;
    }
    pick(&Outcome::ALL, choice / 2).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    // The store checks after each event that either the workflow has ended or an item runs, that
    // no step starts before its parents ended, that no item is stored or enqueued twice, and that
    // only announced results are read.
    #[test]
    fn a_workflow_never_waits_for_what_cannot_come(
        definition in prop_oneof![3 => shapes(), 1 => forms()],
        choices in vec((0..40_u32, any::<u32>(), any::<u32>()), 0..80),
    ) {
        let mut store = Store::begin(definition);
        for (act, which, how) in choices {
            match act {
                0 => drop(store.try_event(&Event::CancelRequested)),
                1 => drop(store.try_event(&Event::TimeoutReached)),
                2..=4 => drop(store.try_event(&Event::RetryRequested)),
                5..=8 => {
                    if let Some(at) = pick(&store.unsuccessful(), which) {
                        drop(store.replay(at));
                    }
                }
                _ => {
                    if let Some(at) = pick(&store.running(), which) {
                        store.end(at, outcome(how));
                    }
                }
            }
        }
        store.end_all(Outcome::Completed);
        prop_assert!(store.state.status.is_ended());
        prop_assert_eq!(store.state.open, 0);
    }

    #[test]
    fn the_order_of_ends_does_not_change_how_it_ends(
        definition in prop_oneof![3 => shapes(), 1 => forms()],
        outcomes in vec(any::<u32>(), 100),
        orders in (vec(any::<u32>(), 200), vec(any::<u32>(), 200)),
    ) {
        let run = |order: &[u32]| {
            let mut store = Store::begin(definition.clone());
            for choice in order.iter().cycle() {
                let Some(at) = pick(&store.running(), *choice) else { break };
                let which = (at.step * 7 + usize::try_from(at.item).unwrap()) % outcomes.len();
                store.end(at, outcome(outcomes[which]));
            }
            (statuses(&store), store.state)
        };
        prop_assert_eq!(run(&orders.0), run(&orders.1));
    }

    #[test]
    fn what_fails_can_be_retried_until_it_completes(
        definition in prop_oneof![3 => shapes(), 1 => forms()],
        outcomes in vec(any::<u32>(), 60),
    ) {
        let mut store = Store::begin(definition);
        let mut outcomes = outcomes.into_iter();
        // Expressions that never have a value fail again and again.
        for _ in 0..40 {
            while let Some(at) = store.running().first().copied() {
                store.end(at, outcomes.next().map_or(Outcome::Completed, outcome));
            }
            if store.try_event(&Event::RetryRequested).is_err() {
                break;
            }
        }
        for (step, state) in store.definition.steps().iter().zip(&store.state.steps) {
            let failed = state.status.is_unsuccessful() && state.total > 0;
            let counts = step.on_failure == crate::OnFailure::Fail && !step.handled;
            prop_assert!(!(failed && counts), "{}: {:?}", step.name, state);
        }
    }
}
