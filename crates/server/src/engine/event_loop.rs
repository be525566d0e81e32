//! The event loop: takes inputs, plans claims, commits one batch, and passes its results on.
//!
//! - [`commit`]: applying a batch, in parts if one of its commands fails it
//! - [`replies`]: what each reply changes here, and who gets it
//! - [`claim_tries`]: trying jobs that are slow to claim
//! - [`claims`]: which claims join a batch
//! - [`deferred`]: commands whose rows another database session has locked
//! - [`backlog`]: reading how many claimable jobs there are
//! - [`arrivals`]: jobs that programs stored by SQL
//! - [`peers`]: signals to and from other servers on the store
//! - [`isolation`]: keeping a worker free for jobs that must run alone
//! - [`limits`]: when classes whose jobs wait for a limit are claimed from again
//! - [`late_orders`]: orders to workers that may be about to attach
//! - [`missed`]: reading what they may have said while they were not heard
//! - [`redispatch`]: how fast jobs of many dead workers are handed out again
//! - [`slow_tries`]: trying commands of slow kinds apart
//! - [`unclaimable`]: failing jobs that no live worker can run

mod affinity;
mod arrivals;
mod backlog;
mod claim_tries;
mod claims;
mod commit;
mod deferred;
mod isolation;
mod late_orders;
mod limits;
mod missed;
mod peers;
mod redispatch;
mod replies;
mod slow_tries;
mod unclaimable;

pub(crate) use commit::SLOW_MAX;
pub(crate) use deferred::{Subject, subject_of};
pub(crate) use missed::StoredPhase;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::labels::short_digest;
use outlast_core::time::BootTime;
use outlast_core::worker::order::WorkerOrder;
use outlast_store::Command;
use outlast_store::command::{Lapse, NoteSkew, ReportedOutcome};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::clock::boot_time;
use crate::engine::batch_writer::{BatchWriter, Storage};
use crate::engine::batcher::{Batcher, Op, ReplyTo, Reported};
use crate::engine::classes::Classes;
use crate::engine::error::Unavailable;
use crate::engine::input::{Input, ReplySender, SessionReport};
use crate::engine::isolation::Isolation;
use crate::engine::output::{CloseReason, SessionOrder};
use crate::engine::sessions::{Session, Sessions, Validated};
use crate::engine::shared_state::SharedState;
use crate::engine::slow_kinds::SlowKinds;
use crate::engine::store_health::Lane;
use crate::metrics::Metrics;

/// Most inputs handled before a batch is made.
const INPUTS_PER_TURN: usize = 4_096;

/// What the loop owns. Nothing else touches it.
struct EventLoop {
    server: Uuid,
    writer: BatchWriter,
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
    /// Where tasks beside the loop send their results.
    inputs: mpsc::WeakSender<Input>,
    sessions: Sessions,
    planning: Planning,
    batcher: Batcher,
    deferred: deferred::Deferred,
    slow_kinds: SlowKinds<Op>,
    claim_tries: claim_tries::ClaimTries,
    peers: peers::Peers,
    unclaimable: unclaimable::Unclaimable,
    shutdown: Shutdown,
}

/// What claims are planned by, beside the sessions.
struct Planning {
    /// The classes that have claimable jobs.
    classes: Classes,
    /// When they are counted again.
    backlog: backlog::Backlog,
    /// How fast jobs of many dead workers are handed out again.
    redispatch: redispatch::Redispatch,
    /// Which workers retries avoid.
    affinity: affinity::Affinity,
    /// Which workers are kept free for jobs that must run alone.
    isolation: Isolation,
}

/// How far the loop's shutdown has come.
enum Shutdown {
    NotBegun,
    /// Sessions are turned away and nothing new is claimed for them.
    Closing,
    /// What has been taken is finished; then the asker is answered.
    Finishing(oneshot::Sender<()>),
}

/// Runs the loop until it is stopped or every handle is gone.
pub(crate) async fn run(
    storage: Storage,
    server: Uuid,
    own: mpsc::WeakSender<Input>,
    mut inputs: mpsc::Receiver<Input>,
) {
    let mut events = EventLoop {
        server,
        shared: Arc::clone(&storage.shared),
        metrics: Arc::clone(&storage.metrics),
        writer: BatchWriter::new(storage, Lane::Work, server),
        inputs: own,
        sessions: Sessions::default(),
        planning: Planning {
            classes: Classes::default(),
            backlog: backlog::Backlog::wanted(),
            redispatch: redispatch::Redispatch::new(boot_time()),
            affinity: affinity::Affinity::default(),
            isolation: Isolation::default(),
        },
        batcher: Batcher::default(),
        deferred: deferred::Deferred::default(),
        slow_kinds: SlowKinds::default(),
        claim_tries: claim_tries::ClaimTries::default(),
        peers: peers::Peers::default(),
        unclaimable: unclaimable::Unclaimable::default(),
        shutdown: Shutdown::NotBegun,
    };
    loop {
        // The first job of a new class is found by reading the backlog: do not wait for input.
        if events.is_idle() {
            if let Shutdown::Finishing(done) = events.shutdown {
                // An asker that has gone needs no answer.
                let _ = done.send(());
                return;
            }
            let received = match events.wait() {
                None => inputs.recv().await,
                Some(wait) => match tokio::time::timeout(wait, inputs.recv()).await {
                    Ok(received) => received,
                    Err(_elapsed) => {
                        events.step().await;
                        continue;
                    }
                },
            };
            let Some(input) = received else { return };
            events.handle(input);
        }
        for _ in 0..INPUTS_PER_TURN {
            let Ok(input) = inputs.try_recv() else { break };
            events.handle(input);
        }
        events.step().await;
    }
}

