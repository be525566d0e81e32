//! What users of other systems reported (`CASES.md`), and what the standard wants.

use super::*;

#[test]
fn a_child_lost_too_often_moves_its_parent() {
    // taskforcesh/bullmq#2464, #2531.
    let mut store = native(json!({
        "child": {"action": "x"},
        "parent": {"action": "x", "after": "child", "when": "always"},
    }));
    store.ends("child", Outcome::Abandoned);
    assert_eq!(statuses(&store), "running: child=abandoned parent=running");
    store.end_all(Outcome::Completed);
    assert_eq!(statuses(&store), "failed: child=abandoned parent=completed");
}

#[test]
fn every_end_of_a_child_leaves_nothing_to_wait_for() {
    // taskforcesh/bullmq#3122, #3362, #3235, #800.
    for outcome in Outcome::ALL {
        let mut store = native(json!({"a": {"action": "x"}, "b": {"action": "x", "after": "a"}}));
        store.ends("a", outcome);
        let expected = if outcome == Outcome::Completed { "running" } else { "failed" };
        assert_eq!(store.state.status.as_str(), expected, "after {outcome:?}");
    }
}

#[test]
fn an_empty_list_is_complete_at_once_and_its_result_is_empty() {
    // celery/celery#2107, #3756, #4333.
    let mut store = native(json!({
        "each": {"action": "x", "for_each": []},
        "next": {"action": "x", "after": "each", "with": {"all": "${{ steps.each.result }}"}},
    }));
    assert_eq!(statuses(&store), "running: each=completed next=running");
    assert_eq!(store.inputs_of("next"), [json!({"all": []})]);
    store.end_all(Outcome::Completed);
    let empty = native(json!({"each": {"action": "x", "for_each": []}}));
    assert_eq!(
        (statuses(&empty).as_str(), empty.result()),
        ("completed: each=completed", json!([]))
    );
}

#[test]
fn an_empty_group_is_complete_at_once_and_the_next_step_runs() {
    // celery/celery#2107, #3756, #4333.
    let group = json!({"type": "group", "jobs": []});
    assert_eq!(statuses(&standard(group.clone())), "completed: jobs=completed");
    let job = json!({"type": "t", "args": []});
    let chain = standard(json!({"type": "chain", "steps": [job, group, job]}));
    assert_eq!(statuses(&chain), "running: step-0=running step-1.jobs=waiting step-2=waiting");
    let mut chain = chain;
    chain.ends("step-0", Outcome::Completed);
    assert_eq!(statuses(&chain), "running: step-0=completed step-1.jobs=completed step-2=running");
}

#[test]
fn the_body_runs_once_after_a_retried_member() {
    // celery/celery#1401.
    let mut store = native(json!({
        "member": {"action": "x", "for_each": [1, 2, 3]},
        "body": {"action": "x", "after": "member"},
    }));
    let at = |item| ItemAt { step: 0, item };
    store.end(at(0), Outcome::Completed);
    store.end(at(2), Outcome::Failed);
    store.end(at(1), Outcome::Completed);
    assert_eq!(statuses(&store), "failed: member=failed body=skipped");
    let again = store.happens(&Event::RetryRequested);
    assert_eq!(
        again.effects,
        [Effect::HoldUnsuccessful { step: 0 }, Effect::EnqueueItems { step: 0, count: 1 }]
    );
    assert_eq!(store.running(), [at(2)]);
    let last = store.end(at(2), Outcome::Completed);
    let starts = last.effects.iter().filter(|it| matches!(it, Effect::EnqueueItems { .. }));
    assert_eq!(starts.count(), 1);
    assert_eq!(statuses(&store), "running: member=completed body=running");
}

