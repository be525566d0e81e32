//! Orders of operators to workers, and which of them hold for workers that start later.
//!
//! An order to workers that are named holds for those processes: also for the next identity of one,
//! after its lease or its engine has ended. One to all whose labels match stands until it is lifted:
//! a worker that starts under it, on whatever server, takes no work. It stays up, so that what
//! restarts workers does not restart it again and again.

use std::collections::BTreeMap;

use super::liveness::{Phase, WorkerEvent};
use crate::selector::Selector;
use crate::time::{Span, Timestamp};

/// Most orders that stand at a time: each registration reads them all.
pub const STANDING_ORDERS_MAX: usize = 100;

/// An order to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerOrder {
    /// Take no new work, until resumed.
    Quiet,
    /// Take work again.
    Resume,
    /// Take no new work, finish what is running, and exit.
    Drain,
}

/// An order to all workers whose labels match, which holds for those that start later too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingOrder {
    /// Which workers; it asks for something.
    pub selector: Selector,
    /// Quiet or drain.
    pub order: WorkerOrder,
    /// Who gave it.
    pub set_by: String,
    /// When.
    pub set_at: Timestamp,
}

/// Why no order was given. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefusal {
    /// Too many stand.
    #[error("{STANDING_ORDERS_MAX} orders stand, and more cannot; resume workers to lift some")]
    TooMany,
}

/// What an order changes among the standing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderChange {
    /// It stands from now on, in place of one to the same workers.
    Stand,
    /// It lifts the one to the same workers.
    LiftOne,
    /// It lifts all.
    LiftAll,
    /// None is lifted or added.
    Nothing,
}

impl WorkerOrder {
    const ALL: [Self; 3] = [Self::Quiet, Self::Resume, Self::Drain];

    /// Returns the order's name in the store, the API and signals between servers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Resume => "resume",
            Self::Drain => "drain",
        }
    }

    /// Returns the order called `name`, if there is one.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == name)
    }

    /// Returns what it means for a worker.
    #[must_use]
    pub const fn event(self) -> WorkerEvent {
        match self {
            Self::Quiet => WorkerEvent::Quiet,
            Self::Resume => WorkerEvent::Resume,
            Self::Drain => WorkerEvent::Drain,
        }
    }
}

impl From<Phase> for WorkerOrder {
    /// Returns the order that leads to a phase.
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Running => Self::Resume,
            Phase::Quiet => Self::Quiet,
            Phase::Draining => Self::Drain,
        }
    }
}

impl StandingOrder {
    /// Returns who gave it, and to whom, in words.
    #[must_use]
    pub fn giver(&self) -> String {
        format!("{} for workers with {}", self.set_by, self.selector)
    }

    /// Returns whether it is to a worker with these labels.
    #[must_use]
    pub fn is_to(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches_labels(labels)
    }
}

/// Returns the latest of the orders to a worker with these labels.
pub fn in_force<'a>(
    orders: impl IntoIterator<Item = &'a StandingOrder>,
    labels: &BTreeMap<String, String>,
) -> Option<&'a StandingOrder> {
    let to_it = orders.into_iter().filter(|order| order.is_to(labels));
    to_it.max_by_key(|order| (order.set_at, &order.selector))
}

/// Decides what an order to the workers that `selector` chooses does to those that `stand`. An
/// order to every worker does not stand: those that replace them could not start.
///
/// # Errors
/// Returns why it is not given.
pub fn change(
    stand: &[StandingOrder],
    selector: &Selector,
    order: WorkerOrder,
) -> Result<OrderChange, OrderRefusal> {
    let found = stand.iter().any(|one| one.selector == *selector);
    match order {
        WorkerOrder::Resume if selector.is_empty() && !stand.is_empty() => Ok(OrderChange::LiftAll),
        WorkerOrder::Resume if found => Ok(OrderChange::LiftOne),
        WorkerOrder::Resume => Ok(OrderChange::Nothing),
        WorkerOrder::Quiet | WorkerOrder::Drain if selector.is_empty() => Ok(OrderChange::Nothing),
        WorkerOrder::Quiet | WorkerOrder::Drain if found || stand.len() < STANDING_ORDERS_MAX => {
            Ok(OrderChange::Stand)
        }
        WorkerOrder::Quiet | WorkerOrder::Drain => Err(OrderRefusal::TooMany),
    }
}

/// An order to one worker, by its id or as one of those that an order reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenOrder {
    /// Quiet, resume or drain.
    pub order: WorkerOrder,
    /// When.
    pub at: Timestamp,
}

/// For how long after its end a worker takes orders for the one that follows it in the same process,
/// such as the next engine of a guardian. One that has lapsed and was ordered something takes them for
/// as long as it is known: it may be cut off for days.
pub const HEIR_TAKES_ORDERS: Span = Span::from_secs(600);

