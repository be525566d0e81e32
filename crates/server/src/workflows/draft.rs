//! What a look at a workflow will write: events are played, and their effects become items and jobs.
//!
//! Items that the draft changes lie over those of the store. What is read of the store may be older than
//! the workflow's row; then the write is refused, since the row has changed.

mod items;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::{ItemOutcome, WorkflowId};
use outlast_store::command::{NewJob, WriteWorkflow};
use outlast_store::event::EventName;
use outlast_store::workflow::{
    ItemEnd, ItemHappened, ItemRecord, ItemState, Runs, StartedWorkflow, UntakenEnd, WhichItems,
    WorkflowEvent, WorkflowState as StoredState,
};
use outlast_workflow::advance::{Inputs, ValueError, Values, result};
use outlast_workflow::limits::VALUE_BYTES_MAX;
use outlast_workflow::template::size;
use outlast_workflow::{
    Advance, Effect, Event, ItemEnd as EndOfItem, Refusal, StepState, StepStatus, WorkflowState,
    WorkflowStatus, advance, reads,
};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinError;

pub(super) use items::Unmade;

use super::known::Known;
use super::service::WorkflowError;
use super::stored::{Progress, Step, StopWord};
use crate::engine::Engine;

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
    items: BTreeMap<Place, ItemRecord>,
    /// Items that are carried out from now on; they are not among `items`.
    placed: BTreeSet<Place>,
    /// Those of them that a workflow carries out.
    children: Vec<ItemRecord>,
    /// Steps of which the draft has all items: the store has none of them yet.
    fresh: BTreeSet<usize>,
    /// Items that could not be started.
    failed: BTreeMap<usize, Vec<EndOfItem>>,
    changed: BTreeSet<usize>,
    jobs: Vec<NewJob>,
    started: Vec<StartedWorkflow>,
    started_bytes: usize,
    /// Results of steps, as they are with what the draft changes.
    read: HashMap<usize, Result<Value, ValueError>>,
    ends: Vec<ItemEnd>,
    taken: Vec<i64>,
    events: Vec<WorkflowEvent>,
}

/// An item of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    step: u32,
    item: u32,
}

/// Items of one step that ended.
#[derive(Default)]
struct Group {
    step: u32,
    ends: Vec<EndOfItem>,
}

