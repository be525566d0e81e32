//! What a look at a schedule does: it fires what is due, and lets jobs have their turn that wait for
//! others.
//!
//! ```text
//! open jobs that have ended are dropped ─▶ what is due: fire, wait, replace or skip
//!    └▶ the next one's turn: activate        └▶ WriteSchedule: jobs, events and progress, or nothing
//!                                                └▶ what was replaced is cancelled
//! ```
//!
//! Activating comes before the write and cancelling after it; the progress says what is to be cancelled.
//! Both are safe to repeat. A server that dies in between leaves the rest to the next look.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;
use outlast_schedule::progress::{Choice, LastFire, LastSkip, Progress, QUEUED_MAX};
use outlast_schedule::{Due, Overlap};
use outlast_store::command::{JobAction, JobOrder, NewJob};
use outlast_store::event::EventName;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::schedule::{ScheduleEvent, ScheduleRefusal, WriteSchedule};
use outlast_store::workflow::StartedWorkflow;
use outlast_wire::schedule::Template;
use outlast_wire::time::Rfc3339;
use uuid::Uuid;

use super::job::{self, Fire, Made};
use super::service::{Schedule, ScheduleError};
use crate::engine::Engine;
use crate::workflows::look::{self as workflow, Ask};
use crate::workflows::service::{self as workflows, WorkflowError};

/// Who fires schedules, for the event log.
const BY: &str = "scheduler";

/// How long a fire whose job cannot be planned here waits for a server that can: one that has the
/// action's pack.
const OTHERS_MAY_PLAN: Span = Span::from_secs(3);

/// Most jobs that one write stores, and how long their templates or workflows may be together, in bytes.
const JOBS_OF_ONE: usize = 100;
const BYTES_OF_ONE: usize = 4 * 1024 * 1024;

/// How often a write is made smaller because the store refuses some of its jobs.
const REFUSALS_MAX: u32 = 4;

/// Fires whose jobs this server cannot plan, and since when it knows.
#[derive(Debug, Default)]
pub(crate) struct Unplanned(Mutex<HashMap<(ScheduleName, Timestamp), Timestamp>>);

impl Unplanned {
    /// Whether other servers have had their time for a fire.
    fn have_others_had_time(&self, name: &ScheduleName, time: Timestamp, now: Timestamp) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.entry((name.clone(), time)).or_insert(now);
        now.since(*since) >= OTHERS_MAY_PLAN
    }

    /// Forgets fires that are no longer due.
    fn forget(&self, name: &ScheduleName, before: Option<Timestamp>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, time), _| of != name || before.is_some_and(|before| *time >= before));
    }
}

/// What came of a fire by hand.
#[derive(Debug)]
pub(super) enum Fired {
    Stored {
        id: Uuid,
        waits: bool,
    },
    Skipped(String),
    /// Someone else changed the schedule in between.
    Changed,
}

/// What a look did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// How many jobs were stored.
    pub(crate) fired: u64,
    /// How many fires were left out.
    pub(crate) skipped: u64,
    /// How late the latest of the jobs came.
    pub(crate) late: Span,
}

/// What is about to be written.
#[derive(Debug)]
struct Draft {
    progress: Progress,
    jobs: Vec<NewJob>,
    /// Workflows, if that is what the schedule starts.
    workflows: Vec<StartedWorkflow>,
    /// How long the texts of these are together.
    workflow_bytes: usize,
    /// The times of the fires of these.
    times: Vec<Timestamp>,
    events: Vec<ScheduleEvent>,
    skipped: u64,
}