#[test]
fn the_error_callback_runs_once_whatever_the_depth() {
    // celery/celery#3317, #9107.
    let mut store = native(json!({
        "a": {"action": "x"},
        "b": {"action": "x", "after": "a"},
        "c": {"action": "x", "after": "b"},
        "handler": {"action": "x", "after": "c", "when": "failure"},
    }));
    store.ends("a", Outcome::Failed);
    assert_eq!(statuses(&store), "running: a=failed b=skipped c=skipped handler=running");
    store.end_all(Outcome::Completed);
    assert_eq!(store.state.status, WorkflowStatus::Failed);
    let nested = json!({"type": "batch", "jobs": [
        {"type": "chain", "steps": [{"type": "a"}, {"type": "b"}]}, {"type": "c"},
    ], "callbacks": {"on_failure": {"type": "f"}}});
    let mut nested = standard(nested);
    nested.ends("job-0.step-0", Outcome::Discarded);
    nested.ends("job-1", Outcome::Completed);
    assert!(statuses(&nested).ends_with("on-failure=running"), "{}", statuses(&nested));
}

#[test]
fn results_are_addressed_by_step_whatever_the_shape() {
    // celery/celery#4161.
    let mut store = native(json!({
        "first": {"action": "x"},
        "left": {"action": "x", "after": "first"},
        "left-2": {"action": "x", "after": "left"},
        "right": {"action": "x", "after": "first"},
        "last": {"action": "x", "after": ["left-2", "right"], "with": {
            "first": "${{ steps.first.result }}", "left": "${{ steps[\"left-2\"].result.n }}",
        }},
    }));
    store.completes("first", json!("one"));
    store.completes("left", json!("two"));
    store.completes("left-2", json!({"n": 3}));
    store.completes("right", json!(null));
    assert_eq!(store.inputs_of("last"), [json!({"first": "one", "left": 3})]);
}

#[test]
fn callbacks_are_counted_by_the_committed_outcome() {
    // sidekiq/sidekiq#6852, bensheldon/good_job#832.
    let mut store = native(json!({
        "a": {"action": "x"}, "b": {"action": "x"},
        "callback": {"action": "x", "after": ["a", "b"]},
    }));
    assert_eq!(store.ends("a", Outcome::Completed).effects.len(), 1);
    let end = ItemEnd { item: 0, outcome: Outcome::Completed, error: None };
    let again = Event::ItemsEnded { step: 0, ends: vec![end] };
    assert_eq!(store.refused(&again), Refusal::NotRunning { step: 0, running: 0 });
    store.ends("b", Outcome::Completed);
    assert_eq!(store.running(), [store.first("callback")]);
    assert_eq!(store.refused(&again), Refusal::NotRunning { step: 0, running: 0 });
}

#[test]
fn all_items_are_stored_before_any_can_run() {
    // breamware/sidekiq-batch#20, #41, #69, sidekiq/sidekiq#5068.
    let definition = json!({"steps": {
        "each": {"action": "x", "for_each": [1, 2, 3], "concurrency": 2, "with": {"n": "${{ item }}"}},
    }});
    let definition = Definition::read(&definition).unwrap();
    let mut state = WorkflowState::new(&definition);
    let values = Store::begin(definition.clone());
    let null = Value::Null;
    let inputs = Inputs { parameters: &null, workflow: &null, values: &NoValues };
    let begun = advance(&definition, &mut state, &Event::Begun, &inputs).unwrap();
    let stored = [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})].to_vec();
    assert_eq!(
        begun.effects,
        [
            Effect::StoreItems { step: 0, inputs: stored },
            Effect::EnqueueItems { step: 0, count: 2 }
        ]
    );
    assert_eq!(values.state, state);
}

/// Has no result of any step.
struct NoValues;

impl Values for NoValues {
    fn result(&self, _: usize) -> Result<Value, ValueError> {
        Err(ValueError("it was deleted".into()))
    }
}

