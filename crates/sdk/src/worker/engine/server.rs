//! What the server says, on the session and in answer to beats.

use outlast_core::time::{BootTime, Span};
use outlast_core::worker::lifecycle::{QuietBy, Stage, StageEvent};
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{
    self, BeatReply, Hello, RefusalCode, ServerMessage, SetPhase, Verdict, order, report,
};

use super::Engine;
use crate::delivery::{AttemptId, Delivery};
use crate::handler::Handler;
use crate::heartbeat::{BeatAnswer, span_or};
use crate::outcome::StopReason;
use crate::session::connection::ConnectionEvent;
use crate::session::{AttachError, Attached};
use crate::worker::in_flight::Announcement;
use crate::worker::output_queue::Answers;
use crate::worker::summary::RunError;
use crate::worker_state::{Terms, identity_bytes};

/// Most identities of its own that a worker names.
const PREVIOUS_MAX: usize = 16;

impl<H: Handler> Engine<H> {
    pub(super) fn on_connection(&mut self, event: ConnectionEvent, now: BootTime) {
        match event {
            ConnectionEvent::Due => {
                let hello = self.hello();
                let interval = self.interval();
                self.session.connection.connect(hello, interval);
            }
            ConnectionEvent::Attached(attached) => self.on_welcome(*attached, now),
            ConnectionEvent::NotAttached(error) => self.on_not_attached(error, now),
            ConnectionEvent::Message(message) => self.on_message(message, now),
            ConnectionEvent::Lost(reason) => {
                tracing::warn!(
                    reason,
                    in_flight = self.work.in_flight.remaining(),
                    "session lost, reattaching"
                );
                self.session_over();
                self.session.connection.retry_later();
            }
        }
    }

    fn hello(&mut self) -> Hello {
        let phase = self.phase();
        self.session.hello_phase = phase;
        self.session.attachment += 1;
        let reported = self.state.reported();
        if !self.session.resumed {
            self.handler.registers_as(reported.worker);
        }
        let profile = &self.profile;
        Hello {
            worker_id: identity_bytes(reported.worker),
            name: profile.name.clone(),
            role: profile.role.name().to_owned(),
            version: profile.version.clone(),
            queues: profile.queues.clone(),
            concurrency: profile.concurrency,
            runtimes: profile.runtimes.clone(),
            labels: profile.labels.clone().into_iter().collect(),
            types: profile.types.clone(),
            held: reported.in_flight(),
            heartbeat_interval_ms: crate::clock::span(self.timeouts.heartbeat_interval).0,
            phase: phase.into(),
            about_json: profile.about_json.clone(),
            resumed: self.session.resumed,
            attachment: self.session.attachment,
            store_generation: self.session.store_generation,
            previous_worker_ids: self
                .session
                .previous
                .iter()
                .copied()
                .map(identity_bytes)
                .collect(),
            quiet_by_order: self.lifecycle.stage == Stage::Quiet(QuietBy::Order)
                && self.faults.current.is_none(),
        }
    }

    fn on_welcome(&mut self, attached: Attached, now: BootTime) {
        let Attached { session, welcome, sent } = attached;
        let before = self.state.reported().terms;
        let terms = Terms {
            interval: span_or(welcome.heartbeat_interval_ms, before.interval),
            lease: span_or(welcome.lease_ms, before.lease),
        };
        self.state.renewed(sent, terms);
        self.state.reported().live = true;
        self.outlet.attached.send_replace(true);
        let number = session.number;
        self.session.connection.up(session);
        if !self.session.resumed {
            // They were thrown away by a worker that goes on.
            self.exit.summary.thrown_away = 0;
        }
        self.say_attached(number);
        self.session.resumed = true;
        self.session.previous.clear();
        self.session.store_generation = welcome.store_generation;
        self.session.denied_since = None;
        self.session.capacity = None;
        let answers = if welcome.answers_output {
            Answers::Within(Span(terms.interval.0 / 2))
        } else {
            Answers::Never
        };
        self.work.outbox.begin_session(answers);
        self.reconcile_phase();
        self.resend();
        for attempt in welcome.stop.iter().filter_map(AttemptId::from_wire) {
            self.stop(attempt, StopReason::Stale, now);
        }
        // Its answer carries digests compared: a quick way to find out about a mismatch.
        self.lease.heartbeat.beat_now();
    }