impl Draft {
    fn new(progress: Progress) -> Self {
        let (jobs, workflows, times, events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { progress, jobs, workflows, workflow_bytes: 0, times, events, skipped: 0 }
    }

    /// Whether the schedule stands as it did.
    fn is_nothing(&self, schedule: &Schedule) -> bool {
        self.progress == schedule.progress
    }

    fn skip(&mut self, time: Timestamp, now: Timestamp, reason: &str, count: u64) {
        let last = LastSkip { fire_time: time, at: now, reason: reason.to_owned() };
        self.progress.note_skip(last, count);
        self.skipped += count;
        let many = if count > 1 { format!("{count} fires until ") } else { String::new() };
        let words = format!("{many}{}: {reason}", Rfc3339(time));
        self.events.push(ScheduleEvent { kind: EventName::CronSkipped, job: None, words });
    }

    fn fire(&mut self, time: Timestamp, made: Made, of: &Schedule, now: Timestamp) {
        let late = Progress::late(of.name().as_str(), &of.definition.timing, time, now);
        let is_workflow = matches!(made, Made::Workflow(_));
        let last = LastFire { fire_time: time, at: now, job: made.id(), is_workflow };
        self.progress.note_fire(last, of.definition.timing.overlap);
        let mut words = format!("{}, {} ms late", Rfc3339(time), late.0);
        let mut job = None;
        match made {
            Made::Job(made) => {
                job = Some(made.id);
                self.jobs.push(*made);
            }
            Made::Workflow(made) => {
                words = format!("{words}, workflow {}", made.id);
                self.workflow_bytes += made.new.definition.len();
                self.workflows.push(*made);
            }
        }
        self.events.push(ScheduleEvent { kind: EventName::CronTriggered, job, words });
        self.times.push(time);
    }
}

/// Fires what is due of a schedule. Another server may be faster: then nothing happens.
pub(crate) async fn look(
    engine: &Engine,
    schedule: &Schedule,
    now: Timestamp,
    unplanned: &Unplanned,
) -> Result<Looked, ScheduleError> {
    let (name, timing) = (schedule.name(), &schedule.definition.timing);
    let due = schedule.progress.look(name.as_str(), timing, now);
    let mut progress = schedule.progress.clone();
    let Moved { has_turned, first } = move_queue(engine, &mut progress, timing.overlap).await?;
    let is_same = due.next == schedule.progress.next;
    if due.fires.is_empty() && due.missed == 0 && !has_turned && is_same {
        // It waits for a job that goes on.
        return Ok(Looked::default());
    }
    let missed = Missed::of(schedule, &due, now);
    let impossible = Vec::new();
    let mut look = Look { engine, schedule, now, unplanned, progress, first, impossible };
    for _ in 0..=REFUSALS_MAX {
        let draft = look.draft(&due, missed.as_ref());
        if draft.is_nothing(schedule) {
            return Ok(Looked::default());
        }
        match look.write(draft).await? {
            Ok(looked) => return Ok(looked),
            Err(true) => {}
            Err(false) => break,
        }
    }
    Ok(Looked::default())
}

/// Fires that were missed.
struct Missed {
    count: u64,
    /// The last of them.
    last: Timestamp,
}

impl Missed {
    fn of(schedule: &Schedule, due: &Due, now: Timestamp) -> Option<Self> {
        let Progress { anchor, next, .. } = &schedule.progress;
        let before = due.fires.first().map_or(now, |first| Timestamp(first.0.saturating_sub(1)));
        let table = schedule.definition.timing.timetable(*anchor);
        let last = table.latest(next.unwrap_or(before), before, 1).pop().or(*next);
        (due.missed > 0).then(|| Self { count: due.missed, last: last.unwrap_or(before) })
    }
}

/// A look in progress.
struct Look<'a> {
    engine: &'a Engine,
    schedule: &'a Schedule,
    now: Timestamp,
    unplanned: &'a Unplanned,
    /// How the schedule stands before its fires.
    progress: Progress,
    /// The first of those of earlier fires that have not ended.
    first: Option<Earlier>,
    /// Fires that the store refuses, with the reason.
    impossible: Vec<(Timestamp, String)>,
}

