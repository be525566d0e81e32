//! Loads and locks in one round trip what a batch needs. The optimistic path skips this.

use std::collections::BTreeSet;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::worker::order::HEIR_TAKES_ORDERS;
use outlast_store::command::{Claimant, Command, Fence, NewJob, WriteOperation};
use outlast_store::{Batch, BatchId, StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::read::worker::STANDING_ORDERS;
use crate::row::{self, get, int};
use crate::writer::Tx;
use crate::writer::depth::{LOCK_SERVERS, LOCK_SLOTS, asking, bounds_queues};
use crate::writer::limit::{LOCK, changes_limits};
use crate::writer::load::active_by_id;
use crate::writer::operation::LOCK_OPERATIONS;
use crate::writer::patience::limiting;
use crate::writer::schedule::LOCK_SCHEDULES;
use crate::writer::workers::{ORDERS_LOCK, known_of};
use crate::writer::workflow::LOCK_WORKFLOWS;

/// Locks workers, in the order of their ids, and reads what [`known_of`] wants, and `$more`.
macro_rules! lock_workers {
    ($more:literal, $which:literal) => {
        concat!(
            "select id, phase, liveness, session_seq, renewal_seq, lease_until_ms, attachment,
                    plain_id is not null, unhealthy is not null, ordered, ordered_ms, previous,
                    evidence_code, updated_ms, followed_by",
            $more,
            " from worker where ",
            $which,
            " order by id for update"
        )
    };
}

/// What the commands of a batch name.
#[derive(Debug, Default)]
struct Prefetch {
    /// Jobs to be moved or asked about.
    jobs: Vec<Uuid>,
    /// Jobs to be stored.
    new: Vec<Uuid>,
    /// Workers to be changed, or that must not change meanwhile; in the order of locking.
    workers: BTreeSet<Uuid>,
    /// Whether what is read first, or the exact time, decides: by our own clock a lease that
    /// another server sees as over may last a moment longer.
    exact: bool,
    /// Schedules to be written.
    schedules: BTreeSet<String>,
    /// Workflows to be written.
    workflows: BTreeSet<Uuid>,
    /// Operations to be written.
    operations: BTreeSet<Uuid>,
    /// Workers whose attempts are counted.
    counted: Vec<Uuid>,
    /// Whether jobs take unique keys.
    unique: bool,
    others: Others,
    registers: Registers,
}

/// What the batch has to do with workers to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Registers {
    /// Nothing.
    #[default]
    None,
    /// It registers some: no order to them is given meanwhile.
    Some,
    /// It orders all workers something: no other registers meanwhile.
    OrdersAll,
}

/// What other servers do while the batch is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Others {
    #[default]
    GoOn,
    /// They must not make claims by limits, which the batch may change.
    MakeNoClaims,
    /// They must not store jobs in queues that the batch bounds.
    Wait,
}

impl Prefetch {
    /// Gathers it; `remembered` is asked for the attempts that reports are about.
    fn of(commands: &[Command], mut remembered: impl FnMut(JobId, &Fence) -> bool) -> Self {
        let mut need = Self::default();
        for command in commands {
            match command {
                Command::Start(start) if remembered(start.job, &start.fence) => {}
                Command::Finish(finish) if remembered(finish.job, &finish.fence) => {}
                other => need.add(other),
            }
        }
        need
    }

    fn change(&mut self, worker: WorkerId) {
        self.workers.insert(worker.0);
        self.exact = true;
    }

    fn store(&mut self, job: &NewJob) {
        self.new.push(job.id.0);
        self.unique |= job.unique.is_some();
    }

    fn operate(&mut self, write: &WriteOperation) {
        self.jobs.extend(write.orders.iter().map(|order| order.job.0));
        self.operations.insert(write.id.0);
        self.exact = true;
    }

    /// Jobs that are stored with what else their command writes.
    fn store_exactly(&mut self, jobs: &[NewJob]) {
        jobs.iter().for_each(|job| self.store(job));
        self.exact = true;
    }

