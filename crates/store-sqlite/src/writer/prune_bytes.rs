//! How much one prune frees: all other batches wait for it, and freeing a page takes time however
//! few rows it is of. What is long goes by slices.

use std::collections::BTreeMap;

use outlast_core::limits::PRUNE_BYTES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;

use crate::row::{failed, int};
use crate::writer::Tx;

/// How long a job's texts and its output are. The length of a text is known without reading it.
const JOB_BYTES: &str = "
    select octet_length(j.args) + octet_length(j.meta) + octet_length(j.extra)
        + coalesce((select octet_length(result) from finished where seq = j.seq), 0)
        + coalesce((select octet_length(bytes) from checkpoint where seq = j.seq), 0)
        + coalesce((select sum(octet_length(error)) from attempt_row where seq = j.seq), 0),
        coalesce((select sum(bytes) from log_size where seq = j.seq), 0)
    from job_row j where j.seq = ?";

/// What one prune may still free.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    /// Whether something is left for the next prune because there was no room for it.
    pub(super) is_short: bool,
}

impl Room {
    pub(super) const fn new() -> Self {
        Self { left: PRUNE_BYTES_MAX, is_short: false }
    }

    /// Takes room for something, which there is for the first one, however long it is.
    const fn takes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || self.left == PRUNE_BYTES_MAX;
        if fits {
            self.left = self.left.saturating_sub(if bytes > 0 { bytes } else { 1 });
        } else {
            self.is_short = true;
        }
        fits
    }
}

impl Tx<'_> {
    /// Makes room for the deletion of a job: returns whether all of it may go now. Of one with more
    /// output than there is room for, some goes.
    pub(super) fn may_delete(&self, seq: i64, room: &mut Room) -> Result<bool, StoreError> {
        let mut select = self.db.prepare_cached(JOB_BYTES).map_err(failed)?;
        let (texts, output): (usize, usize) =
            select.query_row([seq], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
        if output > room.left {
            self.shorten_output(seq, room)?;
            room.is_short = true;
            return Ok(false);
        }
        Ok(room.takes(texts.saturating_add(output)))
    }

    /// Deletes the first pieces of a job's output, as many as there is room for.
    fn shorten_output(&self, seq: i64, room: &mut Room) -> Result<(), StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select id, epoch, octet_length(bytes) from log where seq = ? order by id",
            )
            .map_err(failed)?;
        let mut rows = select.query([seq]).map_err(failed)?;
        let mut freed: BTreeMap<i64, usize> = BTreeMap::new();
        let mut last = None;
        while let Some(row) = rows.next().map_err(failed)? {
            let bytes: usize = row.get(2).map_err(failed)?;
            if !room.takes(bytes) {
                break;
            }
            last = Some(row.get::<_, i64>(0).map_err(failed)?);
            *freed.entry(row.get(1).map_err(failed)?).or_default() += bytes;
        }
        drop(rows);
        self.execute("delete from log where seq = ?1 and id <= ?2", (seq, last))?;
        for (epoch, bytes) in freed {
            self.execute(
                "update log_size set bytes = max(0, bytes - ?3) where seq = ?1 and epoch = ?2",
                (seq, epoch, int(u64::try_from(bytes).unwrap_or(u64::MAX))),
            )?;
        }
        if !room.is_short {
            // Whatever was counted: nothing is left.
            self.execute("delete from log_size where seq = ?", [seq])?;
        }
        Ok(())
    }

    /// Deletes the batches of events with which a lane begins, `limit` at most, that are older than a
    /// day and that there is room for; returns how many.
    pub(super) fn prune_lane(
        &self,
        lane: i64,
        limit: i64,
        day: Timestamp,
        room: &mut Room,
    ) -> Result<usize, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select n, octet_length(body) from event_batch
                 where lane = ?1 and at < ?3 order by n limit ?2",
            )
            .map_err(failed)?;
        let mut rows = select.query((lane, limit, day.0)).map_err(failed)?;
        let mut last = None;
        while let Some(row) = rows.next().map_err(failed)? {
            if !room.takes(row.get(1).map_err(failed)?) {
                break;
            }
            last = Some(row.get::<_, i64>(0).map_err(failed)?);
        }
        drop(rows);
        self.execute(
            "delete from event_batch where lane = ?1 and n <= ?2 and at < ?3",
            (lane, last, day.0),
        )
    }
}
