//! Requests about workflows: begin, cancel, retry; and what is checked before one is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::time::Timestamp;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_packs::{PackSet, Violation, WorkflowParameters};
use outlast_store::StoreError;
use outlast_store::command::WriteWorkflow;
use outlast_store::workflow::{NewWorkflow, StartedWorkflow, WorkflowState as StoredState};
use outlast_wire::execution::request::Request;
use outlast_wire::ojs::enqueue;
use outlast_wire::workflow::{Source, WorkflowRequest};
use outlast_wire::{Fault, keys};
use outlast_workflow::expression::{Scope, Work};
use outlast_workflow::limits::SUB_WORKFLOWS_MAX;
use outlast_workflow::{Definition, Refusal, StepDefinition, Target};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::draft::{Draft, Unmade, waiting_to_begin};
use super::job::{self, Common};
use super::known::Known;
use super::look;
use super::stored::{StoredDefinition, StoredFire};
use crate::engine::{Engine, Unavailable};
use crate::id;
use crate::intake::{ANONYMOUS, IntakeError, suggestion};
use crate::settings::Settings;

/// The time in the ids of workflows that were begun with an idempotency key: their ids follow from the
/// key alone.
const TIME_OF_KEYS: Timestamp = Timestamp(1_767_225_600_000);

/// A workflow that someone wants to begin.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) definition: Definition,
    /// The workflow of a pack that it is.
    pub(crate) reference: Option<String>,
    /// What it is given, checked, with defaults.
    pub(crate) parameters: Map<String, Value>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) keys: BTreeMap<String, String>,
    /// How it is called, if not as its definition says.
    pub(crate) name: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) schedule: Option<StoredFire>,
}

/// A request that may come again.
#[derive(Clone, Debug)]
pub(crate) struct Repeat {
    /// Its key, and whose it is.
    pub(crate) key: [u8; 32],
    /// What it asks for, as a digest.
    pub(crate) request: String,
}

/// What became of a request to begin a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is stored.
    Now(WorkflowId),
    /// The same request came before.
    Before(WorkflowId),
}

/// Why a workflow stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkflowError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Intake(#[from] IntakeError),
    #[error("step `{step}`: {error}")]
    Step { step: String, error: IntakeError },
    #[error("workflow {0} is not known")]
    NotFound(WorkflowId),
    #[error("workflow {reference} is not known{}", suggestion(.nearest.as_deref()))]
    UnknownReference { reference: String, nearest: Option<String> },
    #[error("workflow {reference} is faulty and left out: {fault}")]
    Faulty { reference: String, fault: String },
    #[error("workflow {0} is switched off with its pack")]
    Disabled(String),
    #[error(transparent)]
    Refused(Refusal),
    #[error("workflow {0} was changed by others again and again; try once more")]
    Contended(WorkflowId),
    #[error("idempotency key was used for another workflow")]
    KeyReused,
    #[error("workflow {0} cannot be read: {1}")]
    Damaged(WorkflowId, String),
    /// Items wait for a server that knows what they name.
    #[error("{0}")]
    Later(String),
}

/// Begins a workflow: it is stored with its first jobs, or nothing is.
pub(crate) async fn begin(engine: &Engine, wanted: Wanted) -> Result<Begun, WorkflowError> {
    let id = match &wanted.repeat {
        Some(repeat) => WorkflowId(id::of_digest(TIME_OF_KEYS, &repeat.key)),
        None => WorkflowId(Uuid::now_v7()),
    };
    if let Some(repeat) = &wanted.repeat
        && let Some(before) = before(engine, id, repeat).await?
    {
        return Ok(before);
    }
    let by = wanted.by.clone().unwrap_or_else(|| ANONYMOUS.to_owned());
    let repeat = wanted.repeat.clone();
    let new = stored(id, wanted, None, 0)?;
    let known = Arc::new(Known::of(id, new).map_err(|what| WorkflowError::Damaged(id, what))?);
    let now = engine.now().await?;
    check(engine.settings(), &known, id, now)?;
    let mut draft = Draft::new(engine, id, &known, now);
    draft.begin().await?;
    let write = draft.write(None, &by);
    let started: Vec<WorkflowId> = write.started.iter().map(|child| child.id).collect();
    if engine.submit(write).await?.is_err() {
        let before = match &repeat {
            Some(repeat) => before(engine, id, repeat).await?,
            None => None,
        };
        return before.ok_or(WorkflowError::Contended(id));
    }
    engine.shared().workflows.want(started);
    Ok(Begun::Now(id))
}