#[test]
fn a_step_that_starts_a_workflow_ends_with_it() {
    // sidekiq/sidekiq#3535.
    let mut store = native(json!({
        "inner": {"workflow": "pack.inner", "with": {"n": "${{ parameters.n }}"}},
        "outer": {"action": "x", "after": "inner"},
    }));
    assert_eq!(store.inputs_of("inner"), [json!({"n": 3})]);
    assert_eq!(statuses(&store), "running: inner=running outer=waiting");
    let outcome = WorkflowStatus::Completed.as_outcome().unwrap();
    store.ends("inner", outcome);
    assert_eq!(statuses(&store), "running: inner=completed outer=running");
}

#[test]
fn a_chain_stops_at_a_failure() {
    let job = json!({"type": "t", "args": []});
    let mut store = standard(json!({"type": "chain", "steps": [job, job, job]}));
    store.ends("step-0", Outcome::Completed);
    store.ends("step-1", Outcome::Discarded);
    assert_eq!(statuses(&store), "failed: step-0=completed step-1=failed step-2=skipped");
}

#[test]
fn a_group_fails_once_all_of_its_jobs_have_ended() {
    let job = json!({"type": "t"});
    let mut store = standard(json!({"type": "group", "jobs": [job, job]}));
    store.ends("job-0", Outcome::Failed);
    assert_eq!(statuses(&store), "running: job-0=failed job-1=running");
    store.ends("job-1", Outcome::Completed);
    assert_eq!(statuses(&store), "failed: job-0=failed job-1=completed");
}

#[test]
fn callbacks_of_a_batch_fire_as_the_standard_says() {
    let job = json!({"type": "t"});
    let batch = json!({"type": "batch", "jobs": [job, job], "callbacks":
        {"on_success": job, "on_failure": job, "on_complete": job}});
    let mut good = standard(batch.clone());
    good.ends("job-0", Outcome::Completed);
    good.ends("job-1", Outcome::Completed);
    let fired = "on-complete=running on-success=running on-failure=skipped";
    assert!(statuses(&good).ends_with(fired), "{}", statuses(&good));
    let mut bad = standard(batch);
    bad.ends("job-0", Outcome::Completed);
    bad.ends("job-1", Outcome::Failed);
    let fired = "on-complete=running on-success=skipped on-failure=running";
    assert!(statuses(&bad).ends_with(fired), "{}", statuses(&bad));
    bad.end_all(Outcome::Completed);
    assert_eq!(bad.state.status, WorkflowStatus::Completed, "the callback dealt with it");
    let mut silent =
        standard(json!({"type": "batch", "jobs": [job], "callbacks": {"on_success": job}}));
    silent.ends("job-0", Outcome::Failed);
    assert_eq!(statuses(&silent), "failed: job-0=failed on-success=skipped");
}

#[test]
fn a_chain_goes_on_behind_a_batch_whose_callbacks_did_not_fail() {
    let job = json!({"type": "t"});
    let batch = json!({"type": "batch", "jobs": [job], "callbacks":
        {"on_success": job, "on_failure": job}});
    let chain = json!({"type": "chain", "steps": [batch, job]});
    for (outcome, callback) in
        [(Outcome::Completed, "step-0.on-success"), (Outcome::Failed, "step-0.on-failure")]
    {
        let mut store = standard(chain.clone());
        store.ends("step-0.job-0", outcome);
        store.ends(callback, Outcome::Completed);
        assert!(statuses(&store).ends_with("step-1=running"), "{}", statuses(&store));
        let mut store = standard(chain.clone());
        store.ends("step-0.job-0", outcome);
        store.ends(callback, Outcome::Failed);
        assert!(statuses(&store).ends_with("step-1=skipped"), "{}", statuses(&store));
    }
}

