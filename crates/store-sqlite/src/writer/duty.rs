//! What one server does for all. One server has an embedded store, and keeps to the same rules.

use outlast_core::duty::{self, Duty, DutyRefusal};
use outlast_core::id::Epoch;
use outlast_core::time::Timestamp;
use outlast_store::StoreError;
use outlast_store::command::{DutyAsk, DutyFence};
use outlast_store::settle::answer_duty;
use rusqlite::OptionalExtension as _;
use uuid::Uuid;

use crate::row::{failed, int};
use crate::writer::Writing;

impl Writing<'_> {
    pub(super) fn duty(&self, ask: &DutyAsk) -> Result<Result<Duty, DutyRefusal>, StoreError> {
        let duty = match answer_duty(self.found_duty(&ask.name)?, ask, self.now) {
            Ok(duty) => duty,
            Err(refusal) => return Ok(Err(refusal)),
        };
        self.execute(
            "insert or replace into duty (name, holder, epoch, until) values (?, ?, ?, ?)",
            (&ask.name, duty.holder.as_bytes().as_slice(), int(duty.epoch.0), duty.until.0),
        )?;
        Ok(Ok(duty))
    }

    pub(super) fn check_duty(
        &self,
        fence: &DutyFence,
    ) -> Result<Result<(), DutyRefusal>, StoreError> {
        Ok(duty::check(self.found_duty(&fence.name)?, fence.holder, fence.epoch))
    }

    fn found_duty(&self, name: &str) -> Result<Option<Duty>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("select holder, epoch, until from duty where name = ?")
            .map_err(failed)?;
        let found = select.query_row([name], |row| {
            let holder = Uuid::from_bytes(row.get(0)?);
            let epoch = Epoch(row.get::<_, i64>(1)?.unsigned_abs());
            Ok(Duty { holder, epoch, until: Timestamp(row.get(2)?) })
        });
        found.optional().map_err(failed)
    }
}