/// A workflow that a schedule starts.
pub(crate) struct Scheduled {
    pub(crate) id: WorkflowId,
    pub(crate) request: WorkflowRequest,
    pub(crate) tenant: Option<String>,
    pub(crate) by: String,
    pub(crate) fire: StoredFire,
    /// When it begins; `None` if it waits for its turn.
    pub(crate) begins: Option<Timestamp>,
}

impl Scheduled {
    /// Returns what is stored of it.
    pub(crate) fn plan(self, settings: &Settings) -> Result<StartedWorkflow, WorkflowError> {
        let WorkflowRequest { source, parameters, labels, keys, name } = self.request;
        let Source::Ref(reference) = source else {
            let problem = "names the workflow of a pack";
            return Err(IntakeError::from(Fault::field("workflow_ref", problem)).into());
        };
        let (definition, parameters) = of_pack(settings, &reference, &parameters)?;
        let wanted = Wanted {
            definition,
            reference: Some(reference),
            parameters,
            labels,
            keys,
            name,
            tenant: self.tenant,
            by: Some(self.by),
            repeat: None,
            schedule: Some(self.fire),
        };
        let reference = wanted.reference.clone();
        let new = stored(self.id, wanted, None, 0)?;
        let waiting = waiting_to_begin(Timestamp::default(), reference);
        let state = StoredState { due: self.begins, ..waiting };
        Ok(StartedWorkflow { id: self.id, new, state })
    }
}

/// Returns whether a workflow waits for its turn; `None` if it has ended or is gone.
pub(crate) async fn waits(engine: &Engine, id: WorkflowId) -> Result<Option<bool>, WorkflowError> {
    let record = engine.store().workflow(id).await?;
    let Some(record) = record.filter(|record| record.state.finished.is_none()) else {
        return Ok(None);
    };
    let (_, progress) = look::parse(&record).map_err(|what| WorkflowError::Damaged(id, what))?;
    Ok(Some(!progress.begun))
}

/// Has a workflow that waits begin: any server may do it from now on.
pub(crate) async fn let_begin(
    engine: &Engine,
    id: WorkflowId,
    by: &str,
) -> Result<(), WorkflowError> {
    let Some(record) = engine.store().workflow(id).await? else { return Ok(()) };
    if record.state.due.is_none() {
        let due = Some(engine.now().await?);
        let write = WriteWorkflow {
            to: Some(StoredState { due, ..record.state }),
            ..look::nothing(id, Some(record.revision), by)
        };
        // Who changed it meanwhile has let it begin, or cancelled it.
        let _ = engine.submit(write).await?;
    }
    engine.shared().workflows.want([id]);
    Ok(())
}

/// Finds the workflow that the same key began.
async fn before(
    engine: &Engine,
    id: WorkflowId,
    repeat: &Repeat,
) -> Result<Option<Begun>, WorkflowError> {
    let Some(record) = engine.store().look_at_workflow(id, true).await?.record else {
        return Ok(None);
    };
    let known = Known::parse(record).map_err(|what| WorkflowError::Damaged(id, what))?;
    match known.stored.request.as_ref() == Some(&repeat.request) {
        true => Ok(Some(Begun::Before(id))),
        false => Err(WorkflowError::KeyReused),
    }
}

/// Cancels a workflow: what waits is not started, what runs is cancelled.
pub(crate) async fn cancel(
    engine: &Engine,
    id: WorkflowId,
    tenant: Option<&str>,
    by: &str,
) -> Result<(), WorkflowError> {
    may_see(engine, id, tenant).await?;
    look::look(engine, id, look::Ask::Cancel, by).await
}

