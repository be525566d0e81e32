//! Orders that found no session here, kept for the one that may be about to attach.
//!
//! A session attaches in several steps, and is not known here before the last one. An order given
//! meanwhile is stored, and may be newer than what the session heard. Hearing it twice does no harm.

use std::collections::HashMap;

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::order::WorkerOrder;

/// For how long an order is kept: longer than a session takes to attach.
const KEPT: Span = Span::from_secs(30);

/// Most orders that are kept; an order to more workers than that is unheard of.
const ORDERS_MAX: usize = 50_000;

/// The latest order to each worker that had no session here.
#[derive(Debug, Default)]
pub(super) struct LateOrders(HashMap<WorkerId, LateOrder>);

/// An order, with who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LateOrder {
    pub(super) order: WorkerOrder,
    pub(super) by: String,
    given: BootTime,
}

impl LateOrders {
    pub(super) fn keep(&mut self, worker: WorkerId, order: WorkerOrder, by: String, now: BootTime) {
        if self.0.len() >= ORDERS_MAX {
            self.0.retain(|_, late| now.since(late.given) <= KEPT);
        }
        if self.0.len() < ORDERS_MAX {
            self.0.insert(worker, LateOrder { order, by, given: now });
        }
    }

    /// Takes the order to a worker that attaches, if there is one of late.
    pub(super) fn take(&mut self, worker: WorkerId, now: BootTime) -> Option<LateOrder> {
        self.0.remove(&worker).filter(|late| now.since(late.given) <= KEPT)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn latest_order_is_kept_for_a_while_and_taken_once() {
        let (mut late, at) =
            (LateOrders::default(), |secs| BootTime(0).after(Span::from_secs(secs)));
        let worker = |n| WorkerId(Uuid::from_u128(n));
        late.keep(worker(1), WorkerOrder::Quiet, "tom".into(), at(0));
        late.keep(worker(1), WorkerOrder::Resume, "eve".into(), at(1));
        late.keep(worker(2), WorkerOrder::Drain, "tom".into(), at(0));
        let taken = late.take(worker(1), at(31)).map(|late| (late.order, late.by));
        assert_eq!(taken, Some((WorkerOrder::Resume, "eve".into())));
        assert_eq!(late.take(worker(1), at(31)), None);
        assert_eq!(late.take(worker(2), at(31)), None, "it is too old");
    }
}
