//! What is stored: rows and the few sets that make them findable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Job, Place, State, Turn};
use outlast_core::leadership::Leadership;
use outlast_core::limit::{GateId, LimitName};
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::selector::Selector;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::order::StandingOrder;
use outlast_store::browser_session::BrowserSession;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store::event::Event;
use outlast_store::idempotency::Fingerprint;
use outlast_store::limit::{GateRecord, LimitRecord};
use outlast_store::operation::OperationRecord;
use outlast_store::query::LogLine;
use outlast_store::queue::QueueRecord;
use outlast_store::record::{AttemptRecord, StoredJob, WorkerRecord};
use outlast_store::schedule::ScheduleRecord;
use outlast_store_rules::apply::claim::fair::Shares;
use uuid::Uuid;

use crate::model::workflow::Workflows;

/// Rises with every job stored: the order of enqueueing.
pub(super) type Seq = u64;

/// Position of a claimable job in its class: best priority, then front, then oldest.
pub(super) type Position = (Reverse<i8>, Turn, Seq);

/// Everything that is stored.
#[derive(Debug, Default)]
pub(super) struct Tables {
    now: Timestamp,
    seq: Seq,
    pub(super) classes: BTreeMap<ClassId, Arc<ClassKey>>,
    class_count: i64,
    pub(super) rows: BTreeMap<Seq, Row>,
    pub(super) by_id: HashMap<JobId, Seq>,
    /// Jobs that have not ended, or that are still held.
    pub(super) live: BTreeSet<Seq>,
    /// Jobs that may be claimed, by class.
    pub(super) ready: BTreeMap<ClassId, BTreeSet<Position>>,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    /// Orders that hold for workers to come.
    pub(super) orders: BTreeMap<Selector, StandingOrder>,
    /// Queues that someone paused, resumed or set, and whether they are paused.
    pub(super) paused: BTreeMap<String, bool>,
    /// Settings of queues, by name.
    pub(super) settings: BTreeMap<String, QueueRecord>,
    pub(super) keys: BTreeMap<Fingerprint, Key>,
    /// The job that took each unique key last.
    pub(super) unique: BTreeMap<Fingerprint, JobId>,
    pub(super) leaders: BTreeMap<String, Leadership>,
    pub(super) limits: BTreeMap<LimitName, LimitRecord>,
    pub(super) gates: BTreeMap<GateId, GateRow>,
    pub(super) schedules: BTreeMap<ScheduleName, ScheduleRecord>,
    pub(super) operations: BTreeMap<OperationId, OperationRecord>,
    pub(super) workflows: Workflows,
    /// Sessions of browsers.
    pub(super) sessions: BTreeMap<Uuid, BrowserSession>,
    /// What shares of queues have had.
    pub(super) shares: Shares,
    pub(super) events: BTreeMap<Uuid, BTreeMap<u64, Vec<Event>>>,
    /// Classes whose jobs the present batch has removed: they stay until the next one.
    pub(super) left: BTreeSet<ClassId>,
    /// The last job that a prune has looked at.
    pub(super) pruned_to: Option<(Timestamp, Seq)>,
}

/// A key that was used.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) request: Fingerprint,
    pub(super) expires: Timestamp,
    pub(super) jobs: Vec<JobId>,
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) stored: Arc<StoredJob>,
    pub(super) job: Job,
    pub(super) place: Place,
    /// Class it is in now: its own, or that one's isolated twin.
    pub(super) class: ClassId,
    pub(super) since: Timestamp,
    /// Attempt number that the OJS wire shows.
    pub(super) attempt: u32,
    pub(super) in_flight: Option<ActiveRow>,
    pub(super) attempts: Vec<AttemptRecord>,
    pub(super) checkpoint: Option<Vec<u8>>,
    pub(super) finished: Option<Timestamp>,
    pub(super) result: Option<String>,
    /// Error of a job that no worker came for; other errors are their attempts'.
    pub(super) stranded: Option<String>,
    pub(super) ended_by: &'static str,
    pub(super) dead_letter: Option<(DeadLetterReason, Timestamp)>,
    /// Whether it is a dead letter that no server has handled yet.
    pub(super) unhandled: bool,
    pub(super) log: Vec<(u32, LogLine)>,
}

/// What is known about a running attempt besides the rules' [`outlast_core::job::Holder`].
#[derive(Clone, Debug)]
pub(super) struct ActiveRow {
    pub(super) worker: Option<WorkerId>,
    /// The id that a plain holder gave itself.
    pub(super) plain: Option<String>,
    pub(super) claimed: Timestamp,
    /// Set for plain attempts.
    pub(super) visible: Option<Visible>,
    /// Digest of the pack that it runs.
    pub(super) pack_digest: Option<Arc<str>>,
    /// The gates that count it.
    pub(super) gates: Vec<GateId>,
}

/// A gate, and the limit that it is of.
#[derive(Clone, Debug)]
pub(super) struct GateRow {
    pub(super) limit: LimitName,
    pub(super) record: GateRecord,
}

/// How long a plain attempt is visible to its holder only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visible {
    pub(super) until: Timestamp,
    pub(super) length: Span,
}

impl ActiveRow {
    /// Who it is, for the event log.
    pub(super) fn words(&self) -> String {
        let plain = || self.plain.clone().unwrap_or_default();
        self.worker.map_or_else(plain, |worker| format!("worker {worker}"))
    }
}