impl EventLoop {
    fn is_idle(&self) -> bool {
        self.batcher.is_empty() && !self.planning.backlog.is_due()
    }

    /// Returns how long to wait for input when nothing else is to be done; `None` for as long as it
    /// takes.
    fn wait(&self) -> Option<Duration> {
        [self.deferred.wait(), self.slow_kinds.wait()].into_iter().flatten().min()
    }

    fn is_shutting_down(&self) -> bool {
        !matches!(self.shutdown, Shutdown::NotBegun)
    }

    async fn step(&mut self) {
        if self.planning.backlog.is_due() {
            self.read_backlog();
        }
        self.read_missed();
        self.try_slow_kinds().await;
        self.plan_claims();
        self.retry_deferred().await;
        let ops = self.deferred.divert(self.batcher.take());
        let ops = self.slow_kinds.divert(ops, boot_time());
        let any = !ops.is_empty();
        let mut ops = self.try_slow_claims(ops).await;
        if !ops.is_empty() {
            self.claim_enqueued(&mut ops);
            self.commit(ops).await;
        }
        if any {
            // Claim what the batch made claimable now: the next input may be a long time coming.
            self.plan_claims();
        }
        self.sessions.flush();
        self.signal_peers();
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Submit { command, reply } => self.submit(command, reply),
            Input::Lapse { lapse, judged, reply } => self.lapse(lapse, judged, reply),
            Input::Attached(session) => self.attach(*session),
            Input::Detached { worker, session } => {
                if self.sessions.current(worker, session).is_some() {
                    self.sessions.remove(worker);
                    self.shared.fleet.detached(worker);
                }
            }
            Input::Capacity { worker, session, slots, prefetch } => {
                if let Some(session) = self.sessions.current(worker, session) {
                    session.set_capacity(slots, prefetch);
                }
            }
            Input::Reports { worker, session, reports } => self.report(worker, session, reports),
            // Claims are planned in every turn, also for workers that poll again.
            Input::PollingChanged => self.shared.fleet.changed(),
            Input::Running { worker, session, running } => {
                self.peers.missed.is_newer(worker);
                if let Some(session) = self.sessions.current(worker, session) {
                    session.set_running(running);
                    self.shared.fleet.changed();
                }
            }
            Input::Order { worker, order, by } => {
                self.peers.missed.is_newer(worker);
                if !self.order(worker, order, &by) {
                    self.peers.order(worker, order, by.clone());
                    self.peers.late_orders.keep(worker, order, by, boot_time());
                }
            }
            Input::Heard(heard) => self.hear_peers(heard),
            Input::WorkerLapsed { worker } => self.close_lapsed(worker),
            Input::RevokeOverdue { before } => self.revoke_overdue(before),
            Input::CheckUnclaimable { fleet_age_max, reply } => {
                self.check_unclaimable(fleet_age_max);
                // An asker that has gone needs no answer.
                let _ = reply.send(());
            }
            // An asker that has gone needs no answer.
            Input::ListWaiting { max, reply } => {
                let _ = reply.send(self.planning.classes.waiting(max));
            }
            Input::Backlog(classes) => self.set_backlog(classes),
            Input::ClaimAgain(classes) => self.claim_again(&classes),
            Input::Redispatch => self.planning.redispatch.woken(),
            // Claims are planned in every turn.
            Input::RetryWaited => {}
            Input::BacklogRead => self.planning.backlog.reading = false,
            Input::MissedRead(phases) => self.missed_read(phases),
            Input::SideBatch(batch) => self.learn_side_batch(batch),
            Input::CloseSessions => {
                self.shutdown = Shutdown::Closing;
                self.close_sessions("server is stopping");
            }
            Input::Stop { done } => self.shutdown = Shutdown::Finishing(done),
        }
    }

    fn submit(&mut self, command: Command, caller: ReplySender) {
        let reply_to = match &command {
            Command::Queue(order) => {
                ReplyTo::Queue { queue: order.queue.clone(), paused: order.paused, caller }
            }
            _ => ReplyTo::Caller(caller),
        };
        self.batcher.push(Op { command, reply_to });
    }

    /// Queues a lapse, unless contact with the store broke after it was judged: what was seen
    /// before proves nothing then.
    fn lapse(&mut self, lapse: Lapse, judged: BootTime, caller: ReplySender) {
        let now = boot_time();
        if self.shared.store_health.unbroken_for(now) < now.since(judged) {
            let why = "contact with the store broke meanwhile";
            return drop(caller.send(Err(Unavailable::new(why))));
        }
        let reply_to = ReplyTo::Lapse { mass: lapse.mass, caller };
        self.batcher.push(Op { command: Command::Lapse(lapse), reply_to });
    }

    fn close_sessions(&mut self, reason: &str) {
        for session in self.sessions.drain() {
            session.close(CloseReason::Unavailable, reason);
            self.shared.fleet.detached(session.worker);
        }
    }

    fn attach(&mut self, session: Session) {
        const SUPERSEDED: &str = "a newer session of this worker is attached";
        if self.is_shutting_down() {
            return session.close(CloseReason::Unavailable, "server is stopping");
        }
        if self.sessions.get(session.worker).is_some_and(|now| now.number > session.number) {
            return session.close(CloseReason::Superseded, SUPERSEDED);
        }
        let worker = session.worker;
        self.peers.missed.is_newer(worker);
        if self.shared.fleet.attached(Arc::clone(&session.facts)) {
            self.peers.polls_again(worker);
        }
        if let Some(old) = self.sessions.insert(session) {
            old.close(CloseReason::Superseded, SUPERSEDED);
        }
        if let Some(late) = self.peers.late_orders.take(worker, boot_time()) {
            self.order(worker, late.order, &late.by);
        }
    }

    fn report(&mut self, worker: WorkerId, session: u64, reports: Vec<SessionReport>) {
        for SessionReport { job, epoch, command, finished } in reports {
            let completed = matches!(&command, Command::Finish(finish)
                if finish.reported == ReportedOutcome::Completed);
            let reported = Reported { worker, session, job, epoch, finished };
            if let Some(session) = self.sessions.current(worker, session) {
                session.reported(job, epoch, completed);
                let digest = pack_digest(&command);
                let other = digest.and_then(|digest| session.runs_pack(job, epoch, digest));
                if let (Some(validated), Some(digest)) = (other, digest) {
                    let command = skew(reported, &validated, digest).into();
                    self.batcher.push(Op { command, reply_to: ReplyTo::None });
                }
            }
            let reply_to = ReplyTo::Report(reported);
            self.batcher.push(Op { command, reply_to });
        }
    }

    /// Sends an order to a worker's session; returns whether it is attached here.
    fn order(&mut self, worker: WorkerId, order: WorkerOrder, by: &str) -> bool {
        let Some(session) = self.sessions.for_output(worker) else { return false };
        session.set_running(order == WorkerOrder::Resume);
        session.order(SessionOrder::Phase { order, by: by.to_owned() });
        self.shared.fleet.changed();
        true
    }

    fn close_lapsed(&mut self, worker: WorkerId) {
        if let Some(session) = self.sessions.remove(worker) {
            session.close(CloseReason::Lapsed, "lease is over: register again");
            self.shared.fleet.detached(worker);
        }
    }

    /// Takes back jobs that were delivered before `before` and have not started. The worker must
    /// confirm that it did not start them, else its lease decides.
    fn revoke_overdue(&mut self, before: BootTime) {
        for overdue in self.sessions.revoke_overdue(before) {
            tracing::warn!(job = %overdue.job, epoch = %overdue.epoch, worker = &*overdue.worker,
                "job was not started in time; revoking it");
        }
    }

    fn set_paused(&mut self, queue: &str, paused: bool) {
        self.shared.set_paused(queue, paused);
        self.planning.backlog.wanted |= !paused;
        if paused {
            self.planning.classes.clear_queue(queue);
        }
    }
}

/// Returns with which files of its pack an attempt runs, if a report says so.
fn pack_digest(command: &Command) -> Option<&str> {
    match command {
        Command::Start(start) => start.pack_digest.as_deref(),
        Command::Finish(finish) => finish.detail.pack_digest.as_deref(),
        _ => None,
    }
}

/// Notes that an attempt runs with other files of its pack than its job was validated with.
fn skew(
    Reported { worker, job, epoch, .. }: Reported,
    validated: &Validated,
    digest: &str,
) -> NoteSkew {
    let (with, runs) = (short_digest(&validated.digest), short_digest(digest));
    NoteSkew {
        job,
        epoch,
        class: Arc::clone(&validated.class),
        worker,
        words: format!("validated with the pack's files {with}, runs with {runs}"),
        by: "server".to_owned(),
    }
}
