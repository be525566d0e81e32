//! The page of metrics for Prometheus.
//!
//! - [`text`]: its format

mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::job::{Outcome, State};
use outlast_core::limit::Limit;
use outlast_core::time::{Span, Timestamp};
use outlast_store::StoreError;
use outlast_store::limit::LimitRecord;
use outlast_store::query::QueueStats;
use outlast_store::queue::QueueRecord;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use crate::engine::shared_state::SharedState;
use crate::metrics::histogram::{SHORT, Snapshot};
use crate::metrics::series::{ENDS, LABELS_MAX, OVERFLOW, Pair, Sums};
use crate::metrics::{Metrics, read};
use crate::snapshot::total;
use text::{MICROS, MILLIS, Text, escaped, float};

/// The Prometheus text format, for clients that ask for a version of it.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Longest that the store may take to answer for a page.
const COUNTS_LIMIT: Duration = Duration::from_secs(5);

/// Answers with the counters of this server and the counts of the store. The latter are left
/// out while the store does not answer.
pub(super) async fn show(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    let asks = req.header("accept").is_some_and(|accept| accept.contains("version="));
    let kind = if asks { PROMETHEUS } else { "text/plain" };
    let engine = &req.app.engine;
    let (metrics, shared, store) = (engine.counters(), engine.shared(), engine.store());
    let classes = metrics.classes();
    let asked = async {
        let keys = store.tally_of(classes.clone()).await?;
        Ok::<_, StoreError>((req.app.snapshot().await?, keys))
    };
    let counted = tokio::time::timeout(COUNTS_LIMIT, asked).await.ok().and_then(Result::ok);
    let mut text = Text::default();
    counters(&mut text, metrics);
    own_times(&mut text, metrics);
    workflows(&mut text, metrics);
    workers(&mut text, shared);
    let up = u8::from(counted.is_some());
    text.gauge("outlast_store_up", "Whether the store answered for this page.", up);
    let snapshot = counted.as_ref().map(|(snapshot, _)| snapshot);
    if let Some(snapshot) = snapshot {
        text.gauge(
            "outlast_counts_age_seconds",
            "How old the numbers of queues and limits on this page are.",
            float(snapshot.age().0) / MILLIS,
        );
    }
    queues(&mut text, snapshot.map_or(&[], |it| &it.queues), shared.store_time());
    bounds(&mut text, metrics, snapshot.map(|it| &it.settings));
    limit_gauges(&mut text, snapshot.map_or(&[], |it| &it.limits));
    // Without the classes there is nothing to label the jobs with.
    if let Some((_, known)) = &counted {
        let keys = known.iter().map(|class| (class.id, &class.key)).collect();
        series(&mut text, &metrics.sums(&classes.into_iter().collect(), &keys));
    }
    Ok(ApiResponse::text(kind, text.into_bytes()))
}

/// Writes the limits that count attempts as a whole; one on a key counts for each value, of which
/// there may be many.
fn limit_gauges(text: &mut Text, limits: &[(LimitRecord, Option<u64>)]) {
    let whole = || limits.iter().filter_map(|(record, count)| Some((&record.limit, (*count)?)));
    let label = |limit: &Limit| format!("limit=\"{}\"", limit.name);
    if whole().next().is_none() {
        return;
    }
    let name = "outlast_limit_in_flight";
    text.head(name, "Attempts that limits on a queue or a type count.", "gauge");
    for (limit, count) in whole() {
        text.sample(name, &label(limit), count);
    }
    let name = "outlast_limit_max";
    text.head(name, "Most attempts that these limits allow at a time.", "gauge");
    for (limit, _) in whole() {
        if let Some(most) = limit.concurrency {
            text.sample(name, &label(limit), most);
        }
    }
}

/// Writes how many jobs may wait in bounded queues, and how many enqueues these refused.
fn bounds(text: &mut Text, metrics: &Metrics, settings: Option<&BTreeMap<String, QueueRecord>>) {
    let name = "ojs_backpressure_rejected_total";
    text.head(name, "Enqueues that a full queue refused, by queue.", "counter");
    for (queue, count) in metrics.refusals() {
        text.sample(name, &format!("queue=\"{}\"", escaped(&queue)), count);
    }
    let settings = settings.into_iter().flat_map(BTreeMap::values);
    let bounded = settings.filter_map(|it| Some((&it.queue, it.settings.max_depth?)));
    let name = "outlast_queue_max_depth";
    text.head(name, "How many jobs may wait in a bounded queue.", "gauge");
    for (queue, max) in bounded.take(LABELS_MAX) {
        text.sample(name, &format!("queue=\"{}\"", escaped(queue)), max);
    }
}

