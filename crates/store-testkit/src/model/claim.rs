//! Taking jobs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::id::WorkerId;
use outlast_core::job::{Event as JobEvent, EventKind};
use outlast_core::keys::Keys;
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::Standing;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, EndDetail};
use outlast_store::job::rank;
use outlast_store::reply::{Blocked, ClaimRefusal, Claimed, Claims};
use outlast_store_rules::apply::claim::lane::{Lane, LaneGate, LaneJob};
use outlast_store_rules::apply::claim::selection::BlockedBy;
use outlast_store_rules::apply::limit::Limits;

use crate::model::tables::{ActiveRow, Position, Seq, Visible};
use crate::model::tx::{Cause, Tx, number};

/// Who takes, once it is known that it may.
pub(super) struct Taker<'a> {
    worker: Option<WorkerId>,
    plain: Option<&'a str>,
    /// Set for a plain fetch: visibility for jobs that do not say.
    visibility: Option<Span>,
}

impl Tx<'_> {
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Claims, ClaimRefusal> {
        let limits = self.tables.limits_in_force();
        let taker = self.taker(claim, &limits)?;
        let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
        let mut claims = Claims::default();
        let mut bytes = 0;
        let mut waiting: BTreeMap<ClassId, Option<Timestamp>> = BTreeMap::new();
        let mut kept: BTreeSet<ClassId> = BTreeSet::new();
        let mut left_to_others: BTreeSet<ClassId> = BTreeSet::new();
        for group in self.candidates(&claim.from, &limits) {
            let (lanes, heads) = self.lanes(&limits, &group);
            let now = self.now();
            let mut turns = self.tables.shares.turns(&lanes, heads, now);
            while claims.jobs.len() < max {
                let tried = turns.try_next(|head| {
                    let Some(lane) = lanes.get(head.lane) else { return false };
                    if let Some(stop) = self.tables.stop(&lane.gates, claim.is_prefetch, now) {
                        if stop == BlockedBy::Reserved {
                            kept.insert(lane.class);
                            return false;
                        }
                        let until = match stop {
                            BlockedBy::Until(at) => Some(at),
                            BlockedBy::Busy | BlockedBy::Full | BlockedBy::Reserved => None,
                        };
                        let known = waiting.entry(lane.class).or_insert(until);
                        *known = until.into_iter().chain(*known).min();
                        return false;
                    }
                    if self.is_avoided(head.seq, claim) {
                        left_to_others.insert(lane.class);
                        return true;
                    }
                    // An expired job is refused by the rules, and left to the sweep.
                    if let Some(claimed) = self.take(head.seq.unsigned_abs(), &taker, &lane.gates) {
                        self.tables.shares.claimed(lane, head.rank, head.seq, now);
                        bytes += claimed.bytes();
                        claims.jobs.push(claimed);
                    }
                    true
                });
                if tried.is_none() || bytes >= CLAIM_BYTES_MAX {
                    break;
                }
            }
            if claims.jobs.len() == max {
                return Ok(claims);
            }
            if bytes >= CLAIM_BYTES_MAX {
                return Ok(Claims::cut(claims.jobs));
            }
        }
        let blocked = waiting.into_iter().filter(|(class, _)| !kept.contains(class));
        claims.blocked = blocked.map(|(class, until)| Blocked { class, until }).collect();
        claims.kept = kept.into_iter().collect();
        claims.passed_over = left_to_others.into_iter().collect();
        Ok(claims)
    }

    /// Whether a claim leaves a job to others.
    pub(super) fn is_avoided(&self, seq: i64, claim: &Claim) -> bool {
        let row = self.tables.rows.get(&seq.unsigned_abs());
        row.is_some_and(|row| claim.avoids(row.stored.id))
    }

    /// Decides who takes, if it may.
    pub(super) fn taker<'c>(
        &self,
        claim: &'c Claim,
        limits: &Limits,
    ) -> Result<Taker<'c>, ClaimRefusal> {
        Ok(match &claim.claimant {
            Claimant::Native { worker, session } => {
                self.native_claimant(*worker, *session)?;
                limits.may_claim(claim)?;
                Taker { worker: Some(*worker), plain: None, visibility: None }
            }
            Claimant::Plain { worker, visibility } => {
                let standing = worker.as_deref().and_then(|name| self.plain_standing(name));
                if let Some(standing) = standing.filter(|standing| !standing.is_active()) {
                    return Err(ClaimRefusal::NotActive(standing));
                }
                Taker { worker: None, plain: worker.as_deref(), visibility: Some(*visibility) }
            }
        })
    }

    fn native_claimant(&self, worker: WorkerId, session: u64) -> Result<(), ClaimRefusal> {
        let row = self.tables.workers.get(&worker).ok_or(ClaimRefusal::UnknownWorker)?;
        if row.session != session {
            return Err(ClaimRefusal::StaleSession { current: row.session });
        }
        if !row.standing.is_active() {
            return Err(ClaimRefusal::NotActive(row.standing));
        }
        Ok(())
    }

    /// Whether the latest worker that gave itself this id takes no new work; one that lives
    /// decides before any that does not.
    fn plain_standing(&self, name: &str) -> Option<Standing> {
        let latest_first = self.tables.workers_latest_first().into_iter();
        let ours = latest_first.filter(|worker| worker.plain_id.as_deref() == Some(name));
        let standings: Vec<_> = ours.map(|worker| worker.standing).collect();
        let living = standings.iter().find(|standing| standing.holds_lease());
        living.or_else(|| standings.first()).copied()
    }

    /// Jobs that may be taken, best first; of each queue for itself if queues are named.
    pub(super) fn candidates(&self, from: &ClaimFrom, limits: &Limits) -> Vec<Vec<Position>> {
        match from {
            ClaimFrom::Classes(classes) => vec![self.in_order(classes.iter().copied())],
            ClaimFrom::Queues { queues, tenant } => queues
                .iter()
                .filter(|queue| limits.takes_unlabelled(queue))
                .map(|queue| {
                    let classes = self.tables.classes.iter().filter(|(_, class)| {
                        class.queue == *queue
                            && class.is_for_plain_clients()
                            && (tenant.is_none() || class.tenant == *tenant)
                    });
                    self.in_order(classes.map(|(id, _)| *id))
                })
                .collect(),
        }
    }

    /// Returns the lanes of jobs, and the jobs.
    pub(super) fn lanes(&self, limits: &Limits, jobs: &[Position]) -> (Vec<Lane>, Vec<LaneJob>) {
        let (mut lanes, mut heads) = (Vec::new(), Vec::new());
        let mut known: HashMap<(ClassId, &Keys), usize> = HashMap::new();
        for (Reverse(priority), turn, seq) in jobs {
            let Some(row) = self.tables.rows.get(seq) else { continue };
            let keys = &row.stored.keys;
            let lane = *known.entry((row.class, keys)).or_insert_with(|| {
                lanes.push(limits.lane(row.class, &row.stored.key, keys.lane(), keys.clone()));
                lanes.len().saturating_sub(1)
            });
            heads.push(LaneJob { lane, rank: rank(*priority, *turn), seq: number(*seq) });
        }
        (lanes, heads)
    }

    fn in_order(&self, classes: impl Iterator<Item = ClassId>) -> Vec<Position> {
        let mut found: Vec<Position> = classes
            .filter(|class| {
                let key = self.tables.classes.get(class);
                key.is_some_and(|key| !self.tables.is_paused(&key.queue))
            })
            .filter_map(|class| self.tables.ready.get(&class))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    pub(super) fn take(
        &mut self,
        seq: Seq,
        taker: &Taker<'_>,
        gates: &[LaneGate],
    ) -> Option<Claimed> {
        let now = self.now();
        let row = self.tables.rows.get(&seq)?;
        let starts = taker.visibility.is_some();
        let event = JobEvent::Claim { worker: taker.worker, starts };
        let step = self.bench.decide(&row.job, event, 0).ok()?;
        let visible = taker.visibility.map(|fetch| {
            let length = row.stored.visibility.unwrap_or(fetch);
            Visible { until: now.after(length), length }
        });
        let claimed = Claimed {
            job: Arc::clone(&row.stored),
            epoch: step.next_epoch,
            attempt: step.attempt,
            isolated: step.isolated,
            claimed: now,
            visible_until: visible.map(|visible| visible.until),
            checkpoint: row.checkpoint.clone(),
        };
        let plain = taker.plain.map(str::to_owned);
        self.tables.charge(gates, now);
        let gates = gates.iter().map(|gate| gate.id).collect();
        let worker = taker.worker;
        let attempt = ActiveRow { worker, plain, claimed: now, visible, pack_digest: None, gates };
        let by = attempt.words();
        let detail = EndDetail::default();
        let cause = Cause { kind: EventKind::Claim, by: &by, detail: &detail };
        self.apply_transition(seq, &step, &cause, Some(attempt));
        Some(claimed)
    }
}
