//! What one server does for all.

use outlast_core::duty::{self, Duty, DutyRefusal};

use crate::command::{DutyAsk, DutyFence};
use crate::model::tx::Tx;
use crate::rules::answer_duty;

impl Tx<'_> {
    pub(super) fn duty(&mut self, ask: &DutyAsk) -> Result<Duty, DutyRefusal> {
        let found = self.tables.duties.get(&ask.name).copied();
        let duty = answer_duty(found, ask, self.now())?;
        self.tables.duties.insert(ask.name.clone(), duty);
        Ok(duty)
    }

    pub(super) fn check_duty(&self, fence: &DutyFence) -> Result<(), DutyRefusal> {
        let found = self.tables.duties.get(&fence.name).copied();
        duty::check(found, fence.holder, fence.epoch)
    }
}
