//! Schedules.

use outlast_store::StoreError;
use outlast_store::schedule::ScheduleRecord;

use crate::row::int;
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) fn put_schedule(&mut self, record: &ScheduleRecord) -> Result<(), StoreError> {
        let state = &record.state;
        self.execute(
            "insert or replace into schedule
                 (name, revision, configured, due, definition, progress, set_by, created, updated)
             values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.name.as_str(),
                int(record.revision),
                state.configured,
                state.due.map(|due| due.0),
                &state.definition,
                &state.progress,
                &state.set_by,
                record.created.0,
                record.updated.0,
            ),
        )?;
        Ok(())
    }
}