impl Look<'_> {
    /// Decides what each fire does, as far as one write goes.
    fn draft(&self, due: &Due, missed: Option<&Missed>) -> Draft {
        let (now, timing) = (self.now, &self.schedule.definition.timing);
        let template = self.schedule.definition.template.text();
        let most = (BYTES_OF_ONE / template.len().max(1)).clamp(1, JOBS_OF_ONE);
        let mut draft = Draft::new(self.progress.clone());
        draft.progress.next = due.fires.get(most).copied().or(due.next);
        draft.progress.owed = None;
        if let Some(Missed { count, last }) = missed {
            let words = format!(
                "missed while no server could fire it; catch_up is {}",
                timing.catch_up.as_str()
            );
            draft.skip(*last, now, &words, *count);
        }
        for (nth, time) in due.fires.iter().take(most).enumerate() {
            if let Some(why) = self.is_impossible(*time) {
                draft.skip(*time, now, why, 1);
                continue;
            }
            let later = due.fires.iter().skip(nth + 1);
            let later = later.filter(|time| self.is_impossible(**time).is_none()).count();
            let choice = timing.choose(draft.progress.open.len(), later);
            let before = self.earlier(&draft.progress);
            let asked = Asked { time: *time, now, choice, before };
            match planned(self.engine, self.schedule, asked) {
                Ok(made) => {
                    let bytes = draft.workflow_bytes.saturating_add(made.workflow_bytes());
                    if bytes > BYTES_OF_ONE && !draft.times.is_empty() {
                        draft.progress.next = Some(*time);
                        break;
                    }
                    if choice == Choice::Replace {
                        draft.progress.replaced = std::mem::take(&mut draft.progress.open);
                    }
                    draft.fire(*time, made, self.schedule, now);
                }
                Err(NotPlanned::Skip(why)) => draft.skip(*time, now, &why, 1),
                Err(NotPlanned::NoJob(why)) => {
                    if !self.unplanned.have_others_had_time(self.schedule.name(), *time, now) {
                        draft.progress.next = Some(*time);
                        break;
                    }
                    draft.skip(*time, now, &why.to_string(), 1);
                }
            }
        }
        if draft.progress.next == self.progress.owed {
            draft.progress.owed = self.progress.owed;
        }
        draft
    }

    /// Returns the first one that is open: of an earlier fire, or of one of this look.
    fn earlier(&self, progress: &Progress) -> Option<Earlier> {
        let id = *progress.open.first()?;
        let is_workflow = matches!(self.schedule.definition.template, Template::Workflow(_));
        Some(self.first.filter(|first| first.id == id).unwrap_or(Earlier { id, is_workflow }))
    }

    fn is_impossible(&self, time: Timestamp) -> Option<&str> {
        self.impossible.iter().find(|(of, _)| *of == time).map(|(_, why)| why.as_str())
    }

    fn late(&self, time: Timestamp) -> Span {
        let (name, timing) = (self.schedule.name().as_str(), &self.schedule.definition.timing);
        Progress::late(name, timing, time, self.now)
    }

    /// Writes what was decided. If the store refuses some of the jobs, says whether it may be tried
    /// without them.
    async fn write(&mut self, draft: Draft) -> Result<Result<Looked, bool>, ScheduleError> {
        let (times, skipped) = (draft.times.clone(), draft.skipped);
        let ids: Vec<JobId> = draft.jobs.iter().map(|job| job.id).collect();
        let (next, replaced) = (draft.progress.next, draft.progress.replaced.clone());
        match write(self.engine, self.schedule, draft, self.now, BY).await? {
            Ok(()) => {
                cancel(self.engine, &replaced).await?;
                self.unplanned.forget(self.schedule.name(), next);
                let late = times.iter().map(|time| self.late(*time)).max().unwrap_or_default();
                let fired = u64::try_from(times.len()).unwrap_or(u64::MAX);
                Ok(Ok(Looked { fired, skipped, late }))
            }
            Err(ScheduleRefusal::Changed | ScheduleRefusal::TooMany) => Ok(Err(false)),
            Err(ScheduleRefusal::Job(at, refusal)) => {
                self.refused(at, &refusal, &times, &ids).await?;
                Ok(Err(true))
            }
        }
    }

    /// Notes the refused fire, and each other fire that the same refusal is known to cover.
    async fn refused(
        &mut self,
        at: usize,
        refusal: &EnqueueRefusal,
        times: &[Timestamp],
        ids: &[JobId],
    ) -> Result<(), ScheduleError> {
        let mut refused = vec![at];
        match refusal {
            EnqueueRefusal::QueueFull { depth, .. } => {
                let room = u64::from(depth.max).saturating_sub(depth.jobs);
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                refused.extend(room..times.len());
                // With room for some, it was refused for all of them together.
                refused.retain(|nth| *nth >= room);
            }
            EnqueueRefusal::DuplicateId(_) => {
                for (nth, id) in ids.iter().enumerate() {
                    if self.engine.store().job(*id).await?.is_some() {
                        refused.push(nth);
                    }
                }
            }
            _ => {}
        }
        for nth in refused {
            if let (Some(time), Some(id)) = (times.get(nth), ids.get(nth))
                && self.is_impossible(*time).is_none()
            {
                let words = match refusal {
                    EnqueueRefusal::DuplicateId(_) => format!("it has fired already: job {id}"),
                    refusal => refusal.to_string(),
                };
                self.impossible.push((*time, words));
            }
        }
        Ok(())
    }
}

