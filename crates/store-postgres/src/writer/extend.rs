//! Extending plain attempts.

use outlast_core::id::JobId;
use outlast_store::command::Command;
use outlast_store::reply::{Extended, Reply};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{get, text};
use crate::writer::Tx;

/// Extends those of the attempts in `theirs` that no other transaction has locked. A plain attempt is
/// one that has a visibility; the index on its end must not be read as a whole.
macro_rules! extend {
    ($theirs:literal) => {
        concat!(
            "with theirs as materialized (",
            $theirs,
            "),
             mine as materialized (
                 select a.seq from active a where a.seq = any(array(select seq from theirs))
                     and a.visibility_ms is not null and not a.cancelled
                 order by a.seq for update skip locked),
             longer as (
                 update active a set visible_until = $2 + a.visibility_ms
                 from mine where a.seq = any(array[mine.seq]) returning a.seq)
             select j.id, l.seq is not null
             from theirs t join job_row j on j.seq = any(array[t.seq])
                 left join longer l on l.seq = t.seq
             order by t.seq"
        )
    };
}

const EXTEND_ALL: &str = extend!(
    "select a.seq from active a
     where a.plain = $1 and a.visibility_ms is not null and not a.cancelled"
);
const EXTEND_NAMED: &str = extend!(
    "select a.seq
     from (select j.seq from job_row j where j.id = any($3::uuid[]) offset 0) j
     cross join lateral (
         select a.seq from active a
         where a.seq = j.seq and a.visibility_ms is not null and not a.cancelled
             and (a.plain is null or a.plain = $1)
         offset 0) a"
);

impl Tx<'_> {
    /// Extends plain attempts to their full visibility from now; one round trip for all these
    /// commands. It waits for no lock: what is locked is passed over, and named.
    pub(super) async fn extend_all(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let mut named = Vec::new();
        let mut statements = Vec::new();
        for command in commands {
            let Command::Extend(extend) = command else { break };
            let name = text(&extend.worker);
            statements.push(if extend.jobs.is_empty() {
                Statement::new(EXTEND_ALL, values![name, self.batch.context.now.0])
            } else {
                let ids: Vec<Uuid> = extend.jobs.iter().map(|job| job.0).collect();
                Statement::new(EXTEND_NAMED, values![name, self.batch.context.now.0, ids])
            });
            named.push(extend.jobs.as_slice());
        }
        let found = self.query_all(statements).await?;
        let replies = found.iter().zip(named);
        replies.map(|(rows, named)| Ok(Reply::Extended(extended(rows, named)?))).collect()
    }
}

/// Reads which jobs were prolonged, in the order in which they were named.
fn extended(rows: &[Row], named: &[JobId]) -> Result<Extended, Failure> {
    let mut extended = Extended::default();
    for row in rows {
        let job = JobId(get(row, 0)?);
        if get(row, 1)? { &mut extended.jobs } else { &mut extended.passed_over }.push(job);
    }
    if !named.is_empty() {
        extended.jobs.sort_by_key(|id| named.iter().position(|named| named == id));
    }
    Ok(extended)
}