fn counters(text: &mut Text, metrics: &Metrics) {
    let jobs = [
        ("outlast_jobs_enqueued_total", "Jobs enqueued.", &metrics.enqueued),
        ("outlast_jobs_claimed_total", "Jobs claimed.", &metrics.claimed),
    ];
    let more = [
        ("outlast_jobs_discarded_total", "Jobs discarded.", &metrics.discarded),
        ("outlast_jobs_dead_lettered_total", "Dead letters.", &metrics.dead_lettered),
        ("outlast_jobs_cancelled_total", "Jobs cancelled.", &metrics.cancelled),
        (
            "outlast_scheduled_timeouts_total",
            "Jobs failed because no live worker was eligible for too long.",
            &metrics.stranded,
        ),
        ("outlast_workers_lapsed_total", "Workers declared dead.", &metrics.workers_lapsed),
        ("outlast_heartbeats_total", "Heartbeats that renewed a lease.", &metrics.beats),
        ("outlast_heartbeats_refused_total", "Heartbeats refused.", &metrics.beats_refused),
        ("outlast_store_batches_total", "Store transactions tried.", &metrics.batches),
        ("outlast_store_commands_total", "Commands in store transactions.", &metrics.commands),
        (
            "outlast_workers_registered_total",
            "Workers that registered.",
            &metrics.workers_registered,
        ),
        (
            "outlast_workers_stopped_total",
            "Workers that stopped, or were proven dead.",
            &metrics.workers_stopped,
        ),
        (
            "outlast_limit_recounts_total",
            "Counts of limits that were wrong and were corrected.",
            &metrics.recounts,
        ),
        ("outlast_schedule_fires_total", "Jobs that schedules stored.", &metrics.fires),
        ("outlast_schedule_skips_total", "Fires of schedules that were left out.", &metrics.skips),
        (
            "outlast_schedule_late_fires_total",
            "Looks at a schedule that fired 5 s late or later.",
            &metrics.fires_late,
        ),
    ];
    for (name, help, count) in jobs {
        text.counter(name, help, read(count));
    }
    text.head("outlast_attempts_ended_total", "Attempts ended, by outcome.", "counter");
    for (outcome, counter) in Outcome::ALL.iter().zip(&metrics.outcomes) {
        let labels = format!("outcome=\"{}\"", outcome.as_str());
        text.sample("outlast_attempts_ended_total", &labels, read(counter));
    }
    for (name, help, count) in more {
        text.counter(name, help, read(count));
    }
}

/// Writes how workflows stand. Each server asks the store once a second.
fn workflows(text: &mut Text, metrics: &Metrics) {
    let running = read(&metrics.workflows_running);
    text.gauge("outlast_workflows_running", "Workflows that have not ended.", running);
    let waits = float(read(&metrics.workflow_lag)) / 1_000.0;
    text.gauge(
        "outlast_workflow_lag_seconds",
        "How long the oldest end of a job has waited for a server to move its workflow on.",
        waits,
    );
}

/// Writes how long the server took for what it does for itself.
fn own_times(text: &mut Text, metrics: &Metrics) {
    let name = "outlast_store_commit_seconds";
    text.head(name, "Duration of store transactions.", "histogram");
    for (lane, histogram) in ["work", "beats"].iter().zip(&metrics.commits) {
        let labels = format!("lane=\"{lane}\"");
        text.histogram(name, &labels, &histogram.snapshot(), MICROS);
    }
    let name = "outlast_timeout_check_seconds";
    let help = "Duration of checks for what is due, and for jobs that no worker can run.";
    text.head(name, help, "histogram");
    for (check, histogram) in ["due", "stranded"].iter().zip(&metrics.checks) {
        let labels = format!("check=\"{check}\"");
        text.histogram(name, &labels, &histogram.snapshot(), MICROS);
    }
    let name = "outlast_event_loop_lag_seconds";
    text.head(name, "Delay of the event loop.", "histogram");
    text.histogram(name, "", &metrics.lag.snapshot(), MICROS);
}

fn workers(text: &mut Text, shared: &SharedState) {
    let members = shared.fleet.members();
    let live = || members.values().map(|it| it.brief).filter(|it| it.standing.holds_lease());
    text.head("outlast_workers", "Live workers, by state.", "gauge");
    let count = |state: &str| live().filter(|it| it.standing.state() == state).count();
    for state in ["running", "quiet", "draining", "suspect"] {
        text.sample("outlast_workers", &format!("state=\"{state}\""), count(state));
    }
    let unhealthy = live().filter(|it| it.unhealthy).count();
    text.gauge(
        "outlast_workers_unhealthy",
        "Live workers that find themselves unhealthy.",
        unhealthy,
    );
    text.gauge("ojs_workers_active", "Workers that accept jobs.", count("running"));
    let name = "outlast_worker_heartbeat_age_seconds";
    text.head(name, "Age of live workers' latest heartbeats, by quantile.", "gauge");
    let now = shared.store_time().unwrap_or_default();
    let mut ages: Vec<Span> = live().map(|worker| now.since(worker.last_heartbeat)).collect();
    ages.sort_unstable();
    for (quantile, hundredths) in [("0.5", 50), ("0.99", 99), ("1", 100)] {
        let at = (ages.len() * hundredths).div_ceil(100).saturating_sub(1);
        let age = ages.get(at).copied().unwrap_or_default();
        text.sample(name, &format!("quantile=\"{quantile}\""), float(age.0) / MILLIS);
    }
    let sessions = shared.fleet.sessions();
    let in_flight: usize = sessions.iter().map(|session| session.in_flight()).sum();
    text.gauge("outlast_attempts_held", "Attempts held by sessions of this server.", in_flight);
    text.gauge("outlast_sessions", "Worker sessions attached to this server.", sessions.len());
    let slots = |free: bool| -> usize {
        let of = sessions.iter().map(|session| {
            let slots = session.slots();
            let used = session.in_flight().min(slots);
            if free { slots - used } else { used }
        });
        of.sum()
    };
    text.head("outlast_slots", "Slots of workers attached to this server.", "gauge");
    text.sample("outlast_slots", "state=\"used\"", slots(false));
    text.sample("outlast_slots", "state=\"free\"", slots(true));
}