/// Fires a schedule at once because someone wants it.
pub(super) async fn by_hand(
    engine: &Engine,
    schedule: &Schedule,
    now: Timestamp,
    by: &str,
) -> Result<Fired, ScheduleError> {
    let timing = &schedule.definition.timing;
    let mut progress = schedule.progress.clone();
    let before = move_queue(engine, &mut progress, timing.overlap).await?.first;
    let choice = timing.choose(progress.open.len(), 0);
    let asked = Asked { time: now, now, choice, before };
    let made = match planned(engine, schedule, asked) {
        Ok(made) => made,
        Err(NotPlanned::Skip(reason)) => return Ok(Fired::Skipped(reason)),
        Err(NotPlanned::NoJob(error)) => return Err(*error),
    };
    let mut draft = Draft::new(progress);
    if choice == Choice::Replace {
        draft.progress.replaced = std::mem::take(&mut draft.progress.open);
    }
    let (id, replaced) = (made.id(), draft.progress.replaced.clone());
    draft.fire(now, made, schedule, now);
    Ok(match write(engine, schedule, draft, now, by).await? {
        Ok(()) => {
            cancel(engine, &replaced).await?;
            Fired::Stored { id, waits: choice == Choice::Wait }
        }
        Err(ScheduleRefusal::Changed | ScheduleRefusal::TooMany) => Fired::Changed,
        // Two of the same millisecond.
        Err(ScheduleRefusal::Job(_, EnqueueRefusal::DuplicateId(_))) => Fired::Changed,
        Err(ScheduleRefusal::Job(_, refusal)) => return Err(ScheduleError::Enqueue(refusal)),
    })
}

async fn write(
    engine: &Engine,
    schedule: &Schedule,
    draft: Draft,
    now: Timestamp,
    by: &str,
) -> Result<Result<(), ScheduleRefusal>, ScheduleError> {
    let Draft { progress, jobs, workflows, events, .. } = draft;
    let begun = workflows.iter().filter(|it| it.state.due.is_some()).map(|it| it.id);
    let begun: Vec<WorkflowId> = begun.collect();
    let write = WriteSchedule { jobs, workflows, events, ..schedule.write(&progress, now, by) };
    let written = engine.submit(write).await?.map(|_| ());
    if written.is_ok() {
        engine.shared().workflows.want(begun);
    }
    Ok(written)
}

/// Why a fire makes no job.
enum NotPlanned {
    Skip(String),
    /// The job cannot be made at this server.
    NoJob(Box<ScheduleError>),
}

/// What a job is wanted for.
#[derive(Clone, Copy)]
struct Asked {
    time: Timestamp,
    now: Timestamp,
    choice: Choice,
    before: Option<Earlier>,
}

/// A job or workflow of an earlier fire that has not ended.
#[derive(Clone, Copy)]
struct Earlier {
    id: Uuid,
    is_workflow: bool,
}

fn planned(
    engine: &Engine,
    schedule: &Schedule,
    Asked { time, now, choice, before }: Asked,
) -> Result<Made, NotPlanned> {
    let open = || match before {
        Some(Earlier { id, is_workflow }) => {
            let kind = if is_workflow { "workflow" } else { "job" };
            format!("{kind} {id} of an earlier fire has not ended; overlap is skip")
        }
        None => "the job of an earlier fire has not ended; overlap is skip".to_owned(),
    };
    let waits = match choice {
        Choice::Fire | Choice::Replace => false,
        Choice::Wait => true,
        Choice::SkipForOpen => return Err(NotPlanned::Skip(open())),
        Choice::SkipForLater => {
            let why = "a later fire is due as well; overlap is replace";
            return Err(NotPlanned::Skip(why.to_owned()));
        }
        Choice::SkipForFull => {
            let why = format!("{QUEUED_MAX} of its jobs have not ended; no more may wait");
            return Err(NotPlanned::Skip(why));
        }
    };
    let (name, created) = (schedule.name(), schedule.record.created);
    let late = Progress::late(name.as_str(), &schedule.definition.timing, time, now);
    let fire = Fire { name, created, time, late, now, waits };
    let made = job::plan(engine.settings(), &schedule.definition, fire);
    made.map_err(|error| NotPlanned::NoJob(Box::new(error)))
}

