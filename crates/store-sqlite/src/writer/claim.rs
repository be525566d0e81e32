//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.

use std::sync::Arc;

use outlast_core::budget::Spent;
use outlast_core::id::{Epoch, WorkerId};
use outlast_core::job::{Event as JobEvent, EventKind, Hold, Holder, Job, State};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, EndDetail};
use outlast_store::record::StoredJob;
use outlast_store::reply::{ClaimRefusal, Claimed};
use outlast_store::settle::{Facts, events_of};
use outlast_store::tally::Before;
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed, int};
use crate::writer::Writing;
use crate::writer::live::rank;

/// A row of `ready`.
#[derive(Debug)]
struct Candidate {
    class: ClassId,
    rank: i64,
    seq: i64,
    epoch: Epoch,
    life: std::num::NonZeroU32,
    spent: Spent,
}

impl Writing<'_> {
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
    ) -> Result<Result<Vec<Claimed>, ClaimRefusal>, StoreError> {
        if let Some(refusal) = self.claim_refusal(&claim.claimant)? {
            return Ok(refusal.map_or_else(Err, |()| Ok(Vec::new())));
        }
        let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
        let mut claimed = Vec::new();
        match &claim.from {
            ClaimFrom::Classes(classes) => {
                self.claim_from(classes, claim, max, &mut claimed)?;
            }
            ClaimFrom::Queues { queues, tenant } => {
                for queue in queues {
                    let classes = self.classes.plain_of(queue, tenant.as_deref());
                    self.claim_from(&classes, claim, max, &mut claimed)?;
                    if claimed.len() >= max {
                        break;
                    }
                }
            }
        }
        Ok(Ok(claimed))
    }

    /// Returns `None` when the claimant may claim, `Some(Ok)` when it gets nothing, and
    /// `Some(Err)` when it is refused.
    fn claim_refusal(
        &self,
        claimant: &Claimant,
    ) -> Result<Option<Result<(), ClaimRefusal>>, StoreError> {
        match claimant {
            Claimant::Native { worker, session } => {
                let Some(found) = self.worker_standing(*worker)? else {
                    return Ok(Some(Err(ClaimRefusal::UnknownWorker)));
                };
                if found.session != *session {
                    let current = found.session;
                    return Ok(Some(Err(ClaimRefusal::StaleSession { current })));
                }
                let active = found.standing.is_active();
                Ok((!active).then_some(Err(ClaimRefusal::NotActive(found.standing))))
            }
            Claimant::Plain { worker: Some(name), .. } => {
                let standing = self.plain_standing(name)?;
                Ok(standing.is_some_and(|standing| !standing.is_active()).then_some(Ok(())))
            }
            Claimant::Plain { worker: None, .. } => Ok(None),
        }
    }

    fn claim_from(
        &mut self,
        classes: &[ClassId],
        claim: &Claim,
        max: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        let mut after: Option<(i64, i64)> = None;
        while claimed.len() < max {
            let wanted = max - claimed.len();
            let candidates = self.candidates(classes, wanted, after)?;
            let Some(last) = candidates.last() else { return Ok(()) };
            // Jobs that have expired are passed over and left to the sweep.
            after = Some((last.rank, last.seq));
            for candidate in candidates {
                if let Some(job) = self.take(&candidate, &claim.claimant)? {
                    claimed.push(job);
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
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut found = Vec::with_capacity(wanted);
        let (rank, seq) = after.unwrap_or((i64::MIN, i64::MIN));
        let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
        for class in classes {
            let Some(key) = self.classes.known(*class) else { continue };
            if self.classes.is_paused(&key.queue) {
                continue;
            }
            let mut select = self
                .db
                .prepare_cached(
                    "select rank, seq, epoch, life, failures, losses, interruptions
                     from ready where class = ?1 and (rank, seq) > (?2, ?3)
                     order by rank, seq limit ?4",
                )
                .map_err(failed)?;
            let rows = select
                .query_map((class.0, rank, seq, limit), |row| {
                    Ok(Candidate {
                        class: *class,
                        rank: row.get(0)?,
                        seq: row.get(1)?,
                        epoch: row::epoch(row, 2)?,
                        life: row::life(row, 3)?,
                        spent: row::spent(row, 4)?,
                    })
                })
                .map_err(failed)?;
            for row in rows {
                found.push(row.map_err(failed)?);
            }
        }
        if classes.len() > 1 {
            found.sort_by_key(|candidate| (candidate.rank, candidate.seq));
            found.truncate(wanted);
        }
        Ok(found)
    }

    /// Takes one job, or returns `None` when it has expired.
    fn take(
        &mut self,
        candidate: &Candidate,
        claimant: &Claimant,
    ) -> Result<Option<Claimed>, StoreError> {
        let stored = self.stored_by_seq(candidate.seq)?;
        let isolated = self.classes.key(candidate.class)?.isolated;
        let job = Job {
            state: State::Available,
            epoch: candidate.epoch,
            life: candidate.life,
            spent: candidate.spent,
            isolated,
            holder: None,
            rules: stored.rules.clone(),
        };
        let (worker, starts) = match claimant {
            Claimant::Native { worker, .. } => (Some(*worker), false),
            Claimant::Plain { .. } => (None, true),
        };
        let event = JobEvent::Claim { worker, starts };
        let Ok(transition) = self.bench().decide(&job, event, 0) else { return Ok(None) };
        let gone = self.execute(
            "delete from ready where class = ? and rank = ? and seq = ? and epoch = ?",
            (candidate.class.0, candidate.rank, candidate.seq, int(candidate.epoch.0)),
        )?;
        if gone != 1 {
            return Err(StoreError::Corrupt(format!("job {} left while claimed", stored.id)));
        }
        debug_assert!(candidate.rank >= rank(stored.priority, outlast_core::job::Turn::Front));
        let before = Before {
            class: candidate.class,
            state: State::Available,
            started: false,
            letter: None,
        };
        self.tally.moved(&before, stored.class, &transition);
        let Hold::Take(holder) = transition.hold else {
            return Err(StoreError::Corrupt("a claim that holds nothing".into()));
        };
        let visible_until =
            self.hold((candidate, isolated), &stored, (holder, transition.next_epoch), claimant)?;
        let by = match claimant {
            Claimant::Native { worker, .. } => format!("worker {worker}"),
            Claimant::Plain { worker, .. } => worker.clone().unwrap_or_default(),
        };
        let facts = Facts {
            job: &stored,
            kind: EventKind::Claim,
            worker,
            began: None,
            at: self.now,
            by: &by,
            evidence: &EndDetail::default().evidence,
        };
        self.events.extend(events_of(&facts, &transition));
        Ok(Some(Claimed {
            epoch: transition.next_epoch,
            attempt: transition.attempt,
            isolated,
            claimed: self.now,
            visible_until,
            checkpoint: self.checkpoint(candidate.seq, candidate.epoch)?,
            job: stored,
        }))
    }

    fn hold(
        &self,
        (candidate, isolated): (&Candidate, bool),
        stored: &Arc<StoredJob>,
        (holder, epoch): (Holder, Epoch),
        claimant: &Claimant,
    ) -> Result<Option<Timestamp>, StoreError> {
        let (plain, visibility) = match claimant {
            Claimant::Native { .. } => (None, None),
            Claimant::Plain { worker, visibility } => {
                (worker.as_deref(), Some(stored.visibility.unwrap_or(*visibility)))
            }
        };
        let visible_until = visibility.map(|span| self.now.after(span));
        // Native workers watch the limits of their attempts themselves.
        let deadline = visibility.and(stored.timeout).map(|limit| self.now.after(limit));
        self.execute(
            "insert into active (seq, epoch, life, failures, losses, interruptions, isolated,
                                 worker, plain, claimed, started, visible_until, visibility_ms,
                                 deadline, cancelled)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                candidate.seq,
                int(epoch.0),
                candidate.life.get(),
                candidate.spent.failures,
                candidate.spent.losses,
                candidate.spent.interruptions,
                isolated,
                worker_bytes(holder.worker),
                plain,
                self.now.0,
                holder.started.map(|at| at.0),
                visible_until.map(|at| at.0),
                row::span(visibility),
                deadline.map(|at| at.0),
            ),
        )?;
        Ok(visible_until)
    }

    /// Returns what an earlier attempt left; a job that was never claimed has nothing.
    fn checkpoint(&self, seq: i64, epoch: Epoch) -> Result<Option<Vec<u8>>, StoreError> {
        if epoch == Epoch::ZERO {
            return Ok(None);
        }
        let mut select =
            self.db.prepare_cached("select bytes from checkpoint where seq = ?").map_err(failed)?;
        select.query_row([seq], |row| row.get(0)).optional().map_err(failed)
    }
}

pub(super) fn worker_bytes(worker: Option<WorkerId>) -> Option<[u8; 16]> {
    worker.map(|worker| *worker.0.as_bytes())
}