fn queues(text: &mut Text, queues: &[QueueStats], now: Option<Timestamp>) {
    let queues = bounded(queues);
    text.head("ojs_queue_depth", "Jobs by queue and state.", "gauge");
    for queue in &queues {
        let mut stats = queue.clone();
        for state in State::ALL {
            let count = *stats.count_mut(state);
            let labels = format!("queue=\"{}\",state=\"{state}\"", escaped(&queue.name));
            text.sample("ojs_queue_depth", &labels, count);
        }
    }
    text.head("ojs_workers_busy", "Running jobs, by queue.", "gauge");
    for queue in &queues {
        let labels = format!("queue=\"{}\"", escaped(&queue.name));
        text.sample("ojs_workers_busy", &labels, queue.active);
    }
    let name = "outlast_queue_oldest_ready_seconds";
    text.head(name, "Age of the oldest claimable job, by queue.", "gauge");
    for queue in &queues {
        let oldest = queue.oldest_available.zip(now).map(|(since, now)| now.since(since));
        let labels = format!("queue=\"{}\"", escaped(&queue.name));
        text.sample(name, &labels, float(oldest.unwrap_or_default().0) / MILLIS);
    }
    let name = "outlast_queue_paused";
    text.head(name, "Whether a queue is paused.", "gauge");
    for queue in &queues {
        let labels = format!("queue=\"{}\"", escaped(&queue.name));
        text.sample(name, &labels, u8::from(queue.paused));
    }
}

fn series(text: &mut Text, sums: &BTreeMap<Pair, Sums>) {
    counts(text, sums, "ojs_job_enqueued_total", "Jobs enqueued.", |sum| sum.enqueued);
    let ended = |state: State| move |sum: &Sums| ended_in(sum, state);
    let (name, help) = ("ojs_job_completed_total", "Jobs completed.");
    counts(text, sums, name, help, ended(State::Completed));
    let (name, help) = ("ojs_job_failed_total", "Jobs discarded.");
    counts(text, sums, name, help, ended(State::Discarded));
    let (name, help) = ("ojs_job_cancelled_total", "Jobs cancelled.");
    counts(text, sums, name, help, ended(State::Cancelled));
    let (name, help) = ("ojs_job_retried_total", "Failed attempts that will be retried.");
    counts(text, sums, name, help, |sum| sum.retried);
    let (name, help) = ("ojs_job_expired_total", "Jobs that expired before they ran.");
    counts(text, sums, name, help, |sum| sum.expired);
    let mut enqueues: BTreeMap<&str, Snapshot> = BTreeMap::new();
    for ((queue, _), sum) in sums {
        let all = enqueues.entry(queue).or_insert_with(|| Snapshot::empty(SHORT));
        all.add(&sum.enqueues);
    }
    let name = "ojs_job_enqueue_duration_seconds";
    text.head(name, "Duration of enqueues, by the queue of the first job.", "histogram");
    for (queue, took) in &enqueues {
        text.histogram(name, &format!("queue=\"{}\"", escaped(queue)), took, MICROS);
    }
    let name = "ojs_job_queue_time_seconds";
    text.head(name, "Time from when a job could run to its first claim.", "histogram");
    for (pair, sum) in sums {
        text.histogram(name, &labels(pair), &sum.waits, MILLIS);
    }
    let name = "ojs_job_duration_seconds";
    text.head(name, "Run time of the last attempt of a job, by final state.", "histogram");
    for (pair, sum) in sums {
        for (state, runs) in ENDS.iter().zip(&sum.runs) {
            if runs.count() > 0 {
                let labels = format!("{},state=\"{state}\"", labels(pair));
                text.histogram(name, &labels, runs, MILLIS);
            }
        }
    }
}

fn counts(
    text: &mut Text,
    sums: &BTreeMap<Pair, Sums>,
    name: &str,
    help: &str,
    count: impl Fn(&Sums) -> u64,
) {
    text.head(name, help, "counter");
    for (pair, sum) in sums {
        text.sample(name, &labels(pair), count(sum));
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
        shown.push(QueueStats { name: OVERFLOW.into(), ..total(more) });
    }
    shown
}

fn labels((queue, job_type): &Pair) -> String {
    format!("queue=\"{}\",type=\"{}\"", escaped(queue), escaped(job_type))
}
