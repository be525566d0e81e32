//! What a batch needs, loaded and locked ahead in one round trip.

use std::collections::BTreeSet;

use outlast_core::id::{JobId, WorkerId};
use outlast_store::command::{Claimant, Command};
use outlast_store::{Batch, Clock, StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::failure::Failure;
use crate::link::{Ask, values};
use crate::row::{self, get};
use crate::writer::live::held_by_id;
use crate::writer::workers::{COUNT_HELD, known_of};
use crate::writer::{NOW, Writing, lock_of};

/// What the commands of a batch name.
#[derive(Debug, Default)]
struct Need {
    /// Jobs to be moved or asked about.
    jobs: Vec<Uuid>,
    /// Jobs to be stored.
    new: Vec<Uuid>,
    /// Workers to be changed, or that must not change meanwhile; in the order of locking.
    workers: BTreeSet<Uuid>,
    /// Workers whose attempts are counted.
    counted: Vec<Uuid>,
}

impl Need {
    fn of(commands: &[Command]) -> Self {
        let mut need = Self::default();
        for command in commands {
            need.add(command);
        }
        need
    }

    fn add(&mut self, command: &Command) {
        match command {
            Command::Enqueue(job) => self.new.push(job.id.0),
            Command::EnqueueAll(jobs) => self.new.extend(jobs.iter().map(|job| job.id.0)),
            Command::EnqueueOnce(once) => self.new.extend(once.jobs.iter().map(|job| job.id.0)),
            Command::Claim(claim) => {
                if let Claimant::Native { worker, .. } = &claim.claimant {
                    self.workers.insert(worker.0);
                }
            }
            Command::Start(start) => self.jobs.push(start.job.0),
            Command::Finish(finish) => self.jobs.push(finish.job.0),
            Command::Progress(progress) => self.jobs.push(progress.job.0),
            Command::Cancel(order)
            | Command::Activate(order)
            | Command::Replay(order)
            | Command::ForgetDeadLetter(order) => self.jobs.push(order.job.0),
            Command::Renew(renew) => {
                self.workers.insert(renew.worker.0);
                self.counted.push(renew.worker.0);
            }
            Command::Register(registration) => {
                self.workers.insert(registration.id.0);
            }
            Command::Attach(attach) => {
                self.workers.insert(attach.worker.0);
            }
            Command::Worker(step) => {
                self.workers.insert(step.worker.0);
            }
            Command::Lapse(lapse) => {
                self.workers.insert(lapse.worker.0);
            }
            Command::ForgetWorker(worker) => {
                self.workers.insert(worker.0);
            }
            Command::Extend(_)
            | Command::TakeIn(_)
            | Command::Sweep(_)
            | Command::Strand(_)
            | Command::Queue(_)
            | Command::Log(_)
            | Command::Duty(_)
            | Command::Prune(_)
            | Command::Reset => {}
        }
    }
}

/// What is done with the rows of a statement of the opening.
#[derive(Clone, Copy)]
enum Take {
    Nothing,
    Time,
    Numbers,
    Known,
    Workers,
    Counts,
    Held,
}

impl Writing<'_> {
    /// Opens the transaction. A careful one looks up which of the new jobs are there
    /// already, which is only worth it once one was.
    pub(super) async fn begin(
        &mut self,
        batch: &Batch,
        clock: Option<&dyn Clock>,
    ) -> Result<(), Failure> {
        let mut need = Need::of(&batch.commands);
        let mut asks =
            vec![(Take::Nothing, Ask::plain("begin")), (Take::Nothing, lock_of(batch.id))];
        match clock {
            Some(clock) => self.now = self.now.max(clock.now()),
            None => asks.push((Take::Time, Ask::plain(NOW))),
        }
        self.say(&need, &mut asks);
        let (takes, asks): (Vec<Take>, Vec<Ask>) = asks.into_iter().unzip();
        let found = self.link.run(&asks).await?;
        for (take, rows) in takes.into_iter().zip(found) {
            self.take_in(take, &rows, &mut need.jobs).await?;
        }
        for worker in need.workers {
            self.workers.entry(WorkerId(worker)).or_insert(None);
        }
        if !need.jobs.is_empty() {
            self.look_for(need.jobs).await?;
        }
        Ok(())
    }

    fn say(&self, need: &Need, asks: &mut Vec<(Take, Ask)>) {
        if !need.new.is_empty() {
            let many = i64::try_from(need.new.len()).unwrap_or(i64::MAX);
            let sql = "select nextval('job_seq') from generate_series(1, $1::bigint)";
            asks.push((Take::Numbers, Ask::new(sql, values![many])));
            if self.careful {
                let sql = "select id from job_row where id = any($1::uuid[])";
                asks.push((Take::Known, Ask::new(sql, values![need.new.clone()])));
            }
        }
        if !need.workers.is_empty() {
            let ids: Vec<Uuid> = need.workers.iter().copied().collect();
            asks.push((
                Take::Workers,
                Ask::new(
                    "select id, phase, liveness, session_seq, renewal_seq, lease_until_ms,
                            attachment
                     from worker where id = any($1::uuid[]) order by id for update",
                    values![ids],
                ),
            ));
        }
        if !need.counted.is_empty() {
            asks.push((Take::Counts, Ask::new(COUNT_HELD, values![need.counted.clone()])));
        }
        if !need.jobs.is_empty() {
            asks.push((Take::Held, held_by_id(need.jobs.clone())));
        }
    }

    async fn take_in(
        &mut self,
        take: Take,
        rows: &[Row],
        jobs: &mut Vec<Uuid>,
    ) -> Result<(), Failure> {
        match take {
            Take::Nothing => {}
            Take::Time => {
                let row = rows.first();
                let row = row.ok_or_else(|| StoreError::Corrupt("no time was told".into()))?;
                self.now = self.now.max(row::time(row, 0)?);
            }
            Take::Numbers => {
                for row in rows {
                    self.numbers.push_back(get(row, 0)?);
                }
            }
            Take::Known => {
                for row in rows {
                    self.known.insert(JobId(get(row, 0)?));
                }
            }
            Take::Workers => {
                for row in rows {
                    self.workers.insert(WorkerId(get(row, 0)?), Some(known_of(row)?));
                }
            }
            Take::Counts => self.take_counts(rows)?,
            Take::Held => self.take_held(rows, jobs).await?,
        }
        Ok(())
    }
}