#[test]
fn cancel_ends_what_waits_and_what_runs() {
    let mut store = native(json!({
        "a": {"action": "x", "for_each": [1, 2, 3], "concurrency": 1},
        "b": {"action": "x", "after": "a", "when": "always"},
    }));
    let cancelled = store.happens(&Event::CancelRequested);
    assert_eq!(
        cancelled.effects,
        [
            Effect::CancelItems { step: 0 },
            Effect::StepEnded { step: 1, status: StepStatus::Cancelled },
        ]
    );
    assert_eq!(store.happens(&Event::TimeoutReached), Advance::default());
    assert_eq!(statuses(&store), "running: a=running b=cancelled");
    store.ends("a", Outcome::Completed);
    assert_eq!(statuses(&store), "cancelled: a=cancelled b=cancelled");
    store.happens(&Event::RetryRequested);
    assert_eq!(statuses(&store), "running: a=running b=waiting");
    store.end_all(Outcome::Completed);
    assert_eq!(statuses(&store), "completed: a=completed b=completed");
}

#[test]
fn a_retry_leaves_alone_what_it_does_not_change() {
    let mut store = native(json!({
        "good": {"action": "x"},
        "bad": {"action": "x"},
        "ignored": {"action": "x", "on_failure": "continue"},
        "handler": {"action": "x", "after": "good", "when": "failure"},
        "next": {"action": "x", "after": "bad"},
    }));
    store.ends("good", Outcome::Completed);
    store.ends("ignored", Outcome::Failed);
    store.ends("bad", Outcome::QueueFull);
    let again = store.happens(&Event::RetryRequested);
    assert_eq!(
        again.effects,
        [Effect::HoldUnsuccessful { step: 1 }, Effect::EnqueueItems { step: 1, count: 1 }]
    );
    assert_eq!(again.changed, BTreeSet::from([1, 4]));
    store.end_all(Outcome::Completed);
    assert_eq!(
        statuses(&store),
        "completed: good=completed bad=completed ignored=failed handler=skipped next=completed"
    );
}

#[test]
fn a_cancel_that_came_too_late_leaves_nothing_to_retry() {
    let mut store = native(json!({"a": {"action": "x"}}));
    store.happens(&Event::CancelRequested);
    let replay = Event::ItemReplayed { step: 0, outcome: Outcome::Failed };
    assert_eq!(store.refused(&replay), Refusal::Stopping);
    store.ends("a", Outcome::Completed);
    assert_eq!(statuses(&store), "cancelled: a=completed");
    assert_eq!(store.refused(&Event::RetryRequested), Refusal::NothingToRetry);
}

#[test]
fn a_timeout_shows_itself() {
    let mut store = native(json!({"a": {"action": "x"}}));
    store.happens(&Event::TimeoutReached);
    store.ends("a", Outcome::Cancelled);
    assert_eq!(statuses(&store), "timeout: a=cancelled");
}

#[test]
fn a_replayed_dead_letter_moves_its_workflow_on() {
    let mut store = native(json!({
        "a": {"action": "x"},
        "b": {"action": "x", "after": "a"},
        "report": {"action": "x", "after": "b", "when": "always"},
        "c": {"action": "x", "after": "b"},
    }));
    store.ends("a", Outcome::Abandoned);
    store.ends("report", Outcome::Completed);
    assert_eq!(statuses(&store), "failed: a=abandoned b=skipped report=completed c=skipped");
    store.replay(store.first("a")).unwrap();
    assert_eq!(statuses(&store), "running: a=running b=waiting report=completed c=waiting");
    store.end_all(Outcome::Completed);
    assert_eq!(statuses(&store), "completed: a=completed b=completed report=completed c=completed");
}

#[test]
fn an_expression_that_has_no_value_fails_its_step_with_the_reason() {
    let mut store = native(json!({
        "a": {"action": "x"},
        "b": {"action": "x", "after": "a", "with": {"n": "${{ steps.a.result.n }}"}},
        "c": {"action": "x", "after": "a", "for_each": "${{ steps.a.result }}"},
        "d": {"action": "x", "after": "a", "when": "steps.a.result"},
        "e": {"action": "x", "after": ["b", "c", "d"], "when": "failure",
              "with": {"why": "${{ steps.b.error }}"}},
    }));
    store.completes("a", json!({"m": 1}));
    assert_eq!(statuses(&store), "running: a=completed b=failed c=failed d=failed e=running");
    let reason = |step: usize| store.state.steps[step].reason.as_ref().unwrap().text.as_str();
    assert_eq!(reason(1), "${{ steps.a.result.n }}: there is no key `n`");
    assert_eq!(reason(2), "for_each: its value is no list");
    assert_eq!(reason(3), "when: ${{ steps.a.result }}: is neither true nor false");
    assert_eq!(store.inputs_of("e"), [json!({"why": reason(1)})]);
}

