//! What a batch has read or changed of jobs and workers: what it decides by.

use std::collections::{BTreeMap, HashMap, HashSet};

use outlast_core::id::{JobId, WorkerId};
use outlast_core::operation::OperationId;
use outlast_core::schedule::ScheduleName;
use outlast_core::selector::Selector;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::operation::OperationRecord;
use outlast_store::schedule::ScheduleRecord;
use outlast_store::unique::{Fingerprint, KeyHolder};
use outlast_store::workflow::WorkflowRecord;
use outlast_store_rules::apply::loaded::{KnownWorker, Loaded};
use outlast_store_rules::backend::Labels;

use super::workers::PlainOnes;

/// What a batch knows of jobs and workers.
#[derive(Default)]
pub(super) struct Seen {
    /// Ids of jobs that are stored, of those that the batch would store.
    pub(super) stored: HashSet<JobId>,
    /// Jobs that the batch names, loaded and locked.
    pub(super) jobs: HashMap<JobId, Loaded>,
    /// Those of them that are only remembered: nothing was looked up, nor locked.
    pub(super) remembered: HashSet<JobId>,
    /// Jobs that the batch names and that are not there.
    pub(super) absent: HashSet<JobId>,
    /// Workers that the batch names, locked; `None` for those that are not there.
    pub(super) workers: HashMap<WorkerId, Option<KnownWorker>>,
    /// Labels of the workers that hold a lease, if the batch orders them something, and of those
    /// that it registers.
    pub(super) labels: BTreeMap<WorkerId, Labels>,
    /// Schedules that the batch names, locked; one that is not there is not among them.
    pub(super) schedules: HashMap<ScheduleName, ScheduleRecord>,
    /// Workflows that the batch names, locked, likewise.
    pub(super) workflows: HashMap<WorkflowId, WorkflowRecord>,
    /// Operations that the batch names, locked, likewise.
    pub(super) operations: HashMap<OperationId, OperationRecord>,
    /// Orders that hold for workers to come, if the batch needs them.
    pub(super) orders: BTreeMap<Selector, StandingOrder>,
    /// How many attempts a worker holds, and how many of those are not cancelled; right until
    /// the batch moves a job.
    pub(super) in_flight: HashMap<WorkerId, (u32, u32)>,
    /// Attempts of workers that are about to be taken from them.
    pub(super) attempts: HashMap<WorkerId, Vec<Loaded>>,
    /// Those that they claimed as plain workers.
    pub(super) plain: PlainOnes,
    /// Attempts to be remembered once the batch has taken effect.
    pub(super) fresh: Vec<Loaded>,
    /// The jobs that have the unique keys which the next enqueues are about.
    pub(super) keys: HashMap<Fingerprint, KeyHolder>,
}