    fn say_attached(&self, session: u64) {
        let name = &self.profile.name;
        let worker = self.state.reported().worker;
        let (heartbeat_interval, lease) = self.lease_terms();
        if self.session.resumed {
            tracing::info!(session, "worker {name} (ID: {worker}) reattached");
        } else {
            tracing::info!(
                session,
                ?heartbeat_interval,
                ?lease,
                "worker {name} (ID: {worker}) registered"
            );
            tracing::debug!(about = self.profile.about_json, "what the server learns about it");
            self.inbox.control.say_registered();
        }
    }

    /// The hello may be out of date by now, and the server may remember a quiet that ended
    /// while we were away.
    fn reconcile_phase(&mut self) {
        let phase = self.phase();
        let resumed_away =
            phase == v1::Phase::Running && self.session.announced_phase == v1::Phase::Quiet;
        self.session.overrules_quiet = resumed_away;
        if resumed_away || phase != self.session.hello_phase || self.faults.current.is_some() {
            self.report_phase(&self.fault_or("changed while away"));
        }
        self.session.announced_phase = phase;
    }

    /// Everything the last session may not have heard.
    fn resend(&mut self) {
        let ended: Vec<_> =
            self.work.in_flight.reports().map(|(attempt, end)| (attempt, end.clone())).collect();
        for (attempt, end) in ended {
            self.report(attempt, report::What::Finished(end));
        }
        let mut started = Vec::new();
        for (attempt, running) in self.work.in_flight.all_running() {
            if running.announcement == Announcement::Announced {
                running.announcement = Announcement::Unannounced;
                started.push(attempt);
            }
        }
        for attempt in started {
            self.announce(attempt);
        }
        // Sent is not received: the newest checkpoint of what still runs goes again.
        for (attempt, running) in self.work.in_flight.all_running() {
            if running.announcement != Announcement::Void && !running.checkpoint.is_empty() {
                self.work.outbox.checkpoint(attempt, running.checkpoint.clone());
            }
        }
    }

    fn on_not_attached(&mut self, error: AttachError, now: BootTime) {
        match error {
            AttachError::OutOfReach(reason) => {
                tracing::warn!(reason, "cannot attach to the server, retrying");
                self.session.connection.retry_later();
            }
            AttachError::Refused { code, reason } => self.on_refused(code, reason, now),
            AttachError::NotAllowed(reason) if self.may_be_let_in_again(now) => {
                tracing::error!(reason, "server does not allow this worker, retrying");
                self.session.connection.retry_later();
            }
            AttachError::NotAllowed(reason) => self.give_up(RunError::NotAllowed(reason), now),
        }
    }

    /// Tokens change while servers restart, and what runs is worth waiting for: as long as a
    /// lease, after which this server has moved it, or until the lease is over that another
    /// server renews.
    fn may_be_let_in_again(&mut self, now: BootTime) -> bool {
        let since = *self.session.denied_since.get_or_insert(now);
        let lease = self.state.reported().terms.lease;
        let is_worth_it = self.session.resumed || self.work.in_flight.remaining() > 0;
        is_worth_it && (now < since.after(lease) || self.trusts_lease(now))
    }

    fn on_refused(&mut self, code: RefusalCode, reason: String, now: BootTime) {
        self.session_over();
        match code {
            RefusalCode::Lapsed => self.lapse(&reason),
            // It was welcome before, and another server may welcome it again. What runs is not
            // ended for that: its lease says for how long it may go on.
            RefusalCode::Version | RefusalCode::Invalid
                if self.session.resumed || self.work.in_flight.remaining() > 0 =>
            {
                tracing::error!(
                    reason,
                    in_flight = self.work.in_flight.remaining(),
                    "server refuses the session; running attempts continue, retrying"
                );
                self.session.connection.retry_later();
            }
            RefusalCode::Version | RefusalCode::Invalid => {
                self.give_up(RunError::Refused(reason), now);
            }
            RefusalCode::Unspecified | RefusalCode::Superseded | RefusalCode::Unavailable => {
                let code = code.as_str_name();
                tracing::warn!(code, reason, "server refused the session, retrying");
                self.session.connection.retry_later();
            }
        }
    }

