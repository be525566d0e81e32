//! What a look at a workflow will write: events are played, and their effects become items and jobs.
//!
//! Items that the draft changes lie over those of the store. What is read of the store may be older than
//! the workflow's row; then the write is refused, since the row has changed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::{ItemOutcome, WorkflowId, WorkflowItem};
use outlast_store::command::{NewJob, WriteWorkflow};
use outlast_store::event::EventName;
use outlast_store::workflow::{
    ItemEnd, ItemHappened, ItemQuery, ItemRecord, ItemState, Runs, StartedWorkflow, UntakenEnd,
    WhichItems, WorkflowEvent, WorkflowState as StoredState,
};
use outlast_workflow::advance::{Inputs, ValueError, Values, result};
use outlast_workflow::limits::INPUTS_BYTES_MAX;
use outlast_workflow::{
    Advance, Effect, Event, ItemEnd as EndOfItem, Refusal, StepState, StepStatus, Target,
    WorkflowState, WorkflowStatus, advance, reads,
};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinError;

use super::job::{self, Common};
use super::known::Known;
use super::service::{self, Child, WorkflowError};
use super::stored::{Progress, Step, StopWord};
use crate::engine::Engine;
use crate::intake::IntakeError;

/// How many items are read at once.
const PAGE: u32 = 1_000;
/// How many bytes of their inputs or results are.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// How long after a write a workflow that is ending is looked at again: what still runs is cancelled
/// again.
const STOP_AGAIN: Span = Span::from_secs(1);

/// What will be written.
pub(super) struct Draft<'a> {
    engine: &'a Engine,
    id: WorkflowId,
    known: &'a Arc<Known>,
    now: Timestamp,
    state: WorkflowState,
    times: Vec<(Option<Timestamp>, Option<Timestamp>)>,
    pub(super) progress: Progress,
    finished: Option<Timestamp>,
    /// Whether there may be items in the store.
    is_stored: bool,
    /// Whether an action that this server does not know is left to other servers for now.
    pub(super) is_patient: bool,
    /// Items that changed, over those of the store.
    items: BTreeMap<(u32, u32), ItemRecord>,
    /// Items that are carried out from now on; they are not among `items`.
    placed: BTreeSet<(u32, u32)>,
    /// Those of them that a workflow carries out.
    children: Vec<ItemRecord>,
    /// Items that could not be started.
    failed: BTreeMap<usize, Vec<EndOfItem>>,
    changed: BTreeSet<usize>,
    jobs: Vec<NewJob>,
    started: Vec<StartedWorkflow>,
    ends: Vec<ItemEnd>,
    taken: Vec<i64>,
    events: Vec<WorkflowEvent>,
}

/// Results of steps, read before they are asked for.
struct Results(HashMap<usize, Result<Value, ValueError>>);

impl Values for Results {
    fn result(&self, step: usize) -> Result<Value, ValueError> {
        let missing = || Err(ValueError("it was not read".to_owned()));
        self.0.get(&step).cloned().unwrap_or_else(missing)
    }
}

impl<'a> Draft<'a> {
    /// Begins a draft of a workflow that is about to be made.
    pub(super) fn new(
        engine: &'a Engine,
        id: WorkflowId,
        known: &'a Arc<Known>,
        now: Timestamp,
    ) -> Self {
        let state = WorkflowState::new(&known.definition);
        let draft = Self {
            engine,
            id,
            known,
            now,
            times: vec![(None, None); state.steps.len()],
            state,
            progress: Progress::default(),
            finished: None,
            is_stored: false,
            is_patient: false,
            items: BTreeMap::new(),
            placed: BTreeSet::new(),
            children: Vec::new(),
            failed: BTreeMap::new(),
            changed: BTreeSet::new(),
            jobs: Vec::new(),
            started: Vec::new(),
            ends: Vec::new(),
            taken: Vec::new(),
            events: Vec::new(),
        };
        draft.with_deadline()
    }

    /// Begins a draft of a workflow as it was read.
    pub(super) fn of(
        engine: &'a Engine,
        id: WorkflowId,
        known: &'a Arc<Known>,
        now: Timestamp,
        read: (WorkflowState, Vec<Step>, Progress, Option<Timestamp>),
    ) -> Self {
        let (state, steps, progress, finished) = read;
        let times = steps.iter().map(|step| (step.started, step.finished)).collect();
        let is_stored = progress.begun;
        let fresh = Self::new(engine, id, known, now);
        let progress = if is_stored { progress } else { fresh.progress.clone() };
        Self { state, times, progress, finished, is_stored, ..fresh }
    }

