//! One turn of the loop, and what is done with its replies.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Refusal, State};
use outlast_core::time::BootTime;
use outlast_core::worker::liveness::Liveness;
use outlast_proto::v1::order::What;
use outlast_proto::v1::server_message::Body;
use outlast_proto::v1::{
    Delivery, RefusalCode, Refused, ReportAnswer, RevokeAttempt, SetPhase, StopAttempt, Verdict,
};
use outlast_store::command::{
    Claim, ClaimFrom, Claimant, ClassId, EndDetail, Ending as AttemptEnding, Fence, Finish, First,
    Lapse, Reporter,
};
use outlast_store::once::Onced;
use outlast_store::reply::{Applied, Claimed, Claims, MoveRefusal, Moved};
use outlast_store::{Batch, BatchId, Command, Reply, Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::clock::{boot_time, precise};
use crate::engine::contact::Lane;
use crate::engine::estimate::Estimate;
use crate::engine::gather::{Gather, Op, Sink, due_of};
use crate::engine::input::{Input, SessionReport};
use crate::engine::roster::{HeldHere, HeldProgress, Roster, Session};
use crate::engine::{Board, Unavailable, WorkerOrder};
use crate::metrics::{Commit, Metrics};
use crate::session::convert;
use crate::settings::Settings;

mod arrivals;
mod aside;
mod backlog;
mod others;
mod redispatch;
mod strand;

pub(super) use aside::is_of_one;
pub(super) use backlog::look as look_for_claimable;

/// Most inputs handled before a batch is made.
const INPUTS_A_TURN: usize = 4_096;

/// What the loop owns. Nobody else touches it.
struct Turn {
    store: Arc<dyn Store>,
    settings: Settings,
    server: Uuid,
    batches: u64,
    /// Where what is done beside the loop comes back to it.
    inputs: mpsc::WeakSender<Input>,
    board: Arc<Board>,
    metrics: Arc<Metrics>,
    roster: Roster,
    gather: Gather,
    stranded: strand::Stranded,
    others: others::Others,
    backlog: backlog::Backlog,
    redispatch: redispatch::Redispatch,
    aside: aside::Aside,
    ending: Ending,
}

/// How far the loop is on its way out.
enum Ending {
    /// Not at all.
    Not,
    /// Sessions are turned away and nothing new is claimed for them.
    Closing,
    /// What has been taken is finished, then whoever asked is told.
    Stopping(oneshot::Sender<()>),
}

/// Runs the loop until it is told to stop or every handle is gone.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    settings: Settings,
    server: Uuid,
    (board, metrics): (Arc<Board>, Arc<Metrics>),
    (own, mut inputs): (mpsc::WeakSender<Input>, mpsc::Receiver<Input>),
) {
    let mut turn = Turn {
        store,
        settings,
        server,
        batches: 0,
        inputs: own,
        board,
        metrics,
        roster: Roster::default(),
        gather: Gather::default(),
        stranded: strand::Stranded::default(),
        others: others::Others::default(),
        backlog: backlog::Backlog::wanted(),
        redispatch: redispatch::Redispatch::new(boot_time()),
        aside: aside::Aside::default(),
        ending: Ending::Not,
    };
    loop {
        // A class seen for the first time has a job that nobody was told of yet.
        if turn.gather.is_empty() && !turn.backlog.is_due() {
            if let Ending::Stopping(done) = turn.ending {
                // Nobody waits for the answer if the asker has gone.
                let _ = done.send(());
                return;
            }
            let received = match turn.aside.wait() {
                None => inputs.recv().await,
                Some(wait) => match tokio::time::timeout(wait, inputs.recv()).await {
                    Ok(received) => received,
                    Err(_elapsed) => {
                        turn.once().await;
                        continue;
                    }
                },
            };
            let Some(input) = received else { return };
            turn.take_in(input);
        }
        for _ in 0..INPUTS_A_TURN {
            let Ok(input) = inputs.try_recv() else { break };
            turn.take_in(input);
        }
        turn.once().await;
    }
}

