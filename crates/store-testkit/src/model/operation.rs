//! Operations.

use outlast_core::limits::OPERATIONS_RUNNING_MAX;
use outlast_core::operation::OperationStatus;
use outlast_store::command::{JobOrder, Prune, WriteOperation};
use outlast_store::event::EventName;
use outlast_store::operation::{
    ExpectedOperation, OperationQuery, OperationRecord, OperationRefusal, OperationWritten,
};
use outlast_store::reply::Moved;
use outlast_store_rules::apply::operation::skip;
use outlast_store_rules::apply::schedule::first_revision;
use outlast_store_rules::prune::{OPERATIONS_MAX, operations_found};
use outlast_store_rules::rules::operation_event;

use crate::model::tables::Tables;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn write_operation(
        &mut self,
        write: &WriteOperation,
    ) -> Result<OperationWritten, OperationRefusal> {
        let now = self.now();
        let found = self.tables.operations.get(&write.id).cloned();
        let is_as_expected = match (&found, write.expected) {
            (None, ExpectedOperation::Absent) => write.new.is_some(),
            (Some(found), ExpectedOperation::Revision(revision)) => found.revision == revision,
            (Some(_), ExpectedOperation::Running) => true,
            (None, ExpectedOperation::Revision(_) | ExpectedOperation::Running)
            | (Some(_), ExpectedOperation::Absent) => false,
        };
        let has_ended = |it: &OperationRecord| it.status != OperationStatus::Running;
        if !is_as_expected || found.as_ref().is_some_and(has_ended) {
            return Err(OperationRefusal::Changed);
        }
        let running = self.tables.operations.values().filter(|it| !has_ended(it)).count();
        let mut record = match (found.clone(), &write.new) {
            (Some(found), _) => OperationRecord { revision: found.revision + 1, ..found },
            (None, Some(new)) if running < OPERATIONS_RUNNING_MAX => OperationRecord {
                id: write.id,
                revision: first_revision(&self.bench) + 1,
                new: new.clone(),
                status: OperationStatus::Running,
                reached: None,
                runner: None,
                matched: 0,
                changed: 0,
                skipped: Default::default(),
                note: String::new(),
                created: now,
                updated: now,
                ended: None,
            },
            (None, _) => return Err(OperationRefusal::TooMany),
        };
        record.status = write.to.status;
        record.reached = write.to.reached.clone().or(record.reached);
        record.runner = write.to.runner.or(record.runner);
        record.note = write.to.note.clone().unwrap_or(record.note);
        record.matched += write.to.matched;
        for (reason, count) in &write.to.skipped {
            *record.skipped.entry(*reason).or_default() += count;
        }
        let moved: Vec<Moved> =
            write.orders.iter().filter_map(|it| self.order_counted(&mut record, it)).collect();
        record.updated = now;
        record.ended = has_ended(&record).then_some(now);
        if found.is_none() {
            self.log_event(operation_event(&record, EventName::OperationStarted, now, &write.by));
        }
        if has_ended(&record) {
            self.log_event(operation_event(&record, EventName::OperationEnded, now, &write.by));
        }
        self.tables.operations.insert(record.id, record.clone());
        Ok(OperationWritten { record, moved })
    }

    /// Carries out an order, and counts it.
    fn order_counted(&mut self, record: &mut OperationRecord, order: &JobOrder) -> Option<Moved> {
        match self.order(order) {
            Ok(moved) => {
                record.changed += 1;
                Some(moved)
            }
            Err(refusal) => {
                let found = self.tables.find(order.job).map(|(_, row)| row);
                let may_see =
                    |of: Option<&String>| order.tenant.is_none() || order.tenant.as_ref() == of;
                let found = found.filter(|row| may_see(row.stored.key.tenant.as_ref()));
                let present = found.map(|row| row.job.state);
                let expected = order.expected.map(|seen| seen.state);
                *record.skipped.entry(skip(refusal, expected, present)).or_default() += 1;
                None
            }
        }
    }
}

impl Tables {
    pub(super) fn operations_of(&self, query: &OperationQuery) -> Vec<OperationRecord> {
        let mut all: Vec<OperationRecord> = self
            .operations
            .values()
            .filter(|it| query.running.is_none_or(|running| it.ended.is_none() == running))
            .filter(|it| query.after.is_none_or(|after| (it.created, it.id) < after))
            .cloned()
            .collect();
        all.sort_by_key(|it| std::cmp::Reverse((it.created, it.id)));
        all.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
        all
    }

    pub(super) fn running_operations(&self) -> Vec<OperationRecord> {
        self.operations.values().filter(|it| it.ended.is_none()).cloned().collect()
    }

    /// Forgets operations that ended long ago, oldest first; returns how many it found, as the prune
    /// counts.
    pub(super) fn prune_operations(&mut self, prune: &Prune) -> usize {
        let before = prune.finished_before;
        let ended = |it: &OperationRecord| Some((it.ended.filter(|at| *at < before)?, it.id));
        let mut old: Vec<_> = self.operations.values().filter_map(ended).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(OPERATIONS_MAX).unwrap_or(usize::MAX));
        for (_, id) in &old {
            self.operations.remove(id);
        }
        operations_found(old.len(), prune)
    }
}
