//! What is stored of a request for an operation, and the query that it stands for.

use outlast_core::id::{JobId, WorkerId};
use outlast_core::operation::OperationKind;
use outlast_core::time::{Span, Timestamp};
use outlast_store::operation::OperationRecord;
use outlast_store::query::{JobQuery, Page};
use outlast_wire::Fault;
use outlast_wire::operation::JobFilter;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::decide::Rule;
use crate::id;
use crate::job_filter::narrowed;

/// Which jobs an operation is about, and how that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) kind: OperationKind,
    /// Its worker is named by id.
    pub(crate) filter: JobFilter,
    /// Only jobs of this tenant.
    pub(crate) tenant: Option<String>,
    /// When it was decided, if that was before the operation began.
    pub(crate) as_of: Option<Timestamp>,
    /// How many matched then.
    pub(crate) expected: Option<u64>,
    /// About how many matched at the begin, where that was known without counting.
    pub(crate) estimate: Option<u64>,
    /// Why.
    pub(crate) reason: String,
    /// The digest of a request that may come again.
    pub(crate) request: Option<String>,
}

/// How it is written.
#[derive(Serialize, Deserialize)]
struct Stored {
    filter: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_of: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    estimate: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
}

impl Definition {
    pub(crate) fn text(&self) -> String {
        let stored = Stored {
            filter: self.filter.document(),
            tenant: self.tenant.clone(),
            as_of: self.as_of.map(|at| at.0),
            expected: self.expected,
            estimate: self.estimate,
            reason: self.reason.clone(),
            request: self.request.clone(),
        };
        // Keys and values are texts and numbers.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads what is stored of an operation.
    pub(crate) fn of(record: &OperationRecord) -> Result<Self, String> {
        let stored: Stored =
            serde_json::from_str(&record.new.definition).map_err(|error| error.to_string())?;
        // Its times are fixed, so it does not matter when they are read.
        let filter = JobFilter::read(&stored.filter, record.created);
        Ok(Self {
            kind: record.new.kind,
            filter: filter.map_err(|fault| fault.to_string())?,
            tenant: stored.tenant,
            as_of: stored.as_of.map(Timestamp),
            expected: stored.expected,
            estimate: stored.estimate,
            reason: stored.reason,
            request: stored.request,
        })
    }

    /// Returns the query of the jobs that match now.
    pub(crate) fn query(&self, page: Page) -> Result<JobQuery, Fault> {
        let filter = &self.filter;
        let worker = filter.worker.as_deref().map(|id| {
            let unknown = |_not| Fault::field("worker", "must be the id of a worker");
            Uuid::try_parse(id).map(WorkerId).map_err(unknown)
        });
        let query = JobQuery {
            queue: filter.queue.clone(),
            job_type: filter.job_type.clone(),
            worker: worker.transpose()?,
            tenant: self.tenant.clone(),
            keys: filter.keys.clone(),
            schedule: filter.schedule.clone(),
            workflow: filter.workflow,
            error: filter.error.clone(),
            id_suffix: filter.id_suffix.clone(),
            ids: filter
                .id
                .as_deref()
                .map(id::that_begin)
                .map(|(first, last)| (JobId(first), JobId(last))),
            created_from: filter.created_from,
            created_before: filter.created_before,
            ..JobQuery::all(page)
        };
        Ok(narrowed(query, &filter.statuses(self.kind)))
    }

    /// Returns the query of those of them that were made by a time, to the millisecond.
    pub(crate) fn query_as_of(&self, as_of: Timestamp, page: Page) -> Result<JobQuery, Fault> {
        let query = self.query(page)?;
        let end = as_of.after(Span(1));
        let before = query.created_before.map_or(end, |before| before.min(end));
        Ok(JobQuery { created_before: Some(before), ..query })
    }

    /// Returns what decides about each of them.
    pub(crate) fn rule(&self, as_of: Timestamp) -> Rule {
        Rule { kind: self.kind, as_of, is_lasting: self.filter.is_lasting(self.kind) }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::operation::{OperationId, OperationStatus};
    use outlast_store::operation::NewOperation;
    use serde_json::json;

    use super::*;

    fn definition(filter: &Value) -> Definition {
        Definition {
            kind: OperationKind::Retry,
            filter: JobFilter::read(filter, Timestamp(1_000)).unwrap(),
            tenant: Some("acme".into()),
            as_of: Some(Timestamp(900)),
            expected: Some(12),
            estimate: None,
            reason: "they may run again".into(),
            request: None,
        }
    }

    fn record(definition: String) -> OperationRecord {
        let (about, by) = (String::new(), String::new());
        OperationRecord {
            id: OperationId(Uuid::nil()),
            revision: 1,
            new: NewOperation { kind: OperationKind::Retry, about, definition, by },
            status: OperationStatus::Running,
            reached: None,
            runner: None,
            matched: 0,
            changed: 0,
            skipped: Default::default(),
            note: String::new(),
            created: Timestamp(5_000),
            updated: Timestamp(5_000),
            ended: None,
        }
    }

    #[test]
    fn definition_is_read_as_it_was_stored() {
        let one = definition(&json!({"queue": "mail", "created_after": "0.5s"}));
        assert_eq!(Definition::of(&record(one.text())), Ok(one));
        assert!(Definition::of(&record("{}".into())).is_err());
        assert!(Definition::of(&record(r#"{"filter": {"colour": "red"}}"#.into())).is_err());
    }

    #[test]
    fn query_ends_where_the_operation_began_or_before() {
        let page = || Page { limit: 10, cursor: None };
        let end = |before: Option<&str>| {
            let mut filter = json!({"queue": "mail", "id": "0198c0de"});
            if let Some(before) = before {
                filter["created_before"] = before.into();
            }
            definition(&filter).query_as_of(Timestamp(900), page()).unwrap()
        };
        assert_eq!(end(None).created_before, Some(Timestamp(901)));
        assert_eq!(end(Some("0.5s")).created_before, Some(Timestamp(500)));
        assert_eq!(end(Some("2100-01-01T00:00:00Z")).created_before, Some(Timestamp(901)));
        let (first, last) = end(None).ids.unwrap();
        assert_eq!(first.to_string(), "0198c0de-0000-0000-0000-000000000000");
        assert_eq!(last.to_string(), "0198c0de-ffff-ffff-ffff-ffffffffffff");
    }
}