    fn add(&mut self, command: &Command) {
        if bounds_queues(command) {
            self.others = Others::Wait;
        } else if changes_limits(command) {
            self.others = self.others.max(Others::MakeNoClaims);
        }
        match command {
            Command::Enqueue(job) => self.store(job),
            Command::EnqueueAll(jobs) => jobs.iter().for_each(|job| self.store(job)),
            Command::EnqueueOnce(once) => once.jobs.iter().for_each(|job| self.store(job)),
            Command::Claim(claim) => {
                if let Claimant::Native { worker, .. } = &claim.claimant {
                    self.workers.insert(worker.0);
                }
            }
            Command::Start(start) => self.jobs.push(start.job.0),
            Command::Adopt(adopt) => {
                self.jobs.push(adopt.job.0);
                self.change(adopt.worker);
            }
            Command::Finish(finish) => self.jobs.push(finish.job.0),
            Command::Progress(progress) => self.jobs.push(progress.job.0),
            Command::Order(order) => self.jobs.push(order.job.0),
            Command::ForgetDeadLetter(order) => self.jobs.push(order.job.0),
            Command::Renew(renew) => {
                self.change(renew.worker);
                self.counted.push(renew.worker.0);
            }
            Command::Register(registration) => {
                self.change(registration.id);
                self.workers.extend(registration.previous.iter().map(|previous| previous.0));
                self.registers = self.registers.max(Registers::Some);
            }
            Command::OrderWorkers(_) => {
                self.exact = true;
                self.registers = Registers::OrdersAll;
            }
            Command::ReportHealth(said) => self.change(said.worker),
            Command::Attach(attach) => self.change(attach.worker),
            Command::Worker(step) => self.change(step.worker),
            Command::Lapse(lapse) => self.change(lapse.worker),
            Command::ForgetWorker(order) => self.change(order.worker),
            Command::WriteSchedule(write) => {
                self.store_exactly(&write.jobs);
                self.schedules.insert(write.name.to_string());
            }
            Command::WriteWorkflow(write) => {
                self.store_exactly(&write.jobs);
                self.workflows.insert(write.id.0);
            }
            Command::WriteOperation(write) => self.operate(write),
            Command::Log(_)
            | Command::EnqueueArrived(_)
            | Command::NoteLoss(_)
            | Command::NoteSkew(_) => {}
            Command::Extend(_)
            | Command::Sweep(_)
            | Command::Strand(_)
            | Command::HandleLetters(_)
            | Command::Queue(_)
            | Command::SetQueue(_)
            | Command::SetLimit(_)
            | Command::RemoveLimit(_)
            | Command::Recount(_)
            | Command::BeginSession(_)
            | Command::RenewSession(_)
            | Command::EndSessions(_)
            | Command::Leadership(_)
            | Command::Prune(_)
            | Command::Reset => self.exact = true,
        }
    }
}

/// What is done with the rows of a statement of the opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    Nothing,
    Time,
    Known,
    Workers,
    Living,
    Orders,
    Schedules,
    Workflows,
    Operations,
    Counts,
}