/// How a workflow stood when it was read.
pub(super) struct Standing {
    pub(super) state: WorkflowState,
    pub(super) steps: Vec<Step>,
    pub(super) progress: Progress,
    pub(super) finished: Option<Timestamp>,
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
        let mut draft = Self {
            engine,
            id,
            known,
            now,
            times: vec![(None, None); state.steps.len()],
            state,
            progress: Progress {
                reference: known.stored.reference.clone(),
                form: Some(known.definition.form.as_str().to_owned()),
                ..Progress::default()
            },
            finished: None,
            is_stored: false,
            is_patient: false,
            items: BTreeMap::new(),
            placed: BTreeSet::new(),
            children: Vec::new(),
            fresh: BTreeSet::new(),
            failed: BTreeMap::new(),
            changed: BTreeSet::new(),
            jobs: Vec::new(),
            started: Vec::new(),
            started_bytes: 0,
            read: HashMap::new(),
            ends: Vec::new(),
            taken: Vec::new(),
            events: Vec::new(),
        };
        draft.progress.deadline = draft.deadline();
        draft
    }

    /// Begins a draft of a workflow as it was read.
    pub(super) fn of(
        engine: &'a Engine,
        id: WorkflowId,
        known: &'a Arc<Known>,
        now: Timestamp,
        Standing { state, steps, progress, finished }: Standing,
    ) -> Self {
        let times = steps.iter().map(|step| (step.started, step.finished)).collect();
        let is_stored = progress.begun;
        let fresh = Self::new(engine, id, known, now);
        let progress = if is_stored { progress } else { fresh.progress.clone() };
        Self { state, times, progress, finished, is_stored, ..fresh }
    }

    /// When its time is over, counted from now on.
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

    /// Returns how many events there are, for [`Self::note_at`].
    pub(super) const fn noted(&self) -> usize {
        self.events.len()
    }

    /// Notes an event before others.
    pub(super) fn note_at(&mut self, place: usize, kind: EventName, words: &str) {
        self.events.insert(place, WorkflowEvent { kind, words: words.to_owned() });
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
        let mut group = Group::default();
        for UntakenEnd { number, end, item } in ends {
            self.taken.push(number);
            let place = Place { step: end.of.step, item: end.of.item };
            let over = self.items.get(&place).map(|item| (item.state, item.runs));
            let Some((state, Some(runs))) = over.or(item) else { continue };
            if runs != end.runs || self.placed.contains(&place) {
                continue;
            }
            match (end.what, state) {
                (ItemHappened::Ended(outcome), ItemState::Running) => {
                    if group.step != place.step {
                        self.end_items(std::mem::take(&mut group)).await?;
                    }
                    self.put(place, ItemState::Ended(outcome), Some(runs), end.result);
                    group.step = place.step;
                    group.ends.push(EndOfItem { item: place.item, outcome, error: end.error });
                }
                (ItemHappened::Replayed, ItemState::Ended(outcome))
                    if outcome != ItemOutcome::Completed =>
                {
                    self.end_items(std::mem::take(&mut group)).await?;
                    self.put(place, ItemState::Running, Some(runs), None);
                    let event = Event::ItemReplayed { step: index(place.step), outcome };
                    if self.play(event).await?.is_err() {
                        // The workflow is ending. The job runs for itself.
                        self.put(place, state, Some(runs), None);
                    }
                }
                (ItemHappened::Ended(_) | ItemHappened::Replayed, _) => {}
            }
        }
        self.end_items(group).await
    }

    async fn end_items(&mut self, Group { step, ends }: Group) -> Result<(), WorkflowError> {
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

    fn put(&mut self, place: Place, state: ItemState, runs: Option<Runs>, result: Option<String>) {
        let Place { step, item } = place;
        self.read.remove(&index(step));
        let record = ItemRecord { step, item, state, runs, input: None, result };
        self.items.insert(place, record);
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
            // Very many may fail one after the other.
            tokio::task::yield_now().await;
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
                self.fresh.insert(step);
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
                    self.items.insert(Place { step: at, item }, record);
                }
            }
            Effect::HoldUnsuccessful { step } => {
                for item in self.items_of(step, WhichItems::Unsuccessful, usize::MAX).await? {
                    let held = ItemRecord { state: ItemState::Held, result: None, ..item };
                    self.items.insert(place_of(&held), held);
                }
            }
            Effect::EnqueueItems { step, count } | Effect::StartWorkflows { step, count } => {
                self.start(step, index(count)).await?;
            }
            Effect::CancelItems { step } => {
                let cancelled = ItemState::Ended(ItemOutcome::Cancelled);
                for item in self.items_of(step, WhichItems::Held, usize::MAX).await? {
                    let item = ItemRecord { state: cancelled, ..item };
                    self.items.insert(place_of(&item), item);
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
                Ok(value) if size(&value) > VALUE_BYTES_MAX => {
                    error = Some(format!(
                        "its result is not kept: it has more than {VALUE_BYTES_MAX} bytes"
                    ));
                }
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

/// Returns the state of a workflow that a look begins.
pub(super) fn waiting_to_begin(now: Timestamp, reference: Option<String>) -> StoredState {
    let progress = Progress { reference, ..Progress::default() };
    StoredState {
        status: WorkflowStatus::Running.as_str().to_owned(),
        due: Some(now),
        finished: None,
        progress: serde_json::to_string(&progress).unwrap_or_default(),
    }
}

const fn place_of(item: &ItemRecord) -> Place {
    Place { step: item.step, item: item.item }
}

/// Returns the number of a step as a store keeps it.
fn number(step: usize) -> u32 {
    u32::try_from(step).unwrap_or(u32::MAX)
}

/// Returns a number of a store as an index.
fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