/// What became of jobs that had not ended.
struct Moved {
    /// Whether anything is different.
    has_turned: bool,
    /// The first one that still has not.
    first: Option<Earlier>,
}

/// Cancels what was replaced, drops jobs that have ended, and lets the next one have its turn. Of jobs that wait for each other only the first ones are looked at,
/// unless there are too many.
async fn move_queue(
    engine: &Engine,
    progress: &mut Progress,
    overlap: Overlap,
) -> Result<Moved, ScheduleError> {
    let before = (progress.open.len(), progress.replaced.len());
    cancel(engine, &std::mem::take(&mut progress.replaced)).await?;
    let in_order = overlap == Overlap::Queue;
    let (mut open, mut first) = (Vec::new(), None);
    for job in std::mem::take(&mut progress.open) {
        if in_order && first.is_some() && before.0 < QUEUED_MAX {
            open.push(job);
            continue;
        }
        let Some(found) = find(engine, job).await? else { continue };
        // Others wait no more once the schedule does not queue.
        if found.waits && (first.is_none() || !in_order) {
            let_have_its_turn(engine, job, found).await?;
        }
        first = first.or(Some(Earlier { id: job, is_workflow: found.is_workflow }));
        open.push(job);
    }
    progress.open = open;
    Ok(Moved { has_turned: (progress.open.len(), 0) != before, first })
}

/// Activates the jobs of a schedule that wait for their turn: it is about to be removed.
pub(super) async fn let_go(engine: &Engine, progress: &Progress) -> Result<(), ScheduleError> {
    for job in &progress.open {
        if let Some(open) = find(engine, *job).await?
            && open.waits
        {
            let_have_its_turn(engine, *job, open).await?;
        }
    }
    cancel(engine, &progress.replaced).await
}

/// A job or workflow of a schedule that has not ended.
#[derive(Clone, Copy)]
struct Open {
    is_workflow: bool,
    /// Whether it waits for its turn.
    waits: bool,
}

/// Finds a job or a workflow that has not ended.
async fn find(engine: &Engine, id: Uuid) -> Result<Option<Open>, ScheduleError> {
    if let Some(record) = engine.store().job(JobId(id)).await? {
        let waits = record.state == State::Pending;
        return Ok((!record.state.is_terminal()).then_some(Open { is_workflow: false, waits }));
    }
    let waits = workflows::waits(engine, WorkflowId(id)).await?;
    Ok(waits.map(|waits| Open { is_workflow: true, waits }))
}

async fn let_have_its_turn(engine: &Engine, id: Uuid, open: Open) -> Result<(), ScheduleError> {
    match open.is_workflow {
        true => Ok(workflows::let_begin(engine, WorkflowId(id), BY).await?),
        false => order(engine, id, JobAction::Activate).await,
    }
}

async fn cancel(engine: &Engine, all: &[Uuid]) -> Result<(), ScheduleError> {
    for id in all {
        match find(engine, *id).await? {
            None => {}
            Some(Open { is_workflow: false, .. }) => order(engine, *id, JobAction::Cancel).await?,
            Some(Open { is_workflow: true, .. }) => {
                match workflow::look(engine, WorkflowId(*id), Ask::Cancel, BY).await {
                    // It has ended meanwhile.
                    Ok(()) | Err(WorkflowError::Refused(_) | WorkflowError::NotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(())
}

/// Orders something of a job; one that is beyond it stays as it is.
async fn order(engine: &Engine, job: Uuid, action: JobAction) -> Result<(), ScheduleError> {
    let (by, job) = (BY.to_owned(), JobId(job));
    let _ = engine.submit(JobOrder { job, action, tenant: None, by, expected: None }).await?;
    Ok(())
}
