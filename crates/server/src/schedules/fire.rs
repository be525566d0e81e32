//! What a look at a schedule does: it fires what is due, and lets jobs have their turn that wait for
//! others.
//!
//! ```text
//! open jobs that have ended are dropped ─▶ what is due: fire, wait, replace or skip
//!    └▶ the next one's turn: activate        └▶ WriteSchedule: jobs, events and progress, or nothing
//! ```
//!
//! Cancelling and activating come before the write, and are safe to repeat. A server that dies in
//! between leaves the schedule as it was; the next one does the same again.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_schedule::Overlap;
use outlast_schedule::progress::{Choice, LastFire, LastSkip, Progress};
use outlast_store::command::{JobAction, JobOrder, NewJob};
use outlast_store::event::EventName;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::schedule::{ScheduleEvent, ScheduleRefusal, WriteSchedule};
use outlast_wire::time::Rfc3339;
use uuid::Uuid;

use super::job::{self, Fire};
use super::service::{Schedule, ScheduleError};
use crate::engine::Engine;

/// Who fires schedules, for the event log.
const BY: &str = "scheduler";

/// How long a fire whose job cannot be planned waits for a server that can: one that has the action's
/// pack.
const OTHERS_MAY_PLAN: Span = Span::from_secs(3);

/// What came of a fire by hand.
#[derive(Debug)]
pub(super) enum Fired {
    Job {
        job: JobId,
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
    /// The times of the fires of these jobs.
    times: Vec<Timestamp>,
    events: Vec<ScheduleEvent>,
    skipped: u64,
}

impl Draft {
    fn new(progress: Progress) -> Self {
        let (jobs, times, events) = (Vec::new(), Vec::new(), Vec::new());
        Self { progress, jobs, times, events, skipped: 0 }
    }

    fn skip(&mut self, time: Timestamp, now: Timestamp, reason: &str, count: u64) {
        let last = LastSkip { fire_time: time, at: now, reason: reason.to_owned() };
        self.progress.note_skip(last, count);
        self.skipped += count;
        let many = if count > 1 { format!("{count} fires until ") } else { String::new() };
        let words = format!("{many}{}: {reason}", Rfc3339(time));
        self.events.push(ScheduleEvent { kind: EventName::CronSkipped, job: None, words });
    }

