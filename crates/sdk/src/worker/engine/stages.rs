//! Quiet, drain, stop, leave. Which stage follows which is decided in the core.

use std::time::Duration;

use outlast_core::evidence::EvidenceCode;
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::lifecycle::{Act, Stage, StageEvent, decide};
use outlast_proto::v1::worker_message::Body;
use outlast_proto::v1::{self, Goodbye, PhaseChange, WorkerMessage};
use tokio::time::timeout;

use super::{Engine, Exit, FAULT_MAX, Fault};
use crate::clock::{boot_now, span};
use crate::handler::Handler;
use crate::outcome::StopReason;
use crate::session::Session;
use crate::worker::summary::{RunError, Summary};

/// How often a drain says how much is left.
const REMAINING_EVERY: Span = Span::from_secs(5);

/// How long the last reports wait for their answers, or for a server to come back.
const ANSWERS_MAX: Span = Span::from_secs(5);

/// How long they wait for output that comes before them.
const OUTPUT_MAX: Span = Span::from_secs(2);

/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

pub(super) const fn wire_phase(stage: Stage) -> v1::Phase {
    match stage {
        Stage::Running => v1::Phase::Running,
        Stage::Quiet(_) => v1::Phase::Quiet,
        Stage::Draining | Stage::Stopping | Stage::Forced | Stage::Stopped => v1::Phase::Draining,
    }
}

impl<H: Handler> Engine<H> {
    pub(super) fn on_control(&mut self, event: StageEvent, now: BootTime) {
        if event == StageEvent::GuardianGone && self.exit.fatal.is_none() {
            self.exit.fatal = Some(RunError::GuardianGone);
        }
        let why = match event {
            StageEvent::StopSignal => "SIGTSTP",
            StageEvent::ContinueSignal => "SIGCONT",
            StageEvent::TerminateSignal => "terminating signal",
            StageEvent::QuietOrder => "ordered before the engine was started again",
            StageEvent::ResumeOrder | StageEvent::DrainOrder => "local order",
            StageEvent::GraceOver | StageEvent::Empty => "",
            StageEvent::GuardianGone => "guardian is gone",
        };
        self.apply(event, why, now);
    }

    /// Without beats the lease ends, and what runs with it: everything is handed back before.
    pub(super) fn on_heartbeat_gone(&mut self, now: BootTime) {
        tracing::error!("heartbeat thread has ended, so the worker cannot go on");
        self.inbox.heartbeat_gone = true;
        self.exit.fatal.get_or_insert(RunError::HeartbeatGone);
        self.apply(StageEvent::GuardianGone, "heartbeat thread has ended", now);
    }

    /// Whether new work may be taken: the stage allows it, and it could be run.
    pub(super) fn takes_work(&self) -> bool {
        self.lifecycle.stage.takes_work() && self.faults.current.is_none()
    }

    /// The phase to report to the server.
    pub(super) fn phase(&self) -> v1::Phase {
        match wire_phase(self.lifecycle.stage) {
            v1::Phase::Running if self.faults.current.is_some() => v1::Phase::Quiet,
            phase => phase,
        }
    }

    /// Nothing can run here: hands waiting jobs back, with the reason.
    pub(super) fn begin_fault(&mut self, fault: Fault) {
        if let Some(current) = &mut self.faults.current
            && current.is_like(&fault)
        {
            *current = fault;
            return;
        }
        tracing::error!(reason = fault.reason, "cannot run jobs: taking no work");
        self.faults.current = Some(fault);
        let why = self.fault_or("");
        self.report_health(&why);
        self.hand_back_waiting(&why);
    }

    /// Says why the worker is in its phase: for its fault, or else for `other`.
    pub(super) fn fault_or(&self, other: &str) -> String {
        match &self.faults.current {
            Some(fault) => format!("fault of the worker: {}", fault.reason),
            None => other.to_owned(),
        }
    }

    pub(super) fn end_fault(&mut self) {
        let Some(fault) = self.faults.current.take() else { return };
        tracing::info!(was = fault.reason, "worker has recovered from its fault");
        self.report_health("recovered from its fault");
    }

