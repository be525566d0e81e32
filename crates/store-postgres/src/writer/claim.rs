//! Taking jobs: a delete from the claimable ones and an insert among the held ones each.
//!
//! Rows that another server is taking are passed over, so servers never wait for each
//! other here, and no two take the same job.

mod sql;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_store::command::{Claim, ClaimFrom, Claimant, ClassId, Command};
use outlast_store::reply::{ClaimRefusal, Claimed, Claims, Reply};
use outlast_store_rules::apply::claim::{may_claim, plain_may_claim};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::{Conflict, Failure};
use crate::floors::look::Columns;
use crate::row::{STORED, get, text};
use crate::writer::Tx;
use crate::writer::deal::Taken;
use crate::writer::fitting::{Asked, Fitting};
pub(super) use sql::TAKE_CHOSEN;
use sql::{LEFT_OVER, PLAIN_OF_QUEUE, TAKE_OF_CLASS, TAKE_OF_CLASSES, TAKE_OF_QUEUE};

/// After how many jobs a statement takes for no further worker.
pub(super) const RUN_MAX: i64 = 1_024;

/// In how many classes a claim looks for jobs behind those that are locked.
const LOOKS_BEHIND_MAX: usize = 8;

pub(super) type Outcome = Result<Claims, ClaimRefusal>;

/// Finds the jobs that claims avoid.
const AVOIDED: &str = "select id, seq, class from job_row where id = any($1::uuid[])";

/// A job that claims leave to others.
#[derive(Clone, Copy, Debug)]
struct Avoided {
    seq: i64,
    /// Where it waits: its own class, or that one's isolated twin.
    class: ClassId,
}

/// A claim of a native worker, and what it may take.
#[derive(Clone, Debug)]
pub(super) struct Native<'a> {
    claim: &'a Claim,
    classes: &'a [ClassId],
    /// The jobs of these classes that it leaves to others.
    avoided: Vec<Avoided>,
}

/// A claim that is made by itself, and the numbers of the jobs that it leaves to others.
#[derive(Clone, Copy)]
struct Wish<'a> {
    claim: &'a Claim,
    avoided: &'a [i64],
}

/// A queue that is claimed from, and the numbers of the jobs that stay there.
#[derive(Clone, Copy)]
struct FromQueue<'a> {
    queue: &'a str,
    tenant: Option<&'a str>,
    avoided: &'a [i64],
}

/// A claim of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    /// Its place among the claims of the batch.
    pub(super) nth: usize,
    pub(super) claim: &'a Claim,
}

/// Claims that follow each other, and take from the same classes all but the same jobs; where limits
/// may apply, all or none of them ahead of free slots.
#[derive(Debug)]
pub(super) struct Run<'a> {
    classes: &'a [ClassId],
    is_prefetch: bool,
    /// Numbers of the jobs that they leave to others, and the classes of these.
    avoided: Vec<i64>,
    passes_over: Vec<ClassId>,
    pub(super) members: Vec<Member<'a>>,
}

impl Run<'_> {
    /// Returns how many jobs its claims want together.
    fn wants(&self) -> i64 {
        self.members.iter().map(|member| i64::from(member.claim.max.get())).sum()
    }
}

/// A class that had claimable jobs after a claim came back short.
#[derive(Debug)]
struct LeftOver {
    class: ClassId,
    /// Whether a claim that looks past locked jobs may find some.
    worth_a_look: bool,
}

/// Groups the claims that were not refused. Whether they are ahead of free slots matters only where a
/// limit may apply.
fn runs_of<'a>(
    natives: &[Native<'a>],
    outcomes: &[Outcome],
    limited: &HashSet<&[ClassId]>,
) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for ((nth, native), outcome) in natives.iter().enumerate().zip(outcomes) {
        if outcome.is_err() {
            continue;
        }
        let Native { claim, classes, avoided } = native;
        let is_prefetch = claim.is_prefetch && limited.contains(classes);
        let member = Member { nth, claim };
        match runs.last_mut() {
            Some(run)
                if run.classes == *classes
                    && run.is_prefetch == is_prefetch
                    && run.avoided.iter().eq(avoided.iter().map(|job| &job.seq))
                    && run.wants() < RUN_MAX =>
            {
                run.members.push(member);
            }
            _ => runs.push(Run {
                classes,
                is_prefetch,
                avoided: avoided.iter().map(|job| job.seq).collect(),
                passes_over: avoided.iter().map(|job| job.class).collect(),
                members: vec![member],
            }),
        }
    }
    runs
}