    /// The lease is over: whatever was claimed moves, or has moved. Register again.
    fn lapse(&mut self, reason: &str) {
        let in_flight = self.void_all();
        let lapsed = self.state.reported().worker;
        tracing::warn!(worker = %lapsed, reason, in_flight, "worker lapsed: stopping its attempts");
        self.exit.summary.lapses += 1;
        self.session.resumed = false;
        // Also one that was never welcomed: the server may know it all the same.
        self.session.previous.push(lapsed);
        let too_many = self.session.previous.len().saturating_sub(PREVIOUS_MAX);
        self.session.previous.drain(..too_many);
        self.state.reported().reset_identity();
        self.state.lease_lost();
        let leaves = !matches!(self.lifecycle.stage, Stage::Running | Stage::Quiet(_));
        let prints = self.work.in_flight.remaining() > 0 || self.work.outbox.holds_output();
        self.lifecycle.owes_output = leaves && prints;
        if leaves && !prints {
            // It takes nothing and has nothing to say: no need to be known again.
            self.session.connection.close();
        } else {
            self.session.connection.retry_later();
        }
    }

    fn give_up(&mut self, error: RunError, now: BootTime) {
        tracing::error!(%error, "worker cannot go on");
        if !self.session.resumed && self.work.in_flight.remaining() == 0 {
            self.handler.deregistered();
        }
        self.void_all();
        self.session.connection.close();
        self.drop_output();
        self.exit.fatal = Some(error);
        self.apply(StageEvent::GuardianGone, "refused by the server", now);
    }

    /// Runs other types from now on. The server learns them from the hello of another session;
    /// what is held goes on meanwhile.
    pub(super) fn offer(&mut self, types: Vec<String>, about_json: String) {
        let is_leaving = self.phase() == v1::Phase::Draining;
        let is_known = types == self.profile.types && about_json == self.profile.about_json;
        if is_leaving || is_known {
            return;
        }
        tracing::info!(types = types.len(), "worker offers other job types, reattaching");
        self.profile.types = types;
        self.profile.about_json = about_json;
        self.session_over();
        self.session.connection.retry_later();
    }

    fn session_over(&mut self) {
        self.outlet.attached.send_replace(false);
        self.session.capacity = None;
    }

    fn on_message(&mut self, message: ServerMessage, now: BootTime) {
        let current = self.session.connection.session_number();
        if current.is_none_or(|current| message.session < current)
            && !matches!(message.body, Some(Body::Refused(_)))
        {
            tracing::debug!(
                session = message.session,
                ?current,
                "ignoring a message of an older session"
            );
            return;
        }
        match message.body {
            Some(Body::Deliveries(batch)) => {
                for delivery in batch.deliveries {
                    self.on_delivery(delivery, now);
                }
            }
            Some(Body::Answers(answers)) => {
                for answer in answers.answers {
                    self.on_answer(&answer, now);
                }
            }
            Some(Body::Orders(orders)) => {
                for what in orders.orders.into_iter().filter_map(|order| order.what) {
                    self.on_order(what, now);
                }
            }
            Some(Body::OutputStored(stored)) => {
                let room = self.work.outbox.stored(stored.messages, now);
                self.outlet.log_room.add_permits(room);
            }
            Some(Body::Refused(refused)) => {
                self.on_refused(refused.code(), refused.reason, now);
            }
            Some(Body::Welcome(_)) | None => {}
        }
        self.session.overrules_quiet = false;
    }

    fn on_delivery(&mut self, delivery: v1::Delivery, now: BootTime) {
        let Some(delivery) = Delivery::from_wire(delivery) else {
            tracing::error!("delivery names no attempt");
            return;
        };
        let attempt = delivery.attempt;
        if !self.work.in_flight.deliver(delivery, now) {
            tracing::debug!(%attempt, "attempt was delivered again");
        } else if !self.takes_work() {
            self.hand_back(attempt, "worker takes no work");
        }
    }