    /// Counts its time from now on.
    fn with_deadline(mut self) -> Self {
        self.progress.deadline = self.deadline();
        self
    }

    fn deadline(&self) -> Option<i64> {
        self.known.definition.timeout.map(|most| self.now.after(most).0)
    }

    /// Whether it is ending and has not ended.
    pub(super) const fn is_stopping(&self) -> bool {
        self.state.stop.is_some() && !self.state.status.is_ended()
    }

    /// Whether its time is over.
    pub(super) fn is_late(&self) -> bool {
        let is_over = self.progress.deadline.is_some_and(|deadline| deadline <= self.now.0);
        is_over && self.state.stop.is_none() && !self.state.status.is_ended()
    }

    /// Whether there is nothing to write.
    pub(super) fn is_nothing(&self) -> bool {
        self.taken.is_empty() && self.changed.is_empty() && self.events.is_empty()
    }

    pub(super) fn note(&mut self, kind: EventName, words: impl Into<String>) {
        self.events.push(WorkflowEvent { kind, words: words.into() });
    }

    /// Plays the first event of a workflow.
    pub(super) async fn begin(&mut self) -> Result<(), WorkflowError> {
        self.progress.begun = true;
        let words = self.known.new.name.clone();
        self.note(EventName::WorkflowStarted, words);
        self.play(Event::Begun).await?.map_err(WorkflowError::Refused)
    }

    /// Plays the ends that were noted. Those of an item that something else carries out by now, or that
    /// has ended before, are passed over.
    pub(super) async fn take(&mut self, ends: Vec<UntakenEnd>) -> Result<(), WorkflowError> {
        let mut group: (u32, Vec<EndOfItem>) = (0, Vec::new());
        for UntakenEnd { number, end, item } in ends {
            self.taken.push(number);
            let key = (end.of.step, end.of.item);
            let over = self.items.get(&key).map(|item| (item.state, item.runs));
            let Some((state, Some(runs))) = over.or(item) else { continue };
            if runs != end.runs || self.placed.contains(&key) {
                continue;
            }
            match (end.what, state) {
                (ItemHappened::Ended(outcome), ItemState::Running) => {
                    if group.0 != key.0 {
                        let group = std::mem::take(&mut group);
                        self.end_items(group).await?;
                    }
                    self.put(key, ItemState::Ended(outcome), Some(runs), end.result);
                    group.0 = key.0;
                    group.1.push(EndOfItem { item: key.1, outcome, error: end.error });
                }
                (ItemHappened::Replayed, ItemState::Ended(outcome))
                    if outcome != ItemOutcome::Completed =>
                {
                    self.end_items(std::mem::take(&mut group)).await?;
                    self.put(key, ItemState::Running, Some(runs), None);
                    let event = Event::ItemReplayed { step: index(key.0), outcome };
                    if self.play(event).await?.is_err() {
                        // The workflow is ending. The job runs for itself.
                        self.put(key, state, Some(runs), None);
                    }
                }
                (ItemHappened::Ended(_) | ItemHappened::Replayed, _) => {}
            }
        }
        self.end_items(group).await
    }

    async fn end_items(&mut self, group: (u32, Vec<EndOfItem>)) -> Result<(), WorkflowError> {
        let (step, ends) = group;
        if ends.is_empty() {
            return Ok(());
        }
        let refused = self.play(Event::ItemsEnded { step: index(step), ends }).await?.err();
        if let Some(refusal) = refused {
            // What was read is older than the workflow, or the store was changed by hand.
            tracing::debug!(workflow = %self.id, %refusal, "ends of items are passed over");
        }
        Ok(())
    }

    fn put(
        &mut self,
        (step, item): (u32, u32),
        state: ItemState,
        runs: Option<Runs>,
        result: Option<String>,
    ) {
        let record = ItemRecord { step, item, state, runs, input: None, result };
        self.items.insert((step, item), record);
    }