    /// Says with a heartbeat whether anything can be run, and in the session what follows from it.
    fn report_health(&mut self, why: &str) {
        let reason = self.faults.current.as_ref().map(|fault| fault.reason.clone());
        let phase = self.phase();
        {
            let mut reported = self.state.reported();
            reported.unhealthy = reason.unwrap_or_default();
            reported.phase = phase;
        }
        self.lease.heartbeat.beat_now();
        self.report_phase(why);
    }

    /// An attempt did not start because the host lacked something. A watcher reports that as a
    /// fault; without one, the worker waits and tries again.
    pub(super) fn on_host_fault(&mut self, reason: &str, now: BootTime) {
        if self.faults.current.is_none() {
            let until = Some(now.after(self.faults.next_wait));
            self.faults.next_wait =
                Span(self.faults.next_wait.0.saturating_mul(2).min(FAULT_MAX.0));
            self.begin_fault(Fault { reason: reason.to_owned(), until });
        }
    }

    pub(super) fn end_expired_fault(&mut self, now: BootTime) {
        if self
            .faults
            .current
            .as_ref()
            .and_then(|fault| fault.until)
            .is_some_and(|until| until <= now)
        {
            self.end_fault();
        }
    }

    /// Moves to the stage that follows, and does what that asks for.
    pub(super) fn apply(&mut self, event: StageEvent, why: &str, now: BootTime) {
        let before = self.lifecycle.stage;
        let (stage, act) = decide(before, event);
        self.lifecycle.stage = stage;
        self.state.reported().phase = self.phase();
        if stage != before {
            tracing::info!(from = %before, to = %stage, why, "worker phase changed");
            self.handler.entered(stage);
        }
        // One that failed is followed by another, as far as the world can see.
        if wire_phase(stage) == v1::Phase::Draining && self.exit.fatal.is_none() {
            self.inbox.control.say_leaving();
        }
        match act {
            Act::None => {}
            Act::TakeNoWork | Act::TakeWork => self.report_phase(why),
            Act::Drain => self.begin_drain(why, now),
            Act::EndTrees => {
                let remaining = self.work.in_flight.remaining();
                tracing::warn!(
                    remaining,
                    "graceful shutdown: grace period is over, stopping what is left"
                );
                let window = self.timeouts.stop_window;
                self.stop_all(StopReason::Interrupted, window, now);
            }
            Act::KillTrees => {
                let remaining = self.work.in_flight.remaining();
                tracing::warn!(remaining, why, "forced shutdown: killing what is left");
                self.report_phase(why);
                let window = self.timeouts.force_window;
                self.stop_all(StopReason::Forced, window, now);
            }
            Act::Leave => self.exit.how = Some(Exit::Leave),
            Act::ExitNow => self.exit.how = Some(Exit::AtOnce),
        }
        if !self.takes_work() {
            self.hand_back_waiting("worker takes no work");
        }
    }

    fn begin_drain(&mut self, why: &str, now: BootTime) {
        let remaining = self.work.in_flight.remaining();
        let grace = self.timeouts.shutdown_timeout;
        tracing::info!(remaining, ?grace, why, "graceful shutdown: draining");
        self.report_phase(why);
        self.lifecycle.grace_over_at = Some(now.after(span(grace)));
        self.lifecycle.say_remaining_at = Some(now.after(REMAINING_EVERY));
    }

    pub(super) fn report_phase(&mut self, why: &str) {
        let phase = self.phase();
        if self.session.connection.session_number().is_some() {
            self.session.announced_phase = phase;
            self.work.outbox.phase(PhaseChange { phase: phase.into(), why: why.to_owned() });
        }
    }

    pub(super) fn on_drain_time(&mut self, now: BootTime) {
        let due = |at: Option<BootTime>| at.is_some_and(|at| at <= now);
        if due(self.lifecycle.say_remaining_at) {
            let remaining = self.work.in_flight.remaining();
            tracing::info!(remaining, "graceful shutdown: waiting for attempts to end");
            self.lifecycle.say_remaining_at = Some(now.after(REMAINING_EVERY));
        }
        if due(self.lifecycle.grace_over_at) {
            self.lifecycle.grace_over_at = None;
            self.apply(StageEvent::GraceOver, "grace period is over", now);
        }
    }

