//! Lists of jobs and dead letters, newest first. [`outlast_store_rules::list`] plans and walks them.

use outlast_core::id::JobId;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::query::{DeadLetterPage, JobPage, JobQuery};
use outlast_store_rules::list::{self, Dialect, Look, Tallied, Values};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::read::job::listed;
use crate::read::queue;
use crate::row::{self, failed};

/// A connection that lists are read by.
struct Lists<'a>(&'a Connection);

impl Look for Lists<'_> {
    const DIALECT: Dialect = Dialect {
        of_classes: "in (select value from json_each(?1))",
        among: "in (select value from json_each(?10))",
        worker: "?2",
        ids: ("?6", "?7"),
        found_by_id: "j.seq in (select i.seq from job_row i where i.id between ?6 and ?7)",
        created: ("?8", "?9"),
        lettered: ("?14", "?15"),
        with_keys: "not exists (select 1 from json_each(?11) k
            where instr(coalesce(j.keys, ''), k.value) = 0)",
        beside: "instr(coalesce(j.extra, ''), ?16) > 0",
        with_error: |error| {
            format!(
                "(select e.v <> '' and instr(lower(e.v), ?12) > 0
            from (select {error} as v) e)"
            )
        },
        with_suffix: "substr(lower(hex(j.id)), -length(?13)) = ?13",
        range: ("?3", "?4", "?5"),
        with_job: |name| format!("cross join job_row j on j.seq = {name}.seq"),
        failed: "finished f indexed by finished_failed",
        failed_alone: "finished indexed by finished_failed",
        in_blocks: None,
        names_all: "(?16 is null or true)",
    };

    async fn tallied(&self, query: &JobQuery) -> Result<Tallied, StoreError> {
        Ok(Tallied::of(query, queue::tally(self.0)?))
    }

    async fn count_ids(&self, from: JobId, to: JobId, most: u64) -> Result<u64, StoreError> {
        let sql = "select count(*) from
            (select 1 from job_row where id between ? and ? limit ?)";
        let found = self.column(sql, [id(from), id(to), row::int(most).into()].into())?;
        Ok(found.first().map_or(0, |count| count.unsigned_abs()))
    }

    async fn numbers(&self, sql: &str, values: &Values) -> Result<Vec<i64>, StoreError> {
        let worker = values.worker.map(|worker| worker.0.as_bytes().to_vec());
        let (low, high) = values.range;
        let values = vec![
            json(&values.classes),
            worker.into(),
            low.into(),
            high.into(),
            values.limit.into(),
            values.ids.map(|(first, _)| id(first)).into(),
            values.ids.map(|(_, last)| id(last)).into(),
            values.created_from.map(|at| at.0).into(),
            values.created_before.map(|at| at.0).into(),
            json(&values.among),
            serde_json::to_string(&values.keys).unwrap_or_default().into(),
            values.error.clone().into(),
            values.id_suffix.clone().into(),
            values.lettered_from.map(|at| at.0).into(),
            values.lettered_before.map(|at| at.0).into(),
            values.beside.clone().into(),
        ];
        self.column(sql, values)
    }

    async fn lower(&self, table: &str, high: i64, step: u32) -> Result<Option<i64>, StoreError> {
        let sql = format!("select seq from {table} and seq < ? order by seq desc limit 1 offset ?");
        Ok(self.column(&sql, vec![high.into(), step.into()])?.first().copied())
    }

    async fn blocks(
        &self,
        classes: &[ClassId],
        top: i64,
        count: u32,
    ) -> Result<Vec<i64>, StoreError> {
        let sql = "select block from class_block where class = ? and block <= ?
            order by block desc limit ?";
        let mut blocks: Vec<i64> = Vec::new();
        for class in classes {
            blocks.extend(self.column(sql, vec![class.0.into(), top.into(), count.into()])?);
        }
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        blocks.dedup();
        blocks.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        Ok(blocks)
    }

    /// The newest of each class and priority are each at the end of a line; only lines whose
    /// last is among the newest can have more of them.
    async fn newest(
        &self,
        classes: &[ClassId],
        before: i64,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let mut lines = self.lines(classes, before)?;
        lines.sort_unstable_by(|a, b| b.cmp(a));
        lines.truncate(limit);
        let most = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "select seq from ready where class = ? and rank = ? and seq < ?
            order by seq desc limit ?";
        let mut seqs: Vec<i64> = Vec::new();
        for (_, class, rank) in lines {
            let values = vec![class.into(), rank.into(), before.into(), most.into()];
            seqs.extend(self.column(sql, values)?);
            // Enough of the newest make room for what the next line has.
            if seqs.len() > 4 * limit {
                seqs.sort_unstable_by(|a, b| b.cmp(a));
                seqs.truncate(limit);
            }
        }
        seqs.sort_unstable_by(|a, b| b.cmp(a));
        seqs.truncate(limit);
        Ok(seqs)
    }
}

impl Lists<'_> {
    /// The newest of each class and priority, with both.
    fn lines(&self, classes: &[ClassId], before: i64) -> Result<Vec<(i64, i64, i64)>, StoreError> {
        let mut next = self
            .0
            .prepare_cached(
                "select rank from ready where class = ? and rank > ? order by rank limit 1",
            )
            .map_err(failed)?;
        let mut last = self
            .0
            .prepare_cached("select max(seq) from ready where class = ? and rank = ? and seq < ?")
            .map_err(failed)?;
        let mut lines = Vec::new();
        for class in classes {
            let mut rank = i64::MIN;
            let mut step = |after: i64| next.query_row((class.0, after), |row| row.get(0));
            while let Some(found) = step(rank).optional().map_err(failed)? {
                rank = found;
                let newest: Option<i64> =
                    last.query_row((class.0, rank, before), |row| row.get(0)).map_err(failed)?;
                lines.extend(newest.map(|seq| (seq, class.0, rank)));
            }
        }
        Ok(lines)
    }

    fn column(&self, sql: &str, values: Vec<Value>) -> Result<Vec<i64>, StoreError> {
        let mut select = self.0.prepare_cached(sql).map_err(failed)?;
        let rows = select.query_map(params_from_iter(values), |row| row.get(0)).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

fn id(id: JobId) -> Value {
    id.0.as_bytes().to_vec().into()
}

fn json(numbers: &[i64]) -> Value {
    serde_json::to_string(numbers).unwrap_or_default().into()
}

pub(crate) fn jobs(db: &Connection, query: &JobQuery) -> Result<JobPage, StoreError> {
    let found = list::at_once(list::find(&Lists(db), query))?;
    list::filled(query, found, |seq| listed(db, seq).map(Some))
}

pub(crate) fn dead_letters(
    db: &Connection,
    query: &JobQuery,
) -> Result<DeadLetterPage, StoreError> {
    let found = list::at_once(list::find(&Lists(db), query))?;
    list::dead_letters(query, found, |seq| listed(db, seq).map(Some))
}