    /// Plays an event, and the ends of items that cannot be started.
    pub(super) async fn play(
        &mut self,
        event: Event,
    ) -> Result<Result<(), Refusal>, WorkflowError> {
        if let Err(refusal) = self.play_one(&event).await? {
            return Ok(Err(refusal));
        }
        while let Some((step, ends)) = self.failed.pop_first() {
            let event = Event::ItemsEnded { step, ends };
            if let Err(refusal) = self.play_one(&event).await? {
                return Err(WorkflowError::Refused(refusal));
            }
        }
        Ok(Ok(()))
    }

    async fn play_one(&mut self, event: &Event) -> Result<Result<(), Refusal>, WorkflowError> {
        let definition = &self.known.definition;
        let wanted = reads(definition, &self.state, event);
        let results = self.results(&wanted).await?;
        let had_ended = self.state.status.is_ended();
        let advance = match self.advance(event, results).await? {
            Ok(advance) => advance,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if had_ended && !matches!(event, Event::ItemsEnded { .. }) {
            self.lives_again();
        }
        for step in &advance.changed {
            self.time(*step);
        }
        self.changed.extend(&advance.changed);
        for effect in advance.effects {
            self.carry_out(effect).await?;
        }
        Ok(Ok(()))
    }

    /// Lets the rules decide. Expressions may take a while, so they are evaluated where they hold up no
    /// other work.
    async fn advance(
        &mut self,
        event: &Event,
        results: Results,
    ) -> Result<Result<Advance, Refusal>, WorkflowError> {
        if !self.known.has_expressions || self.is_count_only(event) {
            return Ok(decide(self.known, &mut self.state, event, &results));
        }
        let (known, mut state) = (Arc::clone(self.known), self.state.clone());
        let event = event.clone();
        let decided = tokio::task::spawn_blocking(move || {
            let decided = decide(&known, &mut state, &event, &results);
            (state, decided)
        });
        let ended = |error: JoinError| WorkflowError::Damaged(self.id, error.to_string());
        let (state, decided) = decided.await.map_err(ended)?;
        self.state = state;
        Ok(decided)
    }

    /// Whether an event only changes counters: other items of the step go on.
    fn is_count_only(&self, event: &Event) -> bool {
        let Event::ItemsEnded { step, ends } = event else { return false };
        let goes_on = |state: &StepState| index(state.running) > ends.len() || state.held > 0;
        self.state.steps.get(*step).is_some_and(goes_on)
    }

    /// A workflow that had ended goes on. If it was started for an item, that goes on, too.
    fn lives_again(&mut self) {
        self.finished = None;
        (self.progress.result, self.progress.error) = (None, None);
        self.progress.deadline = self.deadline();
        self.tell_parent(ItemHappened::Replayed, None, None);
    }

    fn tell_parent(&mut self, what: ItemHappened, error: Option<String>, result: Option<String>) {
        if let Some(of) = self.known.new.parent {
            let result = result.filter(|_| of.keeps_result);
            let runs = Runs::Workflow(self.id);
            self.ends.push(ItemEnd { of, runs, what, error, result });
        }
    }

    fn time(&mut self, step: usize) {
        let (started, finished) = &mut self.times[step];
        match self.state.steps[step].status {
            StepStatus::Waiting => (*started, *finished) = (None, None),
            StepStatus::Running => {
                started.get_or_insert(self.now);
                *finished = None;
            }
            StepStatus::Completed
            | StepStatus::Failed
            | StepStatus::TimedOut
            | StepStatus::Abandoned
            | StepStatus::Cancelled
            | StepStatus::Skipped => {
                finished.get_or_insert(self.now);
            }
        }
    }

    async fn carry_out(&mut self, effect: Effect) -> Result<(), WorkflowError> {
        match effect {
            Effect::StoreItems { step, inputs } => {
                let at = number(step);
                for (item, input) in (0..).zip(inputs) {
                    let record = ItemRecord {
                        step: at,
                        item,
                        state: ItemState::Held,
                        runs: None,
                        input: Some(input.to_string()),
                        result: None,
                    };
                    self.items.insert((at, item), record);
                }
            }
            Effect::HoldUnsuccessful { step } => {
                for item in self.items_of(step, WhichItems::Unsuccessful, usize::MAX).await? {
                    let held = ItemRecord { state: ItemState::Held, result: None, ..item };
                    self.items.insert((held.step, held.item), held);
                }
            }
            Effect::EnqueueItems { step, count } | Effect::StartWorkflows { step, count } => {
                self.start(step, index(count)).await?;
            }
            Effect::CancelItems { step } => {
                let cancelled = ItemState::Ended(ItemOutcome::Cancelled);
                for item in self.items_of(step, WhichItems::Held, usize::MAX).await? {
                    let item = ItemRecord { state: cancelled, ..item };
                    self.items.insert((item.step, item.item), item);
                }
            }
            Effect::StepEnded { step, status } => {
                let name = &self.known.definition.steps()[step].name;
                let words = match &self.state.steps[step].reason {
                    Some(reason) if status.is_unsuccessful() => {
                        format!("{name}: {status}: {}", reason.text)
                    }
                    _ => format!("{name}: {status}"),
                };
                self.note(EventName::WorkflowStepEnded, words);
            }
            Effect::WorkflowEnded { status } => self.end(status).await?,
        }
        Ok(())
    }

    async fn end(&mut self, status: WorkflowStatus) -> Result<(), WorkflowError> {
        self.finished = Some(self.now);
        let mut error = self.reason(status);
        let mut made = None;
        if status == WorkflowStatus::Completed {
            let last = self.known.definition.last_steps().into_iter().collect();
            let results = self.results(&last).await?;
            match result(&self.known.definition, &self.state, &results) {
                Ok(value) => made = Some(value.to_string()),
                Err(why) => error = Some(format!("its result is not kept: {why}")),
            }
        }
        let words = match &error {
            Some(error) => format!("{status}: {error}"),
            None => status.to_string(),
        };
        self.note(EventName::WorkflowEnded, words);
        self.progress.error.clone_from(&error);
        self.progress.result =
            made.as_ref().and_then(|text| RawValue::from_string(text.clone()).ok());
        if let Some(outcome) = status.as_outcome() {
            self.tell_parent(ItemHappened::Ended(outcome), error, made);
        }
        Ok(())
    }

    /// Returns why it failed: what its first step that did says.
    fn reason(&self, status: WorkflowStatus) -> Option<String> {
        match status {
            WorkflowStatus::Running | WorkflowStatus::Completed | WorkflowStatus::Cancelled => None,
            WorkflowStatus::Timeout => {
                let most = self.known.definition.timeout.unwrap_or_default();
                Some(format!("took longer than its time limit of {} s", most.0.div_ceil(1000)))
            }
            WorkflowStatus::Failed => {
                let mut steps = self.known.definition.order().iter().copied();
                let step = steps.find(|step| self.state.steps[*step].status.is_unsuccessful())?;
                let (name, state) =
                    (&self.known.definition.steps()[step].name, &self.state.steps[step]);
                let why = state.reason.as_ref().map(|reason| reason.text.as_str());
                Some(format!("step `{name}`: {}", why.unwrap_or(state.status.as_str())))
            }
        }
    }

    /// Returns the first items of a step that are so, the draft's over the store's.
    async fn items_of(
        &self,
        step: usize,
        which: WhichItems,
        most: usize,
    ) -> Result<Vec<ItemRecord>, WorkflowError> {
        let at = number(step);
        let mut found: BTreeMap<u32, ItemRecord> = self
            .items
            .range((at, 0)..=(at, u32::MAX))
            .filter(|(_, item)| which.contains(item.state))
            .map(|((_, item), record)| (*item, record.clone()))
            .collect();
        let (mut after, mut count) = (None, 0);
        while self.is_stored && count < most {
            let query = ItemQuery {
                workflow: self.id,
                step: Some(at),
                which,
                with_values: true,
                after,
                limit: PAGE,
                bytes: PAGE_BYTES,
            };
            let page = self.engine.store().workflow_items(query).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.step, last.item));
            for item in page {
                let key = (item.step, item.item);
                if !self.items.contains_key(&key) && !self.placed.contains(&key) {
                    found.insert(item.item, item);
                    count += 1;
                }
            }
        }
        Ok(found.into_values().take(most).collect())
    }

    /// Starts the next items of a step.
    async fn start(&mut self, step: usize, count: usize) -> Result<(), WorkflowError> {
        let described = &self.known.definition.steps()[step];
        let results = match self.known.definition.form.passes_results() {
            true => Some(self.results_before(step).await?),
            false => None,
        };
        for item in self.items_of(step, WhichItems::Held, count).await? {
            let key = (item.step, item.item);
            let of = WorkflowItem {
                workflow: self.id,
                step: item.step,
                item: item.item,
                keeps_result: self.known.keeps_results[step],
            };
            let made = match self.input_of(&item, &described.target).await? {
                Ok(input) => self.make(step, of, input, results.as_deref()),
                Err(reason) => Err(reason.into()),
            };
            match made {
                Ok(()) => {
                    self.items.remove(&key);
                    self.placed.insert(key);
                }
                Err(Unmade::Unknown(reason)) if self.is_patient => {
                    return Err(WorkflowError::Later(reason));
                }
                Err(Unmade::Unknown(reason) | Unmade::Impossible(reason)) => {
                    let outcome = ItemOutcome::Failed;
                    // Its input stays: a retry may find what was missing.
                    let state = ItemState::Ended(outcome);
                    self.items.insert(key, ItemRecord { state, ..item });
                    let end = EndOfItem { item: key.1, outcome, error: Some(reason) };
                    self.failed.entry(step).or_default().push(end);
                }
            }
        }
        Ok(())
    }

    /// Makes what carries out an item.
    fn make(
        &mut self,
        step: usize,
        of: WorkflowItem,
        input: Value,
        results: Option<&[Value]>,
    ) -> Result<(), Unmade> {
        let described = &self.known.definition.steps()[step];
        let common = self.common();
        if let Target::Workflow(reference) = &described.target {
            let id = WorkflowId(job::id_of(common, of));
            let child = Child { id, of, reference, input };
            let new = service::child(self.engine.settings(), self.known, child)?;
            self.started.push(StartedWorkflow { id, new, state: waiting_to_begin(self.now) });
            // The row of an item that a job carries out comes with the job.
            self.children.push(ItemRecord {
                step: of.step,
                item: of.item,
                state: ItemState::Running,
                runs: Some(Runs::Workflow(id)),
                input: None,
                result: None,
            });
            return Ok(());
        }
        let job = job::plan(common, described, of, input, results)?;
        self.jobs.push(job);
        Ok(())
    }

    fn common(&self) -> Common<'a> {
        Common {
            settings: self.engine.settings(),
            id: self.id,
            name: &self.known.new.name,
            tenant: Some(self.known.new.tenant.as_str()).filter(|tenant| !tenant.is_empty()),
            labels: &self.known.stored.labels,
            keys: &self.known.stored.keys,
            retries: self.progress.retries,
            now: self.now,
        }
    }

    /// Returns what an item is given: as it was rendered, or as what carried it out before was given.
    async fn input_of(
        &self,
        item: &ItemRecord,
        target: &Target,
    ) -> Result<Result<Value, String>, WorkflowError> {
        let gone =
            || "what it was given was deleted with its job; begin the workflow again".to_owned();
        let text = match (&item.input, item.runs) {
            (Some(input), _) => Some(input.clone()),
            (None, Some(Runs::Job(job))) => {
                let job = self.engine.store().job(job).await?;
                job.map(|job| job.job.payload.args.clone())
            }
            (None, Some(Runs::Workflow(child))) => {
                let child = self.engine.store().look_at_workflow(child, true).await?.record;
                let known = child.and_then(|child| Known::parse(child).ok());
                return Ok(known.map(|known| known.parameters).ok_or_else(gone));
            }
            (None, None) => None,
        };
        let value = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let value = match (value, target) {
            // A job of an action has its parameters as its only argument.
            (Some(Value::Array(args)), Target::Action(_)) if item.input.is_none() => {
                args.into_iter().next()
            }
            (value, _) => value,
        };
        Ok(value.ok_or_else(gone))
    }

    async fn results_before(&self, step: usize) -> Result<Vec<Value>, WorkflowError> {
        let before = &self.known.definition.steps()[step].after;
        let with = |step: &&usize| self.state.steps[**step].completed > 0;
        let wanted = before.iter().filter(with).copied().collect();
        let results = self.results(&wanted).await?;
        Ok(before.iter().map(|step| results.result(*step).unwrap_or(Value::Null)).collect())
    }

    /// Reads the results of steps: of `for_each` a list with a place for each item.
    async fn results(&self, steps: &BTreeSet<usize>) -> Result<Results, WorkflowError> {
        let mut found = HashMap::new();
        let mut bytes = 0;
        for step in steps {
            let items = self.items_of(*step, WhichItems::Completed, usize::MAX).await?;
            bytes += items
                .iter()
                .filter_map(|item| item.result.as_ref())
                .map(String::len)
                .sum::<usize>();
            let value = match bytes > INPUTS_BYTES_MAX {
                true => {
                    let problem = format!("results come to more than {INPUTS_BYTES_MAX} bytes");
                    Err(ValueError(problem))
                }
                false => Ok(self.result_of(*step, items)),
            };
            found.insert(*step, value);
        }
        Ok(Results(found))
    }

    fn result_of(&self, step: usize, items: Vec<ItemRecord>) -> Value {
        let value = |item: ItemRecord| {
            let text = item.result?;
            serde_json::from_str(&text).ok()
        };
        if self.known.definition.steps()[step].for_each.is_none() {
            return items.into_iter().next().and_then(value).unwrap_or(Value::Null);
        }
        let mut list = vec![Value::Null; index(self.state.steps[step].total)];
        for item in items {
            if let Some(place) = list.get_mut(index(item.item)) {
                *place = value(item).unwrap_or(Value::Null);
            }
        }
        Value::Array(list)
    }

    /// Returns the command that writes it.
    pub(super) fn write(self, expected: Option<u64>, by: &str) -> WriteWorkflow {
        let mut progress = self.progress;
        progress.stop = self.state.stop.map(StopWord::of);
        let is_running = !self.state.status.is_ended();
        let due = match (is_running, progress.stop) {
            (false, _) => None,
            (true, Some(_)) => Some(self.now.after(STOP_AGAIN)),
            (true, None) => progress.deadline.map(Timestamp),
        };
        let steps = self.changed.iter().map(|at| {
            let (started, finished) = self.times[*at];
            Step { state: self.state.steps[*at].clone(), started, finished }.record(*at)
        });
        WriteWorkflow {
            id: self.id,
            expected,
            to: Some(StoredState {
                status: self.state.status.as_str().to_owned(),
                due,
                finished: self.finished.filter(|_| !is_running),
                // It holds texts and numbers only.
                progress: serde_json::to_string(&progress).unwrap_or_default(),
            }),
            new: expected.is_none().then(|| self.known.new.clone()),
            steps: steps.collect(),
            items: self.items.into_values().chain(self.children).collect(),
            jobs: self.jobs,
            started: self.started,
            ends: self.ends,
            taken: self.taken,
            events: self.events,
            by: by.to_owned(),
        }
    }
}

