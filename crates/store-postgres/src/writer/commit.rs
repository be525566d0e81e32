//! The end of a batch: what is still to be written, its counts and events, and the commit.
//!
//! Each statement costs a message each way, an answer that wakes us, and work of PostgreSQL's that
//! has nothing to do with rows. Most enqueues do nothing but store claimable jobs. Such a batch is
//! one statement without `begin` and `commit`: it numbers the batch first, as every batch does, and
//! all else depends on that row. The first batch of a slot is opened by itself.
//!
//! That statement does not tell the time: its answer comes after the commit, and says what time it
//! was before. So at least once a second a batch is opened by itself and asks.

use outlast_store::{Applied, BatchId, StoreError};
use outlast_store_rules::apply::batch::Effects;
use outlast_store_rules::codec;
use outlast_store_rules::cursor::rare_of;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{self, int};
use crate::writer::limit::KEEP_HELD;
use crate::writer::prefetch::Take;
use crate::writer::tally::Ending;
use crate::writer::write_set::{as_whole_batch, only_store_claimable};
use crate::writer::{Miss, Tx};

/// What a batch did, and what is to be remembered of it once it has taken effect.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) applied: Applied,
    pub(super) effects: Effects,
}

impl Tx<'_> {
    /// `unconfirmed` keeps what the batch did while it is not known whether the commit took effect.
    pub(super) async fn commit(
        &mut self,
        id: BatchId,
        done: Done,
        unconfirmed: &mut Option<Done>,
    ) -> Result<Done, Miss> {
        let (takes, statements) = self.ending(id);
        *unconfirmed = Some(done);
        self.holds.set_uncertain(true);
        let ran = self.connection.run(&statements).await;
        self.holds.set_uncertain(matches!(ran, Err(Failure::Broken(_))));
        let missing = || StoreError::Corrupt("a batch without replies".into());
        let done = unconfirmed.take().ok_or_else(missing)?;
        match ran {
            Ok(rows) => {
                // It is committed, whatever is made of what the opening told.
                self.holds.sweeps.confirm();
                for (at, (take, rows)) in takes.into_iter().zip(rows).enumerate() {
                    drop(self.take_in(take, at, &rows));
                }
                self.cache.attempt_cache.keep(std::mem::take(&mut self.seen.fresh));
                Ok(done)
            }
            Err(Failure::Broken(words)) => Err(Miss::Unconfirmed(Box::new(done), words)),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Takes all that is still to be sent, up to the commit, with what answers are for.
    fn ending(&mut self, id: BatchId) -> (Vec<Take>, Vec<Statement>) {
        let events = &self.batch.outbox.events;
        let ending = Ending {
            id,
            at: self.batch.context.now,
            slot: self.slot,
            changes: self.batch.outbox.tally.take(),
            ready: self.batch.outbox.tally.take_ready(),
            events: (!events.is_empty()).then(|| row::text(&codec::events_text(events))),
            rare: rare_of(events),
        };
        self.cache.slots.counts(ending.changes.len() + ending.ready.len());
        let mut writes = self.write_set.take();
        writes.extend(self.gate_changes(id.server));
        writes.extend(self.item_ends());
        if self.is_unopened(id)
            && only_store_claimable(&writes)
            && let Some(known) = self.bounds.known.as_ref()
            && let Some(values) = ending.of_claimable(known.number)
            && let Some(write) = writes.pop()
        {
            return (Vec::new(), vec![as_whole_batch(write, values)]);
        }
        let opening = std::mem::take(&mut self.opening.statements);
        let (takes, mut statements): (Vec<Take>, Vec<Statement>) = opening.into_iter().unzip();
        statements.append(&mut writes);
        statements.extend(ending.into_statement());
        statements.push(Statement::plain("commit"));
        (takes, statements)
    }

    /// Returns the statement that writes by how much the batch changes what gates count.
    pub(super) fn gate_changes(&mut self, server: Uuid) -> Option<Statement> {
        let changes = self.batch.outbox.gates.take();
        if changes.is_empty() {
            return None;
        }
        let (gates, by): (Vec<i64>, Vec<i64>) =
            changes.into_iter().map(|(gate, by)| (gate.0, by)).unzip();
        Some(Statement::new(KEEP_HELD, values![server, gates, by]))
    }

    /// Whether nothing was sent yet, and the opening does no more than to number the batch.
    fn is_unopened(&self, id: BatchId) -> bool {
        let opening = self.opening.statements.iter().map(|(take, _)| take);
        let begins_slot = self.slot == int(id.n);
        !self.locks.come_first && !begins_slot && opening.eq([&Take::Nothing, &Take::Time])
    }
}