impl Turn {
    async fn once(&mut self) {
        if self.backlog.is_due() {
            self.read_backlog();
        }
        self.plan_claims();
        self.retry_aside().await;
        let mut ops = self.aside.divert(self.gather.take());
        if !ops.is_empty() {
            self.claim_what_arrives(&mut ops);
            self.commit(ops).await;
            // What the batch made claimable, or freed, goes out now: the next input may be
            // a long time coming.
            self.plan_claims();
        }
        self.roster.flush();
        self.tell_others();
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Submit { command, reply } => self.submit(command, reply),
            Input::Lapse { lapse, judged, reply } => self.lapse(lapse, judged, reply),
            Input::Attached(session) => self.attach(*session),
            Input::Detached { worker, session } => {
                if self.roster.current(worker, session).is_some() {
                    self.roster.sessions.remove(&worker);
                    self.board.fleet.detached(worker);
                }
            }
            Input::Capacity { worker, session, slots, prefetch } => {
                if let Some(session) = self.roster.current(worker, session) {
                    session.offer(slots, prefetch);
                }
            }
            Input::Reports { worker, session, reports } => self.report(worker, session, reports),
            // Claims are planned in every turn, for those that turn again too.
            Input::Polled => self.board.fleet.changed(),
            Input::Running { worker, session, running } => {
                if let Some(session) = self.roster.current(worker, session) {
                    session.set_running(running);
                    self.board.fleet.changed();
                }
            }
            Input::Order { worker, order, by } => {
                if !self.order(worker, order, &by) {
                    self.others.phase(worker, order, by);
                }
            }
            Input::Heard(heard) => self.hear(heard),
            Input::Given { worker } => self.give_up(worker),
            Input::Overdue { before } => self.revoke_overdue(before),
            Input::Strand { reply } => {
                self.look_for_stranded();
                // An asker that has gone needs no answer; so with every reply below.
                let _ = reply.send(());
            }
            Input::Backlog(classes) => self.set_backlog(classes),
            Input::Redispatch => self.redispatch.woken(),
            Input::BacklogRead => self.backlog.reading = false,
            Input::CloseSessions => {
                self.ending = Ending::Closing;
                self.close_sessions("server is stopping");
            }
            Input::Stop { done } => self.ending = Ending::Stopping(done),
        }
    }

    fn submit(&mut self, command: Command, reply: crate::engine::input::ReplySender) {
        let sink = match &command {
            Command::Queue(order) => {
                let (queue, paused) = (order.queue.clone(), order.paused);
                Sink::Queue { queue, paused, caller: reply }
            }
            _ => Sink::Caller(reply),
        };
        self.gather.push(Op { command, sink });
    }

    /// What was seen before contact broke says nothing, and contact may have broken while this
    /// waited here.
    fn lapse(&mut self, lapse: Lapse, judged: BootTime, reply: crate::engine::input::ReplySender) {
        let now = boot_time();
        if self.board.contact.length(now) < now.since(judged) {
            let why = "contact with the store was broken meanwhile";
            return drop(reply.send(Err(Unavailable::new(why))));
        }
        let sink = Sink::Lapse { mass: lapse.mass, caller: reply };
        self.gather.push(Op { command: Command::Lapse(lapse), sink });
    }

    fn close_sessions(&mut self, reason: &str) {
        for (worker, session) in self.roster.sessions.drain() {
            session.send(refused(RefusalCode::Unavailable, reason));
            self.board.fleet.detached(worker);
        }
    }

    fn attach(&mut self, session: Session) {
        if !matches!(self.ending, Ending::Not) {
            return session.send(refused(RefusalCode::Unavailable, "server is stopping"));
        }
        let worker = session.worker;
        let newer =
            self.roster.sessions.get(&worker).is_some_and(|now| now.number > session.number);
        if newer {
            let reason = "a newer session of this worker is attached";
            return session.send(refused(RefusalCode::Superseded, reason));
        }
        self.board.fleet.attached(Arc::clone(&session.facts));
        if let Some(old) = self.roster.sessions.insert(worker, session) {
            old.send(refused(
                RefusalCode::Superseded,
                "a newer session of this worker is attached",
            ));
        }
    }

    fn report(&mut self, worker: WorkerId, session: u64, reports: Vec<SessionReport>) {
        for SessionReport { job, epoch, command, finished } in reports {
            if let Some(held) = self
                .roster
                .current(worker, session)
                .and_then(|session| session.held.get_mut(&job))
                .filter(|held| held.epoch == epoch)
            {
                held.progress = HeldProgress::Started;
            }
            let sink = Sink::Report { worker, session, job, epoch, finished };
            self.gather.push(Op { command, sink });
        }
    }

    /// Hands an order to a worker's session; returns whether it is attached here.
    fn order(&mut self, worker: WorkerId, order: WorkerOrder, by: &str) -> bool {
        let Some(session) = self.roster.tell(worker) else { return false };
        session.set_running(order == WorkerOrder::Resume);
        self.board.fleet.changed();
        let phase = convert::phase_of(order).into();
        session.order(What::Phase(SetPhase { phase, by: by.to_owned() }));
        true
    }

    fn give_up(&mut self, worker: WorkerId) {
        if let Some(session) = self.roster.sessions.remove(&worker) {
            session.send(refused(RefusalCode::Lapsed, "lease is over: register anew"));
            self.board.fleet.detached(worker);
        }
    }

    /// Takes back what was delivered before `before` and has not started: the worker must
    /// say that it did not, else the lease decides.
    fn revoke_overdue(&mut self, before: BootTime) {
        let Roster { sessions, told, .. } = &mut self.roster;
        for session in sessions.values_mut() {
            let overdue: Vec<(JobId, Epoch)> = session
                .held
                .iter_mut()
                .filter(|(_, held)| {
                    held.progress == HeldProgress::Delivered && held.delivered < before
                })
                .map(|(job, held)| {
                    held.progress = HeldProgress::Revoked;
                    (*job, held.epoch)
                })
                .collect();
            for (job, epoch) in overdue {
                told.insert(session.worker);
                tracing::warn!(%job, %epoch, worker = &*session.facts.name, "job was not started in time, taking it back");
                let attempt = Some(convert::key(job, epoch));
                session.order(What::Revoke(RevokeAttempt { attempt }));
            }
        }
    }

    fn set_paused(&mut self, queue: &str, paused: bool) {
        self.board.set_paused(queue, paused);
        self.backlog.wanted |= !paused;
    }

    fn plan_claims(&mut self) {
        for op in self.claims() {
            self.gather.push(op);
        }
    }

    /// Adds claims of what the batch itself makes claimable, where somebody is free for
    /// it: job and claim are then one transaction, and an idle system waits for the disk
    /// once instead of twice.
    fn claim_what_arrives(&mut self, ops: &mut Vec<Op>) {
        if self.roster.sessions.is_empty() {
            return;
        }
        let mut arriving: HashMap<ClassId, u64> = HashMap::new();
        let jobs = ops.iter().flat_map(|op| match &op.command {
            Command::Enqueue(job) => std::slice::from_ref(&**job),
            Command::EnqueueAll(jobs) => jobs.as_slice(),
            // If they are there already a claim comes back short, which does no harm.
            Command::EnqueueOnce(once) => once.jobs.as_slice(),
            _ => &[],
        });
        for job in jobs.filter(|job| job.first == First::Now) {
            if let Some(class) = self.roster.class_of(&job.class) {
                *arriving.entry(class).or_default() += 1;
            }
        }
        if arriving.is_empty() {
            return;
        }
        let now = boot_time();
        let before: Vec<(ClassId, Estimate)> = arriving
            .into_iter()
            .filter_map(|(class, count)| {
                let ready = self.roster.classes.get(&class)?.ready;
                self.roster.add_ready(class, count, now);
                Some((class, ready))
            })
            .collect();
        ops.extend(self.claims());
        // They count once they are stored.
        for (class, ready) in before {
            self.roster.set_ready(class, ready);
        }
    }

    /// Returns claims for every session that has room, for classes with claimable jobs.
    fn claims(&mut self) -> Vec<Op> {
        if !matches!(self.ending, Ending::Not) {
            return Vec::new();
        }
        let mut claims = Vec::new();
        for planned in self.plan() {
            let Some(max) = std::num::NonZeroU32::new(planned.max) else { continue };
            if let Some(session) = self.roster.current(planned.worker, planned.session) {
                session.pending = session.pending.saturating_add(planned.max);
            }
            let command = Command::Claim(Claim {
                claimant: Claimant::Native { worker: planned.worker, session: planned.session },
                from: ClaimFrom::Classes(planned.classes.clone()),
                max,
            });
            let sink = Sink::Session {
                worker: planned.worker,
                session: planned.session,
                classes: planned.classes,
                max: planned.max,
            };
            claims.push(Op { command, sink });
        }
        claims
    }

    async fn commit(&mut self, ops: Vec<Op>) {
        self.metrics.batch(ops.len());
        let due = ops.iter().filter_map(|op| due_of(&op.command)).min();
        let (commands, sinks): (Vec<Command>, Vec<Sink>) =
            ops.into_iter().map(|op| (op.command, op.sink)).unzip();
        let spare = commands.clone();
        match self.apply_as_one(commands).await {
            Ok(applied) => {
                if let Some(due) = due {
                    self.board.due_at(due);
                }
                self.answer(applied, sinks);
            }
            Err(error) if is_of_one(&error) => {
                tracing::warn!(%error, commands = spare.len(), "batch could not be applied as one");
                let now = boot_time();
                let ops = spare.into_iter().zip(sinks);
                let ops = ops.map(|(command, sink)| (Op { command, sink }, now)).collect();
                self.commit_in_parts(ops).await;
            }
            Err(error) => self.fail(&error, sinks),
        }
    }

    async fn apply_as_one(&mut self, mut commands: Vec<Command>) -> Result<Applied, StoreError> {
        self.batches += 1;
        self.board.contact.begins(Lane::Work, boot_time());
        for command in &mut commands {
            if let Command::Sweep(sweep) = command {
                // It may have waited here while contact broke.
                sweep.watched = sweep.watched.min(self.board.contact.length(boot_time()));
            }
        }
        let batch = Batch {
            id: BatchId { server: self.server, n: self.batches },
            jitter_seed: rand::random(),
            budgets: self.settings.budgets,
            commands,
        };
        let begun = precise();
        let result = self.store.apply(batch).await;
        if result.is_ok() {
            self.metrics.committed(Commit::Work, precise().saturating_sub(begun));
        }
        // A store that takes no writes takes no renewals: silence then says nothing (I8).
        let reached = result.as_ref().err().is_none_or(is_of_one);
        self.board.wrote(Lane::Work, reached);
        result
    }

    fn answer(&mut self, applied: Applied, sinks: Vec<Sink>) {
        self.board.set_clock(applied.at);
        self.board.commits.send_modify(|count| *count = count.wrapping_add(1));
        for (reply, sink) in applied.replies.into_iter().zip(sinks) {
            self.note(&reply);
            self.settle(reply, sink);
        }
    }

    /// Learns from a reply, whoever it is for.
    fn note(&mut self, reply: &Reply) {
        match reply {
            Reply::Enqueued(Ok(job)) => self.note_enqueued(job),
            Reply::EnqueuedAll(Ok(jobs)) | Reply::Onced(Ok(Onced::Stored(jobs))) => {
                jobs.iter().for_each(|job| self.note_enqueued(job))
            }
            Reply::EnqueuedArrived(done) => self.note_arrived(done),
            Reply::Moved(Ok(moved)) => self.note_moved(moved),
            Reply::Swept(swept) => {
                self.metrics.swept(swept);
                swept.moved.iter().for_each(|moved| self.note_moved(moved));
            }
            Reply::Stranded(found) => {
                self.metrics.stranded(found.moved.len());
                found.moved.iter().for_each(|moved| self.note_moved(moved));
            }
            Reply::Registered(Ok(_)) => self.metrics.worker_registered(),
            Reply::WorkerMoved(Ok(moved)) => {
                if moved.standing.liveness == Liveness::Gone {
                    self.metrics.worker_stopped();
                }
                moved.moved.iter().for_each(|job| self.note_moved(job));
                // What it still holds is judged by the same watch, not by a new one.
                if !moved.standing.holds_lease() && moved.kept == 0 {
                    self.board.forget(moved.worker);
                }
            }
            Reply::Claimed(Ok(claimed)) => {
                self.metrics.claimed(&claimed.jobs);
                let until = claimed.jobs.iter().filter_map(|job| {
                    let limit = job.job.timeout.map(|limit| job.claimed.after(limit));
                    job.visible_until.map(|until| limit.map_or(until, |limit| limit.min(until)))
                });
                if let Some(due) = until.min() {
                    self.board.due_at(due);
                }
            }
            _ => {}
        }
    }

    fn note_enqueued(&mut self, job: &outlast_store::reply::Enqueued) {
        self.metrics.enqueued(job.class);
        if job.state == State::Available {
            self.note_ready(job.class);
        }
    }

    fn note_ready(&mut self, class: ClassId) {
        self.others.ready(class);
        if !self.roster.add_ready(class, 1, boot_time()) {
            self.backlog.wanted = true;
        }
    }

    fn note_moved(&mut self, moved: &Moved) {
        self.metrics.moved(moved);
        if moved.state == State::Available && moved.from != State::Available {
            self.note_ready(moved.class);
        }
        if let Some(due) = moved.due {
            self.board.due_at(due);
        }
        let cancelled_under =
            moved.holder.filter(|_| moved.state == State::Cancelled && moved.outcome.is_none());
        if let Some(worker) = cancelled_under
            && !self.stop_cancelled(worker, moved.job, moved.epoch)
        {
            self.others.cancelled(worker, moved.job, moved.epoch);
        }
    }

    /// Has a worker stop a cancelled attempt; returns whether it is attached here.
    fn stop_cancelled(&mut self, worker: WorkerId, job: JobId, epoch: Epoch) -> bool {
        let Some(session) = self.roster.tell(worker) else { return false };
        let attempt = Some(convert::key(job, epoch));
        session.order(What::Stop(StopAttempt { attempt, why: "cancelled".into() }));
        true
    }

    fn settle(&mut self, reply: Reply, sink: Sink) {
        match sink {
            // A caller that has gone needs no answer, but a claim it made must not be
            // lost: it is given back at no charge.
            Sink::Caller(caller) => {
                if let Err(Ok(Reply::Claimed(Ok(claimed)))) = caller.send(Ok(reply)) {
                    self.release(claimed.jobs);
                }
            }
            Sink::Lapse { mass, caller } => {
                if let (true, Reply::WorkerMoved(Ok(moved))) = (mass, &reply) {
                    self.note_mass_loss(moved);
                }
                drop(caller.send(Ok(reply)));
            }
            Sink::Report { worker, session, job, epoch, finished } => {
                self.answer_report(&reply, worker, session, (job, epoch, finished));
            }
            Sink::Session { worker, session, classes, max } => {
                self.deliver(reply, (worker, session), &classes, max);
            }
            Sink::Strand(class) => {
                if let Reply::Stranded(found) = reply {
                    self.stranded.looked(class, found.next);
                }
            }
            Sink::Queue { queue, paused, caller } => {
                self.set_paused(&queue, paused);
                self.others.queue(queue, paused);
                drop(caller.send(Ok(reply)));
            }
            Sink::None => {}
        }
    }

    fn answer_report(
        &mut self,
        reply: &Reply,
        worker: WorkerId,
        number: u64,
        (job, epoch, finished): (JobId, Epoch, bool),
    ) {
        let (verdict, reason) = match reply {
            Reply::Moved(Ok(_)) => (Verdict::Accepted, String::new()),
            Reply::Moved(Err(refusal)) => {
                // A cancelled job's attempt ends after the job has: that is no news.
                let ended_by_cancel = MoveRefusal::Refused(Refusal::Terminal(State::Cancelled));
                if finished && *refusal != ended_by_cancel {
                    tracing::info!(%job, %epoch, %refusal, "late report refused");
                }
                (convert::verdict(refusal), refusal.to_string())
            }
            _ => (Verdict::UnknownJob, "unexpected reply".into()),
        };
        if self.roster.current(worker, number).is_none() {
            return;
        }
        let Some(session) = self.roster.tell(worker) else { return };
        if finished {
            session.ended(job, epoch);
        }
        let attempt = Some(convert::key(job, epoch));
        session.answer(ReportAnswer { attempt, finished, verdict: verdict.into(), reason });
    }

    fn deliver(
        &mut self,
        reply: Reply,
        (worker, number): (WorkerId, u64),
        classes: &[ClassId],
        asked: u32,
    ) {
        if let Some(session) = self.roster.current(worker, number) {
            session.pending = session.pending.saturating_sub(asked);
        }
        let Claims { jobs: claimed, passed_over } = match reply {
            Reply::Claimed(Ok(claims)) => claims,
            Reply::Claimed(Err(refusal)) => {
                tracing::debug!(%worker, %refusal, "claim refused");
                if let Some(session) = self.roster.current(worker, number) {
                    session.set_running(false);
                    self.board.fleet.changed();
                }
                return;
            }
            _ => return,
        };
        let got: Vec<_> = claimed.iter().map(|job| job.job.class).collect();
        self.roster.claimed(classes, &got, asked, &passed_over);
        if got.is_empty() {
            self.ask_again_for(passed_over);
        }
        self.redispatch.claimed(&got, boot_time());
        if self.roster.current(worker, number).is_none() {
            return self.release(claimed);
        }
        let Some(session) = self.roster.tell(worker) else { return };
        let now = boot_time();
        for job in claimed {
            let held = HeldHere {
                epoch: job.epoch,
                delivered: now,
                progress: HeldProgress::Delivered,
                isolated: job.isolated,
            };
            session.hold(job.job.id, held);
            session.deliver(delivery(job));
        }
    }

    /// Gives claims back that nobody waits for any more: never started, nothing charged.
    fn release(&mut self, claimed: Vec<Claimed>) {
        for job in claimed {
            let finish = Finish {
                job: job.job.id,
                fence: Fence { epoch: Some(job.epoch), ..Fence::default() },
                ending: AttemptEnding::NotStarted,
                detail: EndDetail {
                    evidence: "the claimant was gone before the claim reached it".into(),
                    ..EndDetail::default()
                },
                by: "server".into(),
            };
            self.gather.push(Op { command: Command::Finish(Box::new(finish)), sink: Sink::None });
        }
    }

    /// The store did not take the batch: callers are told, and sessions are closed so that
    /// workers re-attach and repeat what was not answered.
    fn fail(&mut self, error: &StoreError, sinks: Vec<Sink>) {
        tracing::error!(%error, "batch failed");
        let unavailable = Unavailable::new(error.to_string());
        let mut sessions_in_doubt = false;
        for sink in sinks {
            match sink {
                Sink::Caller(caller) | Sink::Queue { caller, .. } | Sink::Lapse { caller, .. } => {
                    drop(caller.send(Err(unavailable.clone())));
                }
                // Whether the claim took effect is not known: re-attaching finds out.
                Sink::Report { .. } | Sink::Session { .. } => sessions_in_doubt = true,
                Sink::Strand(class) => self.stranded.looked(class, self.board.store_time()),
                Sink::None => {}
            }
        }
        if sessions_in_doubt {
            self.close_sessions(&error.to_string());
        }
    }
}

fn refused(code: RefusalCode, reason: &str) -> Body {
    Body::Refused(Refused { code: code.into(), reason: reason.to_owned() })
}

fn delivery(claimed: Claimed) -> Delivery {
    let job = &claimed.job;
    Delivery {
        attempt: Some(convert::key(job.id, claimed.epoch)),
        job_type: job.key.job_type.clone(),
        queue: job.key.queue.clone(),
        attempt_number: claimed.attempt,
        args_json: job.payload.args.clone().into_bytes().into(),
        meta_json: job.payload.meta.clone().into_bytes().into(),
        timeout_ms: job.timeout.map(|limit| limit.0),
        overlap_forbidden: job.rules.overlap == outlast_core::job::Overlap::Forbidden,
        isolated: claimed.isolated,
        checkpoint: claimed.checkpoint.unwrap_or_default().into(),
        idempotency_key: job.id.to_string(),
        max_attempts: job.rules.retry.max_attempts,
    }
}

/// Returns the fence of a native worker's report.
pub(crate) fn native_fence(worker: WorkerId, epoch: Epoch) -> Fence {
    Fence { epoch: Some(epoch), worker: Some(Reporter::Native(worker)), attempt: None }
}
