//! Workers: that one is there, that it is alive, and that it is gone.

use std::collections::BTreeMap;

use outlast_core::evidence::Evidence;
use outlast_core::id::WorkerId;
use outlast_core::selector::Selector;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{Standing, WorkerEvent, WorkerRefusal};
use outlast_core::worker::order::{
    GivenOrder, OrderChange, OrderRefusal, StandingOrder, WorkerOrder,
};

use super::order::NotFound;
use super::report::Moved;
use crate::error::StoreError;
use crate::request::{boxed_requests, requests, unit_requests};

/// A native worker's heartbeat.
#[derive(Clone, Debug)]
pub struct Renew {
    /// The worker.
    pub worker: WorkerId,
    /// Lease from now on.
    pub lease: Span,
    /// Attempts it says it holds.
    pub in_flight: u32,
}

/// A worker that makes itself known.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its identity: one process start.
    pub id: WorkerId,
    /// Its label.
    pub name: String,
    /// `action`, `sdk`, `ojs` or `sensor`.
    pub role: WorkerRole,
    /// Slots.
    pub concurrency: u32,
    /// Queues it serves.
    pub queues: Vec<String>,
    /// Runtimes it has.
    pub runtimes: Vec<String>,
    /// Labels it carries.
    pub labels: BTreeMap<String, String>,
    /// Lease from now on.
    pub lease: Span,
    /// JSON object: such as host, pid, version and containment.
    pub about: String,
    /// For a plain OJS worker: the id it gave itself.
    pub plain_id: Option<String>,
    /// The identities that the same process had before, oldest first: what the latest one that is
    /// known was ordered still holds.
    pub previous: Vec<WorkerId>,
}

/// What kind of worker it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkerRole {
    /// Runs packaged actions.
    Action,
    /// Runs registered handlers through an SDK's session.
    Sdk,
    /// A plain OJS client that fetches and acks.
    Ojs,
    /// A sensor.
    Sensor,
}

impl WorkerRole {
    /// Returns the word in the store and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Sdk => "sdk",
            Self::Ojs => "ojs",
            Self::Sensor => "sensor",
        }
    }

    /// Returns the role called `word`, if there is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Action, Self::Sdk, Self::Ojs, Self::Sensor]
            .into_iter()
            .find(|role| role.as_str() == word)
    }
}

/// A session that attaches.
#[derive(Clone, Copy, Debug)]
pub struct Attach {
    /// The worker.
    pub worker: WorkerId,
    /// Which of its attachments this is, by its own count: one that comes after a later
    /// one is refused, since it cannot know what the later one was given.
    pub attachment: u64,
    /// Lease from now on.
    pub lease: Span,
}

/// A change of a worker's standing.
#[derive(Clone, Debug)]
pub struct WorkerMove {
    /// The worker.
    pub worker: WorkerId,
    /// What happened. Not [`WorkerEvent::Lapse`] and not [`WorkerEvent::Beat`].
    pub event: WorkerEvent,
    /// Whether an operator ordered it: then it also holds for the worker that follows in the same
    /// process.
    pub ordered: Option<WorkerOrder>,
    /// Only if its session still has this number (a drop seen by an old session says
    /// nothing about the new one).
    pub session: Option<u64>,
    /// The reporter, for the event log.
    pub by: String,
    /// On what evidence.
    pub evidence: Evidence,
}

impl WorkerMove {
    /// An operator's order to a worker, whichever its session is.
    #[must_use]
    pub fn ordered(worker: WorkerId, order: WorkerOrder, by: &str) -> Self {
        let evidence = ordered_by(by);
        let (event, ordered) = (order.event(), Some(order));
        Self { worker, event, ordered, session: None, by: by.to_owned(), evidence }
    }
}

/// What an order of an operator is based on.
#[must_use]
pub fn ordered_by(by: &str) -> Evidence {
    format!("ordered by {by}").into()
}

/// A worker that is given up for silence. The compare-and-set is on its renewal number.
///
/// `Gone` workers (goodbye, proof of death) release at once through
/// [`Command::Worker`](super::Command::Worker): the same transaction moves everything they hold.
#[derive(Clone, Debug)]
pub struct Lapse {
    /// The worker.
    pub worker: WorkerId,
    /// The renewal number that was watched; another one refuses the lapse.
    pub renewal: u64,
    /// What may move.
    pub scope: LapseScope,
    /// Whether jobs are not suspected: many workers lapse together, or no server took heartbeats.
    pub mass: bool,
    /// The actor, for the event log.
    pub by: String,
    /// On what evidence.
    pub evidence: Evidence,
}

/// What a lapse moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LapseScope {
    /// The reconnect window passed: the worker lapses, attempts that may overlap move, and
    /// those that must not stay held.
    OverlapAllowed,
    /// The whole lease passed, by the store's clock too: everything the worker still
    /// holds moves. Also accepted for a worker that has lapsed already.
    Everything,
}