impl Row {
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.job.holder.and_then(|holder| holder.started)
    }

    /// When the running attempt started, or was claimed.
    pub(super) fn began(&self) -> Option<Timestamp> {
        let claimed = self.in_flight.as_ref()?.claimed;
        Some(self.started().unwrap_or(claimed))
    }

    /// When a plain attempt's time is up.
    pub(super) fn plain_limit(&self) -> Option<Timestamp> {
        self.in_flight.as_ref()?.visible?;
        if self.job.state != State::Active {
            return None;
        }
        Some(self.started()?.after(self.stored.timeout?))
    }

    /// When a job that waits must not be started any more.
    pub(super) fn expires(&self) -> Option<Timestamp> {
        match self.job.state {
            State::Scheduled | State::Available | State::Pending | State::Retryable => {
                self.job.rules.expires_at
            }
            State::Active | State::Completed | State::Cancelled | State::Discarded => None,
        }
    }

    fn position(&self, seq: Seq) -> Option<Position> {
        match self.place {
            Place::Ready(turn) => Some((Reverse(self.stored.priority), turn, seq)),
            Place::Timer(_) | Place::Pending | Place::Active | Place::Ended => None,
        }
    }
}

impl Tables {
    /// Returns the store's time, which never runs backwards.
    pub(super) fn tick(&mut self, clock: Timestamp) -> Timestamp {
        self.now = self.now.max(clock);
        self.now
    }

    /// Returns the number of a class, which is made if need be.
    pub(super) fn class(&mut self, key: &ClassKey) -> ClassId {
        let known = self.classes.iter().find(|(_, class)| class.as_ref() == key);
        if let Some((id, _)) = known {
            return *id;
        }
        self.class_count += 1;
        let id = ClassId(self.class_count);
        self.classes.insert(id, Arc::new(key.clone()));
        id
    }

    /// Forgets classes of which neither they nor their isolated twins have a job, but for the
    /// latest; returns how many.
    pub(super) fn retire_classes(&mut self) -> u32 {
        let latest = self.classes.keys().next_back().copied();
        let plain = |key: &ClassKey| ClassKey { isolated: false, ..key.clone() };
        let busy: BTreeSet<ClassKey> = self
            .classes
            .iter()
            .filter(|(id, _)| {
                let of = |row: &Row| row.class == **id || row.stored.class == **id;
                latest == Some(**id) || self.left.contains(id) || self.rows.values().any(of)
            })
            .map(|(_, key)| plain(key))
            .collect();
        let before = self.classes.len();
        self.classes.retain(|_, key| busy.contains(&plain(key)));
        self.ready.retain(|id, _| self.classes.contains_key(id));
        u32::try_from(before - self.classes.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn add(&mut self, row: Row) -> Seq {
        self.seq += 1;
        let seq = self.seq;
        self.by_id.insert(row.stored.id, seq);
        self.index(seq, &row);
        self.rows.insert(seq, row);
        seq
    }

    /// Changes one row and keeps the sets true.
    pub(super) fn change<T>(&mut self, seq: Seq, f: impl FnOnce(&mut Row) -> T) -> Option<T> {
        let mut row = self.rows.remove(&seq)?;
        if let (Some(position), Some(class)) = (row.position(seq), self.ready.get_mut(&row.class)) {
            class.remove(&position);
        }
        let out = f(&mut row);
        self.index(seq, &row);
        self.rows.insert(seq, row);
        Some(out)
    }

    fn index(&mut self, seq: Seq, row: &Row) {
        if let Some(position) = row.position(seq) {
            self.ready.entry(row.class).or_default().insert(position);
        }
        if row.job.state.is_terminal() && row.in_flight.is_none() {
            self.live.remove(&seq);
        } else {
            self.live.insert(seq);
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some(row) = self.rows.remove(&seq) {
            self.left.extend([row.class, row.stored.class]);
            self.by_id.remove(&row.stored.id);
            self.unique.retain(|_, id| *id != row.stored.id);
            self.live.remove(&seq);
        }
    }

    pub(super) fn find(&self, id: JobId) -> Option<(Seq, &Row)> {
        let seq = *self.by_id.get(&id)?;
        Some((seq, self.rows.get(&seq)?))
    }

    /// Rows that have not ended or are held, in the order of enqueueing.
    pub(super) fn live_rows(&self) -> impl Iterator<Item = (Seq, &Row)> {
        self.live.iter().filter_map(|seq| Some((*seq, self.rows.get(seq)?)))
    }

    /// Rows that a native worker holds, in the order of enqueueing.
    pub(super) fn rows_in_flight_of(&self, worker: WorkerId) -> impl Iterator<Item = (Seq, &Row)> {
        self.live_rows().filter(move |(_, row)| {
            row.in_flight.as_ref().is_some_and(|h| h.worker == Some(worker))
        })
    }

    /// Whether a worker holds exactly one attempt that is not cancelled.
    pub(super) fn holds_one(&self, worker: WorkerId) -> bool {
        self.rows_in_flight_of(worker).filter(|(_, row)| row.job.state == State::Active).count()
            == 1
    }

    pub(super) fn is_paused(&self, queue: &str) -> bool {
        self.paused.get(queue).copied().unwrap_or(false)
    }

    pub(super) fn workers_latest_first(&self) -> Vec<&WorkerRecord> {
        let mut workers: Vec<_> = self.workers.values().collect();
        workers.sort_by_key(|worker| Reverse((worker.created, worker.id)));
        workers
    }

    /// Drops everything but the time and the leaders: their epochs never fall.
    pub(super) fn reset(&mut self) {
        let leaders = std::mem::take(&mut self.leaders);
        *self = Self { now: self.now, leaders, ..Self::default() };
    }
}
