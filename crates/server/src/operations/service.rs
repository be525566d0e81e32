//! Requests about operations: begin, find, list, stop.

use std::time::Duration;

use outlast_core::operation::{OperationId, OperationStatus};
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::operation::{
    ExpectedOperation, NewOperation, OperationChange, OperationRecord, OperationRefusal,
    WriteOperation,
};
use outlast_wire::Fault;
use outlast_wire::time::Rfc3339;
use uuid::Uuid;

use super::count::{Counted, count, estimate};
use super::definition::Definition;
use crate::engine::{Engine, Unavailable};
use crate::id;

/// The time in ids that follow from an `Idempotency-Key`.
const TIME_OF_KEYS: Timestamp = Timestamp(0);
/// How often a stop is tried while another server takes steps, and the pause between two tries.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(3);

/// Why a request about an operation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OperationError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("{0}")]
    Fault(Fault),
    #[error("operation {0} is not known")]
    NotFound(OperationId),
    #[error("Idempotency-Key was used for another operation")]
    KeyReused,
    #[error("too many operations run already; wait until one has ended, or stop one")]
    TooMany,
    #[error("operation {id} is {}; only one that runs can be stopped", .status.as_str())]
    Ended { id: OperationId, status: OperationStatus },
    #[error("{0}")]
    Stale(String),
    #[error("operation {0} is stored as this server cannot read it: {1}")]
    Damaged(OperationId, String),
}

impl From<Fault> for OperationError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// An operation as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) record: OperationRecord,
    pub(crate) definition: Definition,
}

/// An operation as it is shown: also one that this server cannot read, which a later build may have begun.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    Whole(Box<Operation>),
    /// What it is about cannot be read, for this reason.
    Damaged(Box<OperationRecord>, String),
}

impl Shown {
    /// Reads an operation as far as this server can.
    pub(crate) fn of(record: OperationRecord) -> Self {
        match Definition::of(&record) {
            Ok(definition) => Self::Whole(Box::new(Operation { record, definition })),
            Err(problem) => Self::Damaged(Box::new(record), problem),
        }
    }

    pub(crate) fn record(&self) -> &OperationRecord {
        match self {
            Self::Whole(operation) => &operation.record,
            Self::Damaged(record, _) => record,
        }
    }

    pub(crate) fn definition(&self) -> Option<&Definition> {
        match self {
            Self::Whole(operation) => Some(&operation.definition),
            Self::Damaged(..) => None,
        }
    }

    /// Whether a tenant may see it. A damaged operation is shown to no tenant, as its tenant is unknown.
    pub(crate) fn is_of(&self, tenant: Option<&str>) -> bool {
        tenant.is_none() || self.definition().and_then(|it| it.tenant.as_deref()) == tenant
    }
}

/// What became of a request to begin an operation.
#[derive(Clone, Debug)]
pub(crate) enum Begun {
    Now(Operation),
    /// A request like it began it before.
    Before(Operation),
}

/// Who begins an operation.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// Who, and from where.
    pub(crate) by: String,
    /// The digest of the key of a request that may come again.
    pub(crate) key: Option<[u8; 32]>,
}

/// Begins an operation, unless what matches is not what someone decided by.
pub(crate) async fn begin(
    engine: &Engine,
    mut definition: Definition,
    author: Author,
) -> Result<Begun, OperationError> {
    let id = match &author.key {
        Some(key) => OperationId(id::of_digest(TIME_OF_KEYS, key)),
        None => OperationId(Uuid::now_v7()),
    };
    if author.key.is_some()
        && let Some(before) = before(engine, id, &definition).await?
    {
        return Ok(Begun::Before(before));
    }
    if let Some(expected) = definition.expected {
        let counted = count(engine, &definition, definition.as_of).await?;
        check(&counted, expected, definition.as_of)?;
    }
    definition.estimate = estimate(engine, &definition).await;
    let new = NewOperation {
        kind: definition.kind,
        about: about(&definition),
        definition: definition.text(),
        by: author.by.clone(),
    };
    let write = WriteOperation {
        id,
        expected: ExpectedOperation::Absent,
        new: Some(new),
        to: OperationChange {
            runner: Some(engine.server_id()),
            ..OperationChange::to(OperationStatus::Running)
        },
        orders: Vec::new(),
        by: author.by,
    };
    match engine.submit(write).await? {
        Ok(written) => {
            engine.shared().operations_wanted.notify_one();
            Ok(Begun::Now(Operation { record: written.record, definition }))
        }
        Err(OperationRefusal::TooMany) => Err(OperationError::TooMany),
        // The same request came twice at once.
        Err(OperationRefusal::Changed) => match before(engine, id, &definition).await? {
            Some(before) => Ok(Begun::Before(before)),
            None => Err(OperationError::NotFound(id)),
        },
    }
}

