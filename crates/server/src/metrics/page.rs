//! The Prometheus text format.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;

use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::query::QueueStats;

use super::histogram::{Histogram, SHORT, Snapshot};
use super::series::{ENDS, LABELS_MAX, OVERFLOW, Pair, Series, Sums};
use super::{Counted, read};
use crate::engine::Board;

const MILLIS: f64 = 1_000.0;
const MICROS: f64 = 1_000_000.0;

#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, counter: &AtomicU64) {
        self.head(name, help, "counter");
        self.sample(name, "", read(counter));
    }

    /// Writes the buckets of a histogram; its bounds are so many to a second.
    fn histogram(&mut self, name: &str, labels: &str, found: &Snapshot, to_a_second: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in found.bounds.iter().zip(&found.counts) {
            below += count;
            let bound = float(*bound) / to_a_second;
            self.sample(
                &format!("{name}_bucket"),
                &format!("{labels}{comma}le=\"{bound}\""),
                below,
            );
        }
        let count = found.count();
        self.sample(&format!("{name}_bucket"), &format!("{labels}{comma}le=\"+Inf\""), count);
        self.sample(&format!("{name}_sum"), labels, float(found.sum) / to_a_second);
        self.sample(&format!("{name}_count"), labels, count);
    }

    pub(super) fn own_times(
        &mut self,
        commits: &[Histogram; 2],
        checks: &[Histogram; 2],
        lag: &Histogram,
    ) {
        let name = "outlast_store_commit_seconds";
        self.head(name, "How long transactions of the store took.", "histogram");
        for (lane, histogram) in ["work", "beats"].iter().zip(commits) {
            let labels = format!("lane=\"{lane}\"");
            self.histogram(name, &labels, &histogram.snapshot(), MICROS);
        }
        let name = "outlast_timeout_check_seconds";
        let help = "How long looks took for what is due, and for what nobody can run.";
        self.head(name, help, "histogram");
        for (check, histogram) in ["due", "stranded"].iter().zip(checks) {
            let labels = format!("check=\"{check}\"");
            self.histogram(name, &labels, &histogram.snapshot(), MICROS);
        }
        let name = "outlast_event_loop_lag_seconds";
        self.head(name, "How much later than asked for the event loop turned.", "histogram");
        self.histogram(name, "", &lag.snapshot(), MICROS);
    }

    pub(super) fn workers(&mut self, board: &Board) {
        let members = board.fleet.members();
        let live = || members.values().map(|it| it.brief).filter(|it| it.standing.holds_lease());
        self.head("outlast_workers", "Live workers, by state.", "gauge");
        let count = |state: &str| live().filter(|it| it.standing.state() == state).count();
        for state in ["running", "quiet", "draining", "suspect"] {
            self.sample("outlast_workers", &format!("state=\"{state}\""), count(state));
        }
        self.head("ojs_workers_active", "Workers that take work.", "gauge");
        self.sample("ojs_workers_active", "", count("running"));
        let name = "outlast_worker_heartbeat_age_seconds";
        self.head(name, "Age of live workers' latest heartbeats, by quantile.", "gauge");
        let now = board.store_time().unwrap_or_default();
        let mut ages: Vec<Span> = live().map(|worker| now.since(worker.last_heartbeat)).collect();
        ages.sort_unstable();
        for (quantile, hundredths) in [("0.5", 50), ("0.99", 99), ("1", 100)] {
            let at = (ages.len() * hundredths).div_ceil(100).saturating_sub(1);
            let age = ages.get(at).copied().unwrap_or_default();
            self.sample(name, &format!("quantile=\"{quantile}\""), float(age.0) / MILLIS);
        }
        let sessions = board.fleet.sessions();
        let held: usize = sessions.iter().map(|session| session.held()).sum();
        self.head("outlast_attempts_held", "Attempts held by sessions of this server.", "gauge");
        self.sample("outlast_attempts_held", "", held);
        self.head("outlast_sessions", "Worker sessions attached to this server.", "gauge");
        self.sample("outlast_sessions", "", sessions.len());
        let slots = |free: bool| -> usize {
            let of = sessions.iter().map(|session| {
                let slots = session.slots();
                let used = session.held().min(slots);
                if free { slots - used } else { used }
            });
            of.sum()
        };
        self.head("outlast_slots", "Slots of workers attached to this server.", "gauge");
        self.sample("outlast_slots", "state=\"used\"", slots(false));
        self.sample("outlast_slots", "state=\"free\"", slots(true));
    }

    /// Writes what the store counts. A page without it is better than none.
    pub(super) fn store(&mut self, counted: &Counted, now: Option<Timestamp>) {
        self.head("outlast_store_up", "Whether the store answered for this page.", "gauge");
        self.sample("outlast_store_up", "", u8::from(counted.answered));
        let queues = bounded(&counted.queues);
        self.head("ojs_queue_depth", "Jobs by queue and state.", "gauge");
        for queue in &queues {
            let mut stats = queue.clone();
            for state in State::ALL {
                let count = *stats.count_mut(state);
                let labels = format!("queue=\"{}\",state=\"{state}\"", escaped(&queue.name));
                self.sample("ojs_queue_depth", &labels, count);
            }
        }
        self.head("ojs_workers_busy", "Jobs that are worked on, by queue.", "gauge");
        for queue in &queues {
            let labels = format!("queue=\"{}\"", escaped(&queue.name));
            self.sample("ojs_workers_busy", &labels, queue.active);
        }
        let name = "outlast_queue_oldest_ready_seconds";
        self.head(name, "How long the oldest claimable job has waited, by queue.", "gauge");
        for queue in &queues {
            let oldest = queue.oldest_available.zip(now).map(|(since, now)| now.since(since));
            let labels = format!("queue=\"{}\"", escaped(&queue.name));
            self.sample(name, &labels, float(oldest.unwrap_or_default().0) / MILLIS);
        }
        let name = "outlast_queue_paused";
        self.head(name, "Whether a queue is paused.", "gauge");
        for queue in &queues {
            let labels = format!("queue=\"{}\"", escaped(&queue.name));
            self.sample(name, &labels, u8::from(queue.paused));
        }
    }

    pub(super) fn series(&mut self, series: &Series, counted: &Counted) {
        if !counted.answered {
            // What the classes are is not known: all of them would be taken for others.
            return;
        }
        let keys: HashMap<ClassId, &ClassKey> =
            counted.classes.iter().map(|class| (class.id, &class.key)).collect();
        let sums = series.sums(&keys);
        self.counts(&sums, ("ojs_job_enqueued_total", "Jobs stored."), |sum| sum.enqueued);
        let ended = |state: State| move |sum: &Sums| ended_in(sum, state);
        let name = ("ojs_job_completed_total", "Jobs that ended well.");
        self.counts(&sums, name, ended(State::Completed));
        let name = ("ojs_job_failed_total", "Jobs that ended without success.");
        self.counts(&sums, name, ended(State::Discarded));
        let name = ("ojs_job_cancelled_total", "Jobs that were cancelled.");
        self.counts(&sums, name, ended(State::Cancelled));
        let name = ("ojs_job_retried_total", "Failures after which another attempt follows.");
        self.counts(&sums, name, |sum| sum.retried);
        let name = ("ojs_job_expired_total", "Jobs that expired before they were run.");
        self.counts(&sums, name, |sum| sum.expired);
        let mut enqueues: BTreeMap<&str, Snapshot> = BTreeMap::new();
        for ((queue, _), sum) in &sums {
            let all = enqueues.entry(queue).or_insert_with(|| Snapshot::empty(SHORT));
            all.add(&sum.enqueues);
        }
        let name = "ojs_job_enqueue_duration_seconds";
        self.head(name, "How long enqueues took, by the queue of the first job.", "histogram");
        for (queue, took) in &enqueues {
            self.histogram(name, &format!("queue=\"{}\"", escaped(queue)), took, MICROS);
        }
        let name = "ojs_job_queue_time_seconds";
        self.head(name, "From when a job may run to its first claim.", "histogram");
        for (pair, sum) in &sums {
            self.histogram(name, &labels(pair), &sum.waits, MILLIS);
        }
        let name = "ojs_job_duration_seconds";
        self.head(name, "How long the last attempt of a job ran, by its last state.", "histogram");
        for (pair, sum) in &sums {
            for (state, runs) in ENDS.iter().zip(&sum.runs) {
                if runs.count() > 0 {
                    let labels = format!("{},state=\"{state}\"", labels(pair));
                    self.histogram(name, &labels, runs, MILLIS);
                }
            }
        }
    }

    fn counts(
        &mut self,
        sums: &BTreeMap<Pair, Sums>,
        (name, help): (&str, &str),
        count: impl Fn(&Sums) -> u64,
    ) {
        self.head(name, help, "counter");
        for (pair, sum) in sums {
            self.sample(name, &labels(pair), count(sum));
        }
    }
}

fn ended_in(sum: &Sums, state: State) -> u64 {
    let ended = ENDS.iter().zip(&sum.ended).find(|(end, _)| **end == state);
    ended.map_or(0, |(_, count)| *count)
}

/// Returns the queues, those beyond the bound added up as one.
fn bounded(queues: &[QueueStats]) -> Vec<QueueStats> {
    let (shown, more) = queues.split_at(queues.len().min(LABELS_MAX));
    let mut shown = shown.to_vec();
    if !more.is_empty() {
        let mut other = QueueStats { name: OVERFLOW.into(), ..QueueStats::default() };
        for queue in more {
            let mut queue = queue.clone();
            for state in State::ALL {
                *other.count_mut(state) += *queue.count_mut(state);
            }
            let oldest = [other.oldest_available, queue.oldest_available];
            other.oldest_available = oldest.into_iter().flatten().min();
        }
        shown.push(other);
    }
    shown
}

fn labels((queue, job_type): &Pair) -> String {
    format!("queue=\"{}\",type=\"{}\"", escaped(queue), escaped(job_type))
}

/// Returns text as a label's value has it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[expect(clippy::cast_precision_loss, reason = "a number for a page")]
fn float(value: u64) -> f64 {
    value as f64
}
