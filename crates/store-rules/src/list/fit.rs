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
    found: Numbers,
    job: impl FnMut(i64) -> Result<Option<JobRecord>, StoreError>,
) -> Result<JobPage, StoreError> {
    let Fitted { jobs, next, total } = fitted(query, found, job)?;
    let (cursors, jobs) = jobs.into_iter().map(|(seq, job)| (seq.to_string(), job)).unzip();
    Ok(JobPage { jobs, cursors, next, total })
}

/// Makes a page of the dead letters among the jobs that were found; otherwise as [`filled`].
///
/// # Errors
/// Returns why a job could not be read.
pub fn dead_letters(
    query: &JobQuery,
    found: Numbers,
    mut job: impl FnMut(i64) -> Result<Option<JobRecord>, StoreError>,
) -> Result<DeadLetterPage, StoreError> {
    // One that was replayed meanwhile is none.
    let is_letter = |job: &JobRecord| job.dead_letter.is_some() && job.finished.is_some();
    let Fitted { jobs, next, total } = fitted(query, found, |seq| Ok(job(seq)?.filter(is_letter)))?;
    let letters = jobs.into_iter().filter_map(|(seq, job)| {
        let (reason, at) = (job.dead_letter?, job.finished?);
        Some(DeadLetter { job, reason, at, cursor: seq.to_string() })
    });
    Ok(DeadLetterPage { letters: letters.collect(), next, total })
}

/// The jobs of a page with their numbers.
struct Fitted {
    jobs: Vec<(i64, JobRecord)>,
    next: Option<String>,
    total: Option<u64>,
}

fn fitted(
    query: &JobQuery,
    Numbers { seqs, mut next, total }: Numbers,
    mut job: impl FnMut(i64) -> Result<Option<JobRecord>, StoreError>,
) -> Result<Fitted, StoreError> {
    let (mut jobs, mut fit) = (Vec::<(i64, JobRecord)>::with_capacity(seqs.len()), Fit::default());
    for seq in seqs {
        let Some(job) = job(seq)?.filter(|job| query.has_error(job)) else { continue };
        if !fit.takes(job.bytes()) {
            next = jobs.last().map(|(last, _)| last.to_string());
            break;
        }
        jobs.push((seq, job));
    }
    let total = total.filter(|_| query.error.is_none());
    Ok(Fitted { jobs, next, total })
}
