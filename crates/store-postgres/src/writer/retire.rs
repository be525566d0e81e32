//! Deleting classes that have no jobs left.
//!
//! A batch that moves a job of a class changes the class's counts, in rows that name the class by
//! a foreign key. So a prune locks the class and all its counts before it believes that they are
//! zero: a batch that was first makes it pass the class over, and one that comes later finds the
//! class gone, is rolled back and makes another one. It never waits.

use std::collections::HashSet;

use outlast_store::command::ClassId;
use outlast_store_rules::retire::{self, Empty, Looked};

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;

/// The sum of all counts of a row.
macro_rules! jobs {
    () => {
        "t.scheduled + t.available + t.pending + t.active + t.completed + t.retryable
         + t.cancelled + t.discarded + t.started + t.exhausted + t.abandoned"
    };
}

/// Classes, each with what it and its twin count.
const LOOK_AT_CLASSES: &str = concat!(
    "select c.id, c.isolated, w.id,
         coalesce((select sum(",
    jobs!(),
    ") from live_tally t where t.class = c.id), 0)::bigint
         + coalesce((select sum(",
    jobs!(),
    ") from live_tally t where t.class = w.id), 0)::bigint,
         (select max(id) from class)
     from (select id, queue, job_type, route, tenant, isolated, keyed from class
           where id > $1 order by id limit $2) c
     left join lateral (
         select w.id from class w
         where not c.isolated and w.queue = c.queue and w.job_type = c.job_type
             and w.route = c.route and w.tenant = c.tenant and w.keyed = c.keyed and w.isolated
         offset 0) w on true
     order by c.id"
);

const LOCK_CLASSES: &str =
    "select id from class where id = any($1::bigint[]) order by id for update skip locked";

/// Those of the classes in which no job counts or is claimable. Counts that another transaction is
/// changing are skipped, so their classes are kept.
const LOCK_TALLIES: &str = concat!(
    "with held as materialized (
         select t.class, ",
    jobs!(),
    " as jobs from tally t where t.class = any($1::bigint[])
         order by t.class, t.server for update skip locked),
     held_of_slots as materialized (
         select t.class, ",
    jobs!(),
    " as jobs
         from server_batch b
         join tally_slot t on t.server = any(array[b.server]) and t.slot = any(array[b.slot])
             and t.class = any($1::bigint[])
         order by b.server, t.class for update of t skip locked),
     all_held as materialized (
         select class, jobs from held union all select class, jobs from held_of_slots)
     select c.id from unnest($1::bigint[]) c(id)
     where (select count(*) from all_held h where h.class = c.id)
             = (select count(*) from live_tally t where t.class = c.id)
         and coalesce((select sum(h.jobs) from all_held h where h.class = c.id), 0) = 0
         and not exists (select 1 from ready r where r.class = c.id)"
);

impl Tx<'_> {
    /// Deletes classes that have no jobs left; returns how many. It looks at some of them, and
    /// goes on behind them the next time.
    pub(super) async fn retire_classes(&mut self) -> Result<u32, Failure> {
        let from = self.batch.cursors.class.0;
        let rows = self.query(LOOK_AT_CLASSES, values![from, retire::LOOKED_MAX]).await?;
        let mut looked = Vec::with_capacity(rows.len());
        let mut latest = ClassId(0);
        for row in &rows {
            looked.push(Looked {
                id: ClassId(get(row, 0)?),
                isolated: get(row, 1)?,
                twin: get::<Option<i64>>(row, 2)?.map(ClassId),
                jobs: get(row, 3)?,
            });
            latest = ClassId(get(row, 4)?);
        }
        self.batch.cursors.class = retire::next(&looked);
        let found = retire::empty(&looked, latest, &self.batch.outbox.tally);
        if found.is_empty() {
            return Ok(0);
        }
        let gone = self.lock_empty(&found).await?;
        for sql in [
            "delete from tally where class = any($1::bigint[])",
            "delete from tally_slot t using server_batch b
             where t.server = any(array[b.server]) and t.slot = any(array[b.slot])
                 and t.class = any($1::bigint[])",
            "delete from class_block where class = any($1::bigint[])",
            "delete from class where id = any($1::bigint[])",
        ] {
            self.write(sql, values![gone.clone()]);
        }
        for id in &gone {
            self.cache.classes.forget(ClassId(*id));
        }
        Ok(u32::try_from(gone.len()).unwrap_or(u32::MAX))
    }

    /// Returns those of the classes that are locked and empty, as their twins are.
    async fn lock_empty(&mut self, found: &[Empty]) -> Result<Vec<i64>, Failure> {
        let ids: Vec<i64> = found.iter().flat_map(|class| class.ids()).map(|id| id.0).collect();
        // What the second sees was committed before the classes were locked, or fails later.
        let statements = vec![
            Statement::new(LOCK_CLASSES, values![ids.clone()]),
            Statement::new(LOCK_TALLIES, values![ids]),
        ];
        let mut both = Vec::with_capacity(statements.len());
        for rows in self.query_all(statements).await? {
            let ids: Result<HashSet<i64>, _> = rows.iter().map(|row| get(row, 0)).collect();
            both.push(ids?);
        }
        let is_ours = |id: ClassId| both.iter().all(|ids| ids.contains(&id.0));
        let gone = found.iter().filter(|class| class.ids().all(is_ours));
        Ok(gone.flat_map(|class| class.ids()).map(|id| id.0).collect())
    }
}
