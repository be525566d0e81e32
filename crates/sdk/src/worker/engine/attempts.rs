//! Starting attempts, what they say, and what time does to them.

use std::time::Duration;

use bytes::Bytes;
use outlast_core::evidence::EvidenceCode;
use outlast_core::limits::START_PERSIST_AFTER;
use outlast_core::time::{BootTime, Span};
use outlast_proto::v1::{self, Report, report};

use super::{Engine, FAULT_FIRST, TICK_MIN};
use crate::attempt::events::{AttemptEvent, LatestCheckpoint};
use crate::attempt::run;
use crate::clock::{Stopwatch, boot_now, duration, span};
use crate::delivery::AttemptId;
use crate::handler::Handler;
use crate::outcome::Ends;
use crate::outcome::StopReason;
use crate::outcome::{Outcome, OutcomeKind};
use crate::watchdog;
use crate::worker::in_flight::{Announcement, Entry, Running};
use crate::worker::summary::RunError;
use crate::worker_state::margin;

/// How often attempts that end within the same turn are waited for before sending. Each
/// round lets every ready task run once, so very short jobs fill a message.
const COLLECT_ROUNDS: u32 = 64;

/// Reports that are enough for one message.
const GATHER_REPORTS: usize = 256;

/// How long a job may wait here behind others before it is handed back.
const WAIT_MAX: Span = Span::from_millis(500);

/// How long before its deadline an attempt that forbids overlap is asked to end.
const NEAR_MAX: Span = Span::from_secs(2);

/// How long a process that must end waits for what else it has to say.
const FLUSH_MAX: Span = Span::from_millis(250);

impl<H: Handler> Engine<H> {
    pub(super) fn on_attempt(&mut self, event: AttemptEvent) {
        match event {
            AttemptEvent::Ended(attempt, outcome) => self.on_ended(attempt, outcome),
            // Also of one that is not ours any more, until it has ended.
            AttemptEvent::Log(attempt, chunk, room) => {
                if self.work.in_flight.running_mut(attempt).is_some() {
                    self.work.outbox.log(attempt, chunk, room);
                } else {
                    self.outlet.log_room.add_permits(room);
                }
            }
            AttemptEvent::Checkpoint(attempt, latest) => self.on_checkpoint(attempt, &latest),
            AttemptEvent::Started(attempt) => self.announce(attempt),
            AttemptEvent::Pack(attempt, digest) => {
                if let Some(running) = self.work.in_flight.running_mut(attempt) {
                    running.pack_digest = Some(digest);
                }
            }
            AttemptEvent::Unstoppable(attempt) => self.schedule_process_end(attempt, boot_now()),
            // What waits for a slot is looked at after every event.
            AttemptEvent::LeftoverEnded => {}
        }
    }

    fn on_checkpoint(&mut self, attempt: AttemptId, latest: &LatestCheckpoint) {
        let Some(bytes) = latest.take() else { return };
        let Some(running) = self.work.in_flight.running_mut(attempt) else { return };
        if running.announcement != Announcement::Void {
            running.checkpoint = bytes.clone();
            self.work.outbox.checkpoint(attempt, bytes);
        }
    }

    fn on_ended(&mut self, attempt: AttemptId, outcome: Outcome) {
        let Some(running) = self.work.in_flight.running_mut(attempt) else { return };
        let (ran, void) = (running.watch.elapsed(), running.announcement == Announcement::Void);
        let ordered = running.stop_reason();
        let mut outcome = self.attribute(outcome, ordered).storable();
        let Some(running) = self.work.in_flight.running_mut(attempt) else { return };
        // Its end is kept until it is answered, and the checkpoint with it.
        if outcome.checkpoint.is_empty() && outcome.kind != OutcomeKind::Completed {
            outcome.checkpoint = std::mem::take(&mut running.checkpoint);
        }
        let pack_digest = running.pack_digest.as_deref().unwrap_or_default().to_owned();
        self.work.outbox.forget_checkpoint(attempt);
        let (ending, executed) = (outcome.kind, outcome.executed);
        if executed {
            self.work.slots.observe(ran);
            self.faults.next_wait = FAULT_FIRST;
        } else if outcome.evidence_code == Some(EvidenceCode::Host) {
            self.on_host_fault(&outcome.evidence, boot_now());
        }
        let report = v1::Finished { pack_digest, ..outcome.into_wire(Some(ran)) };
        if !void {
            self.report(attempt, report::What::Finished(report.clone()));
        }
        self.work.in_flight.finish(attempt, report);
        let counter = match ending {
            _ if void => &mut self.exit.summary.stopped,
            OutcomeKind::Completed => &mut self.exit.summary.completed,
            OutcomeKind::Failed | OutcomeKind::TimedOut => &mut self.exit.summary.failed,
            OutcomeKind::Interrupted | OutcomeKind::Lost => &mut self.exit.summary.interrupted,
            OutcomeKind::Cancelled => &mut self.exit.summary.stopped,
            OutcomeKind::NotStarted => &mut self.exit.summary.handed_back,
        };
        *counter += 1;
    }

