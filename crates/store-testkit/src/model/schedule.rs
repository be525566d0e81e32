//! Schedules.

use outlast_core::schedule::SCHEDULES_MAX;
use outlast_core::time::Timestamp;
use outlast_store::command::WriteSchedule;
use outlast_store::schedule::{ScheduleQuery, ScheduleRecord, ScheduleRefusal, ScheduleWritten};
use outlast_store_rules::apply::schedule::first_revision;
use outlast_store_rules::rules::schedule_event;

use crate::model::tables::Tables;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn write_schedule(
        &mut self,
        write: &WriteSchedule,
    ) -> Result<ScheduleWritten, ScheduleRefusal> {
        let found = self.tables.schedules.get(&write.name).cloned();
        if found.as_ref().map(|found| found.revision) != write.expected {
            return Err(ScheduleRefusal::Changed);
        }
        let is_new = found.is_none() && write.to.is_some();
        if is_new && self.tables.schedules.len() >= SCHEDULES_MAX {
            return Err(ScheduleRefusal::TooMany);
        }
        let jobs = self
            .enqueue_all(&write.jobs)
            .map_err(|(position, refusal)| ScheduleRefusal::Job(position, refusal))?;
        write.workflows.iter().for_each(|workflow| self.start_workflow(workflow));
        let now = self.now();
        let revision = match &found {
            Some(found) => found.revision + 1,
            None => first_revision(&self.bench),
        };
        match &write.to {
            Some(state) => {
                let record = ScheduleRecord {
                    name: write.name.clone(),
                    revision,
                    state: state.clone(),
                    created: found.map_or(now, |found| found.created),
                    updated: now,
                };
                self.tables.schedules.insert(write.name.clone(), record);
            }
            None => drop(self.tables.schedules.remove(&write.name)),
        }
        for event in &write.events {
            self.log_event(schedule_event(&write.name, event, now, &write.by));
        }
        Ok(ScheduleWritten { revision, jobs })
    }
}

impl Tables {
    pub(super) fn schedules_of(&self, query: &ScheduleQuery) -> Vec<ScheduleRecord> {
        let all = self.schedules.values();
        let later = all.filter(|it| query.after.as_ref().is_none_or(|after| it.name > *after));
        later.take(usize::try_from(query.limit).unwrap_or(usize::MAX)).cloned().collect()
    }

    pub(super) fn due_schedules(&self, until: Timestamp, max: u32) -> Vec<ScheduleRecord> {
        let due = |it: &&ScheduleRecord| it.state.due.is_some_and(|due| due <= until);
        let mut due: Vec<ScheduleRecord> = self.schedules.values().filter(due).cloned().collect();
        due.sort_by(|a, b| (a.state.due, &a.name).cmp(&(b.state.due, &b.name)));
        due.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        due
    }
}
