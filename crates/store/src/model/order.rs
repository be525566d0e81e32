//! Orders about one job or one queue.

use std::sync::Arc;

use outlast_core::job::{Event as JobEvent, EventKind};
use outlast_core::queue::QueueRefusal;

use crate::apply::queue;
use crate::command::{EndDetail, JobOrder, QueueOrder, SetQueue};
use crate::model::tables::Seq;
use crate::model::tx::{Cause, Tx};
use crate::queue::QueueChanged;
use crate::reply::{MoveRefusal, Moved, Reply};
use crate::rules::{purged_event, queue_event, settings_event};

impl Tx<'_> {
    pub(super) fn cancel(&mut self, order: &JobOrder) -> Result<Moved, MoveRefusal> {
        self.order(order, JobEvent::Cancel)
    }

    pub(super) fn activate(&mut self, order: &JobOrder) -> Result<Moved, MoveRefusal> {
        self.order(order, JobEvent::Activate)
    }

    pub(super) fn run_now(&mut self, order: &JobOrder) -> Result<Moved, MoveRefusal> {
        self.order(order, JobEvent::Due)
    }

    pub(super) fn replay(&mut self, order: &JobOrder) -> Result<Moved, MoveRefusal> {
        self.order(order, JobEvent::Replay)
    }

    fn order(&mut self, order: &JobOrder, event: JobEvent<'_>) -> Result<Moved, MoveRefusal> {
        let seq = self.ordered(order)?;
        if self.tables.rows.get(&seq).is_some_and(|row| !order.still_meets(&row.job)) {
            return Err(MoveRefusal::Moved);
        }
        let kind: EventKind = event.kind();
        self.play(seq, event, 0, &Cause { kind, by: &order.by, detail: &EndDetail::default() })
    }

    /// Another tenant's job is not found.
    fn ordered(&self, order: &JobOrder) -> Result<Seq, MoveRefusal> {
        let (seq, row) = self.tables.find(order.job).ok_or(MoveRefusal::NotFound)?;
        if order.tenant.is_some() && order.tenant != row.stored.key.tenant {
            return Err(MoveRefusal::NotFound);
        }
        Ok(seq)
    }

    pub(super) fn forget_dead_letter(&mut self, order: &JobOrder) -> Reply {
        let Ok(seq) = self.ordered(order) else { return Reply::NotFound };
        let taken =
            self.tables.change(seq, |row| (row.dead_letter.take(), Arc::clone(&row.stored)));
        let Some((Some(_), stored)) = taken else { return Reply::NotFound };
        self.log_event(purged_event(&stored, self.now(), &order.by));
        Reply::Done
    }

    pub(super) fn queue(&mut self, order: &QueueOrder) -> Reply {
        self.tables.paused.insert(order.queue.clone(), order.paused);
        self.log_event(queue_event(&order.queue, order.paused, self.now(), &order.by));
        Reply::Done
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
