//! Slots: runs of a server's batches, each with rows of its own.
//!
//! Every batch changes the row of its server, and the counts of the classes that it touches. While
//! some transaction holds an old snapshot, PostgreSQL cannot remove any version of such a row, and a
//! look by its key passes all of them: each batch would cost more than the one before. So these rows
//! have a slot in their key, and a server begins a new slot every [`BATCHES_MAX`] batches. A look
//! passes the versions of one slot at most. The batch that begins a slot adds what the slot before
//! it counted to the rows of `tally`, and deletes the rows of that slot.

use std::collections::HashMap;

use outlast_store::error::SlowStatement;
use outlast_store::{BatchId, StoreError};
use uuid::Uuid;

use crate::connection::{Connection, Statement, values};
use crate::row::int;
use crate::writer::SHORT_LIMIT;

/// How many batches a slot has at most: this many versions of its rows fill a few pages.
const BATCHES_MAX: u32 = 256;
/// How many counts of classes a slot changes at most, so that its end takes little time.
const COUNTED_MAX: usize = 2048;

/// The slots that servers are in, as far as this writer began them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    of_server: HashMap<Uuid, Slot>,
    /// How many counts the batch under way changes.
    counting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The number of its first batch.
    id: i64,
    batches: u32,
    /// How many counts of classes its batches changed.
    counted: usize,
}

impl Slots {
    /// Returns the slot of a batch, which begins the slot if it has the same number.
    pub(super) fn of(&self, batch: BatchId) -> i64 {
        let has_room = |slot: &&Slot| slot.batches < BATCHES_MAX && slot.counted < COUNTED_MAX;
        self.of_server
            .get(&batch.server)
            .filter(has_room)
            .map_or_else(|| int(batch.n), |slot| slot.id)
    }

    /// Notes how many counts the batch under way changes.
    pub(super) fn counts(&mut self, changed: usize) {
        self.counting = changed;
    }

    /// Notes that a batch has taken effect.
    pub(super) fn applied(&mut self, batch: BatchId) {
        let id = self.of(batch);
        let new = Slot { id, batches: 0, counted: 0 };
        let slot = self.of_server.entry(batch.server).or_insert(new);
        if slot.id != id {
            *slot = new;
        }
        slot.batches += 1;
        slot.counted += self.counting;
    }

    /// Begins a new slot with the next batch of a server: the one that it is in was ended by
    /// another server, or by another writer.
    pub(super) fn forget(&mut self, server: Uuid) {
        self.of_server.remove(&server);
    }
}

/// Makes sure that the server has its row, so that a look for a batch waits for it, and a lane of
/// the event log.
pub(super) async fn mark(connection: &mut Connection, id: BatchId) -> Result<(), StoreError> {
    let marking = [Statement::new("select outlast.take_lane($1)", values![id.server])];
    let marked = tokio::time::timeout(SHORT_LIMIT, connection.run(&marking)).await;
    let marked = marked.map_err(|_elapsed| StoreError::Unavailable("no answer in time".into()))?;
    match marked.map_err(StoreError::from) {
        Ok(_) => Ok(()),
        // It is about no command of the batch.
        Err(StoreError::Locked(words) | StoreError::Slow(SlowStatement { words, .. })) => {
            Err(StoreError::Unavailable(words))
        }
        Err(error) => Err(error),
    }
}
