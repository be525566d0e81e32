//! What one server does for all.

use outlast_core::leadership::{self, Leadership, LeadershipRefusal};
use outlast_store::command::{LeadershipFence, LeadershipRequest};
use outlast_store_rules::rules::answer_leadership;

use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn leadership(
        &mut self,
        ask: &LeadershipRequest,
    ) -> Result<Leadership, LeadershipRefusal> {
        let found = self.tables.leaders.get(&ask.name).copied();
        let leadership = answer_leadership(found, ask, self.now())?;
        self.tables.leaders.insert(ask.name.clone(), leadership);
        Ok(leadership)
    }

    pub(super) fn check_leadership(
        &self,
        fence: &LeadershipFence,
    ) -> Result<(), LeadershipRefusal> {
        let found = self.tables.leaders.get(&fence.name).copied();
        leadership::check(found, fence.holder, fence.epoch)
    }
}
