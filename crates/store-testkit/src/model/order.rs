//! Orders about one job or one queue.

use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::job::EventKind;
use outlast_core::queue::QueueRefusal;
use outlast_store::command::{
    EndDetail, ForgetDeadLetter, HandleLetters, JobOrder, LetterKey, QueueOrder, SetQueue,
};
use outlast_store::queue::QueueChanged;
use outlast_store::reply::{MoveRefusal, Moved, NotFound};
use outlast_store_rules::apply::queue;
use outlast_store_rules::rules::{purged_event, queue_event, settings_event};

use crate::model::tables::Seq;
use crate::model::tx::{Cause, Tx};

impl Tx<'_> {
    pub(super) fn order(&mut self, order: &JobOrder) -> Result<Moved, MoveRefusal> {
        let event = order.action.event();
        let seq = self.ordered(order.job, order.tenant.as_ref())?;
        if self.tables.rows.get(&seq).is_some_and(|row| !order.still_meets(&row.job)) {
            return Err(MoveRefusal::Moved);
        }
        let kind: EventKind = event.kind();
        self.play(seq, event, 0, &Cause { kind, by: &order.by, detail: &EndDetail::default() })
    }

    /// Another tenant's job is not found.
    fn ordered(&self, job: JobId, tenant: Option<&String>) -> Result<Seq, MoveRefusal> {
        let (seq, row) = self.tables.find(job).ok_or(MoveRefusal::NotFound)?;
        if tenant.is_some() && tenant != row.stored.key.tenant.as_ref() {
            return Err(MoveRefusal::NotFound);
        }
        Ok(seq)
    }

    pub(super) fn forget_dead_letter(&mut self, order: &ForgetDeadLetter) -> Result<(), NotFound> {
        let seq = self.ordered(order.job, order.tenant.as_ref()).map_err(|_refusal| NotFound)?;
        if self
            .tables
            .rows
            .get(&seq)
            .is_none_or(|row| order.life.is_some_and(|life| life != row.job.life))
        {
            return Err(NotFound);
        }
        let taken =
            self.tables.change(seq, |row| (row.dead_letter.take(), Arc::clone(&row.stored)));
        let Some((Some(_), stored)) = taken else { return Err(NotFound) };
        self.log_event(purged_event(&stored, self.now(), &order.by));
        Ok(())
    }

    pub(super) fn handle_letters(&mut self, handled: &HandleLetters) {
        for LetterKey { job, life } in &handled.letters {
            let Some((seq, row)) = self.tables.find(*job) else { continue };
            if row.job.life == *life {
                self.tables.change(seq, |row| row.unhandled = false);
            }
        }
    }

    pub(super) fn queue(&mut self, order: &QueueOrder) {
        self.tables.paused.insert(order.queue.clone(), order.paused);
        self.log_event(queue_event(&order.queue, order.paused, self.now(), &order.by));
    }

    pub(super) fn set_queue(&mut self, order: &SetQueue) -> Result<QueueChanged, QueueRefusal> {
        let settings = &mut self.tables.settings;
        let Some(record) = queue::set(settings.get(&order.queue), order, self.bench.now)? else {
            return Ok(QueueChanged::Unchanged);
        };
        self.tables.paused.entry(order.queue.clone()).or_insert(false);
        self.log_event(settings_event(&record));
        self.tables.settings.insert(order.queue.clone(), record);
        Ok(QueueChanged::Changed)
    }

    pub(super) fn reset(&mut self) {
        self.tables.reset();
        self.untell();
    }
}
