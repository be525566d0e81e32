//! Extending plain attempts.

use outlast_core::id::JobId;
use outlast_store::command::Command;
use outlast_store::extend::{Extend, Holds, JobCount, Unconfirmed, unconfirmed_event};
use outlast_store::reply::{Extended, Reply};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{self, get, text};
use crate::writer::Tx;

/// Extends the attempts in `theirs` that are granted and that no other transaction has locked. A plain attempt is one that has a visibility; the index on its end must not be read as a
/// whole.
macro_rules! extend {
    ($theirs:literal) => {
        concat!(
            "with ",
            $theirs,
            ", mine as materialized (
                 select a.seq from active a
                 where a.seq = any(array(select seq from theirs where granted))
                     and a.visibility_ms is not null and not a.cancelled
                 order by a.seq for update skip locked),
             longer as (
                 update active a set visible_until = $2 + a.visibility_ms
                 from mine where a.seq = any(array[mine.seq]) returning a.seq)
             select j.id, l.seq is not null, t.granted, t.epoch, t.held, c.queue, c.job_type
             from theirs t join job_row j on j.seq = any(array[t.seq])
                 left join longer l on l.seq = t.seq
                 left join class c on c.id = any(array[j.class]) and not t.granted
             order by t.seq"
        )
    };
}

/// `is_confirmed` and `is_extended` of [`outlast_store::extend`], for all attempts of a client.
const EXTEND_COUNTED: &str = extend!(
    "held as materialized (
         select a.seq, a.epoch, a.cancelled,
             a.visible_until > a.claimed + a.visibility_ms as confirmed
         from active a
         where a.plain = $1 and a.visibility_ms is not null and a.claimed <= $4),
     theirs as materialized (
         select h.seq, h.confirmed or n.held <= $3 as granted, h.epoch, n.held
         from held h cross join (select count(*) as held from held) n
         where not h.cancelled)"
);
const EXTEND_NAMED: &str = extend!(
    "theirs as materialized (
         select a.seq, true as granted, null::bigint as epoch, null::bigint as held
         from (select j.seq from job_row j where j.id = any($3::uuid[]) offset 0) j
         cross join lateral (
             select a.seq from active a
             where a.seq = j.seq and a.visibility_ms is not null and not a.cancelled
                 and (a.plain is null or a.plain = $1)
             offset 0) a)"
);

impl Tx<'_> {
    /// Extends plain attempts to their full visibility from now; one round trip for all these
    /// commands. It waits for no lock: what is locked is passed over, and named.
    pub(super) async fn extend_all(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let mut orders = Vec::new();
        let mut statements = Vec::new();
        let now = self.batch.context.now;
        for command in commands {
            let Command::Extend(extend) = command else { break };
            let name = text(&extend.worker);
            statements.push(match &extend.holds {
                Holds::Count(count) => {
                    let jobs = i64::from(count.jobs);
                    Statement::new(EXTEND_COUNTED, values![name, now.0, jobs, count.arrived.0])
                }
                Holds::Jobs(jobs) => {
                    let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
                    Statement::new(EXTEND_NAMED, values![name, now.0, ids])
                }
            });
            orders.push(extend);
        }
        let found = self.query_all(statements).await?;
        let replies = found.iter().zip(orders);
        replies.map(|(rows, extend)| self.extended(rows, extend).map(Reply::Extended)).collect()
    }

    /// Reads which jobs were prolonged, in the order in which they were named.
    fn extended(&mut self, rows: &[Row], extend: &Extend) -> Result<Extended, Failure> {
        let mut extended = Extended::default();
        for row in rows {
            let job = JobId(get(row, 0)?);
            let (longer, granted): (bool, bool) = (get(row, 1)?, get(row, 2)?);
            match &extend.holds {
                Holds::Count(count) if !granted => {
                    extended.unconfirmed.push(job);
                    self.log_unconfirmed(row, &extend.worker, count)?;
                }
                _ if longer => extended.jobs.push(job),
                _ => extended.passed_over.push(job),
            }
        }
        if let Holds::Jobs(named) = &extend.holds {
            extended.jobs.sort_by_key(|id| named.iter().position(|named| named == id));
        }
        Ok(extended)
    }

    fn log_unconfirmed(&mut self, row: &Row, name: &str, count: &JobCount) -> Result<(), Failure> {
        let job = JobId(get(row, 0)?);
        if !count.report.contains(&job) {
            return Ok(());
        }
        let held = usize::try_from(row::count(row, 4)?).unwrap_or(usize::MAX);
        let (queue, job_type) = (get(row, 5)?, get(row, 6)?);
        let of = Unconfirmed { job, epoch: row::epoch(row, 3)?, job_type, queue, held };
        let event = unconfirmed_event(&of, name, count.jobs, self.batch.context.now);
        self.batch.outbox.events.push(event);
        Ok(())
    }
}
