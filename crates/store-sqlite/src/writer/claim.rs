//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.

use std::collections::HashSet;
use std::num::NonZeroU32;

use outlast_core::budget::Spent;
use outlast_core::id::Epoch;
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId};
use outlast_store::reply::{ClaimRefusal, Claimed, Claims};
use outlast_store_rules::apply::claim::lane::Lane;
use outlast_store_rules::apply::claim::{ActiveRow, Candidate, may_claim, plain_may_claim, take};
use rusqlite::{OptionalExtension as _, Row};

use crate::row::{self, failed, int};
use crate::writer::Tx;

/// How many jobs that have expired a batch knows. The sweep ends them in the same order, before
/// there are more of them, unless so many expire at once.
const EXPIRED_MAX: i64 = 50_000;

/// The first jobs of a lane. The index must be named: its order and that of the table are the same
/// within a lane, and the planner would rather read all jobs of the class and drop the others.
pub(super) const HEADS_OF_LANE: &str =
    "select rank, seq, epoch, life, failures, losses, interruptions, since
     from ready indexed by ready_lane where class = ?1 and lane = ?2 and lane <> 0
     order by class, lane, rank, seq limit ?3";

/// What became of a claimable job.
#[derive(Debug)]
pub(super) enum TakeOutcome {
    /// The claim has it.
    Job(Claimed),
    /// The claim leaves it to others.
    Avoided,
    /// It has expired, or is not what it looked like.
    Nothing,
}

/// A row of `ready`.
#[derive(Debug)]
pub(super) struct HeadRow {
    pub(super) class: ClassId,
    pub(super) rank: i64,
    pub(super) seq: i64,
    epoch: Epoch,
    life: NonZeroU32,
    spent: Spent,
    since: Timestamp,
}

impl HeadRow {
    pub(super) fn of(class: ClassId, row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            class,
            rank: row.get(0)?,
            seq: row.get(1)?,
            epoch: row::epoch(row, 2)?,
            life: row::life(row, 3)?,
            spent: row::spent(row, 4)?,
            since: Timestamp(row.get(7)?),
        })
    }
}