fn decide(
    known: &Known,
    state: &mut WorkflowState,
    event: &Event,
    results: &Results,
) -> Result<Advance, Refusal> {
    let inputs = Inputs { parameters: &known.parameters, workflow: &known.about, values: results };
    advance(&known.definition, state, event, &inputs)
}

/// Why nothing carries out an item.
pub(super) enum Unmade {
    /// This server does not know its action or workflow; another one may.
    Unknown(String),
    /// It is not possible.
    Impossible(String),
}

impl From<String> for Unmade {
    fn from(reason: String) -> Self {
        Self::Impossible(reason)
    }
}

impl From<IntakeError> for Unmade {
    fn from(error: IntakeError) -> Self {
        match &error {
            IntakeError::UnknownAction { .. } | IntakeError::FaultyAction { .. } => {
                Self::Unknown(error.to_string())
            }
            IntakeError::Invalid(_)
            | IntakeError::DisabledAction { .. }
            | IntakeError::InvalidParameters { .. } => Self::Impossible(error.to_string()),
        }
    }
}

/// Returns the state of a workflow that a look begins.
pub(super) fn waiting_to_begin(now: Timestamp) -> StoredState {
    StoredState {
        status: WorkflowStatus::Running.as_str().to_owned(),
        due: Some(now),
        finished: None,
        progress: serde_json::to_string(&Progress::default()).unwrap_or_default(),
    }
}

/// Returns the number of a step as a store keeps it.
fn number(step: usize) -> u32 {
    u32::try_from(step).unwrap_or(u32::MAX)
}

/// Returns a number of a store as an index.
fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
