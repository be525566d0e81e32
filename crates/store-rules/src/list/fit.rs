//! How much of a page is shown: long values are left out, and a page ends where its jobs come to
//! [`PAGE_BYTES_MAX`].

use std::sync::Arc;

use outlast_core::limits::{LISTED_BYTES_MAX, PAGE_BYTES_MAX};
use outlast_store::error::StoreError;
use outlast_store::job::Payload;
use outlast_store::query::{DeadLetter, DeadLetterPage, JobPage, JobQuery};
use outlast_store::record::{JobRecord, Omitted, StoredJob};

use super::Numbers;

/// Counts the bytes on a page.
#[derive(Debug, Default)]
pub struct Fit {
    rows: usize,
    bytes: usize,
}

impl Fit {
    /// Counts the next row; returns whether there was room for it. There is for the first one.
    pub const fn takes(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.rows += 1;
        self.rows == 1 || self.bytes <= PAGE_BYTES_MAX
    }
}

/// Returns a job as lists show it. A store that has not read the long values returns the same.
#[must_use]
pub fn listed(mut record: JobRecord) -> JobRecord {
    let is_long = |text: &str| text.len() > LISTED_BYTES_MAX;
    let length = |text: &str| u64::try_from(text.len()).ok();
    if is_long(&record.job.payload.args) {
        record.omitted.args = length(&record.job.payload.args);
        let payload = Payload { args: Omitted::ARGS.to_owned(), ..record.job.payload.clone() };
        record.job = Arc::new(StoredJob { payload, ..StoredJob::clone(&record.job) });
    }
    if let Some(result) = record.result.take_if(|result| is_long(result)) {
        record.omitted.result = length(&result);
    }
    record
}

/// Makes a page of the jobs that were found. It ends early where there is no room for the next
/// one: no job after that one is asked for. A job that was pruned meanwhile is left out, and one
/// that does not have the error that is asked for.
///
/// # Errors
/// Returns why a job could not be read.
pub fn filled(
    query: &JobQuery,
    Numbers { seqs, mut next, total }: Numbers,
    mut job: impl FnMut(i64) -> Result<Option<JobRecord>, StoreError>,
) -> Result<JobPage, StoreError> {
    let (mut jobs, mut fit, mut last) = (Vec::with_capacity(seqs.len()), Fit::default(), None);
    for seq in seqs {
        let Some(job) = job(seq)?.filter(|job| query.has_error(job)) else { continue };
        if !fit.takes(job.bytes()) {
            next = last;
            break;
        }
        last = Some(seq.to_string());
        jobs.push(job);
    }
    let total = total.filter(|_| query.error.is_none());
    Ok(JobPage { jobs, next, total })
}

/// Makes a page of the dead letters among the jobs that were found; otherwise as [`filled`].
///
/// # Errors
/// Returns why a job could not be read.
pub fn dead_letters(
    query: &JobQuery,
    Numbers { seqs, mut next, total }: Numbers,
    mut job: impl FnMut(i64) -> Result<Option<JobRecord>, StoreError>,
) -> Result<DeadLetterPage, StoreError> {
    let (mut letters, mut fit) = (Vec::<DeadLetter>::with_capacity(seqs.len()), Fit::default());
    for seq in seqs {
        let Some(job) = job(seq)?.filter(|job| query.has_error(job)) else { continue };
        // One that was replayed meanwhile is none.
        let (Some(reason), Some(at)) = (job.dead_letter, job.finished) else { continue };
        if !fit.takes(job.bytes()) {
            next = letters.last().map(|last| last.cursor.clone());
            break;
        }
        letters.push(DeadLetter { job, reason, at, cursor: seq.to_string() });
    }
    let total = total.filter(|_| query.error.is_none());
    Ok(DeadLetterPage { letters, next, total })
}
