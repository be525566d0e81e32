//! Reads of operators, monitors and metrics, on a large store.
//!
//! A store fills itself with jobs by its own SQL; each read here must then take no longer
//! than it does for a small one. How that is measured (by steps, plans or a clock) is the
//! store's.

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_store::error::StoreError;
use outlast_store::event::{EventQuery, NewestQuery};
use outlast_store::query::{AheadQuery, JobQuery, LogQuery, Page, WorkerQuery};
use outlast_store::store::Store;
use uuid::Uuid;

/// A part of the time in which all jobs were made, in thousandths before the newest one: from when
/// on and until when.
pub type Part = (Option<i64>, Option<i64>);

/// One read, by its name.
#[derive(Clone, Debug)]
pub enum Read {
    /// A page of jobs.
    Jobs(&'static str, Box<JobQuery>),
    /// Jobs of a part of the time in which all were made.
    JobsOfTime(&'static str, Box<JobQuery>, Part),
    /// Another read of the trait.
    Other(&'static str),
}

impl Read {
    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Jobs(name, _) | Self::JobsOfTime(name, ..) | Self::Other(name) => name,
        }
    }

    /// Runs it; returns a short description of the result.
    ///
    /// # Errors
    /// Returns what the store says.
    pub async fn run<S: Store>(&self, store: &S) -> Result<String, StoreError> {
        let (job, worker) = (JobId(id_of(0x0190, 1_000)), worker(1));
        Ok(match self {
            Self::Jobs(_, query) => {
                let page = store.jobs(JobQuery::clone(query)).await?;
                let total = page.total.map_or_else(|| "?".to_owned(), |total| total.to_string());
                format!("{} of {total}", page.jobs.len())
            }
            Self::JobsOfTime(name, query, part) => of_time(store, name, query, *part).await?,
            Self::Other("queues") => format!("{} queues", store.queues().await?.len()),
            Self::Other("tally") => format!("{} classes", store.tally().await?.len()),
            Self::Other("backlog") => format!("{} classes", store.backlog().await?.len()),
            Self::Other("pauses") => format!("{} queues", store.pauses().await?.len()),
            Self::Other("live workers") => {
                format!("{} workers", store.live_workers().await?.len())
            }
            Self::Other("fleet") => format!("{} workers", store.fleet().await?.len()),
            Self::Other("held by a worker") => {
                format!("{} attempts", store.in_flight_of(worker).await?.len())
            }
            Self::Other("cancelled of workers") => {
                format!("{} attempts", store.cancelled_of(vec![worker]).await?.len())
            }
            Self::Other("dead letters") => {
                let query = JobQuery::dead_letters(Page { limit: 100, cursor: None });
                let page = store.dead_letters(query).await?;
                format!("{} of {:?}", page.letters.len(), page.total)
            }
            Self::Other("page of workers") => {
                let page = store.workers_page(WorkerQuery::all(100)).await?;
                format!("{} of {}", page.workers.len(), page.total)
            }
            Self::Other("worker by name") => {
                let called = Some("worker-1".to_owned());
                let query = WorkerQuery { called, ..WorkerQuery::all(100) };
                format!("{}", store.workers_page(query).await?.total)
            }
            Self::Other("events of a job") => events(store).await?,
            Self::Other("events of a name") => {
                let names = vec!["worker.registered".to_owned()];
                let query = EventQuery { names, ..events_of(None) };
                format!("{} events", store.events(query).await?.events.len())
            }
            Self::Other("newest events") => {
                let (of, since) = (events_of(None), None);
                let query = NewestQuery { of, since, until: None, before: None };
                format!("{} events", store.newest_events(query).await?.events.len())
            }
            Self::Other("newest losses") => {
                let names = vec!["job.lost".to_owned()];
                let of = EventQuery { names, ..events_of(None) };
                let query = NewestQuery { of, since: None, until: None, before: None };
                format!("{} events", store.newest_events(query).await?.events.len())
            }
            Self::Other("next due") => format!("{}", store.next_due().await?.is_some()),
            Self::Other("one job") => format!("{}", store.job(job).await?.is_some()),
            Self::Other("jobs before one") => jobs_before(store, job).await?,
            Self::Other("attempts") => format!("{}", store.attempts(job).await?.len()),
            Self::Other(_) => {
                let logs = LogQuery { job, after: 0, limit: 100 };
                format!("{}", store.logs(logs).await?.lines.len())
            }
        })
    }
}

/// The first page of a list by time is full or the last, though the jobs of the store follow one
/// another by the millisecond, and their order only tells something half a minute further.
async fn of_time<S: Store>(
    store: &S,
    name: &str,
    query: &JobQuery,
    (from, before): Part,
) -> Result<String, StoreError> {
    let newest = store.jobs(JobQuery::all(Page { limit: 1, cursor: None })).await?;
    let count = newest.total.and_then(|total| i64::try_from(total).ok()).unwrap_or(0);
    let newest = newest.jobs.first().map_or(0, |job| job.job.created.0);
    let at = |part: i64| Timestamp(newest - count / 1_000 * part);
    let (created_from, created_before) = (from.map(at), before.map(at));
    let query = JobQuery { created_from, created_before, ..query.clone() };
    let wanted = usize::try_from(query.page.limit).unwrap_or(usize::MAX);
    let page = store.jobs(query).await?;
    let found = page.jobs.len();
    if page.next.is_some() && found < wanted {
        return Err(StoreError::Corrupt(format!("page of list `{name}` has only {found} jobs")));
    }
    Ok(format!("{found}"))
}

/// Of its class, and of a lane.
async fn jobs_before<S: Store>(store: &S, job: JobId) -> Result<String, StoreError> {
    let Some(found) = store.job(job).await? else { return Ok("no job".into()) };
    let (class, priority) = (found.job.class, found.job.priority);
    let mut before = 0;
    for lane in [0, 1] {
        before += store.ahead(AheadQuery { job, class, lane, priority, max: 100 }).await?;
    }
    Ok(format!("{before} jobs"))
}

/// Of one that waits for long, and one that ended long ago: what was logged since is not read for
/// them.
async fn events<S: Store>(store: &S) -> Result<String, StoreError> {
    let mut found = 0;
    for n in [5, 60_000] {
        let job = Some(JobId(id_of(0x0190, n)));
        let page = store.events(events_of(job)).await?;
        if page.next != store.events_end().await? {
            let words = format!("events of job {n} are not read to the end");
            return Err(StoreError::Corrupt(words));
        }
        found += page.events.len();
    }
    Ok(format!("{found} events"))
}

fn events_of(job: Option<JobId>) -> EventQuery {
    EventQuery { job, ..EventQuery::all(50) }
}

fn id_of(first: u128, n: u128) -> Uuid {
    Uuid::from_u128((first << 112) | n)
}

fn worker(n: u128) -> WorkerId {
    WorkerId(id_of(0x0191, n))
}

/// Returns every read that is checked.
#[must_use]
pub fn reads() -> Vec<Read> {
    let all = || JobQuery::all(Page { limit: 100, cursor: None });
    let of = |states: &[State]| JobQuery { states: states.to_vec(), ..all() };
    let queue = |name: &str| JobQuery { queue: Some(name.to_owned()), ..all() };
    let waiting = [State::Available, State::Scheduled, State::Pending, State::Retryable];
    let failed =
        JobQuery { abandoned: Some(false), timed_out: Some(false), ..of(&[State::Discarded]) };
    let timeout = JobQuery { timed_out: Some(true), ..failed.clone() };
    let abandoned = JobQuery { abandoned: Some(true), ..of(&[State::Discarded]) };
    let ids = (JobId(id_of(0x0190, 1_000)), JobId(id_of(0x0190, 1_009)));
    let jobs = [
        ("all", all()),
        ("requested", of(&waiting)),
        ("available", of(&[State::Available])),
        ("scheduled", of(&[State::Scheduled])),
        ("retryable", of(&[State::Retryable])),
        ("active", of(&[State::Active])),
        ("running", JobQuery { started: Some(true), ..of(&[State::Active]) }),
        ("claimed", JobQuery { started: Some(false), ..of(&[State::Active]) }),
        ("completed", of(&[State::Completed])),
        ("cancelled", of(&[State::Cancelled])),
        ("failed", failed),
        ("timeout", timeout),
        ("abandoned", abandoned),
        ("queue, most", queue("default")),
        ("queue, some", queue("mail")),
        ("queue, few", queue("rare")),
        ("queue of 5,000 types", queue("many")),
        ("queue, none", queue("nothing")),
        ("type, some", JobQuery { job_type: Some("echo".into()), ..all() }),
        ("tenant", JobQuery { tenant: Some("acme".into()), ..all() }),
        ("queue and completed", JobQuery { states: vec![State::Completed], ..queue("rare") }),
        ("queue and requested", JobQuery { states: waiting.to_vec(), ..queue("default") }),
        ("queue and failed", JobQuery { states: vec![State::Discarded], ..queue("default") }),
        ("id", JobQuery { ids: Some(ids), ..all() }),
        ("ids of all", JobQuery { ids: Some((JobId(Uuid::nil()), JobId(Uuid::max()))), ..all() }),
        ("worker", JobQuery { worker: Some(worker(1)), ..all() }),
        ("worker and running", JobQuery { worker: Some(worker(1)), ..of(&[State::Active]) }),
        ("key of none", JobQuery { keys: [("k".into(), "v".into())].into(), ..all() }),
        ("error of none", JobQuery { error: Some("no such error".into()), ..all() }),
        ("end of an id", JobQuery { id_suffix: Some("bad0bad0".into()), ..all() }),
    ];
    let others = [
        "queues",
        "tally",
        "backlog",
        "pauses",
        "live workers",
        "fleet",
        "page of workers",
        "worker by name",
        "events of a job",
        "events of a name",
        "newest events",
        "newest losses",
        "held by a worker",
        "cancelled of workers",
        "dead letters",
        "next due",
        "one job",
        "jobs before one",
        "attempts",
        "logs",
    ];
    let jobs = jobs.into_iter().map(|(name, query)| Read::Jobs(name, Box::new(query)));
    jobs.chain(of_times()).chain(others.map(Read::Other)).collect()
}

/// Lists by time. Few jobs that were made then match, or none.
fn of_times() -> impl Iterator<Item = Read> {
    let all = || JobQuery::all(Page { limit: 100, cursor: None });
    let of = |state: State| JobQuery { states: vec![state], ..all() };
    let queue = |name: &str| JobQuery { queue: Some(name.to_owned()), ..all() };
    let (none, old, between) = ((Some(-1), None), (None, Some(700)), (Some(501), Some(500)));
    let failed =
        || JobQuery { abandoned: Some(false), timed_out: Some(false), ..of(State::Discarded) };
    let jobs = [
        ("since then none", all(), none),
        ("since lately", all(), (Some(2), None)),
        ("before", all(), old),
        ("between", all(), between),
        ("completed since", of(State::Completed), none),
        ("completed before", of(State::Completed), old),
        ("completed between", of(State::Completed), between),
        ("scheduled before", of(State::Scheduled), old),
        ("available since", of(State::Available), none),
        ("cancelled since", of(State::Cancelled), none),
        ("failed since", failed(), none),
        ("failed before", failed(), (None, Some(900))),
        ("queue since", queue("default"), none),
        ("queue before", queue("default"), old),
        ("queue of 5,000 types since", queue("many"), none),
        ("queue, few, between", queue("rare"), between),
        ("type before", JobQuery { job_type: Some("echo".into()), ..all() }, old),
        ("tenant since", JobQuery { tenant: Some("acme".into()), ..all() }, none),
        ("worker since", JobQuery { worker: Some(worker(1)), ..all() }, none),
        ("worker between", JobQuery { worker: Some(worker(1)), ..all() }, between),
    ];
    jobs.into_iter().map(|(name, query, part)| Read::JobsOfTime(name, Box::new(query), part))
}

/// Puts sizes into the SQL that fills a store; its times are a few days before `now`.
#[must_use]
pub fn sized(sql: &str, finished: u64, scheduled: u64, workers: u64, now: i64) -> String {
    let base = now - 6 * 24 * 3_600_000;
    sql.replace("FINISHED", &finished.to_string())
        .replace("SCHEDULED", &scheduled.to_string())
        .replace("WORKERS", &workers.to_string())
        .replace("1700000000000", &base.to_string())
}
