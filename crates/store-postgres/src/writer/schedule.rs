//! Schedules. A batch locks those that it names before it reads them, in the order of their names. One
//! that another transaction has locked is about to change: for this batch it is not there, and what was
//! read of it is refused. So no batch waits for it.

use outlast_core::schedule::ScheduleName;
use outlast_store::schedule::ScheduleRecord;
use outlast_store::{StoreError, schedule_columns};
use tokio_postgres::Row;

use crate::connection::values;
use crate::failure::Failure;
use crate::read::schedule::record_of;
use crate::row::{get, int, text};
use crate::writer::Tx;

pub(super) const LOCK_SCHEDULES: &str = concat!(
    "select ",
    schedule_columns!(),
    " from schedule where name = any($1::text[]) order by name for update skip locked"
);

impl Tx<'_> {
    pub(super) fn take_schedules(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let record = record_of(row)?;
            self.seen.schedules.insert(record.name.clone(), record);
        }
        Ok(())
    }

    /// Counts the schedules, with those that the batch makes and removes as far as it has.
    pub(super) async fn stored_schedules(&mut self) -> Result<usize, Failure> {
        let rows = self.query("select count(*) from schedule", Vec::new()).await?;
        let count: i64 = rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    pub(super) fn put_schedule(&mut self, record: &ScheduleRecord, found: Option<&ScheduleRecord>) {
        let state = &record.state;
        // A definition may be long, and rarely changes.
        let is_same = found.is_some_and(|found| found.state.definition == state.definition);
        let values = values![
            record.name.to_string(),
            int(record.revision),
            state.configured,
            state.due.map(|due| due.0),
            (!is_same).then(|| text(&state.definition)),
            text(&state.progress),
            text(&state.set_by),
            record.created.0,
            record.updated.0,
        ];
        // One that another server makes meanwhile has the same key: the batch is tried again.
        let sql = match found {
            None => {
                "insert into schedule (name, revision, configured, due, definition, progress,
                                       set_by, created, updated)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            }
            Some(_) => {
                "update schedule set revision = $2, configured = $3, due = $4,
                     definition = coalesce($5, definition), progress = $6, set_by = $7, created = $8, updated = $9
                 where name = $1"
            }
        };
        self.write(sql, values);
        self.seen.schedules.insert(record.name.clone(), record.clone());
    }

    pub(super) fn remove_schedule(&mut self, name: &ScheduleName) {
        self.write("delete from schedule where name = $1", values![name.to_string()]);
        self.seen.schedules.remove(name);
    }
}
