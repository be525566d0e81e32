//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.
//!
//! Rows that another server is taking are passed over, so servers never wait for each
//! other here, and no two take the same job.

use std::sync::Arc;

use outlast_store::StoreError;
use outlast_store::apply::claim::{ActiveRow, Candidate, may_claim, plain_may_claim, take};
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, Command};
use outlast_store::reply::{ClaimRefusal, Claimed, Claims, Reply};
use tokio_postgres::Row;

use crate::connection::{Statement, values};
use crate::failure::{Conflict, Failure};
use crate::row::{self, STORED, get, int, int4, stored_columns, text};
use crate::writer::Tx;
use crate::writer::write_set;

/// Takes the best rows. The rows of `ready` are found by their place in the table once they
/// are locked: no plan can mistake how many there are.
macro_rules! take {
    ($best:expr) => {
        concat!(
            "with ",
            $best,
            ",
             gone as (
                 delete from ready r where r.ctid = any(array(select place from best))
                 returning r.*)
             select ",
            stored_columns!(),
            ", g.class, g.rank, g.epoch, g.life, g.failures,
                 g.losses, g.interruptions, g.since,
                 case when g.epoch > 0
                     then (select k.bytes from checkpoint k where k.seq = g.seq) end
             from gone g join job_row j on j.seq = g.seq
             order by g.rank, g.seq"
        )
    };
}

/// The best of several classes: their heads are merged first, then locked one by one in that
/// order until there are enough. So no more rows are locked than are taken, and what others
/// have locked is passed over.
macro_rules! best_of {
    ($classes:literal) => {
        concat!(
            "heads as materialized (
                 select h.class, h.rank, h.seq
                 from (",
            $classes,
            ") k(class)
                 cross join lateral (
                     select r.class, r.rank, r.seq from ready r
                     where r.class = k.class and (r.expires is null or r.expires > $2)
                     order by r.class, r.rank, r.seq limit 2 * $3::bigint) h
                 order by h.rank, h.seq),
             best as materialized (
                 select r.place
                 from heads h
                 cross join lateral (
                     select r.ctid as place from ready r
                     where r.class = h.class and r.rank = h.rank and r.seq = h.seq
                     for update skip locked) r
                 limit $3)"
        )
    };
}

/// The best of one class: its rows are locked in order.
const TAKE_OF_CLASS: &str = take!(
    "best as materialized (
         select r.ctid as place from ready r
         where r.class = (select c.id from class c where c.id = $1::bigint
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.expires is null or r.expires > $2)
         order by r.class, r.rank, r.seq limit $3
         for update skip locked)"
);

const TAKE_OF_CLASSES: &str = take!(best_of!(
    "select c.id from class c where c.id = any($1::bigint[])
         and not exists (select 1 from queue q where q.name = c.queue and q.paused)"
));

/// The best of a queue. Others may have locked or taken all the heads of a class: if these were not
/// enough, those behind them are taken, class by class.
const TAKE_OF_QUEUE: &str = take!(
    "heads as materialized (
         select h.class, h.rank, h.seq
         from (
             select c.id from class c where c.queue = $1 and c.route = ''
                 and ($4::text is null or c.tenant = $4)
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused)
         ) k(class)
         cross join lateral (
             select r.class, r.rank, r.seq from ready r
             where r.class = k.class and (r.expires is null or r.expires > $2)
             order by r.class, r.rank, r.seq limit 2 * $3::bigint) h
         order by h.rank, h.seq),
     front as materialized (
         select r.place
         from heads h
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = h.class and r.rank = h.rank and r.seq = h.seq
             for update skip locked) r
         limit $3),
     cut_off as materialized (
         select class, max(array[rank, seq]) as last from heads
         where (select count(*) from front) < $3
         group by class having count(*) = 2 * $3),
     behind as materialized (
         select r.place
         from cut_off k
         cross join lateral (
             select r.ctid as place from ready r
             where r.class = k.class and (r.rank, r.seq) > (k.last[1], k.last[2])
                 and (r.expires is null or r.expires > $2)
             order by r.class, r.rank, r.seq limit $3
             for update skip locked) r
         limit $3 - (select count(*) from front)),
     best as (select place from front union all select place from behind)"
);

/// Those of the classes that have claimable jobs, after some were taken: others have them locked.
const LEFT_OVER: &str = "select c.id from class c where c.id = any($1::bigint[])
         and not exists (select 1 from queue q where q.name = c.queue and q.paused)
         and coalesce((select true from ready r
             where r.class = c.id and (r.expires is null or r.expires > $2)
             order by r.class, r.rank, r.seq limit 1), false)
     order by c.id";

