use super::*;

#[test]
fn names_are_read_as_they_are_written() {
    for status in StepStatus::ALL {
        assert_eq!(StepStatus::parse(status.as_str()), Some(status));
    }
    for status in WorkflowStatus::ALL {
        assert_eq!(WorkflowStatus::parse(status.as_str()), Some(status));
        assert_eq!(status.as_outcome().is_some(), status.is_ended());
    }
    assert_eq!(StepStatus::parse("done"), None);
}

#[test]
fn each_outcome_is_counted_once() {
    for outcome in Outcome::ALL {
        let mut state = StepState { total: 1, ..StepState::new() };
        *state.counter(outcome) += 1;
        assert_eq!(state.ended(), 1);
        let completed = state.status_of_items() == StepStatus::Completed;
        assert_eq!(completed, outcome == Outcome::Completed, "{outcome:?}");
    }
}

#[test]
fn the_gravest_end_of_an_item_is_that_of_the_step() {
    let of = |failed, abandoned, timed_out, cancelled| {
        StepState { failed, abandoned, timed_out, cancelled, ..StepState::new() }.status_of_items()
    };
    assert_eq!(of(1, 1, 1, 1), StepStatus::Failed);
    assert_eq!(of(0, 1, 1, 1), StepStatus::Abandoned);
    assert_eq!(of(0, 0, 1, 1), StepStatus::TimedOut);
    assert_eq!(of(0, 0, 0, 1), StepStatus::Cancelled);
}

#[test]
fn the_reason_is_that_of_the_first_item_whichever_ended_first() {
    let mut state = StepState::new();
    for item in [4, 2, 7] {
        state.blame(Some(item), &format!("item {item}"));
    }
    assert_eq!(state.reason, Some(Reason { item: Some(2), text: "item 2".to_owned() }));
    state.blame(Some(0), &"ä".repeat(REASON_BYTES_MAX));
    assert_eq!(state.reason.unwrap().text.len(), REASON_BYTES_MAX);
}
