//! One operation, step after step, until it has ended or another server goes on with it.

use std::time::Duration;

use outlast_core::operation::{OperationStatus, Skip};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::JobOrder;
use outlast_store::operation::{
    ExpectedOperation, OperationChange, OperationRecord, WriteOperation,
};
use outlast_store::query::{JobPage, Page};
use outlast_store::record::JobRecord;
use tokio::time::Instant;

use super::decide::{Rule, Verdict};
use super::definition::Definition;
use super::pace::Pace;
use super::service::{Operation, OperationError};
use crate::engine::Engine;

/// How many jobs are read at once.
const READ: u32 = 500;
/// How long nothing is written while nothing is found: others see that this server goes on.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// How often a step of one job is tried that the store does not take while it takes others, and the pause
/// between two tries.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_millis(200);
/// Who ends operations, for the event log.
const BY: &str = "operations";

/// How it came that this server takes no more steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It has ended.
    Ended,
    /// Someone stopped it, or another server goes on with it.
    Elsewhere,
}

/// Goes on with an operation.
pub(crate) async fn go_on(
    engine: &Engine,
    operation: Operation,
    pace: &Pace,
) -> Result<Left, OperationError> {
    let Operation { record, definition } = operation;
    let as_of = definition.as_of.unwrap_or(record.created);
    let by = format!("operation {}: {}", record.id, record.new.by);
    let rule = definition.rule(as_of);
    let written = Instant::now();
    let mut steps =
        Steps { engine, pace, rule, by, tenant: definition.tenant.clone(), record, written };
    let first = read(engine, &definition, as_of, steps.record.reached.clone());
    let mut page = match pace.read(first).await {
        Ok(page) => page,
        Err(error) => return steps.failed(error).await,
    };
    loop {
        let next = page.next.clone();
        let ahead = async {
            match next {
                Some(_) => pace.read(read(engine, &definition, as_of, next)).await.map(Some),
                None => Ok(None),
            }
        };
        // What is read meanwhile lies behind what is changed.
        let (left, ahead) = tokio::join!(steps.take(&page), ahead);
        if let Some(left) = left? {
            return Ok(left);
        }
        match ahead {
            Ok(Some(ahead)) => page = ahead,
            Ok(None) => {
                return steps.end(OperationStatus::Done, None).await;
            }
            Err(error) => return steps.failed(error).await,
        }
    }
}

async fn read(
    engine: &Engine,
    definition: &Definition,
    as_of: Timestamp,
    cursor: Option<String>,
) -> Result<JobPage, OperationError> {
    let query = definition.query_as_of(as_of, Page { limit: READ, cursor })?;
    Ok(engine.store().jobs(query).await?)
}

struct Steps<'a> {
    engine: &'a Engine,
    pace: &'a Pace,
    rule: Rule,
    by: String,
    tenant: Option<String>,
    record: OperationRecord,
    /// When it was written last.
    written: Instant,
}

impl Steps<'_> {
    /// Takes the steps of a page; returns why no others follow, if none do.
    async fn take(&mut self, page: &JobPage) -> Result<Option<Left>, OperationError> {
        let (mut at, mut most, mut tries) = (0, usize::MAX, 0);
        while at < page.jobs.len() {
            let end = page.jobs.len().min(at + self.pace.step().await.min(most));
            let is_last = end == page.jobs.len();
            let reached = page.next.clone().filter(|_| is_last);
            let reached = reached.or_else(|| page.cursors.get(end - 1).cloned());
            let jobs = page.jobs.get(at..end).unwrap_or_default();
            let left = match self.step(jobs, reached.clone()).await {
                // One job that cannot be written must not hold up all others: it is found by smaller
                // steps, and left out.
                Err(OperationError::Unavailable(error)) if error.is_alone && tries < TRIES => {
                    (most, tries) = ((jobs.len() / 2).max(1), tries + u32::from(jobs.len() == 1));
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                Err(OperationError::Unavailable(error)) if error.is_alone => {
                    let job = jobs.first().map(|job| job.job.id);
                    tracing::warn!(operation = %self.record.id, ?job, %error, "job is left out");
                    self.leave_out(reached).await?
                }
                left => left?,
            };
            if left.is_some() {
                return Ok(left);
            }
            (at, most, tries) = (end, most.saturating_mul(2), 0);
        }
        if page.jobs.is_empty() && page.next.is_some() && self.written.elapsed() > SIGN_OF_LIFE {
            return self.step(&[], page.next.clone()).await;
        }
        Ok(None)
    }

    async fn step(
        &mut self,
        jobs: &[JobRecord],
        reached: Option<String>,
    ) -> Result<Option<Left>, OperationError> {
        let mut to = self.running(reached);
        let mut orders = Vec::with_capacity(jobs.len());
        for job in jobs {
            let verdict = self.rule.of(job);
            match verdict {
                Verdict::Leave => continue,
                Verdict::Skip(skip) => *to.skipped.entry(skip).or_default() += 1,
                Verdict::Change(expected) => orders.push(JobOrder {
                    job: job.job.id,
                    action: self.rule.action(),
                    tenant: self.tenant.clone(),
                    by: self.by.clone(),
                    expected,
                }),
            }
            to.matched += 1;
        }
        Ok(self.write(to, orders).await?.err())
    }

    /// Counts a job as one that stays as it is.
    async fn leave_out(&mut self, reached: Option<String>) -> Result<Option<Left>, OperationError> {
        let to = OperationChange {
            matched: 1,
            skipped: [(Skip::Unwritable, 1)].into(),
            ..self.running(reached)
        };
        Ok(self.write(to, Vec::new()).await?.err())
    }

    fn running(&self, reached: Option<String>) -> OperationChange {
        OperationChange {
            reached,
            runner: Some(self.engine.server_id()),
            ..OperationChange::to(OperationStatus::Running)
        }
    }

    /// Writes it, unless it was written by another since it was read.
    async fn write(
        &mut self,
        to: OperationChange,
        orders: Vec<JobOrder>,
    ) -> Result<Result<(), Left>, OperationError> {
        let write = WriteOperation {
            id: self.record.id,
            expected: ExpectedOperation::Revision(self.record.revision),
            new: None,
            to,
            orders,
            by: BY.to_owned(),
        };
        match self.engine.submit(write).await? {
            Ok(written) => {
                self.record = written.record;
                self.written = Instant::now();
                Ok(Ok(()))
            }
            Err(_refusal) => Ok(Err(Left::Elsewhere)),
        }
    }

    async fn end(
        &mut self,
        status: OperationStatus,
        note: Option<String>,
    ) -> Result<Left, OperationError> {
        let to = OperationChange { note, ..OperationChange::to(status) };
        match self.write(to, Vec::new()).await? {
            Ok(()) => Ok(Left::Ended),
            Err(left) => Ok(left),
        }
    }

    /// Ends an operation that would fail again in the same way. Any other failure may pass.
    async fn failed(&mut self, error: OperationError) -> Result<Left, OperationError> {
        match error {
            OperationError::Store(StoreError::Rejected(_) | StoreError::Corrupt(_))
            | OperationError::Fault(_) => {
                let note = format!("the store cannot read the jobs: {error}");
                tracing::warn!(operation = %self.record.id, %error, "operation failed");
                self.end(OperationStatus::Failed, Some(note)).await
            }
            other => Err(other),
        }
    }
}