/// Returns how many of the claims may be made together: those that limits concern are made last, so
/// none of the others may come after one of them that takes from the same class.
fn made_in_order(natives: &[Native<'_>], limited: &HashSet<&[ClassId]>) -> usize {
    let mut taken_last: HashSet<ClassId> = HashSet::new();
    let comes_too_early = natives.iter().position(|Native { classes, .. }| {
        let is_limited = limited.contains(classes);
        if is_limited {
            taken_last.extend(classes.iter());
        }
        !is_limited && classes.iter().any(|class| taken_last.contains(class))
    });
    comes_too_early.unwrap_or(natives.len())
}

impl Tx<'_> {
    /// Executes the claims at the start of `commands`; those of native workers that follow each
    /// other are one round trip.
    pub(super) async fn claim_all(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let first = self.batch.context.command;
        let mut natives = Vec::new();
        for command in commands {
            let Command::Claim(claim) = command else { break };
            match (&claim.claimant, &claim.from) {
                (Claimant::Native { .. }, ClaimFrom::Classes(classes)) => {
                    natives.push(Native { claim, classes, avoided: Vec::new() });
                }
                _ if natives.is_empty() => {
                    return Ok(vec![Reply::Claimed(self.claim_alone(claim).await?)]);
                }
                _ => break,
            }
        }
        let current = self.limits_for(natives.iter().map(|native| native.claim)).await?;
        let limited = self.limited_of(&natives).await?;
        natives.truncate(made_in_order(&natives, &limited));
        self.find_avoided(&mut natives).await?;
        if !limited.is_empty() && !self.opening.statements.is_empty() {
            self.query_all(Vec::new()).await?;
        }
        // On the optimistic path, the message that claims jobs also locks the workers.
        let looked = self.opening.statements.is_empty();
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(natives.len());
        for native in &natives {
            let refusal = self.native_refusal(&native.claim.claimant).filter(|_| looked);
            let refusal = refusal.or_else(|| current.may_claim(native.claim).err());
            outcomes.push(refusal.map_or_else(|| Ok(Claims::default()), Err));
        }
        // Workers of equal profile claim from the same classes: one statement takes for all of
        // them, and each gets its share of the rows, in order.
        let (by_limits, runs): (Vec<Run<'_>>, Vec<Run<'_>>) =
            runs_of(&natives, &outcomes, &limited)
                .into_iter()
                .partition(|run| limited.contains(run.classes));
        let most = self.cache.claim_length.jobs();
        let asked = |run: &Run<'_>| Asked { asked: run.wants().min(most), wanted: run.wants() };
        let take =
            |run: &Run<'_>| self.take_of_classes(run.classes, asked(run).asked, &run.avoided);
        let logged = self.batch.outbox.events.len();
        let statements = runs.iter().map(take);
        let taken = self.query_all(statements.collect()).await?;
        let refused = |native: &Native<'_>| self.native_refusal(&native.claim.claimant).is_some();
        if !looked && natives.iter().any(refused) {
            let words = "a worker that claims may not, any more".into();
            return Err(Failure::Again(Conflict::Stale, words));
        }
        for (run, rows) in runs.iter().zip(taken) {
            let fitting = self.fitting(&rows, asked(run))?;
            let taken = Taken { fitting, lanes: &HashMap::new() };
            self.deal(run, first, taken, &mut outcomes).await?;
        }
        self.look_behind(&runs, &mut outcomes).await?;
        for run in &by_limits {
            self.run_by_limits(run, first, &mut outcomes).await?;
        }
        if !runs.is_empty() && !by_limits.is_empty() {
            self.log_in_order(logged, &outcomes);
        }
        Ok(outcomes.into_iter().map(Reply::Claimed).collect())
    }

    /// Puts the events from `logged` on into the order of the claims: those that limits concern are
    /// made last.
    fn log_in_order(&mut self, logged: usize, outcomes: &[Outcome]) {
        let jobs = outcomes.iter().flatten().flat_map(|claims| &claims.jobs);
        let places: HashMap<JobId, usize> =
            jobs.enumerate().map(|(place, claimed)| (claimed.job.id, place)).collect();
        if let Some(events) = self.batch.outbox.events.get_mut(logged..) {
            events.sort_by_key(|event| event.job.and_then(|job| places.get(&job).copied()));
        }
    }

    /// Finds the jobs that claims leave to others: they are not taken for them, and use up nothing of
    /// what a claim may take.
    async fn find_avoided(&mut self, natives: &mut [Native<'_>]) -> Result<(), Failure> {
        let ids: HashSet<JobId> =
            natives.iter().flat_map(|native| native.claim.avoids.iter().copied()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let rows = self.query(AVOIDED, values![ids]).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            found.push((JobId(get(row, 0)?), get(row, 1)?, ClassId(get(row, 2)?)));
        }
        let claimed = natives.iter().flat_map(|native| native.classes);
        let classes: Vec<ClassId> =
            claimed.copied().chain(found.iter().map(|(_, _, class)| *class)).collect();
        self.learn_classes(classes).await?;
        for (id, seq, own) in found {
            let key = Arc::clone(self.cache.classes.key(own)?);
            for native in natives.iter_mut().filter(|native| native.claim.avoids(id)) {
                for &class in native.classes {
                    if self.cache.classes.key(class)?.differs_at_most_in_isolation(&key) {
                        native.avoided.push(Avoided { seq, class });
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of the jobs that a claim leaves to others.
    async fn find_avoided_by(&mut self, claim: &Claim) -> Result<Vec<i64>, Failure> {
        if claim.avoids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = claim.avoids.iter().map(|id| id.0).collect();
        let rows = self.query(AVOIDED, values![ids]).await?;
        rows.iter().map(|row| Ok(get(row, 1)?)).collect()
    }

    /// Returns the sets of classes to which a limit may apply.
    async fn limited_of<'a>(
        &mut self,
        natives: &[Native<'a>],
    ) -> Result<HashSet<&'a [ClassId]>, Failure> {
        if self.known_limits().await?.limits.is_empty() {
            return Ok(HashSet::new());
        }
        let all: HashSet<&[ClassId]> = natives.iter().map(|native| native.classes).collect();
        let mut limited = HashSet::new();
        for classes in all {
            if self.are_limited(classes).await? {
                limited.insert(classes);
            }
        }
        Ok(limited)
    }

    /// Takes jobs that limits may hold back for the claims of a run, and gives each its share.
    async fn run_by_limits(
        &mut self,
        run: &Run<'_>,
        first: usize,
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let Run { classes, is_prefetch, avoided, .. } = run;
        let taken = self.take_by_limits(classes, run.wants(), *is_prefetch, avoided).await?;
        let rows = taken.rows.iter().collect();
        let fitting = Fitting { rows, over: Vec::new(), cut: taken.cut };
        self.deal(run, first, Taken { fitting, lanes: &taken.lanes }, outcomes).await?;
        for Member { nth, claim } in &run.members {
            if let Some(Ok(claims)) = outcomes.get_mut(*nth)
                && wanted(claim, &claims.jobs) > 0
                && !claims.cut
            {
                taken.left.clone().note_in(claims);
                run.passes_over.iter().for_each(|class| claims.pass_over(*class));
            }
        }
        Ok(())
    }

    /// Takes what is behind jobs that others have locked, for claims that came back short, and
    /// names the classes in which there are only such jobs, or those that the claim avoids: that it is
    /// short proves nothing about them.
    async fn look_behind(
        &mut self,
        runs: &[Run<'_>],
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let is_short = |Member { nth, claim }: &Member<'_>| match outcomes.get(*nth) {
            Some(Ok(claims)) => wanted(claim, &claims.jobs) > 0 && !claims.cut,
            Some(Err(_)) | None => false,
        };
        let short: Vec<&Run<'_>> =
            runs.iter().filter(|run| run.members.iter().any(is_short)).collect();
        if short.is_empty() {
            return Ok(());
        }
        let statements = short.iter().map(|run| {
            let w = self.ranges_of(run.classes);
            let now = self.batch.context.now.0;
            let values = values![w.keys, now, w.ranks, w.seqs, w.to_ranks, w.to_seqs];
            Statement::new(LEFT_OVER, values)
        });
        let left = self.query_all(statements.collect()).await?;
        for (run, rows) in short.into_iter().zip(left) {
            let mut left = Vec::with_capacity(rows.len());
            for (nth, row) in rows.iter().enumerate() {
                // Of several classes, only the heads were looked at.
                let worth_a_look = run.classes.len() > 1 && nth < LOOKS_BEHIND_MAX;
                left.push(LeftOver { class: ClassId(get(row, 0)?), worth_a_look });
            }
            for class in left {
                self.take_behind(run, &class, outcomes).await?;
            }
        }
        Ok(())
    }

    /// Takes what the claims of a run still want from a class that has jobs left.
    async fn take_behind(
        &mut self,
        run: &Run<'_>,
        LeftOver { class, worth_a_look }: &LeftOver,
        outcomes: &mut [Outcome],
    ) -> Result<(), Failure> {
        let wants = |outcomes: &[Outcome], nth: usize, claim: &Claim| match outcomes.get(nth) {
            Some(Ok(claims)) if !claims.cut => wanted(claim, &claims.jobs),
            Some(_) | None => 0,
        };
        let several: i64 = run.members.iter().map(|it| wants(outcomes, it.nth, it.claim)).sum();
        let mut rows = Vec::new();
        let asked = several.min(self.cache.claim_length.jobs());
        if *worth_a_look && several > 0 {
            let statement = self.take_of_classes(&[*class], asked, &run.avoided);
            rows = self.query(statement.sql, statement.values).await?;
        }
        let found = self.fitting(&rows, Asked { asked, wanted: several })?;
        self.put_back_all(&found.over).await?;
        let mut rows = found.rows.as_slice();
        for Member { nth, claim } in &run.members {
            let share = usize::try_from(wants(outcomes, *nth, claim)).unwrap_or(usize::MAX);
            let (own, others) = rows.split_at(share.min(rows.len()));
            rows = others;
            let mut jobs = self.hold_all(claim, own, &HashMap::new()).await?;
            if let Some(Ok(claims)) = outcomes.get_mut(*nth) {
                claims.jobs.append(&mut jobs);
                if wanted(claim, &claims.jobs) > 0 {
                    claims.pass_over(*class);
                    claims.cut |= found.cut;
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
        let mut claims = Claims::default();
        let avoided = self.find_avoided_by(claim).await?;
        match &claim.from {
            ClaimFrom::Classes(classes) => {
                self.claim_of(classes, Wish { claim, avoided: &avoided }, &mut claims).await?;
            }
            ClaimFrom::Queues { queues, tenant } => {
                for queue in queues {
                    let wanted = wanted(claim, &claims.jobs);
                    let bytes: usize = claims.jobs.iter().map(Claimed::bytes).sum();
                    claims.cut |= wanted > 0 && bytes >= CLAIM_BYTES_MAX;
                    if wanted == 0 || claims.cut {
                        break;
                    }
                    let classes = self.limited_of_queue(queue, tenant.as_deref()).await?;
                    if !classes.is_empty() {
                        self.claim_of(&classes, Wish { claim, avoided: &avoided }, &mut claims)
                            .await?;
                        continue;
                    }
                    let asked = wanted.min(self.cache.claim_length.jobs());
                    let from = FromQueue { queue, tenant: tenant.as_deref(), avoided: &avoided };
                    let rows = self.take_of_queue(from, asked).await?;
                    self.confirm_no_limits(&rows).await?;
                    let asked = Asked { asked, wanted };
                    self.hold_fitting(claim, &rows, asked, &mut claims).await?;
                }
            }
        }
        Ok(Ok(claims))
    }

    /// Returns the plain classes of a queue, if a limit may apply to one of them.
    async fn limited_of_queue(
        &mut self,
        queue: &str,
        tenant: Option<&str>,
    ) -> Result<Vec<ClassId>, Failure> {
        if self.known_limits().await?.limits.is_free(queue) {
            return Ok(Vec::new());
        }
        let rows = self.query(PLAIN_OF_QUEUE, values![text(queue), tenant.map(text)]).await?;
        let mut classes = Vec::with_capacity(rows.len());
        for row in &rows {
            classes.push(ClassId(get(row, 0)?));
        }
        Ok(if self.are_limited(&classes).await? { classes } else { Vec::new() })
    }

    /// Takes jobs of the classes for one claim.
    async fn claim_of(
        &mut self,
        classes: &[ClassId],
        Wish { claim, avoided }: Wish<'_>,
        claims: &mut Claims,
    ) -> Result<(), Failure> {
        let wanted = wanted(claim, &claims.jobs);
        if !self.are_limited(classes).await? {
            let asked = wanted.min(self.cache.claim_length.jobs());
            let statement = self.take_of_classes(classes, asked, avoided);
            let rows = self.query(statement.sql, statement.values).await?;
            return self.hold_fitting(claim, &rows, Asked { asked, wanted }, claims).await;
        }
        let taken = self.take_by_limits(classes, wanted, claim.is_prefetch, avoided).await?;
        let rows: Vec<&Row> = taken.rows.iter().collect();
        claims.jobs.extend(self.hold_all(claim, &rows, &taken.lanes).await?);
        if taken.cut {
            claims.cut = true;
        } else {
            taken.left.note_in(claims);
        }
        Ok(())
    }

    /// Returns what takes the first `max` jobs of the classes, but for the `avoided` ones.
    pub(super) fn take_of_classes(
        &self,
        classes: &[ClassId],
        max: i64,
        avoided: &[i64],
    ) -> Statement {
        let w = self.ranges_of(classes);
        let (now, but) = (self.batch.context.now.0, avoided.to_vec());
        match classes {
            [class] => {
                let values =
                    values![class.0, now, max, w.ranks, w.seqs, w.to_ranks, w.to_seqs, but];
                Statement::new(TAKE_OF_CLASS, values)
            }
            _ => {
                let values = values![w.keys, now, max, w.ranks, w.seqs, w.to_ranks, w.to_seqs, but];
                Statement::new(TAKE_OF_CLASSES, values)
            }
        }
    }

    async fn take_of_queue(
        &mut self,
        FromQueue { queue, tenant, avoided }: FromQueue<'_>,
        max: i64,
    ) -> Result<Vec<Row>, Failure> {
        let floors = self.holds.ready.floors();
        let is_of_queue =
            |id: &i64| self.cache.classes.key(ClassId(*id)).is_ok_and(|key| key.queue == queue);
        let w = Columns::of(&floors.all_ranges(is_of_queue));
        let (now, tenant, but) = (self.batch.context.now.0, tenant.map(text), avoided.to_vec());
        let (queue, keys) = (text(queue), w.keys);
        let values =
            values![queue, now, max, w.ranks, w.seqs, w.to_ranks, w.to_seqs, tenant, keys, but];
        let rows = self.query(TAKE_OF_QUEUE, values).await?;
        let mut classes = HashSet::new();
        for row in &rows {
            classes.insert(get::<i64>(row, STORED)?);
        }
        self.holds.ready.floors().use_keys(classes);
        Ok(rows)
    }
}

/// Returns how many jobs a claim still wants.
pub(super) fn wanted(claim: &Claim, claimed: &[Claimed]) -> i64 {
    i64::from(claim.max.get()) - i64::try_from(claimed.len()).unwrap_or(i64::MAX)
}
