//! Writing what a move of a job decided.
//!
//! The row is first removed where it was read, by a statement that names its epoch and must hit
//! exactly one row: that is the compare-and-set. Then the job is put where it now belongs.

use outlast_store::StoreError;
use outlast_store_rules::apply::step::{
    CheckpointChange, EndedAttempt, FinishedRow, Put, ReadyRow, Removal, Step, WaitingRow,
};

use crate::row::{self, failed, int};
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn write(&self, rows: &Step<'_>) -> Result<(), StoreError> {
        if self.remove(rows.seq, &rows.removal)? != 1 {
            let seq = rows.seq;
            return Err(StoreError::Corrupt(format!(
                "job row {seq} moved while the writer held it"
            )));
        }
        match &rows.put {
            Put::Ready(row) => self.insert_ready(rows.seq, row)?,
            Put::Waiting(row) => self.insert_waiting(rows.seq, row)?,
            Put::Finished(row) => self.insert_finished(rows.seq, row)?,
            Put::Active(row) => self.insert_active(row)?,
            Put::Nowhere => {}
        }
        if let Some(attempt) = &rows.attempt {
            self.insert_attempt(rows.seq, attempt)?;
        }
        if let Some(reason) = rows.dead_letter {
            self.execute(
                "insert or replace into dead_letter_row (seq, reason, at, unhandled)
                 values (?, ?, ?, 1)",
                (rows.seq, reason.as_str(), self.batch.context.now.0),
            )?;
        }
        match rows.checkpoint {
            CheckpointChange::Keep => {}
            CheckpointChange::Replace(bytes) => self.put_checkpoint(rows.seq, bytes)?,
            CheckpointChange::Delete => {
                self.execute("delete from checkpoint where seq = ?", [rows.seq])?;
            }
        }
        if let Some(at) = rows.expiry {
            self.execute("insert or ignore into expiry (at, seq) values (?, ?)", (at.0, rows.seq))?;
        }
        Ok(())
    }

    fn remove(&self, seq: i64, removal: &Removal<'_>) -> Result<usize, StoreError> {
        match removal {
            Removal::Ready { class, rank, epoch } => self.execute(
                "delete from ready where class = ? and rank = ? and seq = ? and epoch = ?",
                (class.0, rank, seq, int(epoch.0)),
            ),
            Removal::Waiting { epoch, state } => self.execute(
                "delete from waiting where seq = ? and epoch = ? and state = ?",
                (seq, int(epoch.0), state.as_str()),
            ),
            Removal::KeepActive { epoch, started, cancelled, pack_digest, .. } => self.execute(
                "update active set started = ?, cancelled = ?, pack_digest = ?
                 where seq = ? and epoch = ?",
                (started.map(|at| at.0), cancelled, pack_digest, seq, int(epoch.0)),
            ),
            Removal::Active { epoch, .. } => {
                self.execute("delete from active where seq = ? and epoch = ?", (seq, int(epoch.0)))
            }
            Removal::Finished { epoch, state, .. } => {
                self.execute("delete from dead_letter_row where seq = ?", [seq])?;
                self.execute(
                    "delete from finished where seq = ? and epoch = ? and state = ?",
                    (seq, int(epoch.0), state.as_str()),
                )
            }
        }
    }

    pub(super) fn insert_ready(&self, seq: i64, row: &ReadyRow) -> Result<(), StoreError> {
        let counters = &row.counters;
        self.execute(
            "insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions,
                                since, strand_ms, lane)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.class.0,
                row.rank,
                seq,
                int(counters.epoch.0),
                counters.life.get(),
                counters.spent.failures,
                counters.spent.losses,
                counters.spent.interruptions,
                row.since.0,
                row::strand_ms(row.scheduled_timeout),
                row.lane,
            ),
        )?;
        Ok(())
    }

    pub(super) fn insert_waiting(&self, seq: i64, row: &WaitingRow) -> Result<(), StoreError> {
        let counters = &row.counters;
        self.execute(
            "insert into waiting (seq, state, due, epoch, life, failures, losses, interruptions,
                                  isolated, since)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                seq,
                row.state.as_str(),
                row.due.map(|at| at.0),
                int(counters.epoch.0),
                counters.life.get(),
                counters.spent.failures,
                counters.spent.losses,
                counters.spent.interruptions,
                row.isolated,
                row.since.0,
            ),
        )?;
        Ok(())
    }

    fn insert_finished(&self, seq: i64, row: &FinishedRow<'_>) -> Result<(), StoreError> {
        let counters = &row.counters;
        self.execute(
            "insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, result, error, ended_by)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                seq,
                row.state.as_str(),
                row.at.0,
                int(counters.epoch.0),
                counters.life.get(),
                counters.spent.failures,
                counters.spent.losses,
                counters.spent.interruptions,
                row.isolated,
                row.attempt,
                row.shown,
                row.result,
                row.error,
                row.ended_by,
            ],
        )?;
        Ok(())
    }

    fn insert_attempt(&self, seq: i64, row: &EndedAttempt<'_>) -> Result<(), StoreError> {
        self.execute(
            "insert into attempt_row (seq, epoch, life, number, worker, plain, claimed, started,
                                      finished, outcome, next_state, error, exit_code, by, evidence,
                                      evidence_code, pack_digest, peak_memory, cpu_ms, charge)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rusqlite::params![
                seq,
                int(row.epoch.0),
                row.life.get(),
                row.number,
                row.worker.map(|worker| *worker.0.as_bytes()),
                row.plain,
                row.claimed.0,
                row.started.map(|at| at.0),
                row.finished.0,
                row.outcome.as_str(),
                row.next_state.as_str(),
                row.error,
                row.exit_code,
                row.by,
                row.evidence.text,
                row.evidence.word(),
                row.pack_digest,
                row.usage.peak_memory.map(int),
                row.usage.cpu.map(|time| int(time.0)),
                row.charge.bits(),
            ],
        )?;
        Ok(())
    }

    pub(super) fn put_checkpoint(&self, seq: i64, bytes: &[u8]) -> Result<(), StoreError> {
        self.execute("insert or replace into checkpoint (seq, bytes) values (?, ?)", (seq, bytes))?;
        Ok(())
    }

    /// Runs a statement; returns how many rows it changed.
    pub(crate) fn execute(
        &self,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> Result<usize, StoreError> {
        self.statements.run(sql, |statement| statement.execute(params).map_err(failed))
    }
}
