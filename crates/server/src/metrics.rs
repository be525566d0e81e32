//! Counters of this server since it started. HTTP shows them as a page for Prometheus.
//!
//! - [`series`]: what happened to the jobs of each queue and type
//! - [`histogram`]: how long things took
//! - [`hour`]: what happened in each minute of the last hour
//!
//! No label carries an id, and every set of labels is bounded.

pub(crate) mod histogram;
pub(crate) mod hour;
pub(crate) mod series;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::job::{Outcome, State};
use outlast_core::time::{Span, Timestamp};
use outlast_store::Reply;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::idempotency::{EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::reply::{Claimed, EnqueueRefusal, Moved, Swept};
use outlast_store::workflow::WorkflowCounts;

use crate::engine::store_health::Lane;
use crate::schedules::fire::Looked;
use histogram::{Histogram, SHORT};
use hour::{Happened, Hour};
use series::{LABELS_MAX, OVERFLOW, Pair, Series, Sums};

/// A check for timeouts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// For timers, expiries and time limits.
    Due,
    /// For jobs that no live worker can run.
    Stranded,
}

/// From when on a fire of a schedule counts as late: an ordinary one comes within a second.
const FIRES_LATE: Span = Span::from_secs(5);

/// Counters since the server started.
#[derive(Debug)]
pub struct Metrics {
    pub(crate) enqueued: AtomicU64,
    pub(crate) claimed: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) outcomes: [AtomicU64; Outcome::ALL.len()],
    pub(crate) discarded: AtomicU64,
    pub(crate) dead_lettered: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) workers_lapsed: AtomicU64,
    pub(crate) beats: AtomicU64,
    pub(crate) beats_refused: AtomicU64,
    pub(crate) stranded: AtomicU64,
    pub(crate) workers_registered: AtomicU64,
    pub(crate) workers_stopped: AtomicU64,
    pub(crate) recounts: AtomicU64,
    pub(crate) fires: AtomicU64,
    pub(crate) skips: AtomicU64,
    pub(crate) fires_late: AtomicU64,
    /// Workflows that run, as the store said last.
    pub(crate) workflows_running: AtomicU64,
    /// How long the oldest end of an item has waited for a server then, in milliseconds.
    pub(crate) workflow_lag: AtomicU64,
    series: Mutex<Series>,
    hour: Mutex<Hour>,
    /// Enqueues that a full queue refused, by queue.
    full: Mutex<BTreeMap<Box<str>, u64>>,
    /// Commits of work, and of heartbeats.
    pub(crate) commits: [Histogram; 2],
    /// Checks for what is due, and for what is stranded.
    pub(crate) checks: [Histogram; 2],
    pub(crate) lag: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            enqueued: zero(),
            claimed: zero(),
            batches: zero(),
            commands: zero(),
            outcomes: [(); Outcome::ALL.len()].map(|()| zero()),
            discarded: zero(),
            dead_lettered: zero(),
            cancelled: zero(),
            workers_lapsed: zero(),
            beats: zero(),
            beats_refused: zero(),
            stranded: zero(),
            workers_registered: zero(),
            workers_stopped: zero(),
            recounts: zero(),
            fires: zero(),
            skips: zero(),
            fires_late: zero(),
            workflows_running: zero(),
            workflow_lag: zero(),
            series: Mutex::default(),
            hour: Mutex::default(),
            full: Mutex::default(),
            commits: [(); 2].map(|()| Histogram::new(SHORT)),
            checks: [(); 2].map(|()| Histogram::new(SHORT)),
            lag: Histogram::new(SHORT),
        }
    }

    fn series(&self) -> MutexGuard<'_, Series> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a minute of the last hour.
    pub(crate) fn end_minute(&self) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = |outcomes: &[Outcome]| {
            let counted = Outcome::ALL.iter().zip(&self.outcomes);
            counted.filter(|(known, _)| outcomes.contains(known)).map(|(_, it)| count(it)).sum()
        };
        let all = Happened {
            enqueued: count(&self.enqueued),
            claimed: count(&self.claimed),
            completed: ended(&[Outcome::Completed]),
            failed: ended(&[Outcome::Failed, Outcome::Timeout]),
            lost: ended(&[Outcome::Lost]),
        };
        self.hour.lock().unwrap_or_else(PoisonError::into_inner).end_minute(all);
    }

    /// Returns what this server did in the last hour.
    pub(crate) fn hour(&self) -> Hour {
        self.hour.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how long the store took for a transaction.
    pub(crate) fn committed(&self, lane: Lane, took: Duration) {
        let [work, beats] = &self.commits;
        let histogram = match lane {
            Lane::Work => work,
            Lane::Beats => beats,
        };
        histogram.observe(micros(took));
    }

    /// Notes how long a check for timeouts took.
    pub(crate) fn checked(&self, check: Check, took: Duration) {
        let [due, stranded] = &self.checks;
        let histogram = match check {
            Check::Due => due,
            Check::Stranded => stranded,
        };
        histogram.observe(micros(took));
    }

    /// Notes what a look at a schedule did.
    pub(crate) fn looked_at_schedule(&self, looked: &Looked) {
        self.fires.fetch_add(looked.fired, Ordering::Relaxed);
        self.skips.fetch_add(looked.skipped, Ordering::Relaxed);
        if looked.late >= FIRES_LATE {
            self.fires_late.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes how workflows stand.
    pub(crate) fn workflows(&self, counts: &WorkflowCounts, now: Timestamp) {
        let lag = counts.oldest_end.map_or(0, |oldest| now.since(oldest).0);
        self.workflows_running.store(counts.running, Ordering::Relaxed);
        self.workflow_lag.store(lag, Ordering::Relaxed);
    }

    /// Notes an enqueue that a full queue refused.
    fn refused(&self, queue: &str) {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = match full.len() < LABELS_MAX || full.contains_key(queue) {
            true => queue,
            false => OVERFLOW,
        };
        *full.entry(queue.into()).or_default() += 1;
    }

    /// Returns how many enqueues full queues refused, by queue.
    pub(crate) fn refusals(&self) -> BTreeMap<Box<str>, u64> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how long a caller waited for the answer to an enqueue.
    pub(crate) fn enqueue_took(&self, reply: &Reply, took: Duration) {
        let first = match reply {
            Reply::Enqueued(Err(EnqueueRefusal::QueueFull { queue, .. }))
            | Reply::EnqueuedAll(Err((_, EnqueueRefusal::QueueFull { queue, .. })))
            | Reply::EnqueuedOnce(Err(EnqueueOnceRefusal::Job(
                _,
                EnqueueRefusal::QueueFull { queue, .. },
            ))) => return self.refused(queue),
            Reply::Enqueued(Ok(job)) => Some(job),
            Reply::EnqueuedAll(Ok(jobs)) | Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(jobs))) => {
                jobs.first()
            }
            _ => None,
        };
        if let Some(job) = first.filter(|job| !job.is_old()) {
            self.series().enqueue_took(job.class, micros(took));
        }
    }

    /// Notes jobs that time alone moved.
    pub(crate) fn swept(&self, swept: &Swept) {
        // Whatever else a sweep ends was under way.
        let expired = |moved: &&Moved| moved.state == State::Discarded && moved.outcome.is_none();
        let expired = swept.moved.iter().filter(expired);
        let mut series = self.series();
        for moved in expired {
            series.expired(moved.class);
        }
    }

    /// Notes how much later than asked for the event loop turned.
    pub(crate) fn lagged(&self, by: Duration) {
        self.lag.observe(micros(by));
    }

    pub(crate) fn worker_registered(&self) {
        add(&self.workers_registered, 1);
    }

    pub(crate) fn worker_stopped(&self) {
        add(&self.workers_stopped, 1);
    }

    pub(crate) fn batch(&self, commands: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        add(&self.commands, commands);
    }

    pub(crate) fn enqueued(&self, class: ClassId) {
        add(&self.enqueued, 1);
        self.series().enqueued(class);
    }

    pub(crate) fn claimed(&self, jobs: &[Claimed]) {
        add(&self.claimed, jobs.len());
        let mut series = self.series();
        // What is claimed again did not wait for its first start.
        for job in jobs.iter().filter(|job| job.epoch.0 == 1) {
            let since = job.job.scheduled_for.map_or(job.job.created, |at| at.max(job.job.created));
            series.waited(job.job.class, job.claimed.since(since));
        }
    }

    pub(crate) fn moved(&self, moved: &Moved) {
        let place = |outcome| Outcome::ALL.iter().position(|known| *known == outcome);
        if let Some(counter) = moved.outcome.and_then(place).and_then(|at| self.outcomes.get(at)) {
            add(counter, 1);
        }
        match moved.state {
            State::Discarded => add(&self.discarded, 1),
            State::Cancelled if moved.outcome.is_none() => add(&self.cancelled, 1),
            _ => {}
        }
        if moved.dead_letter {
            add(&self.dead_lettered, 1);
        }
        self.series().moved(moved);
    }

    pub(crate) fn lapsed(&self, workers: usize) {
        add(&self.workers_lapsed, workers);
    }

    pub(crate) fn unclaimable(&self, jobs: usize) {
        add(&self.stranded, jobs);
    }

    pub(crate) fn recounted(&self, gates: usize) {
        add(&self.recounts, gates);
    }

    pub(crate) fn beat(&self, renewed: bool) {
        add(if renewed { &self.beats } else { &self.beats_refused }, 1);
    }

    /// Returns the classes that are counted: what the store is asked about.
    pub(crate) fn classes(&self) -> Vec<ClassId> {
        self.series().ids()
    }

    /// Adds the classes up by queue and type. `asked` are those that the store was asked about, and
    /// `keys` those of them that it has.
    pub(crate) fn sums(
        &self,
        asked: &HashSet<ClassId>,
        keys: &HashMap<ClassId, &ClassKey>,
    ) -> BTreeMap<Pair, Sums> {
        self.series().sums(asked, keys)
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
