//! Fires schedules. Every server may: the first one that writes a schedule has fired it. One server leads,
//! so that the others do not come in its way; they fire what it has left for a moment.
//!
//! Schedules are looked at side by side. A look that takes long holds up no other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::schedule::ScheduleName;
use outlast_core::time::{Span, Timestamp};
use tokio::time::Instant;

use crate::clock::{boot_time, millis};
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::monitor::leadership::{Candidate, NotLeading};
use crate::monitor::looks::Looks;
use crate::schedules::fire::{self, Unplanned};
use crate::schedules::service::{Schedule, ScheduleError, readable};

/// How far ahead a look sees what is due, and longest pause between two looks. A schedule that someone
/// sets meanwhile may be due before the next look, and fires this late at most.
const AHEAD: Span = Span::from_secs(1);
/// How many schedules are read at once.
const AT_ONCE: u32 = 2_000;
/// How many are looked at side by side; their commands share transactions.
const SIDE_BY_SIDE: usize = 256;
/// Shortest pause while more are due than are looked at side by side.
const PAUSE_MIN: Span = Span(20);
/// Longest that a look may take. What it did not do, the next one does.
const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// How long a server that does not lead leaves what is due to the leader.
const STEP_IN: Span = Span(600);
/// How long the leader leads.
const LEASE: Span = Span::from_secs(10);
/// How long a server that does not lead does not ask again.
const ASK_AGAIN: Span = Span::from_secs(3);

/// Looks again and again at what is due.
pub(super) async fn run(engine: Engine) {
    let mut monitor = Monitor {
        candidate: Candidate::new(engine.clone(), "schedules", LEASE),
        not_before: Timestamp::default(),
        unplanned: Arc::default(),
        looks: Looks::new(),
        looked_at: HashSet::new(),
        unreadable: HashMap::new(),
        engine,
    };
    loop {
        let pause = match monitor.begin().await {
            Ok(pause) => pause,
            Err(error) => {
                let shared = monitor.engine.shared();
                log_trouble!(warn, shared, error, "failed to look at schedules; retrying");
                AHEAD
            }
        };
        monitor.wait(pause).await;
    }
}

struct Monitor {
    engine: Engine,
    candidate: Candidate,
    /// When this server asks again whether it leads, by the store's clock.
    not_before: Timestamp,
    unplanned: Arc<Unplanned>,
    looks: Looks<ScheduleName>,
    /// Which schedules these are about.
    looked_at: HashSet<ScheduleName>,
    /// Those that cannot be read, with the revision that the log has named.
    unreadable: HashMap<ScheduleName, u64>,
}

impl Monitor {
    /// Begins to look at what is due; returns how long to wait then.
    async fn begin(&mut self) -> Result<Span, ScheduleError> {
        // A full store takes no jobs; it has better things to write.
        if self.engine.shared().store_health.trouble(boot_time()).is_some() {
            return Ok(AHEAD);
        }
        let now = self.engine.now().await?;
        let found = self.engine.store().due_schedules(now.after(AHEAD), AT_ONCE).await?;
        if found.is_empty() {
            return Ok(AHEAD);
        }
        let patience = if self.leads(now).await { Span::ZERO } else { STEP_IN };
        let mut next = now.after(AHEAD);
        for record in found {
            let Some(due) = record.state.due.map(|due| due.after(patience)) else { continue };
            if due > now {
                next = next.min(due);
            } else if self.looked_at.len() >= SIDE_BY_SIDE {
                return Ok(PAUSE_MIN);
            } else if self.looked_at.insert(record.name.clone()) {
                let (name, revision) = (record.name.clone(), record.revision);
                let Some(schedule) = readable(record) else {
                    self.looked_at.remove(&name);
                    self.warn_of_unreadable(name, revision);
                    continue;
                };
                let (engine, unplanned) = (self.engine.clone(), Arc::clone(&self.unplanned));
                self.looks.begin(name, look(engine, schedule, now, unplanned));
            }
        }
        let now = self.engine.shared().store_time().unwrap_or(now);
        Ok(next.since(now).clamp(Span(1), AHEAD))
    }

    /// Says once that a schedule does not fire, since a later build has written it.
    fn warn_of_unreadable(&mut self, name: ScheduleName, revision: u64) {
        if self.unreadable.insert(name.clone(), revision) != Some(revision) {
            tracing::warn!(
                schedule = %name,
                "schedule cannot be read, and does not fire at this server; set it again or \
                 remove it"
            );
        }
    }

    /// Whether this server certainly leads; asked only while something is due.
    async fn leads(&mut self, now: Timestamp) -> bool {
        if now < self.not_before {
            return false;
        }
        match self.candidate.acquire().await {
            Ok(_fence) => true,
            Err(NotLeading::Elsewhere(sure)) => {
                self.not_before = now.after(sure.min(ASK_AGAIN));
                false
            }
            Err(NotLeading::Failed) => false,
        }
    }

    /// Waits, and takes in which looks have ended.
    async fn wait(&mut self, pause: Span) {
        let end = Instant::now() + millis(pause);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end) => return,
                Some(name) = self.looks.ended(), if !self.looks.is_empty() => {
                    self.looked_at.remove(&name);
                }
            }
        }
    }
}

/// Looks at one schedule.
async fn look(engine: Engine, schedule: Schedule, now: Timestamp, unplanned: Arc<Unplanned>) {
    let name = schedule.name();
    // Others may have gone first.
    let now = engine.shared().store_time().unwrap_or(now);
    let looking = fire::look(&engine, &schedule, now, &unplanned);
    match tokio::time::timeout(LOOK_LIMIT, looking).await {
        Ok(Ok(looked)) => engine.counters().looked_at_schedule(&looked),
        Ok(Err(error)) => {
            let shared = engine.shared();
            log_trouble!(warn, shared, error, "failed to look at a schedule; retrying");
        }
        Err(_elapsed) => {
            tracing::warn!(schedule = %name, "a look at the schedule took too long; retrying");
        }
    }
}
