//! Who of several claims gets which of the rows that were taken for all of them.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::limit::GateId;
use outlast_store::StoreError;
use outlast_store::command::{Claim, ClassId};
use outlast_store::error::ChosenJob;
use outlast_store::reply::Claimed;
use outlast_store_rules::apply::claim::lane::Lane;
use outlast_store_rules::apply::claim::{Candidate, take};
use tokio_postgres::Row;

use super::claim::{Member, Outcome, Run, wanted};
use crate::failure::Failure;
use crate::row::{self, STORED, get};
use crate::writer::Tx;
use crate::writer::fitting::Fitting;

/// What was taken for the claims of a run.
pub(super) struct Taken<'r> {
    pub(super) fitting: Fitting<'r>,
    /// The lanes of jobs that passed gates, by their numbers.
    pub(super) lanes: &'r HashMap<i64, Lane>,
}

impl Tx<'_> {
    /// Gives each claim of a run, the first of which has this place in the batch, its share of the
    /// rows, in order. Puts back the rows that are left.
    pub(super) async fn deal(
        &mut self,
        run: &Run<'_>,
        first: usize,
        Taken { fitting: Fitting { rows, over, cut }, lanes }: Taken<'_>,
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let mut rows = rows.as_slice();
        for Member { nth, claim } in &run.members {
            self.batch.context.command = first + nth;
            let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
            let (own, others) = rows.split_at(max.min(rows.len()));
            rows = others;
            let jobs = self.hold_all(claim, own, lanes).await?;
            if let Some(Ok(claims)) = outcomes.get_mut(*nth) {
                claims.jobs = jobs;
                claims.cut = cut && wanted(claim, &claims.jobs) > 0;
            }
        }
        self.put_back_all(rows).await?;
        self.put_back_all(&over).await
    }

    /// Notes that a claim holds the jobs of these rows.
    pub(super) async fn hold_all(
        &mut self,
        claim: &Claim,
        rows: &[&Row],
        lanes: &HashMap<i64, Lane>,
    ) -> Result<Vec<Claimed>, Failure> {
        self.learn(rows).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            let lane = lanes.get(&get(row, 0)?);
            let gates = lane.map(Lane::gate_ids).unwrap_or_default();
            claimed.extend(self.hold(row, claim, gates)?);
        }
        if !claimed.is_empty() {
            self.seen.in_flight.clear();
        }
        Ok(claimed)
    }

    /// Learns what must be known of rows that were taken.
    pub(super) async fn learn(&mut self, rows: &[&Row]) -> Result<(), Failure> {
        if let Some(row) = rows.first() {
            self.confirm_limits(get(row, STORED + 9)?)?;
        }
        // That of each job, and where it is claimable: the same, or its twin for isolated ones.
        let mut classes = Vec::with_capacity(2 * rows.len());
        for row in rows {
            classes.extend([ClassId(get(row, 2)?), ClassId(get(row, STORED)?)]);
        }
        self.learn_classes(classes).await
    }

    fn candidate(&self, row: &Row, gates: Vec<GateId>) -> Result<Candidate, StoreError> {
        let (seq, stored) = row::stored(row, |class| self.cache.classes.key(class).cloned())?;
        let class = ClassId(get(row, STORED)?);
        Ok(Candidate {
            seq,
            class,
            rank: get(row, STORED + 1)?,
            since: row::time(row, STORED + 7)?,
            epoch: row::epoch(row, STORED + 2)?,
            life: row::life(row, STORED + 3)?,
            spent: row::spent(row, STORED + 4)?,
            isolated: self.cache.classes.key(class)?.isolated,
            checkpoint: get(row, STORED + 8)?,
            stored: Arc::new(stored),
            gates,
        })
    }

    /// Notes that a taken job is held, or returns `None` and puts it back when the rules
    /// do not give it out.
    fn hold(
        &mut self,
        row: &Row,
        claim: &Claim,
        gates: Vec<GateId>,
    ) -> Result<Option<Claimed>, StoreError> {
        let candidate = self.candidate(row, gates)?;
        let class = candidate.class;
        let taken = match take(candidate, claim, &self.batch.context, &mut self.batch.outbox) {
            Ok(taken) => taken,
            Err(candidate) => {
                self.leave(&candidate);
                return Ok(None);
            }
        };
        let job = taken.claimed.job.id;
        self.cache.chosen.push(ChosenJob { job, class });
        self.seen.jobs.remove(&job);
        self.seen.remembered.remove(&taken.claimed.job.id);
        self.seen.fresh.extend(taken.loaded());
        self.note_active(&taken.active);
        Ok(Some(taken.claimed))
    }

    pub(super) fn put_back(&mut self, row: &Row) -> Result<(), StoreError> {
        let candidate = self.candidate(row, Vec::new())?;
        self.leave(&candidate);
        Ok(())
    }

    fn leave(&mut self, candidate: &Candidate) {
        self.note_ready(candidate.seq, &candidate.row());
    }
}