/// Goes on from the steps that failed, and keeps what was done.
pub(crate) async fn retry(
    engine: &Engine,
    id: WorkflowId,
    tenant: Option<&str>,
    by: &str,
) -> Result<(), WorkflowError> {
    may_see(engine, id, tenant).await?;
    look::look(engine, id, look::Ask::Retry, by).await
}

/// Refuses a tenant the workflows of others.
pub(crate) async fn may_see(
    engine: &Engine,
    id: WorkflowId,
    tenant: Option<&str>,
) -> Result<(), WorkflowError> {
    let Some(tenant) = tenant else { return Ok(()) };
    let record = engine.store().workflow(id).await?;
    let is_its = record.is_some_and(|record| record.new.tenant == tenant);
    is_its.then_some(()).ok_or(WorkflowError::NotFound(id))
}

/// Returns what is stored of a workflow.
fn stored(
    id: WorkflowId,
    wanted: Wanted,
    parent: Option<WorkflowItem>,
    depth: usize,
) -> Result<NewWorkflow, IntakeError> {
    let Wanted { definition, reference, parameters, tenant, by, repeat, schedule, .. } = wanted;
    let name = wanted.name.or_else(|| definition.name.clone()).unwrap_or_default();
    let mut labels = definition.labels.clone();
    labels.extend(wanted.labels);
    let given = Value::Object(parameters.clone());
    let about = json!({ "id": id.to_string(), "name": name });
    let mut all_keys = keys_of(&definition, &given, &about)?;
    all_keys.extend(wanted.keys);
    let stored = StoredDefinition {
        steps: definition.to_json(),
        parameters,
        reference,
        labels,
        keys: all_keys,
        depth,
        by: by.unwrap_or_else(|| ANONYMOUS.to_owned()),
        request: repeat.map(|repeat| repeat.request),
        schedule,
    };
    // It holds JSON and texts only.
    let definition = serde_json::to_string(&stored).unwrap_or_default();
    Ok(NewWorkflow { name, tenant: tenant.unwrap_or_default(), definition, parent })
}

