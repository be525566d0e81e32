//! A job to be stored, what routes it, and the result of storing it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::job::{Rules, State, Turn};
use outlast_core::keys::Keys;
use outlast_core::queue::Depth;
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};
use outlast_core::unique::Unique;

use crate::unique::KeyOutcome;

/// What routes a job: a server claims only classes that its free workers fit, so jobs
/// that no worker can take cost nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassKey {
    /// Queue.
    pub queue: String,
    /// Job type, or the reference of an action.
    pub job_type: String,
    /// How it is run.
    pub route: Route,
    /// Tenant, for the OJS multi-tenancy header.
    pub tenant: Option<String>,
    /// Jobs that must run alone on their worker are a class of their own. A job enters it
    /// by a transition, never when it is enqueued.
    pub isolated: bool,
    /// Jobs with keys are a class of their own, so that jobs without keys pay nothing for
    /// limits. [`NewJob::stored_in`] sets it.
    pub keyed: bool,
    /// Which workers its jobs run on, by their labels. Part of the stored route.
    pub placement: Placement,
}

impl ClassKey {
    /// Returns the key of the class with the same routing that runs alone, or of the one that does
    /// not; `None` if it is this.
    #[must_use]
    pub fn twin(&self, isolated: bool) -> Option<Self> {
        (self.isolated != isolated).then(|| Self { isolated, ..self.clone() })
    }

    /// Whether a job of one may wait in the other: they are the same, or the one that runs alone
    /// and the one that does not.
    #[must_use]
    pub fn differs_at_most_in_isolation(&self, other: &Self) -> bool {
        self.twin(other.isolated).as_ref().unwrap_or(self) == other
    }

    /// Whether people see the two as one: they differ at most in whether their jobs have keys.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        let Self { queue, job_type, route, tenant, isolated, keyed: _, placement } = self;
        *queue == other.queue
            && *job_type == other.job_type
            && *route == other.route
            && *tenant == other.tenant
            && *isolated == other.isolated
            && *placement == other.placement
    }

    /// Whether plain clients may take its jobs: they run no actions and have no labels.
    #[must_use]
    pub fn is_for_plain_clients(&self) -> bool {
        self.route == Route::Plain && self.placement.takes_unlabelled()
    }
}

/// How jobs of a class are run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// By a handler that someone registered for the type, or a plain OJS fetch.
    Plain,
    /// By a packaged action.
    Action {
        /// `shell`, `python` or `node`.
        runtime: String,
        /// Labels that the worker must carry, with these values.
        labels: BTreeMap<String, String>,
        /// Whether the worker must be able to prove that a process tree is dead: its jobs
        /// forbid overlap.
        proof: bool,
    },
}

/// Number of a class in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub i64);

/// A job to be stored. Its id is fixed before the first try.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// Id, a UUIDv7.
    pub id: JobId,
    /// What routes it.
    pub class: ClassKey,
    /// What it is limited, shared and found by.
    pub keys: Keys,
    /// -100 (last) to 100 (first).
    pub priority: i8,
    /// The immutable payload.
    pub payload: Payload,
    /// What it obeys.
    pub rules: Rules,
    /// When it may first run.
    pub first: First,
    /// Longest an attempt may run.
    pub timeout: Option<Span>,
    /// Visibility of a plain OJS attempt; `None` takes the fetch's.
    pub visibility: Option<Span>,
    /// How long it is kept while no live worker can run it.
    pub scheduled_timeout: ScheduledTimeout,
    /// Which door it came in by.
    pub origin: Origin,
    /// Who enqueues it, for the event log.
    pub by: String,
    /// Whether it is to be the only one of its sort.
    pub unique: Option<Unique>,
}

impl NewJob {
    /// Returns the class that it is stored in.
    #[must_use]
    pub fn stored_in(&self) -> Cow<'_, ClassKey> {
        let keyed = !self.keys.is_empty();
        if self.class.keyed == keyed {
            return Cow::Borrowed(&self.class);
        }
        Cow::Owned(ClassKey { keyed, ..self.class.clone() })
    }
}

/// What a job carries; the store keeps it as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Payload {
    /// JSON: the `args` array of an OJS job; for executions `[parameters]`.
    pub args: String,
    /// JSON object: OJS `meta`; empty when there is none.
    pub meta: String,
    /// JSON object: everything else the producer's envelope held that must be given back
    /// (options as sent, unknown fields, labels); empty when there is none.
    pub extra: String,
}

impl Payload {
    /// Returns how long its texts are together, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.args.len() + self.meta.len() + self.extra.len()
    }
}

/// When a job may first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// At once.
    Now,
    /// From this time on.
    At(Timestamp),
    /// When someone activates it.
    OnActivation,
}

/// Which door a job came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The OJS API.
    Ojs,
    /// The executions API.
    Execution,
}

/// A job was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id.
    pub id: JobId,
    /// Its class.
    pub class: ClassId,
    /// `available`, `scheduled` or `pending`; of a refused arrival `discarded`.
    pub state: State,
    /// When.
    pub at: Timestamp,
    /// What a job that had its unique key has to do with it, if one was in the way.
    pub by_key: Option<KeyOutcome>,
}

impl Enqueued {
    /// Whether this is a job that was there before, and the new one was not stored.
    #[must_use]
    pub const fn is_old(&self) -> bool {
        matches!(self.by_key, Some(KeyOutcome::Ignored))
    }
}

/// Why a job was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueRefusal {
    /// A job of that id is known.
    #[error("job {0} already exists")]
    DuplicateId(JobId),
    /// Its `expires_at` has passed.
    #[error("job {0} has already expired")]
    Expired(JobId),
    /// Another job has its unique key.
    #[error("job {holder}, which is {state}, has the same unique key")]
    NotUnique {
        /// The other job.
        holder: JobId,
        /// Its state.
        state: State,
    },
    /// A job before it in the same request has its unique key.
    #[error("it has the same unique key as a job before it in the request")]
    RepeatedKey(JobId),
    /// It would replace a job that another transaction has locked. It may succeed in a moment.
    #[error("job {0}, which it would replace, is locked by another transaction")]
    Busy(JobId),
    /// A bounded queue has no room for the request. It may succeed once jobs were started.
    #[error("{}", no_room(.queue, *.depth, *.more))]
    QueueFull {
        /// The queue.
        queue: Box<str>,
        /// How full it is.
        depth: Depth,
        /// By how many the request would let more jobs wait.
        more: u64,
    },
}

fn no_room(queue: &str, Depth { jobs, max }: Depth, more: u64) -> String {
    let counted =
        |count: u64| if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    let bound = format!("{} in it, at most {max} may", if jobs == 1 { "waits" } else { "wait" });
    if jobs >= u64::from(max) {
        return format!("queue {queue} is full: {} {bound}", counted(jobs));
    }
    let more = counted(more).replacen(' ', " more ", 1);
    format!("queue {queue} has no room for {more}: {jobs} {bound}")
}

/// Classes are numbered by the store; this is one with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedClass {
    /// Its number.
    pub id: ClassId,
    /// What it routes.
    pub key: ClassKey,
}

/// Returns the rank of a job in its class: ascending rank is the order of claiming.
#[must_use]
pub fn rank(priority: i8, turn: Turn) -> i64 {
    -2 * i64::from(priority) - i64::from(turn == Turn::Front)
}
