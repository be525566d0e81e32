//! Changes of schedules by people, programs and the configuration.

use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_schedule::progress::{Pause, Progress};
use outlast_store::StoreError;
use outlast_store::event::EventName;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::schedule::{
    ScheduleEvent, ScheduleQuery, ScheduleRecord, ScheduleRefusal, ScheduleState, WriteSchedule,
};

use uuid::Uuid;

use super::definition::Definition;
use super::fire::{self, Fired};
use crate::engine::{Engine, Unavailable};
use crate::intake::IntakeError;
use crate::workflows::service::WorkflowError;

/// Most that the definitions of a page come to, in bytes; one is shown whatever its length.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often a change is tried against others who change the same schedule.
const TRIES: u32 = 20;

/// A schedule as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) record: ScheduleRecord,
    pub(crate) definition: Definition,
    pub(crate) progress: Progress,
}

/// What someone wants a schedule to be.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) definition: Definition,
    /// Whether it is paused from now on, with the reason; `None` leaves that as it is.
    pub(crate) paused: Option<Option<String>>,
}

/// Who changes a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// For the event log.
    pub(crate) by: String,
    /// Whether it is a server's configuration.
    pub(crate) is_configuration: bool,
    /// The tenant that the request is limited to; schedules of others are not found.
    pub(crate) tenant: Option<String>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Changed,
    Unchanged,
}

/// Why a schedule stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Intake(#[from] IntakeError),
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    #[error("schedule {0} is not known")]
    NotFound(ScheduleName),
    #[error(
        "schedule {0} belongs to the configuration of a server; change it there, and send the \
         server SIGHUP"
    )]
    Configured(ScheduleName),
    #[error("there are too many schedules; at most {max} may exist", max = outlast_core::schedule::SCHEDULES_MAX)]
    TooMany,
    #[error("schedule {0} was changed by others again and again; try once more")]
    Contended(ScheduleName),
    #[error("schedule {name} was not triggered: {reason}")]
    NotTriggered { name: ScheduleName, reason: String },
    #[error(transparent)]
    Enqueue(EnqueueRefusal),
    #[error("schedule {0} cannot be read: {1}")]
    Damaged(ScheduleName, String),
}

impl Schedule {
    fn parse(record: ScheduleRecord) -> Result<Self, ScheduleError> {
        let damaged = |what| ScheduleError::Damaged(record.name.clone(), what);
        let definition = Definition::parse(&record.state.definition).map_err(damaged)?;
        let progress = serde_json::from_str(&record.state.progress)
            .map_err(|error| damaged(error.to_string()))?;
        Ok(Self { record, definition, progress })
    }

    pub(crate) const fn name(&self) -> &ScheduleName {
        &self.record.name
    }

    /// Returns the command that gives it this progress.
    pub(super) fn write(&self, progress: &Progress, now: Timestamp, by: &str) -> WriteSchedule {
        let state = state_of(self.name(), &self.definition, progress, now);
        let old = &self.record.state;
        let state =
            ScheduleState { configured: old.configured, set_by: old.set_by.clone(), ..state };
        WriteSchedule {
            name: self.name().clone(),
            expected: Some(self.record.revision),
            to: Some(state),
            jobs: Vec::new(),
            workflows: Vec::new(),
            events: Vec::new(),
            by: by.to_owned(),
        }
    }

    fn is_of(&self, tenant: Option<&str>) -> bool {
        tenant.is_none_or(|tenant| self.definition.tenant.as_deref() == Some(tenant))
    }
}

/// Returns what is stored, without who set it.
fn state_of(
    name: &ScheduleName,
    definition: &Definition,
    progress: &Progress,
    now: Timestamp,
) -> ScheduleState {
    ScheduleState {
        configured: false,
        due: progress.due(name.as_str(), &definition.timing, now),
        definition: definition.text(),
        // It holds texts and numbers only.
        progress: serde_json::to_string(progress).unwrap_or_default(),
        set_by: String::new(),
    }
}

fn event(kind: EventName, words: impl Into<String>) -> Vec<ScheduleEvent> {
    vec![ScheduleEvent { kind, job: None, words: words.into() }]
}

/// Reads a schedule, if the tenant may see it.
pub(crate) async fn find(
    engine: &Engine,
    name: &ScheduleName,
    tenant: Option<&str>,
) -> Result<Option<Schedule>, ScheduleError> {
    let record = engine.store().schedule(name.clone()).await?;
    let found = record.map(Schedule::parse).transpose()?;
    Ok(found.filter(|schedule| schedule.is_of(tenant)))
}

/// Some schedules, by name.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Those that can be read. Others are left out, and logged.
    pub(crate) schedules: Vec<Schedule>,
    /// After which name there may be more.
    pub(crate) next: Option<ScheduleName>,
}

