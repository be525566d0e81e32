//! The texts that a store keeps of a workflow: what it is, and how it and its steps stand.

use std::collections::BTreeMap;

use outlast_core::time::Timestamp;
use outlast_store::workflow::StepRecord;
use outlast_workflow::state::{Reason, Stop};
use outlast_workflow::{Definition, StepState, StepStatus, WorkflowState, WorkflowStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What a workflow is. It does not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredDefinition {
    /// Its steps, as [`Definition::to_json`] has them.
    pub(super) steps: Value,
    /// Its parameters, defaults included.
    pub(super) parameters: Map<String, Value>,
    /// The workflow of a pack that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    /// Labels of its jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    /// Keys of its jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) keys: BTreeMap<String, String>,
    /// How many workflows are above it.
    #[serde(default)]
    pub(super) depth: usize,
    /// Who began it.
    pub(super) by: String,
    /// Digest of the request that began it, if it had an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<String>,
    /// The fire of a schedule that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) schedule: Option<StoredFire>,
}

/// A fire of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredFire {
    pub(crate) name: String,
    pub(crate) fire_time: i64,
}

/// How a workflow stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Whether its first steps were started.
    pub(super) begun: bool,
    /// Why it is ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stop: Option<StopWord>,
    /// When its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<i64>,
    /// The workflow of a pack that it is, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    /// In which form it was given, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) form: Option<String>,
    /// How often it was retried.
    #[serde(default)]
    pub(super) retries: u32,
    /// Its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Box<RawValue>>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// Why a workflow is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopWord {
    Cancel,
    Timeout,
}

/// How a step stands, with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) state: StepState,
    pub(super) started: Option<Timestamp>,
    pub(super) finished: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct StepText {
    status: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    total: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    held: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    running: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    completed: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    timed_out: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    cancelled: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    abandoned: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    after_failure: bool,
    /// Why it failed, and the item that did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<(Option<u32>, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl StopWord {
    pub(super) const fn of(stop: Stop) -> Self {
        match stop {
            Stop::Cancel => Self::Cancel,
            Stop::Timeout => Self::Timeout,
        }
    }

    const fn stop(self) -> Stop {
        match self {
            Self::Cancel => Stop::Cancel,
            Self::Timeout => Stop::Timeout,
        }
    }
}

impl Step {
    pub(super) const fn waiting() -> Self {
        Self { state: StepState::new(), started: None, finished: None }
    }

    /// Returns the text that a store keeps.
    pub(super) fn record(&self, step: usize) -> StepRecord {
        let state = &self.state;
        let text = StepText {
            status: state.status.as_str().to_owned(),
            total: state.total,
            held: state.held,
            running: state.running,
            completed: state.completed,
            failed: state.failed,
            timed_out: state.timed_out,
            cancelled: state.cancelled,
            abandoned: state.abandoned,
            after_failure: state.after_failure,
            reason: state.reason.as_ref().map(|it| (it.item, it.text.clone())),
            started: self.started.map(|at| at.0),
            finished: self.finished.map(|at| at.0),
        };
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        // It holds texts and numbers only.
        StepRecord { step, state: serde_json::to_string(&text).unwrap_or_default() }
    }

    fn read(text: &str) -> Result<Self, String> {
        let text: StepText = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let status = StepStatus::parse(&text.status)
            .ok_or_else(|| format!("no step is {:?}", text.status))?;
        let state = StepState {
            status,
            total: text.total,
            held: text.held,
            running: text.running,
            completed: text.completed,
            failed: text.failed,
            timed_out: text.timed_out,
            cancelled: text.cancelled,
            abandoned: text.abandoned,
            after_failure: text.after_failure,
            reason: text.reason.map(|(item, text)| Reason { item, text }),
        };
        let (started, finished) = (text.started.map(Timestamp), text.finished.map(Timestamp));
        Ok(Self { state, started, finished })
    }
}

/// Returns all steps of a definition as they are stored; those that wait have no record.
pub(super) fn steps(definition: &Definition, records: &[StepRecord]) -> Result<Vec<Step>, String> {
    let mut steps = vec![Step::waiting(); definition.steps().len()];
    for record in records {
        let at = usize::try_from(record.step).unwrap_or(usize::MAX);
        let step = steps.get_mut(at).ok_or_else(|| format!("there is no step {at}"))?;
        *step = Step::read(&record.state)?;
    }
    Ok(steps)
}

/// Returns the state of a workflow for the rules.
pub(super) fn state(status: WorkflowStatus, progress: &Progress, steps: &[Step]) -> WorkflowState {
    let open = steps.iter().filter(|step| !step.state.status.is_ended()).count();
    WorkflowState {
        status,
        stop: progress.stop.map(StopWord::stop),
        open: u32::try_from(open).unwrap_or(u32::MAX),
        steps: steps.iter().map(|step| step.state.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_comes_back_as_it_was_stored() {
        let mut step = Step::waiting();
        assert_eq!(step.record(3), StepRecord { step: 3, state: r#"{"status":"waiting"}"#.into() });
        step.state.status = StepStatus::Failed;
        step.state.total = 7;
        step.state.completed = 2;
        step.state.failed = 1;
        step.state.timed_out = 1;
        step.state.cancelled = 1;
        step.state.abandoned = 2;
        step.state.after_failure = true;
        step.state.reason = Some(Reason { item: Some(4), text: "no such \"table\"".into() });
        (step.started, step.finished) = (Some(Timestamp(5)), Some(Timestamp(9)));
        assert_eq!(Step::read(&step.record(0).state), Ok(step));
    }
}