#[test]
fn a_deleted_result_fails_the_step_that_wants_it() {
    let definition = Definition::read(&json!({"steps": {
        "a": {"action": "x"},
        "b": {"action": "x", "after": "a", "with": {"n": "${{ steps.a.result }}"}},
    }}))
    .unwrap();
    let null = Value::Null;
    let inputs = Inputs { parameters: &null, workflow: &null, values: &NoValues };
    let mut state = WorkflowState::new(&definition);
    advance(&definition, &mut state, &Event::Begun, &inputs).unwrap();
    let end = ItemEnd { item: 0, outcome: Outcome::Completed, error: None };
    let end = Event::ItemsEnded { step: 0, ends: vec![end] };
    assert_eq!(reads(&definition, &state, &end), BTreeSet::from([0]));
    advance(&definition, &mut state, &end, &inputs).unwrap();
    assert_eq!(state.status, WorkflowStatus::Failed);
    let reason = state.steps[1].reason.clone().unwrap().text;
    assert_eq!(reason, "the result of the step `a` is not there: it was deleted");
}

#[test]
fn a_failure_that_may_be_ignored_is_success_to_others() {
    let mut store = native(json!({
        "a": {"action": "x", "on_failure": "continue"},
        "b": {"action": "x", "after": "a", "with": {"of": "${{ steps.a.status }}"}},
        "handler": {"action": "x", "after": "a", "when": "failure"},
    }));
    store.ends("a", Outcome::Failed);
    assert_eq!(statuses(&store), "running: a=failed b=running handler=skipped");
    assert_eq!(store.inputs_of("b"), [json!({"of": "failed"})]);
    store.end_all(Outcome::Completed);
    assert_eq!(store.state.status, WorkflowStatus::Completed);
}

#[test]
fn the_example_of_the_contract_runs_to_its_end() {
    let definition = Definition::read(&json!({
        "name": "nightly",
        "parameters": {"folder": {"type": "string", "required": true}},
        "timeout": "2h",
        "steps": {
            "load": {"action": "ase.load", "with": {"folder": "${{ parameters.folder }}"}},
            "each": {"action": "ase.elaborate", "after": ["load"],
                "for_each": "${{ steps.load.result.files }}", "with": {"file": "${{ item }}"},
                "concurrency": 4},
            "send": {"action": "ase.send", "after": ["each"]},
            "report": {"action": "core.echo", "after": ["send"], "when": "always",
                "with": {"message": "${{ steps.send.status }}"}},
        },
    }))
    .unwrap();
    let mut store = Store::begin_with(definition, json!({"folder": "/in"}));
    assert_eq!(store.inputs_of("load"), [json!({"folder": "/in"})]);
    store.completes("load", json!({"files": ["a", "b", "c", "d", "e"]}));
    assert_eq!(store.inputs_of("each")[4], json!({"file": "e"}));
    assert_eq!(store.running().len(), 4);
    let each = store.definition.step("each").unwrap();
    while store.state.steps[each].status == StepStatus::Running {
        let at = *store.running().last().unwrap();
        store.end(at, Outcome::Completed);
    }
    store.ends("send", Outcome::TimedOut);
    assert_eq!(store.inputs_of("report"), [json!({"message": "timeout"})]);
    store.completes("report", json!("said"));
    assert_eq!(
        statuses(&store),
        "failed: load=completed each=completed send=timeout report=completed"
    );
    assert_eq!(store.result(), json!("said"));
}