/// Reads schedules by name, those of the tenant if one is named.
pub(crate) async fn list(
    engine: &Engine,
    query: ScheduleQuery,
    tenant: Option<&str>,
) -> Result<Listed, ScheduleError> {
    let fits = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let query = ScheduleQuery { limit: query.limit.saturating_add(1), ..query };
    let mut records = engine.store().schedules(query).await?;
    let mut bytes = 0_usize;
    let short = records.iter().take_while(|record| {
        bytes = bytes.saturating_add(record.state.definition.len());
        bytes <= PAGE_BYTES_MAX
    });
    let fits = short.count().clamp(1, fits);
    let more = records.len() > fits;
    records.truncate(fits);
    let next = records.last().filter(|_| more).map(|last| last.name.clone());
    let schedules = records.into_iter().filter_map(readable);
    Ok(Listed { schedules: schedules.filter(|it| it.is_of(tenant)).collect(), next })
}

/// Parses a record; logs why it cannot be read.
pub(crate) fn readable(record: ScheduleRecord) -> Option<Schedule> {
    Schedule::parse(record)
        .inspect_err(|error| tracing::debug!(%error, "a schedule is left out"))
        .ok()
}

/// Makes a schedule, or changes it. Its progress goes on as far as it may.
pub(crate) async fn set(
    engine: &Engine,
    name: &ScheduleName,
    wanted: &Wanted,
    author: &Author,
) -> Result<Change, ScheduleError> {
    for _ in 0..TRIES {
        let now = engine.now().await?;
        let record = engine.store().schedule(name.clone()).await?;
        let (is_new, revision) = (record.is_none(), record.as_ref().map(|it| it.revision));
        let is_configured = record.as_ref().is_some_and(|it| it.state.configured);
        // One that cannot be read, as of a later build, is set from its beginning.
        let old = record.and_then(readable);
        may_change(name, is_configured, old.as_ref(), author)?;
        let Some(write) = setting(old.as_ref(), name, wanted, author, now) else {
            return Ok(Change::Unchanged);
        };
        match engine.submit(WriteSchedule { expected: revision, ..write }).await? {
            Ok(_) if is_new => return Ok(Change::Created),
            Ok(_) => return Ok(Change::Changed),
            Err(refusal) => again(refusal)?,
        }
    }
    Err(ScheduleError::Contended(name.clone()))
}

/// Passes over a refusal that another try may not meet.
fn again(refusal: ScheduleRefusal) -> Result<(), ScheduleError> {
    match refusal {
        ScheduleRefusal::Changed => Ok(()),
        ScheduleRefusal::TooMany => Err(ScheduleError::TooMany),
        ScheduleRefusal::Job(_, refusal) => Err(ScheduleError::Enqueue(refusal)),
    }
}

/// What the configuration declares belongs to it; what others made, it takes over.
fn may_change(
    name: &ScheduleName,
    is_configured: bool,
    readable: Option<&Schedule>,
    author: &Author,
) -> Result<(), ScheduleError> {
    if readable.is_some_and(|schedule| !schedule.is_of(author.tenant.as_deref())) {
        return Err(ScheduleError::NotFound(name.clone()));
    }
    if is_configured && !author.is_configuration {
        return Err(ScheduleError::Configured(name.clone()));
    }
    Ok(())
}

/// Returns the command that makes a schedule what is wanted; `None` if it is.
fn setting(
    old: Option<&Schedule>,
    name: &ScheduleName,
    wanted: &Wanted,
    author: &Author,
    now: Timestamp,
) -> Option<WriteSchedule> {
    let Wanted { definition, paused } = wanted;
    let mut definition = definition.clone();
    if let Some(old) = old
        && definition.tenant.is_none()
    {
        // Who is limited to no tenant leaves it with its own.
        definition.tenant.clone_from(&old.definition.tenant);
    }
    let definition = &definition;
    let timing = &definition.timing;
    let mut progress = match old {
        None => Progress::begin(timing, now),
        Some(old) if old.definition == *definition => old.progress.clone(),
        Some(old) => old.progress.set(name.as_str(), &old.definition.timing, timing, now),
    };
    progress = match paused {
        Some(Some(reason)) => {
            // A pause without a reason takes none away, and the configuration's no other's.
            let is_kept = progress.paused.as_ref().is_some_and(|it| {
                it.reason == *reason
                    || reason.is_empty()
                    || author.is_configuration && it.by != author.by
            });
            let pause = Pause { reason: reason.clone(), by: author.by.clone(), at: now };
            if is_kept { progress } else { progress.pause(pause) }
        }
        Some(None) => progress.resume(timing, now),
        // What it paused, it resumes by saying it no more.
        None if author.is_configuration
            && progress.paused.as_ref().is_some_and(|it| it.by == author.by) =>
        {
            progress.resume(timing, now)
        }
        None => progress,
    };
    let is_same = old.is_some_and(|old| {
        old.definition == *definition
            && old.progress == progress
            && old.record.state.configured == author.is_configuration
    });
    if is_same {
        return None;
    }
    let state = ScheduleState {
        configured: author.is_configuration,
        set_by: author.by.clone(),
        ..state_of(name, definition, &progress, now)
    };
    let words = format!("{} {}", timing.expression, timing.zone);
    let mut events = event(EventName::CronSet, words);
    match (old.and_then(|old| old.progress.paused.as_ref()), &progress.paused) {
        (before, Some(pause)) if before != Some(pause) => {
            events.extend(event(EventName::CronPaused, pause.reason.as_str()));
        }
        (Some(_), None) => events.extend(event(EventName::CronResumed, "")),
        _ => {}
    }
    Some(WriteSchedule {
        name: name.clone(),
        expected: old.map(|old| old.record.revision),
        to: Some(state),
        jobs: Vec::new(),
        workflows: Vec::new(),
        events,
        by: author.by.clone(),
    })
}