/// Renders the keys of a workflow, which its jobs inherit.
fn keys_of(
    definition: &Definition,
    parameters: &Value,
    about: &Value,
) -> Result<BTreeMap<String, String>, IntakeError> {
    let Some(template) = &definition.keys else { return Ok(BTreeMap::new()) };
    let scope = Scope { parameters, steps: &Value::Null, item: None, workflow: about };
    let rendered = template.render(&scope, &mut Work::of_expression());
    let rendered = rendered.map_err(|error| Fault::rule("keys", error.to_string()))?;
    let read = keys::read(&rendered)?;
    Ok(read.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns the workflow of a pack that is asked for, with its parameters checked.
pub(crate) fn of_pack(
    settings: &Settings,
    reference: &str,
    parameters: &Map<String, Value>,
) -> Result<(Definition, Map<String, Value>), WorkflowError> {
    let packs = settings.packs.current();
    let Some(found) = packs.workflow(reference) else {
        return Err(unknown(&packs, reference));
    };
    if !found.enabled {
        return Err(WorkflowError::Disabled(reference.to_owned()));
    }
    let given = found.parameters.check(parameters);
    let given = given.map_err(|violations| invalid(reference, violations))?;
    Ok((found.definition.clone(), given))
}

fn unknown(packs: &PackSet, reference: &str) -> WorkflowError {
    let reference = reference.to_owned();
    match packs.fault_of_workflow(&reference) {
        Some(fault) => WorkflowError::Faulty { fault: fault.to_string(), reference },
        None => {
            let nearest = packs.nearest_workflow(&reference).map(ToOwned::to_owned);
            WorkflowError::UnknownReference { reference, nearest }
        }
    }
}

/// Checks the parameters of a workflow that came with its request.
pub(crate) fn parameters_of(
    definition: &Definition,
    parameters: &Map<String, Value>,
) -> Result<Map<String, Value>, WorkflowError> {
    let described = WorkflowParameters::read(definition.parameters.as_ref());
    let described = described
        .map_err(|problem| IntakeError::from(Fault::rule("workflow.parameters", problem)))?;
    let name = definition.name.as_deref().unwrap_or("the workflow");
    Ok(described.check(parameters).map_err(|violations| invalid(name, violations))?)
}

fn invalid(reference: &str, violations: Vec<Violation>) -> IntakeError {
    IntakeError::InvalidParameters { reference: reference.to_owned(), violations }
}

/// A workflow that an item of another starts.
pub(super) struct Child<'a> {
    pub(super) id: WorkflowId,
    /// The item.
    pub(super) of: WorkflowItem,
    pub(super) reference: &'a str,
    pub(super) input: Value,
}

/// Returns the workflow that an item of another starts.
pub(super) fn child(
    settings: &Settings,
    parent: &Known,
    Child { id, of, reference, input }: Child<'_>,
) -> Result<NewWorkflow, Unmade> {
    let depth = parent.stored.depth + 1;
    if depth >= SUB_WORKFLOWS_MAX {
        let problem = format!("workflows start each other more than {SUB_WORKFLOWS_MAX} deep");
        return Err(Unmade::Impossible(problem));
    }
    let parameters = match input {
        Value::Object(parameters) => parameters,
        Value::Null => Map::new(),
        _ => return Err(Unmade::Impossible("`with` of a workflow must be an object".to_owned())),
    };
    let found = of_pack(settings, reference, &parameters);
    let (definition, parameters) = found.map_err(|error| match error {
        WorkflowError::UnknownReference { .. } | WorkflowError::Faulty { .. } => {
            Unmade::Unknown(error.to_string())
        }
        other => Unmade::Impossible(other.to_string()),
    })?;
    let wanted = Wanted {
        definition,
        reference: Some(reference.to_owned()),
        parameters,
        labels: parent.stored.labels.clone(),
        keys: parent.stored.keys.clone(),
        name: None,
        tenant: Some(parent.new.tenant.clone()).filter(|tenant| !tenant.is_empty()),
        by: Some(parent.stored.by.clone()),
        repeat: None,
        schedule: None,
    };
    stored(id, wanted, Some(of), depth).map_err(Unmade::from)
}

/// Checks what each step says of its jobs, as far as it can be known before it runs.
fn check(
    settings: &Settings,
    known: &Known,
    id: WorkflowId,
    now: Timestamp,
) -> Result<(), WorkflowError> {
    let common = Common {
        settings,
        id,
        name: &known.new.name,
        tenant: None,
        labels: &known.stored.labels,
        keys: &known.stored.keys,
        retries: 0,
        now,
    };
    for (at, step) in known.definition.steps().iter().enumerate() {
        let checked = check_step(common, step, at);
        checked.map_err(|error| match error {
            WorkflowError::Intake(error) => WorkflowError::Step { step: step.name.clone(), error },
            other => other,
        })?;
    }
    Ok(())
}

fn check_step(common: Common<'_>, step: &StepDefinition, at: usize) -> Result<(), WorkflowError> {
    let packs = common.settings.packs.current();
    match &step.target {
        Target::Workflow(reference) => {
            packs.workflow(reference).map(|_| ()).ok_or_else(|| unknown(&packs, reference))
        }
        Target::Action(_) | Target::Type(_) if step.input.is_plain() && step.for_each.is_none() => {
            let of = WorkflowItem {
                workflow: common.id,
                step: u32::try_from(at).unwrap_or(u32::MAX),
                item: 0,
                keeps_result: false,
            };
            job::plan(common, step, of, step.input.to_json(), None)?;
            Ok(())
        }
        Target::Action(reference) => {
            let action = packs.get(reference);
            let action = action.ok_or_else(|| IntakeError::no_action(&packs, reference))?;
            let text = job::of_action(common, step, reference, json!({})).to_string();
            let request = Request::read(text.as_bytes()).map_err(IntakeError::from)?;
            let default = crate::intake::action::retry_policy(action);
            request.policy(default).map_err(IntakeError::from)?;
            Ok(())
        }
        Target::Type(job_type) => {
            let text = job::of_type(common, step, job_type, json!([])).to_string();
            enqueue::one(text.as_bytes()).map_err(IntakeError::from)?;
            Ok(())
        }
    }
}
