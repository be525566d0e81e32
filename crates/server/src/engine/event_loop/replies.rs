//! What the loop learns from each reply, and who gets it.

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::{Refusal, State};
use outlast_core::worker::liveness::Liveness;
use outlast_store::command::{ClassId, EndDetail, Fence, Finish, ReportedOutcome};
use outlast_store::idempotency::EnqueuedOnce;
use outlast_store::limit::LimitChange;
use outlast_store::queue::QueueChanged;
use outlast_store::reply::{ClaimRefusal, Claimed, Claims, Enqueued, MoveRefusal, Moved};
use outlast_store::unique::KeyOutcome;
use outlast_store::{Command, Reply};

use super::EventLoop;
use crate::clock::boot_time;
use crate::engine::batcher::{Op, ReplyTo, Reported};
use crate::engine::dispatch::Planned;
use crate::engine::input::SideBatch;
use crate::engine::output::{ReportAnswer, SessionOrder};

impl EventLoop {
    /// Learns from a reply before it is passed on.
    pub(super) fn learn(&mut self, reply: &Reply) {
        match reply {
            Reply::Enqueued(Ok(job)) => self.job_enqueued(job),
            Reply::EnqueuedAll(Ok(jobs)) | Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(jobs))) => {
                jobs.iter().for_each(|job| self.job_enqueued(job));
            }
            Reply::ScheduleWritten(Ok(written)) => {
                written.jobs.iter().for_each(|job| self.job_enqueued(job));
            }
            Reply::WorkflowWritten(Ok(written)) => {
                written.jobs.iter().for_each(|job| self.job_enqueued(job));
            }
            Reply::OperationWritten(Ok(written)) => {
                written.moved.iter().for_each(|moved| self.job_moved(moved));
            }
            Reply::EnqueuedArrived(done) => self.arrivals_enqueued(done),
            Reply::Moved(Ok(moved)) => self.job_moved(moved),
            Reply::Swept(swept) => {
                self.metrics.swept(swept);
                swept.moved.iter().for_each(|moved| self.job_moved(moved));
            }
            Reply::Stranded(found) => {
                self.metrics.unclaimable(found.moved.len());
                found.moved.iter().for_each(|moved| self.job_moved(moved));
            }
            Reply::Registered(Ok(_)) => self.metrics.worker_registered(),
            Reply::WorkerMoved(Ok(moved)) => {
                if moved.standing.liveness == Liveness::Gone {
                    self.metrics.worker_stopped();
                }
                moved.moved.iter().for_each(|job| self.job_moved(job));
                // A worker that keeps jobs after its lapse stays under the same watch.
                if !moved.standing.holds_lease() && moved.kept == 0 {
                    self.shared.leases.forget(moved.worker);
                }
            }
            Reply::Claimed(Ok(claims)) => self.jobs_claimed(&claims.jobs),
            Reply::LimitChanged(Ok(
                LimitChange::Created | LimitChange::Replaced | LimitChange::Removed,
            ))
            | Reply::QueueSet(Ok(QueueChanged::Changed)) => {
                self.limits_changed();
                self.peers.limits();
            }
            _ => {}
        }
    }

    fn jobs_claimed(&mut self, claimed: &[Claimed]) {
        self.planning.affinity.claimed(claimed);
        self.shared.slow_claims.gone(claimed.iter().map(|it| it.job.id));
        self.metrics.claimed(claimed);
        let until = claimed.iter().filter_map(|job| {
            let limit = job.job.timeout.map(|limit| job.claimed.after(limit));
            job.visible_until.map(|until| limit.map_or(until, |limit| limit.min(until)))
        });
        if let Some(due) = until.min() {
            self.shared.next_due.add(due);
        }
    }

    /// Learns what a batch beside the loop did.
    pub(super) fn learn_side_batch(&mut self, batch: SideBatch) {
        batch.replies.iter().for_each(|reply| self.learn(reply));
        self.planning.backlog.wanted |= batch.unconfirmed;
        // It may have cancelled attempts of this server's workers.
        self.peers.missed.wanted |= batch.unconfirmed;
        if batch.freed {
            self.slots_freed();
            self.peers.freed();
        }
    }

    pub(super) fn job_enqueued(&mut self, job: &Enqueued) {
        if let Some(KeyOutcome::Replaced { moved: Some(moved), .. }) = &job.by_key {
            self.job_moved(moved);
        }
        if job.is_old() {
            return;
        }
        self.metrics.enqueued(job.class);
        if job.state == State::Available {
            self.job_ready(job.class);
        }
    }

    fn job_ready(&mut self, class: ClassId) {
        if self.is_of_paused_queue(class) {
            return;
        }
        self.peers.ready(class);
        if !self.planning.classes.add_ready(class, 1, boot_time()) {
            self.planning.backlog.wanted = true;
        }
    }

    /// Whether the queue of a class is paused: no claim gets its jobs.
    pub(super) fn is_of_paused_queue(&self, class: ClassId) -> bool {
        self.shared.any_paused()
            && self
                .planning
                .classes
                .get(class)
                .is_some_and(|it| self.shared.is_paused(&it.key.queue))
    }

    fn job_moved(&mut self, moved: &Moved) {
        self.metrics.moved(moved);
        if moved.from == State::Available {
            self.shared.slow_claims.gone([moved.job].into_iter());
        }
        if moved.state == State::Available && moved.from != State::Available {
            self.job_ready(moved.class);
        }
        if let Some(due) = moved.due {
            self.shared.next_due.add(due);
        }
        let cancelled_under =
            moved.holder.filter(|_| moved.state == State::Cancelled && moved.outcome.is_none());
        if let Some(worker) = cancelled_under
            && !self.stop_cancelled(worker, moved.job, moved.epoch)
        {
            self.peers.cancelled(worker, moved.job, moved.epoch);
        }
    }

    /// Orders a worker to stop a cancelled attempt; returns whether it is attached here.
    pub(super) fn stop_cancelled(&mut self, worker: WorkerId, job: JobId, epoch: Epoch) -> bool {
        let Some(session) = self.sessions.for_output(worker) else { return false };
        session.order(SessionOrder::Stop { job, epoch });
        true
    }

    /// Passes a reply on.
    pub(super) fn route(&mut self, reply: Reply, command: Command, reply_to: ReplyTo) {
        match reply_to {
            // A caller that has gone needs no answer, but its claim must not be lost.
            ReplyTo::Caller(caller) => {
                if let Err(Ok((Reply::Claimed(Ok(claims)), _))) = caller.send(Ok((reply, command)))
                {
                    self.release(claims.jobs);
                }
            }
            ReplyTo::Lapse { mass, caller } => {
                if let (true, Reply::WorkerMoved(Ok(moved))) = (mass, &reply) {
                    self.lost_with_many(moved);
                }
                drop(caller.send(Ok((reply, command))));
            }
            ReplyTo::Report(report) => self.answer_report(&reply, &report),
            ReplyTo::Session(planned) => {
                if matches!(reply, Reply::Claimed(Err(ClaimRefusal::Outdated))) {
                    self.claim_outdated(&command);
                }
                self.deliver(reply, &planned);
            }
            ReplyTo::Isolation(class) => self.led(class, &reply),
            ReplyTo::Unclaimable(class) => {
                if let Reply::Stranded(found) = reply {
                    self.unclaimable.checked(class, found.next);
                }
            }
            ReplyTo::Queue { queue, paused, caller } => {
                self.set_paused(&queue, paused);
                self.peers.queue(queue, paused);
                drop(caller.send(Ok((reply, command))));
            }
            ReplyTo::None => {}
        }
    }

    fn answer_report(&mut self, reply: &Reply, report: &Reported) {
        let Reported { worker, session: number, job, epoch, finished } = *report;
        let verdict = match reply {
            Reply::Moved(moved) => {
                if let Ok(moved) = moved {
                    self.planning.affinity.failed(worker, moved, boot_time());
                }
                moved.as_ref().map(|_| ()).map_err(|refusal| *refusal)
            }
            other => {
                tracing::error!(reply = ?other, "store returned a reply of the wrong kind");
                Err(MoveRefusal::NotFound)
            }
        };
        // The attempt of a cancelled job ends after the job: that is expected.
        let ended_by_cancel = MoveRefusal::Refused(Refusal::Terminal(State::Cancelled));
        if let Err(refusal) = verdict
            && finished
            && refusal != ended_by_cancel
        {
            tracing::info!(%job, %epoch, %refusal, "late report refused");
        }
        if self.sessions.current(worker, number).is_none() {
            return;
        }
        let Some(session) = self.sessions.for_output(worker) else { return };
        if finished {
            session.release(job, epoch);
        }
        session.answer(ReportAnswer { job, epoch, finished, verdict });
    }

    /// Queues ask something else of workers than a claim was planned by. Newer settings may have been
    /// read since.
    fn claim_outdated(&mut self, command: &Command) {
        if let Command::Claim(claim) = command
            && claim.asked == self.planning.classes.asked()
        {
            self.planning.classes.outdate();
            self.planning.backlog.wanted = true;
        }
    }

    fn deliver(&mut self, reply: Reply, planned: &Planned) {
        let Planned { worker, session: number, ref classes, tokens, .. } = *planned;
        planned.end(&mut self.sessions);
        let claims = match reply {
            Reply::Claimed(Ok(claims)) => claims,
            Reply::Claimed(Err(ClaimRefusal::Outdated)) => {
                self.planning.redispatch.claimed(&[], tokens);
                return;
            }
            Reply::Claimed(Err(refusal)) => {
                tracing::debug!(%worker, %refusal, "claim refused");
                self.planning.redispatch.claimed(&[], tokens);
                if let Some(session) = self.sessions.current(worker, number) {
                    session.set_running(false);
                    self.shared.fleet.changed();
                }
                return;
            }
            _ => return,
        };
        let claimed = &claims.jobs;
        self.batcher.claimed(claimed);
        // An isolated job is claimed from the twin of its own class, alone.
        let got: Vec<ClassId> = match &**classes {
            [only] => vec![*only; claimed.len()],
            _ => claimed.iter().map(|job| job.job.class).collect(),
        };
        self.planning.classes.claimed(planned.asks(), &got, &claims);
        self.wait_for_rates(&claims.blocked);
        let Claims { jobs: claimed, passed_over, cut, .. } = claims;
        if got.is_empty() {
            self.claim_again_later(if cut { classes.to_vec() } else { passed_over });
        }
        self.planning.redispatch.claimed(&got, tokens);
        if self.sessions.current(worker, number).is_none() {
            return self.release(claimed);
        }
        let Some(session) = self.sessions.for_output(worker) else { return };
        let now = boot_time();
        for job in claimed {
            session.deliver(job, now);
        }
    }

    /// Gives claims back whose claimant has gone: they never started, so nothing is charged.
    pub(super) fn release(&mut self, claimed: Vec<Claimed>) {
        for job in claimed {
            let finish = Finish {
                job: job.job.id,
                fence: Fence { epoch: Some(job.epoch), ..Fence::default() },
                reported: ReportedOutcome::NotStarted,
                detail: EndDetail {
                    evidence: Evidence::of(
                        EvidenceCode::NotHeld,
                        "the claimant was gone before the claim reached it",
                    ),
                    ..EndDetail::default()
                },
                by: "server".into(),
            };
            let command = Command::Finish(Box::new(finish));
            self.batcher.push(Op { command, reply_to: ReplyTo::None });
        }
    }
}
