//! The jobs that the first pass of a claim by limits looks at: see [`outlast_store::apply::claim::first_pass`].

use outlast_store::apply::claim::plan::{FirstJob, FirstPassPlan};
use outlast_store::command::ClassId;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;
use crate::writer::lanes::VERSION_SHARED;
use crate::writer::limit::LOCK;

/// The first jobs of classes whose queues are not paused, but for those that are avoided.
const FIRST: &str = "select w.class, r.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[]) w(class, n, rank, seq)
     cross join lateral (
         select r.lane, r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and (r.rank, r.seq) >= (w.rank, w.seq)
             and (r.expires is null or r.expires > $3) and r.seq <> all($6::bigint[])
         order by r.class, r.rank, r.seq limit w.n) r";

/// The first jobs of lanes that gave some lately.
const RECENT: &str = "select w.class, w.lane, r.rank, r.seq
     from unnest($1::bigint[], $2::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
         w(class, lane, n, rank, seq)
     cross join lateral (
         select r.rank, r.seq from ready r
         where r.class = (select c.id from class c where c.id = w.class
                 and not exists (select 1 from queue q where q.name = c.queue and q.paused))
             and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq) and (r.expires is null or r.expires > $3)
             and r.seq <> all($7::bigint[])
         order by r.class, r.lane, r.rank, r.seq limit w.n) r";

/// The keys of the first job of each lane.
pub(super) const KEYS: &str = "select w.class, w.lane, j.keys
     from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) w(class, lane, rank, seq)
     cross join lateral (
         select r.seq from ready r
         where r.class = w.class and r.lane = w.lane and r.lane <> 0
             and (r.rank, r.seq) >= (w.rank, w.seq)
         order by r.class, r.lane, r.rank, r.seq limit 1) r
     join job_row j on j.seq = any(array[r.seq])";

impl Tx<'_> {
    /// Reads what is planned; returns `None` while the limits are being changed.
    pub(super) async fn read_first_jobs(
        &mut self,
        plan: &FirstPassPlan,
    ) -> Result<Option<Vec<FirstJob>>, Failure> {
        let (now, but) = (self.batch.context.now.0, self.claiming.avoided.clone());
        let number = |most: usize| i64::try_from(most).unwrap_or(i64::MAX);
        let first = plan.first.iter().map(|(class, most)| (class.0, number(*most)));
        let (classes, most): (Vec<i64>, Vec<i64>) = first.unzip();
        let (ranks, seqs) = self.lowest_of(&classes);
        let mut statements = vec![
            Statement::new(VERSION_SHARED, values![LOCK]),
            Statement::new(FIRST, values![classes, most, now, ranks, seqs, but.clone()]),
        ];
        if !plan.recent.is_empty() {
            let (mut classes, mut lanes, mut most) = (vec![], vec![], vec![]);
            for (class, lane, each) in &plan.recent {
                classes.push(class.0);
                lanes.push(*lane);
                most.push(number(*each));
            }
            let (ranks, seqs) = self.lowest_of(&classes);
            let values = values![classes, lanes, now, most, ranks, seqs, but];
            statements.push(Statement::new(RECENT, values));
        }
        let read = self.query_all(statements).await?;
        let answer = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let Some(version) = answer(0).first() else { return Ok(None) };
        self.confirm_limits(get(version, 0)?)?;
        let mut rows = Vec::new();
        let first = answer(1).iter().map(|row| (false, row));
        for (is_recent, row) in first.chain(answer(2).iter().map(|row| (true, row))) {
            let class = ClassId(get(row, 0)?);
            let lane = if plan.has_lanes(class) { Some(get(row, 1)?) } else { None };
            rows.push(FirstJob { class, lane, rank: get(row, 2)?, seq: get(row, 3)?, is_recent });
        }
        Ok(Some(rows))
    }
}
