//! Following a store that looks less far than the model: it may take other jobs than the best ones of
//! a class of which limits tell jobs apart, and leave some that could start. What it must not do is
//! checked here.

use outlast_store::command::{Batch, Claim, ClassId, Command};
use outlast_store::reply::{Applied, ClaimRefusal, Claimed, Claims, Reply};
use outlast_store_rules::apply::claim::lane::{Lane, LaneJob};
use outlast_store_rules::apply::limit::Limits;

use crate::model::claim::Taker;
use crate::model::tables::Position;
use crate::model::tx::Tx;
use crate::model::{ModelStore, answer};

/// Jobs of a claim, of each queue for itself if it names queues.
struct Group {
    lanes: Vec<Lane>,
    /// Best first.
    heads: Vec<LaneJob>,
    /// Whether limits may apply to some of them.
    is_limited: bool,
}

impl ModelStore {
    /// Applies a batch; claims take what another store took for them.
    ///
    /// # Errors
    /// Returns why the other store must not have done so.
    pub fn follow(&self, batch: &Batch, other: &Applied) -> Result<Applied, String> {
        let mut tables = self.open().map_err(|error| error.to_string())?;
        let at = tables.tick(self.clock.now());
        tables.left.clear();
        let mut tx = Tx::new(&mut tables, batch, at);
        let mut replies = Vec::new();
        for (n, command) in batch.commands.iter().enumerate() {
            tx.begin(n);
            replies.push(match (command, other.replies.get(n)) {
                (Command::Claim(claim), Some(Reply::Claimed(Ok(taken)))) => {
                    let claimed = tx.claim_as(claim, taken);
                    Reply::Claimed(claimed.map_err(|fault| format!("{fault}: {taken:#?}"))?)
                }
                (command, _) => answer(&mut tx, command),
            });
        }
        Ok(tx.commit(batch.id, replies))
    }
}

impl Tx<'_> {
    /// Takes for a claim what another store took for it.
    fn claim_as(
        &mut self,
        claim: &Claim,
        other: &Claims,
    ) -> Result<Result<Claims, ClaimRefusal>, String> {
        let limits = self.tables.limits_in_force();
        let taker = match self.taker(claim, &limits) {
            Ok(taker) => taker,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let positions = self.candidates(&claim.from, &limits);
        let mut groups: Vec<Group> =
            positions.iter().map(|jobs| self.group(&limits, jobs)).collect();
        let mut claims = Claims::default();
        let mut queue = 0;
        for taken in &other.jobs {
            while !groups.get(queue).is_some_and(|group| self.has(group, taken)) {
                if let Some(group) = groups.get(queue) {
                    self.is_left(group, claim, other)?;
                } else {
                    return Err(format!("{} is not claimable, or out of order", taken.job.id));
                }
                queue += 1;
            }
            let Some(group) = groups.get_mut(queue) else { continue };
            claims.jobs.push(self.take_as(group, taken, &taker, claim)?);
        }
        let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
        if claims.jobs.len() > max {
            return Err(format!("more than {max} jobs"));
        }
        if claims.jobs.len() < max {
            groups.iter().skip(queue).try_for_each(|group| self.is_left(group, claim, other))?;
        }
        Ok(Ok(claims))
    }

    fn group(&self, limits: &Limits, jobs: &[Position]) -> Group {
        let (lanes, heads) = self.lanes(limits, jobs);
        Group { lanes, heads, is_limited: !limits.is_empty() }
    }

    fn has(&self, group: &Group, taken: &Claimed) -> bool {
        group.heads.iter().any(|head| self.is_of(head, taken))
    }

    fn is_of(&self, head: &LaneJob, taken: &Claimed) -> bool {
        let row = self.tables.rows.get(&head.seq.unsigned_abs());
        row.is_some_and(|row| row.stored.id == taken.job.id)
    }

    fn has_expired(&self, head: &LaneJob) -> bool {
        let row = self.tables.rows.get(&head.seq.unsigned_abs());
        let expires = row.and_then(|row| row.stored.rules.expires_at);
        expires.is_some_and(|at| at <= self.now())
    }

    /// Takes a job, which must be the first one of those that limits do not tell apart, and open.
    fn take_as(
        &mut self,
        group: &mut Group,
        taken: &Claimed,
        taker: &Taker<'_>,
        claim: &Claim,
    ) -> Result<Claimed, String> {
        let (id, now) = (taken.job.id, self.now());
        let limits = self.tables.limits_in_force();
        if claim.avoids(id) {
            return Err(format!("{id} is avoided"));
        }
        group.heads.retain(|head| !self.has_expired(head));
        let place = group.heads.iter().position(|head| self.is_of(head, taken));
        let head = place.map(|place| group.heads.remove(place));
        let lane = head.and_then(|head| group.lanes.get(head.lane)).cloned();
        let (Some(place), Some(head), Some(lane)) = (place, head, lane) else {
            return Err(format!("{id} has expired"));
        };
        let told_apart = self.tables.classes.get(&lane.class);
        let told_apart = told_apart.is_some_and(|key| limits.need_lanes(key));
        let is_before = |other: &&LaneJob| {
            if self.is_avoided(other.seq, claim) {
                return false;
            }
            let same_class = group.lanes.get(other.lane).is_some_and(|it| it.class == lane.class);
            !group.is_limited || other.lane == head.lane || (same_class && !told_apart)
        };
        if let Some(before) = group.heads.iter().take(place).find(is_before) {
            return Err(format!("{id} is not the first: {before:?} comes before {head:?}"));
        }
        if let Some(stop) = self.tables.stop(&lane.gates, claim.is_prefetch, now) {
            return Err(format!("{id} must not start: {stop:?}"));
        }
        self.tables.shares.claimed(&lane, head.rank, head.seq, now);
        self.take(head.seq.unsigned_abs(), taker, &lane.gates)
            .ok_or_else(|| format!("the rules do not give out {id}"))
    }

    /// A claim that is short must say in which classes there may be more.
    fn is_left(&self, group: &Group, claim: &Claim, other: &Claims) -> Result<(), String> {
        let says = |class: ClassId| {
            other.cut
                || other.passed_over.contains(&class)
                || claim.is_prefetch && other.kept.contains(&class)
        };
        for head in group.heads.iter().filter(|head| !self.has_expired(head)) {
            let Some(lane) = group.lanes.get(head.lane) else { continue };
            let stop = self.tables.stop(&lane.gates, claim.is_prefetch, self.now());
            if stop.is_none() && !says(lane.class) {
                return Err(format!(
                    "{head:?} of {:?} could start, and the claim does not say so",
                    lane.class
                ));
            }
        }
        Ok(())
    }
}