    /// Corrects the reason of an interruption: an attempt knows that it was stopped, but not
    /// always why.
    fn attribute(&self, outcome: Outcome, ordered: Option<StopReason>) -> Outcome {
        if outcome.kind != OutcomeKind::Interrupted {
            return outcome;
        }
        let account = |code, text: &str| Outcome {
            exit_code: outcome.exit_code,
            checkpoint: outcome.checkpoint.clone(),
            tree_empty: outcome.tree_empty,
            executed: outcome.executed,
            ..Outcome::lost(code, text)
        };
        if let Some((code, why)) = self.exit.fatal.as_ref().and_then(RunError::evidence) {
            return account(code, why);
        }
        let by_lease = outcome.evidence_code == Some(EvidenceCode::Lease);
        if !by_lease && ordered != Some(StopReason::DeadlineNear) {
            return outcome;
        }
        match self.lease.last_freeze {
            Some(stood) if boot_now() < stood.until => {
                let text =
                    format!("worker stood still for {:?}: {}", stood.length, outcome.evidence);
                account(EvidenceCode::Frozen, &text)
            }
            _ => account(EvidenceCode::Lease, &outcome.evidence),
        }
    }

    pub(super) fn report(&mut self, attempt: AttemptId, what: report::What) {
        self.work.outbox.report(Report { attempt: Some(attempt.to_wire()), what: Some(what) });
    }

    /// Hands an attempt back unrun.
    pub(super) fn hand_back(&mut self, attempt: AttemptId, why: &str) {
        let report = Outcome::not_started(why).into_wire(None);
        self.report(attempt, report::What::Finished(report.clone()));
        self.work.in_flight.finish(attempt, report);
        self.exit.summary.handed_back += 1;
    }

    pub(super) fn hand_back_waiting(&mut self, why: &str) {
        for attempt in self.work.in_flight.all_waiting() {
            self.hand_back(attempt, why);
        }
    }

    /// Tells an attempt to stop, or hands it back if it has not started.
    pub(super) fn stop(&mut self, attempt: AttemptId, reason: StopReason, now: BootTime) {
        let drop_at = now.after(span(self.timeouts.stop_window));
        match self.work.in_flight.get_mut(attempt) {
            Some(Entry::Waiting(_)) => self.hand_back(attempt, "stopped before it started"),
            Some(Entry::Running(running)) => running.stop(reason, drop_at),
            // Its report says what there is to say.
            Some(Entry::Ended(_)) | None => {}
        }
    }

    pub(super) fn stop_all(&mut self, reason: StopReason, window: Duration, now: BootTime) {
        let drop_at = now.after(span(window));
        for (_, running) in self.work.in_flight.all_running() {
            running.give_up_from(drop_at);
            running.stop(reason, drop_at);
        }
    }

    /// Tells the server that an attempt has started, once.
    pub(super) fn announce(&mut self, attempt: AttemptId) {
        let Some(running) = self.work.in_flight.running_mut(attempt) else { return };
        if running.announcement != Announcement::Unannounced {
            return;
        }
        running.announcement = Announcement::Announced;
        let ago_ms = u64::try_from(running.watch.elapsed().as_millis()).unwrap_or(u64::MAX);
        let pack_digest = running.pack_digest.as_deref().unwrap_or_default().to_owned();
        self.report(attempt, report::What::Started(v1::Started { ago_ms, pack_digest }));
    }