/// A lease was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The renewal's number.
    pub renewal: u64,
    /// The worker's standing.
    pub standing: Standing,
    /// How many attempts the store has for it.
    pub in_flight: u32,
    /// Whether the store has it as unhealthy.
    pub unhealthy: bool,
}

/// Why a lease was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewRefusal {
    /// The worker is not known.
    #[error("worker is not known")]
    UnknownWorker,
    /// The worker must register again.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    /// The worker has attached again since it said this.
    #[error("attachment {said} was left by its worker for attachment {current}")]
    Abandoned {
        /// The attachment that was asked for.
        said: u64,
        /// The latest one.
        current: u64,
    },
}

/// A session was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its number: higher than any before.
    pub session: u64,
    /// The worker's standing.
    pub standing: Standing,
    /// The latest order to it, or to the one that it follows.
    pub given: Option<GivenOrder>,
}

/// A worker's standing changed, and perhaps its attempts moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerMoved {
    /// The worker.
    pub worker: WorkerId,
    /// Its standing now.
    pub standing: Standing,
    /// Jobs that moved, and where to.
    pub moved: Vec<Moved>,
    /// How many attempts it still holds (after a lapse: those that must not overlap).
    pub kept: u32,
}

/// Why a worker's standing did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerMoveRefusal {
    /// The worker is not known.
    #[error("worker is not known")]
    UnknownWorker,
    /// The rules refuse.
    #[error(transparent)]
    Refused(#[from] WorkerRefusal),
    /// It renewed meanwhile, or the store's clock has not passed its lease.
    #[error("worker renewed its lease in the meantime")]
    Renewed,
    /// Another one of the same process has followed it, and takes its orders.
    #[error("worker was followed by {0}, which takes its orders")]
    Followed(WorkerId),
    /// A newer session of the worker is attached.
    #[error("session was superseded by {current}")]
    StaleSession {
        /// Number of the newer one.
        current: u64,
    },
}

/// An order to all live workers that a selector chooses. Quiet and drain hold for those that start
/// later too, until the same workers are resumed ([`outlast_core::worker::order`]); an order to
/// every worker does not.
#[derive(Clone, Debug)]
pub struct OrderWorkers {
    /// Which workers; all if it asks for nothing.
    pub selector: Selector,
    /// What they are to do.
    pub order: WorkerOrder,
    /// Who orders it, for the event log.
    pub by: String,
}

/// What became of an order to workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersOrdered {
    /// What it did to the orders that stand.
    pub change: OrderChange,
    /// Workers that it is for, whether or not they were so before; by id. Of one that drains, only a
    /// drain is. One whose engine has just died is among them: the next one follows the order.
    pub reached: Vec<WorkerId>,
    /// Quiet workers that were to resume, and that another order keeps from it, with whom that one
    /// is to; by id.
    pub kept: Vec<(WorkerId, Selector)>,
}

/// Returns an order as its columns `selector`, `kind`, `set_by` and `set_at` are read.
///
/// # Errors
/// Returns [`StoreError::Corrupt`] when no order was stored so.
pub fn standing_order(
    selector: &str,
    kind: &str,
    set_by: String,
    set_at: Timestamp,
) -> Result<StandingOrder, StoreError> {
    let corrupt =
        || StoreError::Corrupt(format!("the order {kind:?} to {selector:?} cannot be read"));
    // Its canonical text may be longer than one that is taken.
    let selector = Selector::of_any_length(selector).map_err(|_error| corrupt())?;
    let order = WorkerOrder::parse(kind).ok_or_else(corrupt)?;
    Ok(StandingOrder { selector, order, set_by, set_at })
}

/// What a worker says of its health. It is quiet by itself while it is not healthy.
#[derive(Clone, Debug)]
pub struct ReportHealth {
    /// The worker.
    pub worker: WorkerId,
    /// Why it can run nothing; `None` if it is healthy.
    pub unhealthy: Option<String>,
}

/// Forgets a worker that is no longer live.
#[derive(Clone, Debug)]
pub struct ForgetWorker {
    /// The worker.
    pub worker: WorkerId,
    /// What it is called, for the event log: nothing knows it afterwards.
    pub name: String,
    /// Who orders it, for the event log.
    pub by: String,
}

requests! {
    ForgetWorker as ForgetWorker -> Forgotten(Result<(), NotFound>);
    Renew as Renew -> Renewed(Result<Renewed, RenewRefusal>);
    Attach as Attach -> Attached(Result<Attached, RenewRefusal>);
    WorkerMove as Worker -> WorkerMoved(Result<WorkerMoved, WorkerMoveRefusal>);
    Lapse as Lapse -> WorkerMoved(Result<WorkerMoved, WorkerMoveRefusal>);
}
boxed_requests! {
    Registration as Register -> Registered(Result<Standing, WorkerRefusal>);
    OrderWorkers as OrderWorkers -> WorkersOrdered(Result<WorkersOrdered, OrderRefusal>);
}
unit_requests! {
    ReportHealth as ReportHealth;
}