    fn fire(&mut self, time: Timestamp, now: Timestamp, job: NewJob, overlap: Overlap) {
        let last = LastFire { fire_time: time, at: now, job: job.id.0 };
        self.progress.note_fire(last, overlap);
        let words = format!("{}, {} ms late", Rfc3339(time), now.since(time).0);
        let event = ScheduleEvent { kind: EventName::CronTriggered, job: Some(job.id), words };
        self.events.push(event);
        self.jobs.push(job);
        self.times.push(time);
    }
}

/// Fires what is due of a schedule. Someone else may be faster: then nothing happens.
pub(crate) async fn look(
    engine: &Engine,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Looked, ScheduleError> {
    let (name, timing) = (schedule.name(), &schedule.definition.timing);
    let due = schedule.progress.look(name.as_str(), timing, now);
    let mut progress = schedule.progress.clone();
    let has_turned = drop_ended(engine, &mut progress, timing.overlap).await?;
    if due.fires.is_empty() && due.missed == 0 && !has_turned {
        return turn_is_later(engine, schedule, &progress, now).await;
    }
    // Fires that cannot be carried out after all, with the reason.
    let mut impossible: Vec<(Timestamp, String)> = Vec::new();
    for _ in 0..=due.fires.len() {
        let mut draft = Draft::new(progress.clone());
        draft.progress.next = due.next;
        if due.missed > 0 {
            let words = format!(
                "missed while no server could fire it; catch_up is {}",
                timing.catch_up.as_str()
            );
            let last = due.fires.first().map_or(now, |first| Timestamp(first.0.saturating_sub(1)));
            draft.skip(last, now, &words, due.missed);
        }
        let mut cancels = false;
        for (nth, time) in due.fires.iter().enumerate() {
            let later = due.fires.len() - nth - 1;
            if let Some((_, why)) = impossible.iter().find(|(of, _)| of == time) {
                draft.skip(*time, now, why, 1);
                continue;
            }
            let choice = timing.choose(draft.progress.open.len(), later);
            let asked = Asked { time: *time, now, choice, before: draft.progress.open.first() };
            match planned(engine, schedule, asked) {
                Ok(job) => {
                    if choice == Choice::Replace {
                        cancels = true;
                        draft.progress.open.clear();
                    }
                    draft.fire(*time, now, job, timing.overlap);
                }
                Err(Unplanned::Skip(why)) => draft.skip(*time, now, &why, 1),
                // Perhaps another server has the action.
                Err(Unplanned::NoJob(_)) if now.since(*time) < OTHERS_MAY_PLAN => {
                    return Ok(Looked::default());
                }
                Err(Unplanned::NoJob(why)) => draft.skip(*time, now, &why, 1),
            }
        }
        if cancels {
            cancel(engine, &progress.open).await?;
        }
        let times = draft.times.clone();
        let (fired, skipped) = (times.len(), draft.skipped);
        match write(engine, schedule, draft, now, BY).await? {
            Ok(()) => {
                let late = times.iter().map(|time| now.since(*time)).max().unwrap_or_default();
                let fired = u64::try_from(fired).unwrap_or(u64::MAX);
                return Ok(Looked { fired, skipped, late });
            }
            Err(ScheduleRefusal::Changed | ScheduleRefusal::TooMany) => break,
            Err(ScheduleRefusal::Job(at, refusal)) => {
                let Some(time) = times.get(at) else { break };
                impossible.push((*time, words_of(&refusal)));
            }
        }
    }
    Ok(Looked::default())
}

/// Nothing is due, and the job whose end others wait for goes on: looks again later.
async fn turn_is_later(
    engine: &Engine,
    schedule: &Schedule,
    progress: &Progress,
    now: Timestamp,
) -> Result<Looked, ScheduleError> {
    let due = progress.due(schedule.name().as_str(), &schedule.definition.timing, now);
    let is_due = |at: Timestamp| at <= now;
    if schedule.record.state.due.is_some_and(is_due) && due.is_none_or(|due| due > now) {
        let _ = write(engine, schedule, Draft::new(progress.clone()), now, BY).await?;
    }
    Ok(Looked::default())
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
    drop_ended(engine, &mut progress, timing.overlap).await?;
    let choice = timing.choose(progress.open.len(), 0);
    let asked = Asked { time: now, now, choice, before: progress.open.first() };
    let job = match planned(engine, schedule, asked) {
        Ok(job) => job,
        Err(Unplanned::Skip(reason) | Unplanned::NoJob(reason)) => {
            return Ok(Fired::Skipped(reason));
        }
    };
    let mut draft = Draft::new(progress.clone());
    if choice == Choice::Replace {
        cancel(engine, &progress.open).await?;
        draft.progress.open.clear();
    }
    let id = job.id;
    draft.fire(now, now, job, timing.overlap);
    Ok(match write(engine, schedule, draft, now, by).await? {
        Ok(()) => Fired::Job { job: id, waits: choice == Choice::Wait },
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
    let Draft { progress, jobs, events, .. } = draft;
    let write = WriteSchedule { jobs, events, ..schedule.write(&progress, now, by) };
    Ok(engine.submit(write).await?.map(|_| ()))
}

/// Why a fire makes no job.
enum Unplanned {
    Skip(String),
    /// The job cannot be made at this server.
    NoJob(String),
}

/// What a job is wanted for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    time: Timestamp,
    now: Timestamp,
    choice: Choice,
    /// A job of an earlier fire that has not ended.
    before: Option<&'a Uuid>,
}

fn planned(
    engine: &Engine,
    schedule: &Schedule,
    Asked { time, now, choice, before }: Asked<'_>,
) -> Result<NewJob, Unplanned> {
    let open = || match before {
        Some(job) => format!("job {job} of an earlier fire has not ended; overlap is skip"),
        None => "the job of an earlier fire has not ended; overlap is skip".to_owned(),
    };
    let waits = match choice {
        Choice::Fire | Choice::Replace => false,
        Choice::Wait => true,
        Choice::SkipForOpen => return Err(Unplanned::Skip(open())),
        Choice::SkipForLater => {
            let why = "a later fire is due as well; overlap is replace";
            return Err(Unplanned::Skip(why.to_owned()));
        }
        Choice::SkipForFull => {
            let max = outlast_schedule::progress::QUEUED_MAX;
            let why = format!("{max} of its jobs have not ended; no more may wait");
            return Err(Unplanned::Skip(why));
        }
    };
    let (name, created) = (schedule.name(), schedule.record.created);
    let fire = Fire { name, created, time, now, waits };
    job::plan(engine.settings(), &schedule.definition, fire)
        .map_err(|error| Unplanned::NoJob(error.to_string()))
}

fn words_of(refusal: &EnqueueRefusal) -> String {
    match refusal {
        EnqueueRefusal::DuplicateId(job) => format!("it has fired already: job {job}"),
        refusal => refusal.to_string(),
    }
}

/// Drops jobs that have ended, and lets the next one have its turn; returns whether any was dropped.
/// Of jobs that wait for each other only the first ones are looked at.
async fn drop_ended(
    engine: &Engine,
    progress: &mut Progress,
    overlap: Overlap,
) -> Result<bool, ScheduleError> {
    let before = progress.open.len();
    if overlap != Overlap::Queue {
        let mut open = Vec::new();
        for job in std::mem::take(&mut progress.open) {
            if state_of(engine, job).await?.is_some() {
                open.push(job);
            }
        }
        progress.open = open;
        return Ok(progress.open.len() < before);
    }
    let mut ended = 0;
    while let Some(job) = progress.open.get(ended) {
        match state_of(engine, *job).await? {
            None => ended += 1,
            Some(State::Pending) => {
                order(engine, *job, JobAction::Activate).await?;
                break;
            }
            Some(_) => break,
        }
    }
    progress.open.drain(..ended);
    Ok(ended > 0)
}

/// Returns the state of a job that has not ended.
async fn state_of(engine: &Engine, job: Uuid) -> Result<Option<State>, ScheduleError> {
    let record = engine.store().job(JobId(job)).await?;
    Ok(record.map(|record| record.state).filter(|state| !state.is_terminal()))
}

async fn cancel(engine: &Engine, jobs: &[Uuid]) -> Result<(), ScheduleError> {
    for job in jobs {
        order(engine, *job, JobAction::Cancel).await?;
    }
    Ok(())
}

/// Orders something of a job; one that is beyond it stays as it is.
async fn order(engine: &Engine, job: Uuid, action: JobAction) -> Result<(), ScheduleError> {
    let (by, job) = (BY.to_owned(), JobId(job));
    let _ = engine.submit(JobOrder { job, action, tenant: None, by, expected: None }).await?;
    Ok(())
}