/// How soon after the end of a worker the one that follows it registers, unless its server is out of
/// reach: guardians start engines again within ten seconds.
pub const HEIR_COMES_WITHIN: Span = Span::from_secs(30);

/// Returns the order that stands, if it counts: the later one of it and the latest order to the worker
/// does, except that a drain goes forward only.
#[must_use]
pub fn standing_that_counts(
    given: Option<GivenOrder>,
    standing: Option<&StandingOrder>,
) -> Option<&StandingOrder> {
    standing.filter(|standing| {
        given.is_none_or(|given| given.order != WorkerOrder::Drain && given.at < standing.set_at)
    })
}

/// Decides in which phase a worker registers. `given` is the latest order to it, or to the one that it
/// follows; `standing` is the one in force for all workers with its labels.
#[must_use]
pub fn first_phase(given: Option<GivenOrder>, standing: Option<&StandingOrder>) -> Phase {
    // One that starts under an order to drain stays up and takes nothing.
    if standing_that_counts(given, standing).is_some() {
        return Phase::Quiet;
    }
    match given.map(|given| given.order) {
        Some(WorkerOrder::Drain) => Phase::Draining,
        Some(WorkerOrder::Quiet) => Phase::Quiet,
        Some(WorkerOrder::Resume) | None => Phase::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(selector: &str, order: WorkerOrder, at: i64) -> StandingOrder {
        let selector = selector.parse().unwrap();
        StandingOrder { selector, order, set_by: "tom".into(), set_at: Timestamp(at) }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn latest_order_to_a_worker_is_in_force() {
        let orders = [
            order("pool=gpu", WorkerOrder::Quiet, 3),
            order("!spot", WorkerOrder::Drain, 5),
            order("pool=web", WorkerOrder::Quiet, 9),
        ];
        let to = |pairs: &[(&str, &str)]| {
            in_force(&orders, &labels(pairs)).map(|order| order.selector.to_string())
        };
        assert_eq!(to(&[("pool", "gpu")]).as_deref(), Some("!spot"));
        assert_eq!(to(&[("pool", "gpu"), ("spot", "1")]).as_deref(), Some("pool=gpu"));
        assert_eq!(to(&[("spot", "1")]), None);
    }

    #[test]
    fn order_stands_until_the_same_workers_or_all_are_resumed() {
        let (one, all) = ("pool=gpu".parse().unwrap(), Selector::default());
        let stand = [order("pool=gpu", WorkerOrder::Drain, 1)];
        let other = "pool=web".parse().unwrap();
        for (stand, selector, order, does) in [
            (&[][..], &one, WorkerOrder::Drain, OrderChange::Stand),
            (&stand, &one, WorkerOrder::Quiet, OrderChange::Stand),
            (&stand, &one, WorkerOrder::Resume, OrderChange::LiftOne),
            (&stand, &other, WorkerOrder::Resume, OrderChange::Nothing),
            (&stand, &all, WorkerOrder::Resume, OrderChange::LiftAll),
            (&[], &all, WorkerOrder::Resume, OrderChange::Nothing),
            (&stand, &all, WorkerOrder::Drain, OrderChange::Nothing),
        ] {
            assert_eq!(change(stand, selector, order), Ok(does), "{order:?} {selector}");
        }
    }

    #[test]
    fn more_orders_than_a_registration_reads_are_refused() {
        let name = |n: usize| format!("pool=p{n}");
        let stand: Vec<_> =
            (0..STANDING_ORDERS_MAX).map(|n| order(&name(n), WorkerOrder::Quiet, 1)).collect();
        let more = name(STANDING_ORDERS_MAX).parse().unwrap();
        assert_eq!(change(&stand, &more, WorkerOrder::Quiet), Err(OrderRefusal::TooMany));
        let known = name(7).parse().unwrap();
        assert_eq!(change(&stand, &known, WorkerOrder::Drain), Ok(OrderChange::Stand));
    }

    #[test]
    fn worker_registers_as_it_was_ordered_last() {
        let given = |order, at| Some(GivenOrder { order, at: Timestamp(at) });
        let standing = order("pool=gpu", WorkerOrder::Drain, 5);
        for (given, stands, phase) in [
            (None, false, Phase::Running),
            // A worker that starts under a drain stays up and takes nothing.
            (None, true, Phase::Quiet),
            (given(WorkerOrder::Quiet, 1), false, Phase::Quiet),
            (given(WorkerOrder::Quiet, 9), true, Phase::Quiet),
            (given(WorkerOrder::Resume, 1), false, Phase::Running),
            (given(WorkerOrder::Resume, 4), true, Phase::Quiet),
            (given(WorkerOrder::Resume, 5), true, Phase::Running),
            (given(WorkerOrder::Drain, 1), false, Phase::Draining),
            (given(WorkerOrder::Drain, 1), true, Phase::Draining),
        ] {
            let standing = stands.then_some(&standing);
            assert_eq!(first_phase(given, standing), phase, "{given:?} {stands}");
        }
    }
}