/// In how many classes a claim looks for jobs behind those that are locked.
const LOOKS_BEHIND_MAX: usize = 8;

type Outcome = Result<Claims, ClaimRefusal>;

impl Tx<'_> {
    /// Obeys the claims that a batch goes on with; those of native workers that follow
    /// each other are one round trip.
    pub(super) async fn claim_all(
        &mut self,
        commands: &[Command],
        replies: &mut Vec<Reply>,
    ) -> Result<(), Failure> {
        let first = self.context.command;
        let mut natives = Vec::new();
        for command in commands {
            let Command::Claim(claim) = command else { break };
            match (&claim.claimant, &claim.from) {
                (Claimant::Native { .. }, ClaimFrom::Classes(classes)) => {
                    natives.push((claim, classes));
                }
                _ if natives.is_empty() => {
                    let claimed = self.claim_alone(claim).await?;
                    replies.push(Reply::Claimed(claimed));
                    return Ok(());
                }
                _ => break,
            }
        }
        // On the optimistic path, the message that claims jobs also locks the workers.
        let looked = self.opening.statements.is_empty();
        let mut refusals = Vec::with_capacity(natives.len());
        let mut statements = Vec::with_capacity(natives.len());
        for (claim, classes) in &natives {
            let refusal = self.native_refusal(&claim.claimant).filter(|_| looked);
            if refusal.is_none() {
                statements.push(self.take_of_classes(classes, claim));
            }
            refusals.push(refusal);
        }
        let mut taken = self.query_all(statements).await?.into_iter();
        let refused = |claim: &Claim| self.native_refusal(&claim.claimant).is_some();
        if !looked && natives.iter().any(|(claim, _)| refused(claim)) {
            let words = "a worker that claims may not, any more".into();
            return Err(Failure::Again(Conflict::Stale, words));
        }
        let mut outcomes = Vec::with_capacity(natives.len());
        for ((claim, _), refusal) in natives.iter().zip(refusals) {
            self.context.command = first + outcomes.len();
            outcomes.push(match refusal {
                Some(refusal) => Err(refusal),
                None => {
                    let rows = taken.next().unwrap_or_default();
                    Ok(Claims::all(self.hold_all(claim, &rows).await?))
                }
            });
        }
        self.look_behind(&natives, &mut outcomes).await?;
        replies.extend(outcomes.into_iter().map(Reply::Claimed));
        Ok(())
    }

    /// Takes what is behind jobs that others have locked, for claims that came back short, and
    /// names the classes in which there are only such jobs: that a claim is short proves nothing
    /// about them.
    async fn look_behind(
        &mut self,
        natives: &[(&Claim, &Vec<ClassId>)],
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let mut short: Vec<(&Claim, &[ClassId], &mut Claims)> = Vec::new();
        for ((claim, classes), outcome) in natives.iter().zip(outcomes) {
            if let Ok(claims) = outcome
                && wanted(claim, &claims.jobs) > 0
            {
                short.push((claim, classes, claims));
            }
        }
        if short.is_empty() {
            return Ok(());
        }
        let statements = short.iter().map(|(_, classes, _)| {
            let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
            Statement::new(LEFT_OVER, values![ids, self.context.now.0])
        });
        let left = self.query_all(statements.collect()).await?;
        for ((claim, classes, claims), rows) in short.into_iter().zip(left) {
            for (nth, row) in rows.iter().enumerate() {
                let class = ClassId(get(row, 0)?);
                let several = wanted(claim, &claims.jobs);
                // Of several classes, only the heads were looked at.
                if classes.len() > 1 && nth < LOOKS_BEHIND_MAX && several > 0 {
                    let rows =
                        self.query(TAKE_OF_CLASS, values![class.0, self.context.now.0, several]);
                    let rows = rows.await?;
                    claims.jobs.append(&mut self.hold_all(claim, &rows).await?);
                }
                if wanted(claim, &claims.jobs) > 0 {
                    claims.passed_over.push(class);
                }
            }
        }
        Ok(())
    }

    fn native_refusal(&self, claimant: &Claimant) -> Option<ClaimRefusal> {
        let Claimant::Native { worker, session } = claimant else { return None };
        may_claim(self.known_worker(*worker).as_ref(), *session).err()
    }

    async fn claim_alone(&mut self, claim: &Claim) -> Result<Outcome, Failure> {
        if matches!(claim.claimant, Claimant::Native { .. }) && !self.opening.statements.is_empty()
        {
            self.query_all(Vec::new()).await?;
        }
        if let Some(refusal) = self.native_refusal(&claim.claimant) {
            return Ok(Err(refusal));
        }
        if let Claimant::Plain { worker: Some(name), .. } = &claim.claimant
            && let Err(refusal) = plain_may_claim(self.plain_standing(name).await?)
        {
            return Ok(Err(refusal));
        }
        let mut claimed = Vec::new();
        match &claim.from {
            ClaimFrom::Classes(classes) => {
                let statement = self.take_of_classes(classes, claim);
                let rows = self.query(statement.sql, statement.values).await?;
                claimed = self.hold_all(claim, &rows).await?;
            }
            ClaimFrom::Queues { queues, tenant } => {
                for queue in queues {
                    let wanted = wanted(claim, &claimed);
                    if wanted == 0 {
                        break;
                    }
                    let values = values![
                        text(queue),
                        self.context.now.0,
                        wanted,
                        tenant.as_deref().map(text)
                    ];
                    let rows = self.query(TAKE_OF_QUEUE, values).await?;
                    claimed.extend(self.hold_all(claim, &rows).await?);
                }
            }
        }
        Ok(Ok(Claims::all(claimed)))
    }

    fn take_of_classes(&self, classes: &[ClassId], claim: &Claim) -> Statement {
        let max = i64::from(claim.max.get());
        if let [class] = classes {
            return Statement::new(TAKE_OF_CLASS, values![class.0, self.context.now.0, max]);
        }
        let ids: Vec<i64> = classes.iter().map(|class| class.0).collect();
        Statement::new(TAKE_OF_CLASSES, values![ids, self.context.now.0, max])
    }

    async fn hold_all(&mut self, claim: &Claim, rows: &[Row]) -> Result<Vec<Claimed>, Failure> {
        // That of each job, and where it is claimable: the same, or its twin for isolated ones.
        let mut classes = Vec::with_capacity(2 * rows.len());
        for row in rows {
            classes.extend([ClassId(get(row, 2)?), ClassId(get(row, STORED)?)]);
        }
        self.learn_classes(classes).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            claimed.extend(self.hold(row, &claim.claimant)?);
        }
        if !claimed.is_empty() {
            self.seen.in_flight.clear();
        }
        Ok(claimed)
    }

    fn candidate(&self, row: &Row) -> Result<Candidate, StoreError> {
        let (seq, stored) = row::stored(row, |class| self.classes.key(class).cloned())?;
        let class = ClassId(get(row, STORED)?);
        Ok(Candidate {
            seq,
            class,
            rank: get(row, STORED + 1)?,
            epoch: row::epoch(row, STORED + 2)?,
            life: row::life(row, STORED + 3)?,
            spent: row::spent(row, STORED + 4)?,
            isolated: self.classes.key(class)?.isolated,
            checkpoint: get(row, STORED + 8)?,
            stored: Arc::new(stored),
        })
    }

    /// Notes that a taken job is held, or returns `None` and puts it back when the rules
    /// do not give it out.
    fn hold(&mut self, row: &Row, claimant: &Claimant) -> Result<Option<Claimed>, StoreError> {
        let candidate = self.candidate(row)?;
        let taken = match take(candidate, claimant, &self.context, &mut self.outbox) {
            Ok(taken) => taken,
            Err(candidate) => {
                let since = row::time(row, STORED + 7)?;
                self.note_ready(candidate.seq, &candidate.row(since));
                return Ok(None);
            }
        };
        self.seen.jobs.remove(&taken.claimed.job.id);
        self.seen.remembered.remove(&taken.claimed.job.id);
        self.seen.fresh.extend(taken.loaded());
        self.note_active(&taken.active);
        Ok(Some(taken.claimed))
    }

    fn note_active(&mut self, row: &ActiveRow) {
        self.write_set.active.push(write_set::ActiveRow {
            seq: row.seq,
            epoch: int(row.counters.epoch.0),
            life: int4(row.counters.life.get()),
            failures: int4(row.counters.spent.failures),
            losses: int4(row.counters.spent.losses),
            interruptions: int4(row.counters.spent.interruptions),
            isolated: row.isolated,
            worker: row.worker.map(|worker| worker.0),
            plain: row.plain.as_deref().map(text),
            claimed: row.claimed.0,
            started: row.started.map(|at| at.0),
            visible_until: row.visible_until.map(|at| at.0),
            visibility_ms: row::span(row.visibility),
            deadline: row.deadline.map(|at| at.0),
        });
    }
}

/// Returns how many jobs a claim still wants.
fn wanted(claim: &Claim, claimed: &[Claimed]) -> i64 {
    i64::from(claim.max.get()) - i64::try_from(claimed.len()).unwrap_or(i64::MAX)
}
