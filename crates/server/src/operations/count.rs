//! How many jobs match, as far as that is known soon, and some of them.

use std::time::Duration;

use outlast_core::limits::{OPERATION_COUNTED_MAX, PAGE_MAX};
use outlast_core::time::Timestamp;
use outlast_store::query::Page;
use outlast_store::record::JobRecord;
use tokio::time::Instant;

use super::decide::Verdict;
use super::definition::Definition;
use super::service::OperationError;
use crate::engine::Engine;

/// How many jobs are shown.
const EXAMPLES: u32 = 3;
/// How long is counted one by one.
const COUNT_LIMIT: Duration = Duration::from_millis(600);

/// How many jobs match.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// How many, or at least so many.
    pub(crate) matched: u64,
    pub(crate) is_exact: bool,
    /// Some of them, the newest.
    pub(crate) examples: Vec<JobRecord>,
}

/// Counts the jobs that match now, or those that did at a time and can still be changed: at most up to
/// [`OPERATION_COUNTED_MAX`] where the live counts do not tell.
pub(crate) async fn count(
    engine: &Engine,
    definition: &Definition,
    as_of: Option<Timestamp>,
) -> Result<Counted, OperationError> {
    let begun = Instant::now();
    if as_of.is_none() {
        let mut page = engine.store().jobs(definition.query(examples_from(None))?).await?;
        if let Some(matched) = page.total {
            // Jobs that do not match may be newer than all that do.
            while page.jobs.is_empty() && page.next.is_some() && begun.elapsed() < COUNT_LIMIT {
                page = engine.store().jobs(definition.query(examples_from(page.next))?).await?;
            }
            return Ok(Counted { matched, is_exact: true, examples: page.jobs });
        }
    }
    let rule = definition.rule(as_of.unwrap_or(Timestamp(i64::MAX)));
    let mut counted = Counted { matched: 0, is_exact: true, examples: Vec::new() };
    let mut cursor = None;
    loop {
        let page = Page { limit: PAGE_MAX, cursor };
        let query = match as_of {
            Some(as_of) => definition.query_as_of(as_of, page)?,
            None => definition.query(page)?,
        };
        let found = engine.store().jobs(query).await?;
        for job in found.jobs {
            if rule.of(&job) == Verdict::Leave {
                continue;
            }
            counted.matched += 1;
            if counted.examples.len() < usize::try_from(EXAMPLES).unwrap_or(0) {
                counted.examples.push(job);
            }
        }
        cursor = found.next;
        if cursor.is_none() {
            return Ok(counted);
        }
        if counted.matched >= OPERATION_COUNTED_MAX || begun.elapsed() > COUNT_LIMIT {
            return Ok(Counted { is_exact: false, ..counted });
        }
    }
}

fn examples_from(cursor: Option<String>) -> Page {
    Page { limit: EXAMPLES, cursor }
}

/// Returns how many match now, where the live counts tell.
pub(crate) async fn estimate(engine: &Engine, definition: &Definition) -> Option<u64> {
    let query = definition.query(Page { limit: 1, cursor: None }).ok()?;
    let reading = tokio::time::timeout(COUNT_LIMIT, engine.store().jobs(query)).await;
    reading.ok()?.ok()?.total
}
