//! The live counts that a batch changes: one row for each class and each queue that it touched, and
//! one for each second since which jobs of a queue have been claimable.

use std::collections::BTreeMap;

use outlast_store::StoreError;
use outlast_store::tally::{COLUMNS, Counts, Second};
use rusqlite::ToSql;

use crate::row::failed;
use crate::writer::Tx;

impl Tx<'_> {
    /// Writes by how much the batch changed the counts.
    pub(super) fn keep_tally(&mut self) -> Result<(), StoreError> {
        let ready = self.batch.outbox.tally.take_ready();
        let changes = self.batch.outbox.tally.take();
        let mut queues: BTreeMap<&str, Counts> = BTreeMap::new();
        for (class, counts) in &changes {
            self.add_counts("tally", "class", &class.0, counts)?;
            let queue = &self.cache.classes.key(*class)?.queue;
            queues.entry(queue).or_default().add(counts);
        }
        for (queue, counts) in queues {
            if !counts.is_zero() {
                self.add_counts("queue_tally", "queue", &queue, &counts)?;
            }
        }
        let mut seconds: BTreeMap<(&str, Second), i64> = BTreeMap::new();
        for change in ready {
            let queue = &self.cache.classes.key(change.class)?.queue;
            *seconds.entry((queue, change.second)).or_default() += change.more;
        }
        for ((queue, second), more) in seconds {
            self.count_ready(queue, second, more)?;
        }
        Ok(())
    }

    /// Changes a row of a table of counts, which is made if there is none.
    fn add_counts(
        &self,
        table: &str,
        key: &str,
        row: &dyn ToSql,
        counts: &Counts,
    ) -> Result<(), StoreError> {
        if !self.add_to_row(table, key, row, counts)? {
            self.insert_row(table, key, row, counts)?;
        }
        Ok(())
    }

    /// Changes a row; returns whether there is one.
    ///
    /// This names only the columns that change, and is no upsert: SQLite would copy each page that
    /// an upsert touches, to undo it alone.
    fn add_to_row(
        &self,
        table: &str,
        key: &str,
        row: &dyn ToSql,
        counts: &Counts,
    ) -> Result<bool, StoreError> {
        let changed = || COLUMNS.iter().zip(counts.values()).filter(|(_, count)| **count != 0);
        let sets: Vec<String> = changed().map(|(name, _)| format!("{name} = {name} + ?")).collect();
        let sql = format!("update {table} set {} where {key} = ?", sets.join(", "));
        let values: Vec<&dyn ToSql> =
            changed().map(|(_, count)| count as &dyn ToSql).chain([row]).collect();
        let mut update = self.db.prepare_cached(&sql).map_err(failed)?;
        Ok(update.execute(values.as_slice()).map_err(failed)? > 0)
    }

    fn insert_row(
        &self,
        table: &str,
        key: &str,
        row: &dyn ToSql,
        counts: &Counts,
    ) -> Result<(), StoreError> {
        let marks = ["?"; COLUMNS.len()].join(", ");
        let columns = COLUMNS.join(", ");
        let sql = format!("insert into {table} ({key}, {columns}) values (?, {marks})");
        let counts = counts.values().iter().map(|count| count as &dyn ToSql);
        let values: Vec<&dyn ToSql> = std::iter::once(row).chain(counts).collect();
        let mut insert = self.db.prepare_cached(&sql).map_err(failed)?;
        insert.execute(values.as_slice()).map_err(failed)?;
        Ok(())
    }

    /// Changes how many jobs of a queue have been claimable since a second.
    fn count_ready(&self, queue: &str, second: Second, more: i64) -> Result<(), StoreError> {
        if more == 0 {
            return Ok(());
        }
        let row = (queue, second.0, more);
        let add = "update ready_second set jobs = jobs + ?3 where queue = ?1 and second = ?2";
        let insert = "insert into ready_second (queue, second, jobs) values (?1, ?2, ?3)";
        if more > 0 {
            if self.execute(add, row)? == 0 {
                self.execute(insert, row)?;
            }
            return Ok(());
        }
        // The last jobs of a second take its row with them.
        let last = "delete from ready_second where queue = ?1 and second = ?2 and jobs = -?3";
        if self.execute(last, row)? == 0 && self.execute(add, row)? == 0 {
            self.execute(insert, row)?;
        }
        Ok(())
    }
}
