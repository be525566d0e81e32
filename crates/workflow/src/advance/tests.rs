mod cases;
mod properties;
mod store;

use serde_json::{Value, json};

use super::*;
use crate::state::StepState;
use store::{ItemAt, Store};

/// Returns the statuses of the steps as one line.
fn statuses(store: &Store) -> String {
    let steps = store.definition.steps().iter().zip(&store.state.steps);
    let shown: Vec<_> =
        steps.map(|(step, state)| format!("{}={}", step.name, state.status)).collect();
    format!("{}: {}", store.state.status, shown.join(" "))
}

fn native(steps: Value) -> Store {
    Store::begin(Definition::read(&json!({"steps": steps})).unwrap())
}

fn standard(value: Value) -> Store {
    Store::begin(Definition::of_standard(&value).unwrap())
}

#[test]
fn each_word_meets_each_end_as_the_table_says() {
    use Decision::{Run, Skip};
    let table = [
        ("success", [Run, Skip, Skip, Skip]),
        ("failure", [Skip, Run, Run, Skip]),
        ("always", [Run, Run, Run, Run]),
    ];
    for (when, expected) in table {
        let definition = Definition::read(&json!({"steps": {
            "a": {"action": "x"}, "b": {"action": "x", "after": "a", "when": when},
        }}))
        .unwrap();
        let ends = [
            Standing::Success,
            Standing::Failure,
            Standing::SkippedAfterFailure,
            Standing::Skipped,
        ];
        for (end, expected) in ends.into_iter().zip(expected) {
            let decided = decide::by_words(&definition.steps()[1], &[end]);
            assert_eq!(decided, Some(expected), "{when} after {end:?}");
        }
    }
}

#[test]
fn an_event_that_cannot_be_changes_nothing() {
    let mut store = native(json!({"a": {"action": "x"}, "b": {"action": "x", "after": "a"}}));
    let before = store.state.clone();
    let end = |step| Event::ItemsEnded {
        step,
        ends: vec![ItemEnd { item: 0, outcome: Outcome::Completed, error: None }],
    };
    assert_eq!(store.refused(&end(1)), Refusal::NotRunning { step: 1, running: 0 });
    assert_eq!(store.refused(&end(7)), Refusal::NoSuchStep(7));
    assert_eq!(store.refused(&Event::RetryRequested), Refusal::StillRunning);
    let replay = Event::ItemReplayed { step: 0, outcome: Outcome::Failed };
    assert_eq!(store.refused(&replay), Refusal::NotEnded { step: 0 });
    assert_eq!(store.state, before);
    store.end_all(Outcome::Completed);
    assert_eq!(
        store.refused(&Event::CancelRequested),
        Refusal::AlreadyEnded(WorkflowStatus::Completed)
    );
    assert_eq!(store.refused(&Event::RetryRequested), Refusal::NothingToRetry);
    assert_eq!(store.refused(&end(0)), Refusal::NotRunning { step: 0, running: 0 });
}

#[test]
fn a_second_begin_starts_nothing() {
    let mut store = native(json!({"a": {"action": "x"}}));
    assert_eq!(store.happens(&Event::Begun), Advance::default());
}

#[test]
fn an_end_of_one_of_many_items_touches_only_its_step() {
    let items: Vec<_> = (0..10_000).collect();
    let mut store = native(json!({"a": {"action": "x", "for_each": items, "concurrency": 2}}));
    let advance = store.end(ItemAt { step: 0, item: 1 }, Outcome::Completed);
    assert_eq!(advance.effects, [Effect::EnqueueItems { step: 0, count: 1 }]);
    let expected = StepState {
        status: StepStatus::Running,
        total: 10_000,
        held: 9_997,
        running: 2,
        completed: 1,
        ..StepState::new()
    };
    assert_eq!(store.state.steps[0], expected);
}