/// Removes a schedule and leaves its jobs; those that wait for their turn have it now. Returns what it
/// was, if it could be read.
pub(crate) async fn remove(
    engine: &Engine,
    name: &ScheduleName,
    author: &Author,
) -> Result<Option<Schedule>, ScheduleError> {
    for _ in 0..TRIES {
        let record = engine.store().schedule(name.clone()).await?;
        let record = record.ok_or_else(|| ScheduleError::NotFound(name.clone()))?;
        let (revision, is_configured) = (record.revision, record.state.configured);
        let found = readable(record);
        may_change(name, is_configured, found.as_ref(), author)?;
        if let Some(found) = &found {
            fire::let_go(engine, &found.progress).await?;
        }
        let write = WriteSchedule {
            name: name.clone(),
            expected: Some(revision),
            to: None,
            jobs: Vec::new(),
            workflows: Vec::new(),
            events: event(EventName::CronRemoved, ""),
            by: author.by.clone(),
        };
        match engine.submit(write).await? {
            Ok(_) => return Ok(found),
            Err(refusal) => again(refusal)?,
        }
    }
    Err(ScheduleError::Contended(name.clone()))
}

/// Pauses a schedule, or resumes it. That is not part of its definition, so one of a configuration
/// can be paused, too.
pub(crate) async fn pause(
    engine: &Engine,
    name: &ScheduleName,
    paused: Option<&str>,
    author: &Author,
) -> Result<Schedule, ScheduleError> {
    for _ in 0..TRIES {
        let found = find(engine, name, author.tenant.as_deref()).await?;
        let found = found.ok_or_else(|| ScheduleError::NotFound(name.clone()))?;
        let now = engine.now().await?;
        let (progress, events) = match paused {
            Some(reason) => {
                let pause = Pause { reason: reason.to_owned(), by: author.by.clone(), at: now };
                (found.progress.pause(pause), event(EventName::CronPaused, reason))
            }
            None => {
                let resumed = found.progress.resume(&found.definition.timing, now);
                (resumed, event(EventName::CronResumed, ""))
            }
        };
        let is_same = match (&found.progress.paused, paused) {
            (None, None) => true,
            (Some(old), Some(reason)) => reason.is_empty() || old.reason == reason,
            _ => false,
        };
        if is_same {
            return Ok(found);
        }
        let write = WriteSchedule { events, ..found.write(&progress, now, &author.by) };
        match engine.submit(write).await? {
            Ok(_) => {
                return find(engine, name, None)
                    .await?
                    .ok_or_else(|| ScheduleError::NotFound(name.clone()));
            }
            Err(refusal) => again(refusal)?,
        }
    }
    Err(ScheduleError::Contended(name.clone()))
}

/// A job or workflow that someone had a schedule store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Triggered {
    pub(crate) id: Uuid,
    pub(crate) fire_time: Timestamp,
    /// Whether it waits for others of the schedule.
    pub(crate) waits: bool,
}

/// Fires a schedule now, beside its times, paused or not.
pub(crate) async fn trigger(
    engine: &Engine,
    name: &ScheduleName,
    author: &Author,
) -> Result<Triggered, ScheduleError> {
    for _ in 0..TRIES {
        let found = find(engine, name, author.tenant.as_deref()).await?;
        let found = found.ok_or_else(|| ScheduleError::NotFound(name.clone()))?;
        let now = engine.now().await?;
        match fire::by_hand(engine, &found, now, &author.by).await? {
            Fired::Stored { id, waits } => return Ok(Triggered { id, fire_time: now, waits }),
            Fired::Skipped(reason) => {
                return Err(ScheduleError::NotTriggered { name: name.clone(), reason });
            }
            Fired::Changed => {}
        }
    }
    Err(ScheduleError::Contended(name.clone()))
}