/// Returns an operation that the same request began, if it came before.
async fn before(
    engine: &Engine,
    id: OperationId,
    definition: &Definition,
) -> Result<Option<Operation>, OperationError> {
    let Some(record) = engine.store().operation(id).await? else { return Ok(None) };
    let found = read(record)?;
    match found.definition.request == definition.request {
        true => Ok(Some(found)),
        false => Err(OperationError::KeyReused),
    }
}

/// Refuses an operation that was decided by another number of jobs than match.
///
/// Jobs come and go while someone reads. Without the time of the decision, the number must be the same.
/// With it, none that came later is touched; then so few may be left that the decision was about
/// something else.
fn check(counted: &Counted, expected: u64, as_of: Option<Timestamp>) -> Result<(), OperationError> {
    let matched = counted.matched;
    let words = match as_of {
        None if counted.is_exact && matched != expected || matched > expected => {
            format!("{matched} jobs match now, and not {expected} as when this was decided")
        }
        Some(as_of) if counted.is_exact && matched.saturating_mul(2) < expected => {
            format!("of the {expected} jobs that matched at {}, {matched} still do", Rfc3339(as_of))
        }
        _ => return Ok(()),
    };
    Err(OperationError::Stale(format!("{words}; nothing was changed, look again")))
}

/// Says in words which jobs these are, and why, for the event log.
fn about(definition: &Definition) -> String {
    let tenant = definition.tenant.iter().map(|tenant| format!(" of tenant {tenant}"));
    let as_of = definition.as_of.iter().map(|at| format!(", as of {}", Rfc3339(*at)));
    let reason = Some(&definition.reason).filter(|reason| !reason.is_empty());
    let reason = reason.iter().map(|reason| format!(" ({reason})"));
    let more: String = tenant.chain(as_of).chain(reason).collect();
    definition.filter.in_words(definition.kind) + &more
}

/// Reads what an operation is about.
pub(crate) fn read(record: OperationRecord) -> Result<Operation, OperationError> {
    let definition =
        Definition::of(&record).map_err(|problem| OperationError::Damaged(record.id, problem))?;
    Ok(Operation { record, definition })
}

/// Finds an operation; one of another tenant is not found.
pub(crate) async fn find(
    engine: &Engine,
    id: OperationId,
    tenant: Option<&str>,
) -> Result<Shown, OperationError> {
    let record = engine.store().operation(id).await?;
    let found = Shown::of(record.ok_or(OperationError::NotFound(id))?);
    if found.is_of(tenant) { Ok(found) } else { Err(OperationError::NotFound(id)) }
}

/// Stops an operation: no step is taken after this.
pub(crate) async fn stop(
    engine: &Engine,
    id: OperationId,
    by: &str,
) -> Result<Shown, OperationError> {
    let to = OperationChange {
        note: Some(format!("stopped by {by}")),
        ..OperationChange::to(OperationStatus::Stopped)
    };
    let write = WriteOperation {
        id,
        expected: ExpectedOperation::Running,
        new: None,
        to,
        orders: Vec::new(),
        by: by.to_owned(),
    };
    for _ in 0..TRIES {
        if let Ok(written) = engine.submit(write.clone()).await? {
            return Ok(Shown::of(written.record));
        }
        // On a database of several servers, one that another is about to write looks as if it were not
        // there.
        let found = engine.store().operation(id).await?.ok_or(OperationError::NotFound(id))?;
        if found.status != OperationStatus::Running {
            return Err(OperationError::Ended { id, status: found.status });
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Unavailable::new("the operation is being written by another server").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(matched: u64, is_exact: bool, expected: u64, as_of: Option<i64>) -> bool {
        let counted = Counted { matched, is_exact, examples: Vec::new() };
        check(&counted, expected, as_of.map(Timestamp)).is_err()
    }

    #[test]
    fn decision_about_other_jobs_is_refused() {
        assert!(!refused(7, true, 7, None));
        assert!(refused(8, true, 7, None) && refused(6, true, 7, None));
        // At least as many as were expected.
        assert!(!refused(10_000, false, 10_000, None) && !refused(9_000, false, 10_000, None));
        assert!(refused(10_000, false, 9_999, None));
        // Of those that matched then, some have moved on.
        assert!(!refused(100, true, 100, Some(1)) && !refused(50, true, 100, Some(1)));
        assert!(refused(49, true, 100, Some(1)) && refused(0, true, 1, Some(1)));
        assert!(!refused(10, false, 100, Some(1)));
    }
}