    fn on_answer(&mut self, answer: &v1::ReportAnswer, now: BootTime) {
        let Some(attempt) = answer.attempt.as_ref().and_then(AttemptId::from_wire) else { return };
        let accepted = answer.verdict() == Verdict::Accepted;
        if answer.finished {
            let Some(ending) = self.work.in_flight.answered(attempt) else { return };
            // That a cancelled job has ended already is no news.
            if !accepted && ending != v1::Ending::Cancelled {
                self.exit.summary.refused += 1;
                let (verdict, reason) = (answer.verdict().as_str_name(), &answer.reason);
                tracing::warn!(%attempt, verdict, reason, "report of an attempt's end refused");
            }
        } else if !accepted {
            tracing::info!(%attempt, reason = answer.reason, "attempt no longer belongs to this worker");
            self.stop(attempt, StopReason::Stale, now);
        }
    }

    fn on_order(&mut self, what: order::What, now: BootTime) {
        let id = |key: &Option<v1::AttemptKey>| key.as_ref().and_then(AttemptId::from_wire);
        match what {
            order::What::Stop(stop) => {
                if let Some(attempt) = id(&stop.attempt) {
                    tracing::info!(%attempt, why = stop.why, "ordered to stop an attempt");
                    self.stop(attempt, StopReason::Cancelled, now);
                }
            }
            order::What::Revoke(revoke) => {
                if let Some(attempt) = id(&revoke.attempt) {
                    self.on_revoke(attempt);
                }
            }
            order::What::Phase(set) => self.on_phase_order(&set, now),
        }
    }

    fn on_revoke(&mut self, attempt: AttemptId) {
        if self.work.in_flight.all_waiting().contains(&attempt) {
            self.hand_back(attempt, "asked back before it started");
        } else {
            // It runs: the server should know.
            self.announce(attempt);
        }
    }

    fn on_phase_order(&mut self, set: &SetPhase, now: BootTime) {
        let phase = set.phase();
        if phase == v1::Phase::Quiet && self.session.overrules_quiet && !set.standing {
            return;
        }
        let event = match phase {
            v1::Phase::Running => StageEvent::ResumeOrder,
            v1::Phase::Quiet => StageEvent::QuietOrder,
            v1::Phase::Draining => StageEvent::DrainOrder,
        };
        self.session.announced_phase = phase;
        self.apply(event, &format!("ordered by {}", set.by), now);
        if self.phase() != phase {
            // A signal or a fault keeps it quiet, or it drains already: the server must not
            // think otherwise.
            self.report_phase(&self.fault_or("a local signal holds"));
        }
    }

    pub(super) fn on_beaten(&mut self, beaten: BeatAnswer, now: BootTime) {
        let BeatAnswer { worker, reply } = beaten;
        if self.state.reported().worker != worker {
            return;
        }
        if !reply.renewed {
            return self.on_not_renewed(&reply);
        }
        for attempt in reply.stop.iter().filter_map(AttemptId::from_wire) {
            self.stop(attempt, StopReason::Stale, now);
        }
        // Only a drain is taken from a beat: it cannot be taken back, so it cannot be out of
        // date. Quiet and resume come in order, on the session.
        if reply.phase() == v1::Phase::Draining {
            self.apply(StageEvent::DrainOrder, "ordered by the server", now);
        }
    }

    fn on_not_renewed(&mut self, reply: &BeatReply) {
        match reply.refusal() {
            RefusalCode::Lapsed => {
                self.session_over();
                self.lapse(&reply.reason);
            }
            RefusalCode::Unspecified => {
                // Not known to the store at all: a new attachment makes it known.
                if self.session.connection.session_number().is_some() {
                    tracing::warn!(reason = reply.reason, "server does not know this worker");
                    self.session_over();
                    self.session.connection.retry_later();
                }
            }
            RefusalCode::Superseded
            | RefusalCode::Version
            | RefusalCode::Invalid
            | RefusalCode::Unavailable => {
                tracing::warn!(reason = reply.reason, "heartbeat refused");
            }
        }
    }
}
