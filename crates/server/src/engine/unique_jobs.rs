//! Requests with unique jobs have their own batches, beside the event loop: they may have to wait
//! for a key that another transaction has taken, and no other enqueue waits with them.
//!
//! ```text
//! request ─▶ batch of its lane ─▶ store ─▶ caller
//!                                   └────▶ event loop: jobs to claim, attempts to stop
//! ```
//!
//! A request whose key or job stays locked is refused; the same request may succeed later.

use std::sync::Arc;
use std::time::Duration;

use outlast_store::idempotency::EnqueueOnceRefusal;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::{Command, Reply, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock::boot_time;
use crate::engine::Engine;
use crate::engine::batch_writer::{BatchWriter, Committed, Failed, Storage, is_command_fault};
use crate::engine::command_facts::{due_of, weight_of};
use crate::engine::error::Unavailable;
use crate::engine::event_loop::SLOW_MAX;
use crate::engine::input::{Input, ReplySender, SideBatch};
use crate::engine::shared_state::SharedState;
use crate::engine::slow_kinds::{SlowKinds, Submitted, TRIES_MAX};
use crate::engine::trouble_log::log_trouble;
use crate::metrics::Metrics;

/// Most requests in one batch.
const BATCH_MAX: usize = 500;
/// About how many jobs one batch stores: each that replaces another is a round trip by itself.
const JOBS_MAX: usize = 1_000;
/// How many requests may wait before senders wait for room.
pub(super) const WAITING_MAX: usize = 16 * 1024;
/// How long a request is tried whose job would replace one that is locked.
const BUSY_MAX: Duration = Duration::from_millis(100);
/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

const LOCKED: &str = "another transaction has locked the unique key of the job";

/// A request, and where its reply goes.
pub(super) type Request = (Command, ReplySender);

/// Runs until every handle is gone.
pub(super) async fn run(
    storage: Storage,
    inputs: mpsc::WeakSender<Input>,
    mut requests: mpsc::Receiver<Request>,
) {
    let mut lane = UniqueJobs {
        shared: Arc::clone(&storage.shared),
        metrics: Arc::clone(&storage.metrics),
        // A writer numbers its batches by itself, so these are not the loop's.
        writer: BatchWriter::beside(storage, Uuid::now_v7()),
        inputs,
        slow_kinds: SlowKinds::default(),
    };
    let mut gathered = Vec::new();
    loop {
        let receiving = requests.recv_many(&mut gathered, BATCH_MAX);
        let received = match lane.slow_kinds.wait() {
            None => Ok(receiving.await),
            Some(wait) => tokio::time::timeout(wait, receiving).await,
        };
        if received == Ok(0) {
            return;
        }
        lane.try_slow_kinds().await;
        // A caller that has gone has given up.
        gathered.retain(|(_, caller)| !caller.is_closed());
        gathered = lane.slow_kinds.divert(gathered, boot_time());
        while !gathered.is_empty() {
            let first = gathered.drain(..fitting(&gathered)).collect();
            lane.commit(first).await;
        }
    }
}

/// Returns how many of the requests fit into one batch; at least one.
fn fitting(requests: &[Request]) -> usize {
    let mut jobs = 0_usize;
    let fits = requests.iter().take_while(|(command, _)| {
        jobs = jobs.saturating_add(weight_of(command));
        jobs <= JOBS_MAX
    });
    fits.count().max(1)
}

struct UniqueJobs {
    writer: BatchWriter,
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
    inputs: mpsc::WeakSender<Input>,
    slow_kinds: SlowKinds<Request>,
}

impl Submitted for Request {
    fn command(&self) -> &Command {
        &self.0
    }

    fn has_caller(&self) -> bool {
        true
    }

    fn refuse(self, why: &str) {
        refuse(vec![self], why);
    }
}

impl UniqueJobs {
    /// Tries requests of slow kinds, if it is time.
    async fn try_slow_kinds(&mut self) {
        self.slow_kinds.tidy(boot_time());
        for _ in 0..TRIES_MAX {
            let began = boot_time();
            let Some(mut trial) = self.slow_kinds.take(began) else { return };
            let Err((error, part)) = self.try_commit(std::mem::take(&mut trial.ops)).await else {
                self.slow_kinds.went_through(&trial);
                continue;
            };
            if !is_command_fault(&error) {
                return self.store_is_away(&error, part).await;
            }
            let now = boot_time();
            if matches!(error, StoreError::Slow(_)) {
                self.slow_kinds.pause(now.since(began), now);
            }
            match <[Request; 1]>::try_from(part) {
                Ok([alone]) => self.failed_alone(&error, alone),
                Err(several) => {
                    trial.ops = several;
                    self.slow_kinds.put_back(trial);
                }
            }
        }
    }

    /// Refuses requests that the store did not take, for no fault of theirs.
    async fn store_is_away(&mut self, error: &StoreError, requests: Vec<Request>) {
        log_trouble!(error, self.shared, error, "batch of unique jobs failed");
        self.report(SideBatch { replies: Vec::new(), freed: false, unconfirmed: true }).await;
        refuse(requests, &error.to_string());
    }

    /// Refuses a request that failed alone.
    fn failed_alone(&mut self, error: &StoreError, alone: Request) {
        if matches!(error, StoreError::Locked(_)) {
            tracing::debug!(%error, "a unique key is locked");
            return refuse(vec![alone], LOCKED);
        }
        tracing::error!(%error, "unique job could not be stored");
        if matches!(error, StoreError::Slow(_)) {
            self.slow_kinds.failed_alone(&alone, boot_time());
        }
        refuse(vec![alone], &error.to_string());
    }

    /// Applies requests: together, or in parts if one of them fails.
    async fn commit(&mut self, requests: Vec<Request>) {
        let (mut parts, mut slow, mut any_stored) = (vec![requests], 0, false);
        while let Some(part) = parts.pop() {
            let part = self.slow_kinds.divert(part, boot_time());
            if part.is_empty() {
                continue;
            }
            self.metrics.batch(part.len());
            let Err((error, mut part)) = self.try_commit(part).await else {
                any_stored = true;
                continue;
            };
            slow += usize::from(matches!(error, StoreError::Slow(_)));
            if !is_command_fault(&error) || (slow >= SLOW_MAX && !any_stored) {
                part.extend(parts.drain(..).flatten());
                self.store_is_away(&error, part).await;
            } else if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
            } else {
                part.into_iter().for_each(|alone| self.failed_alone(&error, alone));
            }
        }
    }

    /// Applies a part and answers it, or hands it back.
    async fn try_commit(&mut self, part: Vec<Request>) -> Result<(), (StoreError, Vec<Request>)> {
        let due = part.iter().filter_map(|(command, _)| due_of(command)).min();
        let (commands, callers): (Vec<Command>, Vec<ReplySender>) = part.into_iter().unzip();
        let Committed { replies, commands, freed, .. } = match self.writer.apply(commands).await {
            Ok(committed) => committed,
            Err(Failed { error, commands }) => {
                return Err((error, commands.into_iter().zip(callers).collect()));
            }
        };
        if let Some(due) = due {
            self.shared.next_due.add(due);
        }
        self.shared.trouble_log.went_well("batch of unique jobs failed");
        self.shared.commit_happened();
        self.report(SideBatch { replies: replies.clone(), freed, unconfirmed: false }).await;
        for ((reply, command), caller) in replies.into_iter().zip(commands).zip(callers) {
            // A caller that has gone needs no answer.
            drop(caller.send(Ok((reply, command))));
        }
        Ok(())
    }

    /// Lets the event loop learn what happened. A loop that has ended claims nothing more.
    async fn report(&self, batch: SideBatch) {
        if let Some(inputs) = self.inputs.upgrade() {
            drop(inputs.send(Input::SideBatch(batch)).await);
        }
    }
}

fn refuse(requests: Vec<Request>, why: &str) {
    for (_, caller) in requests {
        drop(caller.send(Err(Unavailable::new(why))));
    }
}

impl Engine {
    /// Stores unique jobs; tries for a moment to replace one that is locked.
    pub(super) async fn submit_unique(
        &self,
        mut command: Command,
    ) -> Result<(Reply, Command), Unavailable> {
        let end = Instant::now() + BUSY_MAX;
        loop {
            let (reply, answer) = oneshot::channel();
            let sent = self.inner.unique_jobs.send((command, reply)).await;
            sent.map_err(|_closed| Unavailable::stopping())?;
            let (reply, again) =
                answer.await.unwrap_or_else(|_closed| Err(Unavailable::stopping()))?;
            if !is_busy(&reply) || Instant::now() >= end {
                return Ok((reply, again));
            }
            command = again;
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }
}

const fn is_busy(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Enqueued(Err(EnqueueRefusal::Busy(_)))
            | Reply::EnqueuedAll(Err((_, EnqueueRefusal::Busy(_))))
            | Reply::EnqueuedOnce(Err(EnqueueOnceRefusal::Job(_, EnqueueRefusal::Busy(_))))
    )
}