    /// Starts what may start, and takes in what ends at once.
    pub(super) async fn start_and_collect(&mut self, now: BootTime) {
        for _ in 0..COLLECT_ROUNDS {
            let started = self.start_waiting(now);
            let mut heard = false;
            while let Ok(event) = self.inbox.events.try_recv() {
                heard = true;
                self.on_attempt(event);
            }
            let enough = self.work.outbox.reports_waiting() >= GATHER_REPORTS;
            if enough || !(started || heard) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn start_waiting(&mut self, now: BootTime) -> bool {
        let mut any = false;
        while self.takes_work() && self.trusts_lease(now) {
            let busy = self.busy();
            let near = self.forbidden_near();
            let Some(waiting) = self.work.in_flight.next_waiting() else { break };
            let late = waiting.delivery.overlap_forbidden && near <= now;
            if late || !self.work.slots.admits(busy, waiting.delivery.isolated) {
                break;
            }
            let Some(delivery) = self.work.in_flight.take_waiting() else { break };
            self.start(delivery, now);
            any = true;
        }
        any
    }

    fn start(&mut self, delivery: crate::delivery::Delivery, now: BootTime) {
        let attempt = delivery.attempt;
        let (isolated, overlap_forbidden) = (delivery.isolated, delivery.overlap_forbidden);
        if overlap_forbidden && self.timeouts.refuses_forbidden {
            return self.refuse(attempt);
        }
        // With a single attempt the claim counts as its start: say so before it can be lost.
        let announces_at_once = delivery.max_attempts == 1;
        let running = Running {
            handle: run::start(&self.handler, delivery, &self.outlet),
            watch: Stopwatch::start(),
            announcement: Announcement::Unannounced,
            isolated,
            overlap_forbidden,
            drop_at: None,
            give_up_at: None,
            checkpoint: Bytes::new(),
            pack_digest: None,
        };
        self.work.in_flight.started(attempt, running);
        if announces_at_once {
            // At the next turn: by then it has said which pack it runs.
            self.work.announcements.push_front((now, attempt));
        } else {
            self.work.announcements.push_back((now.after(START_PERSIST_AFTER), attempt));
        }
    }

    /// Fails an attempt that this worker will not run, before anything of it has begun.
    fn refuse(&mut self, attempt: AttemptId) {
        let message = "this worker runs no job that forbids overlap";
        let outcome = Outcome::failed("overlap_refused", message).permanently().unrun();
        let report = outcome.into_wire(None);
        self.report(attempt, report::What::Finished(report.clone()));
        self.work.in_flight.refused(attempt, report);
        self.exit.summary.failed += 1;
    }

    /// Does what has become due.
    pub(super) fn on_time(&mut self, now: BootTime) {
        while let Some((due, attempt)) = self.work.announcements.front().copied()
            && due <= now
        {
            self.work.announcements.pop_front();
            if let Some(running) = self.work.in_flight.running_mut(attempt) {
                let ran = running.watch.elapsed();
                if span(ran) >= START_PERSIST_AFTER {
                    self.work.slots.observe(ran);
                }
                self.announce(attempt);
            }
        }
        // What follows looks at every attempt: not at every turn of a busy loop.
        if now < self.work.next_check_at {
            return;
        }
        self.work.next_check_at = now.after(TICK_MIN);
        self.hand_back_late_waiters(now);
        self.end_expired_fault(now);
        self.end_before_the_lease_does(now);
        self.drop_unresponsive_attempts(now);
        self.on_drain_time(now);
    }

    fn drop_unresponsive_attempts(&mut self, now: BootTime) {
        let mut unstoppable = None;
        for (attempt, running) in self.work.in_flight.all_running() {
            if running.give_up_at.is_some_and(|at| at <= now) {
                running.give_up_at = None;
                running.handle.give_up();
            }
            if running.drop_at.is_some_and(|at| at <= now) {
                tracing::warn!(%attempt, reason = ?running.stop_reason(), "attempt did not stop in time, dropping it");
                running.handle.abort.abort();
                running.drop_at = None;
                // A cancelled one keeps its place, and its lease, for as long as it takes.
                let keeps_its_place = running.stop_reason() == Some(StopReason::Cancelled);
                if running.overlap_forbidden && !keeps_its_place {
                    unstoppable = Some(attempt);
                }
            }
        }
        if let Some(attempt) = unstoppable {
            self.schedule_process_end(attempt, now);
        }
        self.end_process_if_due(now);
    }

    fn schedule_process_end(&mut self, attempt: AttemptId, now: BootTime) {
        self.exit.unstoppable.get_or_insert_with(|| (now.after(FLUSH_MAX), attempt));
    }

    /// An attempt that forbids overlap was dropped and its work goes on: nothing short of the
    /// end of the process ends it. Others had a moment to be told of.
    fn end_process_if_due(&mut self, now: BootTime) {
        let Some((_, attempt)) = self.exit.unstoppable.filter(|(at, _)| *at <= now) else { return };
        self.exit.unstoppable = None;
        if self.work.in_flight.running_mut(attempt).is_some() {
            let why = format!("attempt {attempt} forbids overlap and cannot be stopped");
            watchdog::end_the_process(&why);
        }
    }

    /// Hands back jobs that were fetched ahead when the slots stay busy for long.
    fn hand_back_late_waiters(&mut self, now: BootTime) {
        let busy = self.busy();
        while let Some(waiting) = self.work.in_flight.next_waiting() {
            let may_start = self.work.slots.admits(busy, waiting.delivery.isolated);
            if may_start || waiting.since.after(WAIT_MAX) > now {
                return;
            }
            let attempt = waiting.delivery.attempt;
            self.hand_back(attempt, "waited too long behind other jobs");
        }
    }

    /// The instant from which attempts that forbid overlap are asked to end.
    fn forbidden_near(&self) -> BootTime {
        let lease = self.state.reported().terms.lease;
        let before = margin(lease).0 + Span(lease.0 / 8).min(NEAR_MAX).0;
        BootTime(self.state.lease_end().0.saturating_sub(before))
    }

    fn end_before_the_lease_does(&mut self, now: BootTime) {
        if self.work.in_flight.busy().forbidden == 0 || now < self.forbidden_near() {
            return;
        }
        let lease = self.state.reported().terms.lease;
        let deadline = BootTime(self.state.lease_end().0.saturating_sub(margin(lease).0));
        // After a freeze the lease is not renewed because nothing could be asked for: a beat
        // is under way, and there is time to hear what it brings.
        if now < deadline && self.lease.thawed_until.is_some_and(|until| now < until) {
            return;
        }
        let drop_at = match self.handler.ends() {
            Ends::WithTheContext => deadline,
            // Its processes have ended by their own clock, or are about to. Only their end
            // says so, and it takes its time to get here: dropping it would say less.
            Ends::ByItself => now.after(span(self.timeouts.stop_window)),
        };
        for (attempt, running) in self.work.in_flight.all_running() {
            if running.overlap_forbidden && running.stop_reason().is_none() {
                tracing::warn!(%attempt, "lease not renewed: stopping an attempt that must not overlap");
                running.stop(StopReason::DeadlineNear, drop_at);
            }
        }
    }

    /// How long a stop takes at most, by this worker's own settings.
    pub(super) fn void_all(&mut self) -> usize {
        let drop_at = boot_now().after(span(self.timeouts.stop_window));
        self.throw_results_away();
        self.work.outbox.forget_reports();
        self.work.announcements.clear();
        self.work.in_flight.void(drop_at)
    }

    /// Counts what has ended and was never reported.
    pub(super) fn throw_results_away(&mut self) {
        let results = u64::try_from(self.work.in_flight.results()).unwrap_or(u64::MAX);
        self.exit.summary.thrown_away += results;
    }

    /// Gives up output that no session will take any more.
    pub(super) fn drop_output(&mut self) {
        let (bytes, room) = self.work.outbox.drop_output();
        self.outlet.log_room.add_permits(room);
        if bytes > 0 {
            tracing::warn!(bytes, "output of attempts is dropped: there is no session to store it");
        }
    }

    pub(super) fn lease_terms(&self) -> (Duration, Duration) {
        let terms = self.state.reported().terms;
        (duration(terms.interval), duration(terms.lease))
    }
}