impl Tx<'_> {
    /// Opens the transaction. A locked batch loads everything first. An optimistic one is opened by
    /// the first statement that it sends.
    pub(super) async fn begin(&mut self, batch: &Batch) -> Result<(), Failure> {
        let need = Prefetch::of(&batch.commands, |job, fence| {
            let found = if self.locks.come_first {
                None
            } else {
                self.cache.attempt_cache.take(job, fence)
            };
            let Some(loaded) = found else { return false };
            self.seen.jobs.insert(job, loaded);
            self.seen.remembered.insert(job)
        });
        self.opening.statements = self.opening_of(batch.id, &need);
        let asks = !need.new.is_empty() && self.bounds.known.is_none();
        let reads = !need.jobs.is_empty() || need.exact || self.locks.come_first || asks;
        let server_time = match self.clock.own {
            Some(clock) => Some(clock.now()),
            None => self.clock.time.recent(),
        };
        if let Some(now) = server_time {
            self.batch.context.now = self.clock.time.at_least(now);
        }
        if server_time.is_some() && !reads {
            self.note_bounded(batch, need.others == Others::Wait);
            return Ok(());
        }
        let mut statements =
            if need.jobs.is_empty() { Vec::new() } else { vec![active_by_id(need.jobs.clone())] };
        if asks {
            statements.push(asking(self.server));
        }
        let mut found = self.query_all(statements).await?;
        if asks && let Some(rows) = found.pop() {
            self.learn_bounds(&rows)?;
        }
        self.note_bounded(batch, need.others == Others::Wait);
        if let (None, Some(now)) = (self.clock.own, self.opening.server_time) {
            self.batch.context.now = self.clock.time.at_least(now);
        }
        for worker in need.workers {
            self.seen.workers.entry(WorkerId(worker)).or_insert(None);
        }
        let mut jobs = need.jobs;
        self.take_active(&found.concat(), &mut jobs).await?;
        if !jobs.is_empty() {
            self.look_for(jobs).await?;
        }
        Ok(())
    }

    fn opening_of(&self, id: BatchId, need: &Prefetch) -> Vec<(Take, Statement)> {
        let mark = "select outlast.open_batch($1, $2, $3, $4)";
        // Only a batch that stores jobs must know which queues are bounded.
        let known = self.bounds.known.as_ref().filter(|_| !need.new.is_empty());
        let known = known.map(|known| known.number);
        let mut statements = vec![(Take::Nothing, Statement::plain("begin"))];
        if need.others != Others::GoOn {
            // Before anything else is locked, and in the same order for all: this waits for others.
            let alone = Statement::new("select pg_advisory_xact_lock($1)", values![LOCK]);
            statements.push((Take::Nothing, alone));
        }
        if need.others == Others::Wait {
            statements.push((Take::Nothing, Statement::plain(LOCK_SERVERS)));
            statements.push((Take::Nothing, Statement::plain(LOCK_SLOTS)));
        }
        let turn = match need.registers {
            Registers::None => None,
            Registers::Some => Some("select pg_advisory_xact_lock_shared($1)"),
            Registers::OrdersAll => Some("select pg_advisory_xact_lock($1)"),
        };
        if let Some(turn) = turn {
            statements.push((Take::Nothing, Statement::new(turn, values![ORDERS_LOCK])));
        }
        let opened = values![id.server, int(id.n), known, self.slot];
        statements.push((Take::Time, Statement::new(mark, opened)));
        if let Some(brief) = self.locks.brief {
            statements.push((Take::Nothing, limiting(brief)));
        }
        if self.locks.patience.hurries() {
            statements.push((Take::Nothing, Statement::plain("set local lock_timeout = '20ms'")));
        } else if need.unique || need.others == Others::MakeNoClaims || self.locks.brief.is_some() {
            // A statement that only waits for a lock is not slow.
            // No claim is made by limits while a batch that changes them waits.
            // Another transaction may have taken the same key, and not have ended yet.
            statements.push((Take::Nothing, Statement::plain("set local lock_timeout = '100ms'")));
        }
        if need.registers != Registers::None {
            statements.push((Take::Orders, Statement::plain(STANDING_ORDERS)));
        }
        let ids: Vec<Uuid> = need.workers.iter().copied().collect();
        if need.registers == Registers::OrdersAll {
            let lock = lock_workers!(
                ", labels",
                "liveness < 2 or liveness = 2 and ordered is not null or id = any($1::uuid[])
                     or updated_ms >= $3 + coalesce($2::bigint,
                     (extract(epoch from clock_timestamp()) * 1000)::bigint)"
            );
            let now = self.clock.own.map(|clock| clock.now().0);
            let since = int(HEIR_TAKES_ORDERS.0).saturating_neg();
            statements.push((Take::Living, Statement::new(lock, values![ids, now, since])));
        } else if !ids.is_empty() {
            let lock = lock_workers!("", "id = any($1::uuid[])");
            statements.push((Take::Workers, Statement::new(lock, values![ids])));
        }
        if !need.schedules.is_empty() {
            let names: Vec<String> = need.schedules.iter().cloned().collect();
            statements.push((Take::Schedules, Statement::new(LOCK_SCHEDULES, values![names])));
        }
        if !need.workflows.is_empty() {
            let ids: Vec<Uuid> = need.workflows.iter().copied().collect();
            statements.push((Take::Workflows, Statement::new(LOCK_WORKFLOWS, values![ids])));
        }
        if !need.operations.is_empty() {
            let ids: Vec<Uuid> = need.operations.iter().copied().collect();
            statements.push((Take::Operations, Statement::new(LOCK_OPERATIONS, values![ids])));
        }
        if !need.counted.is_empty() {
            statements.push((Take::Counts, self.counting(&need.counted)));
        }
        if self.locks.come_first && !need.new.is_empty() {
            let sql = "select id from job_row where id = any($1::uuid[])";
            statements.push((Take::Known, Statement::new(sql, values![need.new.clone()])));
        }
        statements
    }

    /// Keeps what a statement of the opening told.
    pub(super) fn take_in(
        &mut self,
        take: Take,
        at: usize,
        rows: &[Row],
    ) -> Result<(), StoreError> {
        match take {
            Take::Nothing => {}
            Take::Time => {
                let row = rows.first();
                let row =
                    row.ok_or_else(|| StoreError::Corrupt("PostgreSQL returned no time".into()))?;
                let now = row::time(row, 0)?;
                self.clock.time.note(now, self.connection.answered(at));
                self.opening.server_time = Some(now);
            }
            Take::Known => {
                for row in rows {
                    self.seen.stored.insert(JobId(get(row, 0)?));
                }
            }
            Take::Workers => {
                for row in rows {
                    self.seen.workers.insert(WorkerId(get(row, 0)?), Some(known_of(row)?));
                }
            }
            Take::Living => {
                for row in rows {
                    let id = WorkerId(get(row, 0)?);
                    self.seen.workers.insert(id, Some(known_of(row)?));
                    let labels: &str = get(row, 15)?;
                    let damaged = |_json| StoreError::Corrupt(format!("labels of worker {id}"));
                    let labels = serde_json::from_str(labels).map_err(damaged)?;
                    self.seen.labels.insert(id, labels);
                }
            }
            Take::Orders => self.take_orders(rows)?,
            Take::Schedules => self.take_schedules(rows)?,
            Take::Workflows => self.take_workflows(rows)?,
            Take::Operations => self.take_operations(rows)?,
            Take::Counts => self.take_counts(rows)?,
        }
        Ok(())
    }
}
