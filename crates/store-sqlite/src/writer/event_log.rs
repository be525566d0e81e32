//! Where the next batch of events goes: the writer thread is the only one that logs, so it need
//! not ask the database.

use outlast_store::{BatchId, StoreError};
use outlast_store_rules::codec;
use outlast_store_rules::cursor::rare_of;
use rusqlite::Connection;

use crate::row::failed;
use crate::writer::Tx;

/// The place of the next batch in the event log.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    /// Lane and number, once read.
    next: Option<(i64, i64)>,
}

impl EventLog {
    /// Reads the place again before it is used next.
    pub(crate) fn forget(&mut self) {
        self.next = None;
    }

    fn next(&self, db: &Connection) -> Result<(i64, i64), StoreError> {
        if let Some(next) = self.next {
            return Ok(next);
        }
        let mut select = db
            .prepare_cached(
                "select l.latest,
                     coalesce((select b.n + 1 from event_batch b where b.lane = l.latest
                               order by b.lane desc, b.n desc limit 1), 0)
                 from event_lane l",
            )
            .map_err(failed)?;
        let mut rows = select.query([]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else {
            return Err(StoreError::Corrupt("the event log has no lane".into()));
        };
        Ok((row.get(0).map_err(failed)?, row.get(1).map_err(failed)?))
    }
}

impl Tx<'_> {
    /// Logs what happened in the batch.
    pub(super) fn log_events(&mut self, id: BatchId) -> Result<(), StoreError> {
        let (lane, n) = self.cache.log.next(self.db)?;
        let body = codec::events_text(&self.batch.outbox.events);
        let rare = rare_of(&self.batch.outbox.events);
        let server = id.server.as_bytes().as_slice();
        let mut insert = self
            .db
            .prepare_cached(
                "insert into event_batch (lane, n, server, at, body, rare)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )
            .map_err(failed)?;
        let now = self.batch.context.now.0;
        insert.execute((lane, n, server, now, body, rare)).map_err(failed)?;
        self.cache.log.next = Some((lane, n + 1));
        Ok(())
    }

    /// Leaves the lane if all of its batches are deleted: the next one would have a number that a
    /// reader has seen.
    pub(super) fn leave_empty_lane(&mut self) -> Result<(), StoreError> {
        self.cache.log.forget();
        self.execute(
            "update event_lane set latest = latest + 1
             where not exists (select 1 from event_batch b where b.lane = latest)",
            (),
        )?;
        Ok(())
    }
}

/// Begins a new lane of the event log. A reader at the end of the lane before continues with this
/// one.
pub(crate) fn begin_lane(db: &Connection) -> Result<(), rusqlite::Error> {
    let begun = db.execute(
        "insert into event_lane (id, latest) values (1, 1)
         on conflict (id) do update set latest = latest + 1",
        [],
    );
    begun.map(|_| ())
}