    /// Leaves once nothing runs and every report is answered, or will not be answered.
    pub(super) fn leave_when_empty(&mut self, now: BootTime) {
        let ends =
            matches!(self.lifecycle.stage, Stage::Draining | Stage::Stopping | Stage::Forced);
        if !ends || self.work.in_flight.remaining() > 0 {
            self.lifecycle.empty_since = None;
            return;
        }
        let since = *self.lifecycle.empty_since.get_or_insert(now);
        // While the grace lasts there is time to wait for a server that restarts.
        let hurries = self.lifecycle.stage != Stage::Draining;
        let patience_over = hurries && since.after(ANSWERS_MAX) <= now;
        let output_late = hurries && since.after(OUTPUT_MAX) <= now;
        if output_late {
            // What an attempt came to counts for more than all that it printed.
            self.cut_output();
        }
        let owes_output =
            self.lifecycle.owes_output && self.work.outbox.holds_output() && !output_late;
        if self.work.in_flight.unanswered() == 0 && !owes_output || patience_over {
            self.apply(StageEvent::Empty, "no attempt is in flight", now);
        }
    }

    fn cut_output(&mut self) {
        let room = self.work.outbox.cut_output();
        self.outlet.log_room.add_permits(room);
    }

    /// The last beat, then goodbye.
    pub(super) async fn leave(mut self) -> Result<Summary, RunError> {
        let worker = self.state.reported().worker;
        let unanswered = self.work.in_flight.unanswered();
        self.exit.summary.unanswered = u64::try_from(unanswered).unwrap_or(u64::MAX);
        if unanswered > 0 {
            tracing::warn!(unanswered, "leaving with unanswered reports");
        }
        let (name, summary) = (&self.profile.name, &self.exit.summary);
        match &self.exit.fatal {
            None => tracing::info!(%summary, "deregistering worker {name} (ID: {worker})"),
            // Who waits for the worker says why it ended.
            Some(_) => tracing::info!(%summary, "worker {name} (ID: {worker}) ends"),
        }
        let session = self.session.connection.take();
        if session.is_none() {
            self.drop_output();
        }
        self.lease.heartbeat.last().await;
        // Counted where no server takes them with the goodbye.
        let mut left = u64::try_from(self.work.in_flight.results()).unwrap_or(u64::MAX);
        if let Some(session) = session {
            let mut last = Vec::new();
            let now = boot_now();
            let trusted = now < self.state.lease_end();
            // The room is for attempts, and there are none.
            let _room = self.work.outbox.cut_output();
            while let Some(next) = self.work.outbox.next(trusted, now) {
                last.push(next.message);
            }
            let goodbye = goodbye(self.exit.fatal.as_ref());
            last.push(WorkerMessage { body: Some(Body::Goodbye(goodbye)) });
            match timeout(GOODBYE_MAX, say_goodbye(session, last)).await {
                Ok(true) => {
                    left = 0;
                    self.handler.deregistered();
                }
                Ok(false) | Err(_) => {
                    tracing::warn!("server did not take the goodbye in time");
                }
            }
        }
        self.exit.summary.thrown_away += left;
        let results = self.exit.summary.thrown_away;
        if results > 0 {
            tracing::error!(
                results,
                "results are thrown away and their jobs run again: no server took them in time"
            );
        }
        match self.exit.fatal {
            Some(error) => Err(error),
            None => {
                tracing::info!("graceful shutdown: done");
                Ok(self.exit.summary)
            }
        }
    }
}

fn goodbye(fatal: Option<&RunError>) -> Goodbye {
    let (code, why) = match (fatal, fatal.and_then(RunError::evidence)) {
        (None, _) => (EvidenceCode::Drained.as_str(), "drained".to_owned()),
        (Some(_), Some((code, why))) => (code.as_str(), why.to_owned()),
        (Some(error), None) => ("", error.to_string()),
    };
    Goodbye { why, evidence_code: code.to_owned() }
}

/// Sends the last messages and waits until the server has closed the stream: then it has
/// read them. Returns whether it has.
async fn say_goodbye(session: Session, last: Vec<WorkerMessage>) -> bool {
    let Session { outgoing, mut incoming, .. } = session;
    for message in last {
        if outgoing.send(message).await.is_err() {
            return false;
        }
    }
    drop(outgoing);
    loop {
        match incoming.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
