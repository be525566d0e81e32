//! How many bytes of jobs one statement takes. Of rows that it took and that came to too many, the
//! payload is not read: they are put back. As jobs that follow each other are often equally long,
//! the next statement asks for no more of them than are likely to fit.

use std::collections::HashMap;

use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_store::command::Claim;
use outlast_store::reply::Claims;
use tokio_postgres::Row;

use super::claim::RUN_MAX;
use crate::connection::Statement;
use crate::failure::{Conflict, Failure};
use crate::row::{STORED, get};
use crate::writer::Tx;

/// The column with the length of a taken job, in bytes, and the one that says whether it fits.
const LENGTH: usize = STORED + 11;
const FITS: usize = STORED + 12;

/// How long claimed jobs are, as far as is known.
#[derive(Debug, Default)]
pub(super) struct ClaimLength {
    /// Bytes of a job: rises at once, and falls by an eighth of the difference.
    average: i64,
}

impl ClaimLength {
    /// Returns for how many jobs a statement asks at most.
    pub(super) fn jobs(&self) -> i64 {
        let most = i64::try_from(CLAIM_BYTES_MAX).unwrap_or(i64::MAX);
        (most / self.average.max(1)).clamp(1, RUN_MAX)
    }

    /// Notes that only so many of the jobs in front fit, however long others are.
    fn note_fitted(&mut self, jobs: usize) {
        let jobs = i64::try_from(jobs).unwrap_or(i64::MAX).max(1);
        let most = i64::try_from(CLAIM_BYTES_MAX).unwrap_or(i64::MAX);
        self.average = self.average.max(most / jobs);
    }

    fn note(&mut self, bytes: i64, jobs: i64) {
        if jobs > 0 {
            let latest = bytes / jobs;
            self.average = latest.max(self.average - (self.average - latest) / 8);
        }
    }
}

/// How many jobs a statement took at most, and how many its claims want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) asked: i64,
    pub(super) wanted: i64,
}

/// The rows of one statement.
pub(super) struct Fitting<'r> {
    /// The jobs to give out.
    pub(super) rows: Vec<&'r Row>,
    /// Those that were too many.
    pub(super) over: Vec<&'r Row>,
    /// Whether there may be more jobs that were only left for their length.
    pub(super) cut: bool,
}

impl Tx<'_> {
    /// Sorts the rows that a statement took.
    pub(super) fn fitting<'r>(
        &mut self,
        rows: &'r [Row],
        Asked { asked, wanted }: Asked,
    ) -> Result<Fitting<'r>, Failure> {
        let (mut fitting, mut over, mut bytes) = (Vec::with_capacity(rows.len()), Vec::new(), 0);
        for row in rows {
            bytes += get::<i64>(row, LENGTH)?;
            if get(row, FITS)? { &mut fitting } else { &mut over }.push(row);
        }
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        self.cache.claim_length.note(bytes, count);
        let cut = !over.is_empty() || (asked < wanted && count >= asked);
        Ok(Fitting { rows: fitting, over, cut })
    }

    /// Takes jobs that must all fit, or fails the try: the next one asks for fewer.
    pub(super) async fn query_fitting(
        &mut self,
        Statement { sql, values }: Statement,
    ) -> Result<Vec<Row>, Failure> {
        let rows = self.query(sql, values).await?;
        let asked = Asked { asked: 0, wanted: 0 };
        let Fitting { rows: fitted, over, .. } = self.fitting(&rows, asked)?;
        if !over.is_empty() {
            self.cache.claim_length.note_fitted(fitted.len());
            let words = "jobs are longer than those before".into();
            return Err(Failure::Again(Conflict::Length, words));
        }
        Ok(rows)
    }

    /// Puts back jobs that were taken and are not given out.
    pub(super) async fn put_back_all(&mut self, rows: &[&Row]) -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        self.learn(rows).await?;
        for row in rows {
            self.put_back(row)?;
        }
        Ok(())
    }

    /// Notes that a claim holds those of the rows that fit.
    pub(super) async fn hold_fitting(
        &mut self,
        claim: &Claim,
        rows: &[Row],
        asked: Asked,
        claims: &mut Claims,
    ) -> Result<(), Failure> {
        let Fitting { rows, over, cut } = self.fitting(rows, asked)?;
        claims.jobs.extend(self.hold_all(claim, &rows, &HashMap::new()).await?);
        claims.cut |= cut;
        self.put_back_all(&over).await
    }
}
