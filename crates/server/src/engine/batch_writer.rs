//! Applies batches to the store for one lane, and records what each one tells about the store.

use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_store::command::Claimant;
use outlast_store::reply::{Claimed, Resolved};
use outlast_store::{Applied, Batch, BatchId, Command, Reply, Store, StoreError};
use uuid::Uuid;

use crate::clock::{boot_time, precise};
use crate::engine::shared_state::SharedState;
use crate::engine::store_health::{Lane, Trouble};
use crate::metrics::Metrics;

/// What a writer needs besides its numbering.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) budgets: Budgets,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Numbers batches and applies them one after another.
#[derive(Debug)]
pub(crate) struct BatchWriter {
    storage: Storage,
    /// `None` if what becomes of its batches says nothing about the store: they may wait for
    /// locks of others, and come rarely.
    lane: Option<Lane>,
    server: Uuid,
    batches: u64,
    /// The latest batch, while its outcome is unknown.
    unresolved: Option<Unresolved>,
    /// Jobs that were claimed for plain clients which got no answer.
    orphans: Vec<Claimed>,
}

/// A batch whose outcome is unknown. It may still be under way in the store, and holds the lock that
/// the next batch needs.
#[derive(Debug)]
struct Unresolved {
    id: BatchId,
    /// Which of its commands are claims of plain clients. Nothing else finds these again: sessions
    /// learn what they hold when they attach.
    plain: Vec<usize>,
}

fn plain_claims(commands: &[Command]) -> Vec<usize> {
    let is_plain = |command: &Command| matches!(command, Command::Claim(claim) if matches!(claim.claimant, Claimant::Plain { .. }));
    commands.iter().enumerate().filter(|(_, it)| is_plain(it)).map(|(at, _)| at).collect()
}

/// Notes whether new jobs were stored, or met a lock that another session holds.
fn note_new_jobs(shared: &SharedState, commands: &[Command], result: &Result<Applied, StoreError>) {
    let were_stored = match result {
        Ok(_) => true,
        Err(StoreError::Locked(_)) => false,
        Err(_) => return,
    };
    if commands.iter().any(Command::stores_jobs) {
        shared.store_health.new_jobs_ended(were_stored, boot_time());
    }
}

impl BatchWriter {
    /// Returns a writer of batches that are numbered from 1 for `server`.
    pub(crate) const fn new(storage: Storage, lane: Lane, server: Uuid) -> Self {
        Self {
            storage,
            lane: Some(lane),
            server,
            batches: 0,
            unresolved: None,
            orphans: Vec::new(),
        }
    }

    /// Returns a writer of which the batches say nothing about the store's health.
    pub(crate) const fn beside(storage: Storage, server: Uuid) -> Self {
        Self { storage, lane: None, server, batches: 0, unresolved: None, orphans: Vec::new() }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.storage.store
    }

    /// Finds out what the latest batch did, if that is unknown.
    async fn resolve(&mut self) -> Result<(), StoreError> {
        let Some(Unresolved { id, plain }) = &self.unresolved else { return Ok(()) };
        let resolved = self.storage.store.resolve(*id).await;
        // It is about no command of the next batch.
        let undecided = |error| match error {
            StoreError::ReadOnly(_)
            | StoreError::Full(_)
            | StoreError::Replaced(_)
            | StoreError::Closed => error,
            _ => StoreError::Unavailable(format!("an earlier batch is undecided: {error}")),
        };
        if let Resolved::Applied(Applied { replies, workflows, .. }) =
            resolved.map_err(undecided)?
        {
            self.storage.shared.workflows.want(workflows);
            for (at, reply) in replies.into_iter().enumerate() {
                if let Reply::Claimed(Ok(claims)) = reply
                    && plain.contains(&at)
                {
                    self.orphans.extend(claims.jobs);
                }
            }
        }
        self.unresolved = None;
        Ok(())
    }

    /// Applies commands as one transaction.
    pub(crate) async fn apply(&mut self, commands: Vec<Command>) -> Result<Committed, Failed> {
        if let Some(lane) = self.lane {
            self.storage.shared.store_health.write_began(lane, boot_time());
        }
        let resolved = self.resolve().await;
        let Storage { store, budgets, shared, metrics } = &self.storage;
        self.batches += 1;
        let batch = Arc::new(Batch {
            id: BatchId { server: self.server, n: self.batches },
            jitter_seed: rand::random(),
            budgets: *budgets,
            commands,
        });
        let begun = precise();
        let result = match resolved {
            Ok(()) => store.apply(Arc::clone(&batch)).await,
            Err(error) => Err(error),
        };
        if let Ok(applied) = &result {
            metrics.committed(self.lane.unwrap_or(Lane::Work), precise().saturating_sub(begun));
            shared.set_store_time(applied.at);
        }
        // While the store takes no writes, it takes no renewals: silence proves nothing (I8).
        let ended = match &result {
            Err(error) if !is_command_fault(error) => Err(Trouble::of(error)),
            Ok(_) | Err(_) => Ok(()),
        };
        if let Some(lane) = self.lane {
            shared.write_ended(lane, ended);
            note_new_jobs(shared, &batch.commands, &result);
        }
        if let Err(StoreError::Replaced(why)) = &result {
            shared.vitals.store_was_replaced(why);
        }
        let id = batch.id;
        // The store keeps no clone, so nothing is copied.
        let commands = Arc::unwrap_or_clone(batch).commands;
        if matches!(result, Err(StoreError::Ambiguous(_))) {
            self.unresolved = Some(Unresolved { id, plain: plain_claims(&commands) });
        }
        match result {
            Ok(applied) => {
                let orphans = std::mem::take(&mut self.orphans);
                let Applied { replies, freed, workflows, .. } = applied;
                shared.workflows.want(workflows);
                Ok(Committed { replies, commands, freed, orphans })
            }
            Err(error) => Err(Failed { error, commands }),
        }
    }
}

/// A batch that the store applied.
#[derive(Debug)]
pub(crate) struct Committed {
    /// One reply for each command.
    pub(crate) replies: Vec<Reply>,
    pub(crate) commands: Vec<Command>,
    /// Whether attempts ended that limits counted.
    pub(crate) freed: bool,
    /// Jobs that an earlier batch claimed for clients which got no answer.
    pub(crate) orphans: Vec<Claimed>,
}

/// A batch that the store did not apply, handed back.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: StoreError,
    pub(crate) commands: Vec<Command>,
}

/// Returns whether an error is about one command of a batch, and not about the store.
pub(crate) const fn is_command_fault(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Rejected(_)
            | StoreError::Corrupt(_)
            | StoreError::Locked(_)
            | StoreError::Slow(_)
    )
}