impl Tx<'_> {
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
    ) -> Result<Result<Claims, ClaimRefusal>, StoreError> {
        if let Err(refusal) = self.may_claim(claim)? {
            return Ok(Err(refusal));
        }
        let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
        let mut claims = Claims::default();
        self.claimed_bytes = 0;
        match &claim.from {
            ClaimFrom::Classes(classes) => {
                self.claim_from(classes, claim, max, &mut claims)?;
            }
            ClaimFrom::Queues { queues, tenant } => {
                for queue in queues {
                    if !self.cache.limits.takes_unlabelled(queue) {
                        continue;
                    }
                    let classes = self.cache.classes.plain_of(queue, tenant.as_deref());
                    self.claim_from(&classes, claim, max, &mut claims)?;
                    if self.has_enough(&claims, max) {
                        break;
                    }
                }
            }
        }
        if claims.jobs.len() < max && self.has_enough(&claims, max) {
            claims = Claims::cut(claims.jobs);
        }
        Ok(Ok(claims))
    }

    /// Whether a claim has as many jobs as it wants, or as long ones as it may take.
    pub(super) fn has_enough(&self, claims: &Claims, max: usize) -> bool {
        claims.jobs.len() >= max || self.claimed_bytes >= CLAIM_BYTES_MAX
    }

    fn may_claim(&self, claim: &Claim) -> Result<Result<(), ClaimRefusal>, StoreError> {
        Ok(match &claim.claimant {
            Claimant::Native { worker, session } => {
                may_claim(self.known_worker(*worker)?.as_ref(), *session)
                    .and_then(|()| self.cache.limits.may_claim(claim))
            }
            Claimant::Plain { worker: Some(name), .. } => {
                plain_may_claim(self.plain_standing(name)?)
            }
            Claimant::Plain { worker: None, .. } => Ok(()),
        })
    }

    fn claim_from(
        &mut self,
        classes: &[ClassId],
        claim: &Claim,
        max: usize,
        claims: &mut Claims,
    ) -> Result<(), StoreError> {
        if self.are_limited(classes) {
            self.claim_by_limits(classes, claim, max, claims)?;
            if self.has_enough(claims, max) {
                *claims = Claims::all(std::mem::take(&mut claims.jobs));
            }
            return Ok(());
        }
        let mut avoided = Vec::new();
        let mut after: Option<(i64, i64)> = None;
        while !self.has_enough(claims, max) {
            let wanted = max - claims.jobs.len();
            let candidates = self.candidates(classes, wanted, after)?;
            let Some(last) = candidates.last() else {
                avoided.into_iter().for_each(|class| claims.pass_over(class));
                return Ok(());
            };
            after = Some((last.rank, last.seq));
            for head in candidates {
                match self.take(&head, claim, None)? {
                    TakeOutcome::Job(job) => claims.jobs.push(job),
                    TakeOutcome::Avoided => avoided.push(head.class),
                    TakeOutcome::Nothing => {}
                }
                if self.has_enough(claims, max) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the first `wanted` claimable jobs of the classes together, after a place.
    fn candidates(
        &self,
        classes: &[ClassId],
        wanted: usize,
        after: Option<(i64, i64)>,
    ) -> Result<Vec<HeadRow>, StoreError> {
        let mut found = Vec::with_capacity(wanted);
        let (rank, seq) = after.unwrap_or((i64::MIN, i64::MIN));
        let limit = self.with_expired(wanted)?;
        for class in classes {
            let Some(key) = self.cache.classes.known(*class) else { continue };
            if self.cache.classes.is_paused(&key.queue) {
                continue;
            }
            let mut select = self
                .db
                .prepare_cached(
                    "select rank, seq, epoch, life, failures, losses, interruptions, since
                     from ready where class = ?1 and (rank, seq) > (?2, ?3)
                     order by rank, seq limit ?4",
                )
                .map_err(failed)?;
            let rows = select
                .query_map((class.0, rank, seq, limit), |row| HeadRow::of(*class, row))
                .map_err(failed)?;
            found.extend(self.unexpired(rows, |head| head.seq, wanted)?);
        }
        if classes.len() > 1 {
            found.sort_by_key(|candidate| (candidate.rank, candidate.seq));
            found.truncate(wanted);
        }
        Ok(found)
    }

    /// Returns the first claimable jobs of a lane, or of all of a class.
    pub(super) fn head_rows(
        &self,
        class: ClassId,
        lane: Option<i64>,
        wanted: usize,
    ) -> Result<Vec<HeadRow>, StoreError> {
        let limit = self.with_expired(wanted)?;
        let Some(lane) = lane else { return self.candidates(&[class], wanted, None) };
        let mut select = self.db.prepare_cached(HEADS_OF_LANE).map_err(failed)?;
        let rows = select
            .query_map((class.0, lane, limit), |row| HeadRow::of(class, row))
            .map_err(failed)?;
        self.unexpired(rows, |head| head.seq, wanted)
    }

    /// Returns the first `wanted` rows of jobs that have not expired. Those that have are passed over,
    /// and left to the sweep.
    pub(super) fn unexpired<T>(
        &self,
        rows: impl Iterator<Item = rusqlite::Result<T>>,
        seq: impl Fn(&T) -> i64,
        wanted: usize,
    ) -> Result<Vec<T>, StoreError> {
        let expired = self.expired_jobs()?;
        let is_wanted = |row: &rusqlite::Result<T>| match row {
            Ok(row) => !expired.contains(&seq(row)),
            Err(_) => true,
        };
        rows.filter(is_wanted).take(wanted).collect::<Result<_, _>>().map_err(failed)
    }

    /// Returns how many rows must be read for so many of jobs that have not expired. They are read one
    /// by one, so the rest costs nothing.
    pub(super) fn with_expired(&self, wanted: usize) -> Result<i64, StoreError> {
        let most = wanted.saturating_add(self.expired_jobs()?.len());
        Ok(i64::try_from(most).unwrap_or(i64::MAX))
    }

    /// Returns the jobs that have expired, and that the sweep has not ended yet. A claimable job does
    /// not say so itself.
    fn expired_jobs(&self) -> Result<&HashSet<i64>, StoreError> {
        if let Some(expired) = self.expired.get() {
            return Ok(expired);
        }
        let mut select = self
            .db
            .prepare_cached("select seq from expiry where at <= ?1 order by at, seq limit ?2")
            .map_err(failed)?;
        let rows = select
            .query_map((self.batch.context.now.0, EXPIRED_MAX), |row| row.get(0))
            .map_err(failed)?;
        let expired = rows.collect::<Result<_, _>>().map_err(failed)?;
        Ok(self.expired.get_or_init(|| expired))
    }

    /// Takes one job, unless it has expired or the claim avoids it. One that has other keys than its
    /// lane is left, too: it only looks as if it were of the lane, and passes other gates.
    pub(super) fn take(
        &mut self,
        head: &HeadRow,
        claim: &Claim,
        lane: Option<&Lane>,
    ) -> Result<TakeOutcome, StoreError> {
        let stored = self.stored_by_seq(head.seq)?;
        if let Some(lane) = lane.filter(|it| it.number.is_some() && stored.keys != *it.keys) {
            self.cache.lane_cache.forget(lane);
            return Ok(TakeOutcome::Nothing);
        }
        let candidate = Candidate {
            seq: head.seq,
            class: head.class,
            rank: head.rank,
            since: head.since,
            epoch: head.epoch,
            life: head.life,
            spent: head.spent,
            isolated: self.cache.classes.key(head.class)?.isolated,
            stored,
            checkpoint: self.checkpoint(head.seq, head.epoch)?,
            gates: lane.map(Lane::gate_ids).unwrap_or_default(),
        };
        let bench = self.batch.context;
        let taken = match take(candidate, claim, &bench, &mut self.batch.outbox) {
            Ok(taken) => taken,
            Err(left) if claim.avoids(left.stored.id) => return Ok(TakeOutcome::Avoided),
            Err(_expired) => return Ok(TakeOutcome::Nothing),
        };
        let gone = self.execute(
            "delete from ready where class = ? and rank = ? and seq = ? and epoch = ?",
            (head.class.0, head.rank, head.seq, int(head.epoch.0)),
        )?;
        if gone != 1 {
            let id = taken.claimed.job.id;
            return Err(StoreError::Corrupt(format!("job {id} left while claimed")));
        }
        self.insert_active(&taken.active)?;
        self.claimed_bytes += taken.claimed.bytes();
        Ok(TakeOutcome::Job(taken.claimed))
    }

    pub(super) fn insert_active(&self, row: &ActiveRow) -> Result<(), StoreError> {
        self.execute(
            "insert into active (seq, epoch, life, failures, losses, interruptions, isolated,
                                 worker, plain, claimed, started, visible_until, visibility_ms,
                                 deadline, gates, cancelled)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                row.seq,
                int(row.counters.epoch.0),
                row.counters.life.get(),
                row.counters.spent.failures,
                row.counters.spent.losses,
                row.counters.spent.interruptions,
                row.isolated,
                row.worker.map(|worker| *worker.0.as_bytes()),
                row.plain.as_deref(),
                row.claimed.0,
                row.started.map(|at| at.0),
                row.visible_until.map(|at| at.0),
                row::span(row.visibility),
                row.deadline.map(|at| at.0),
                row::gates_text(&row.gates),
            ),
        )?;
        Ok(())
    }

    /// Returns what an earlier attempt left; a job that was never claimed has nothing.
    fn checkpoint(&self, seq: i64, epoch: Epoch) -> Result<Option<Vec<u8>>, StoreError> {
        if epoch == Epoch::ZERO {
            return Ok(None);
        }
        self.statements.run("select bytes from checkpoint where seq = ?", |select| {
            select.query_row([seq], |row| row.get(0)).optional().map_err(failed)
        })
    }
}
