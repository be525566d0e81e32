//! Counters of the hot path, and the page that shows them.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::job::{Outcome, State};
use outlast_store::reply::Moved;

use crate::engine::Board;

/// Counters since the server started.
#[derive(Debug, Default)]
pub struct Metrics {
    enqueued: AtomicU64,
    claimed: AtomicU64,
    batches: AtomicU64,
    commands: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    discarded: AtomicU64,
    dead_lettered: AtomicU64,
    cancelled: AtomicU64,
    workers_lapsed: AtomicU64,
    beats: AtomicU64,
    beats_refused: AtomicU64,
    stranded: AtomicU64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn batch(&self, commands: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        add(&self.commands, commands);
    }

    pub(crate) fn enqueued(&self) {
        add(&self.enqueued, 1);
    }

    pub(crate) fn claimed(&self, jobs: usize) {
        add(&self.claimed, jobs);
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
    }

    pub(crate) fn lapsed(&self, workers: usize) {
        add(&self.workers_lapsed, workers);
    }

    pub(crate) fn stranded(&self, jobs: usize) {
        add(&self.stranded, jobs);
    }

    pub(crate) fn beat(&self, renewed: bool) {
        add(if renewed { &self.beats } else { &self.beats_refused }, 1);
    }

    pub(crate) fn render(&self, board: &Board) -> String {
        let mut page = Page::default();
        page.counter("outlast_jobs_enqueued_total", "Jobs stored.", &self.enqueued);
        page.counter("outlast_jobs_claimed_total", "Claims of jobs.", &self.claimed);
        page.head("outlast_attempts_ended_total", "Attempts ended, by outcome.", "counter");
        for (outcome, counter) in Outcome::ALL.iter().zip(&self.outcomes) {
            let labels = format!("outcome=\"{}\"", outcome.as_str());
            page.sample("outlast_attempts_ended_total", &labels, read(counter));
        }
        page.counter("outlast_jobs_discarded_total", "Jobs discarded.", &self.discarded);
        page.counter("outlast_jobs_dead_lettered_total", "Dead letters.", &self.dead_lettered);
        page.counter("outlast_jobs_cancelled_total", "Jobs cancelled.", &self.cancelled);
        page.counter(
            "outlast_scheduled_timeouts_total",
            "Jobs failed because no live worker was eligible for too long.",
            &self.stranded,
        );
        page.counter("outlast_workers_lapsed_total", "Workers given up.", &self.workers_lapsed);
        page.counter("outlast_heartbeats_total", "Heartbeats that renewed a lease.", &self.beats);
        page.counter(
            "outlast_heartbeats_refused_total",
            "Heartbeats refused.",
            &self.beats_refused,
        );
        page.counter("outlast_store_batches_total", "Store transactions tried.", &self.batches);
        page.counter("outlast_store_commands_total", "Commands in them.", &self.commands);
        page.workers(board);
        page.text
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, counter: &AtomicU64) {
        self.head(name, help, "counter");
        self.sample(name, "", read(counter));
    }

    fn workers(&mut self, board: &Board) {
        let members = board.fleet.members();
        let live = || members.values().map(|it| it.brief).filter(|it| it.standing.holds_lease());
        self.head("outlast_workers", "Live workers, by state.", "gauge");
        for state in ["running", "quiet", "draining", "suspect"] {
            let count = live().filter(|worker| worker.standing.state() == state).count();
            let labels = format!("state=\"{state}\"");
            self.sample("outlast_workers", &labels, u64::try_from(count).unwrap_or(0));
        }
        self.head(
            "outlast_worker_heartbeat_age_seconds",
            "Age of each live worker's latest heartbeat.",
            "gauge",
        );
        if let Some(now) = board.store_time() {
            for worker in live() {
                let labels = format!("worker=\"{}\"", worker.id);
                let age = now.since(worker.last_heartbeat).as_secs();
                self.sample("outlast_worker_heartbeat_age_seconds", &labels, age);
            }
        }
        let sessions = board.fleet.sessions();
        let held: usize = sessions.iter().map(|session| session.held()).sum();
        self.head("outlast_attempts_held", "Attempts held by sessions of this server.", "gauge");
        self.sample("outlast_attempts_held", "", u64::try_from(held).unwrap_or(0));
        self.head("outlast_sessions", "Worker sessions attached to this server.", "gauge");
        self.sample("outlast_sessions", "", u64::try_from(sessions.len()).unwrap_or(0));
    }
}
