//! A store under test with a clock to turn, and short words for long commands.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Rules;
use outlast_core::retry::RetryPolicy;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    AskedByQueues, Attach, Batch, BatchId, Claim, ClaimFrom, Claimant, Command, EndDetail, Fence,
    Finish, ForgetDeadLetter, JobAction, JobOrder, Lapse, LapseScope, LeadershipFence,
    LeadershipRequest, NewJob, Payload, Prune, RETENTION, Registration, ReportedOutcome, Reporter,
    Start, Sweep, WorkerMove, WorkerRole,
};
use outlast_store::error::StoreError;
use outlast_store::partitions::Maintain;
use outlast_store::record::{AttemptRecord, JobRecord, WorkerRecord};
use outlast_store::reply::{
    Applied, ClaimRefusal, Claimed, Claims, MoveRefusal, Moved, Pruned, Reply, Swept,
    WorkerMoveRefusal, WorkerMoved,
};
use outlast_store::store::{Clock, ManualClock, Store};
use uuid::Uuid;

use crate::conformance::Harness;
use crate::job::plain_job;

/// When every case begins.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);
/// Lease of the workers that cases register.
pub(crate) const LEASE: Span = Span::from_secs(15);
/// Visibility that plain fetches ask for.
pub(crate) const VISIBILITY: Span = Span::from_secs(30);

/// A store under test.
#[derive(Debug)]
pub struct World<'h, H: Harness> {
    harness: &'h H,
    store: Option<H::Store>,
    /// The store's clock.
    pub clock: ManualClock,
    server: Uuid,
    batches: u64,
    ids: u128,
    /// Budgets of every batch.
    pub budgets: Budgets,
    /// What claims are chosen by.
    pub(crate) asked: AskedByQueues,
}

/// A native worker with the session that it claims by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand {
    /// The worker.
    pub worker: WorkerId,
    /// Its session.
    pub session: u64,
}

impl Hand {
    pub(crate) const fn claimant(&self) -> Claimant {
        Claimant::Native { worker: self.worker, session: self.session }
    }

    pub(crate) fn fence(&self, epoch: Epoch) -> Fence {
        let worker = Some(Reporter::Native(self.worker));
        Fence { epoch: Some(epoch), worker, attempt: None }
    }
}

pub(crate) fn rules(max_attempts: u32) -> Rules {
    let retry = RetryPolicy { max_attempts, jitter: false, ..RetryPolicy::standard() };
    Rules { retry, ..Rules::standard() }
}

pub(crate) fn failed() -> ReportedOutcome {
    ReportedOutcome::Failed { error_type: "error".into(), retryable: true }
}

impl<'h, H: Harness> World<'h, H> {
    pub(crate) fn new(harness: &'h H) -> Self {
        let clock = ManualClock::at(START);
        let store = harness.open(Arc::new(clock.clone()));
        let server = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
        let budgets = Budgets::DEFAULT;
        let asked = AskedByQueues::default();
        Self { harness, store: Some(store), clock, server, batches: 0, ids: 0, budgets, asked }
    }

    /// Opens another store, empty too, that reads another clock.
    pub(crate) fn open_with(&self, clock: Arc<dyn Clock>) -> H::Store {
        self.harness.open(clock)
    }

    pub(crate) fn wait(&self, span: Span) {
        self.clock.advance(u32::try_from(span.0).expect("a case waits for less than 49 days"));
    }

    pub(crate) fn now(&self) -> Timestamp {
        use outlast_store::store::Clock as _;
        self.clock.now()
    }

    pub(crate) fn crash(&mut self) {
        let store = self.store.take().expect("a world has a store");
        self.store = Some(self.harness.reopen(store, Arc::new(self.clock.clone())));
    }

    pub(crate) fn store(&self) -> &H::Store {
        self.store.as_ref().expect("a world has a store")
    }

    pub(crate) const fn harness(&self) -> &H {
        self.harness
    }

    pub(crate) fn ask<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> T {
        self.harness.block_on(call).expect("the store answers")
    }

    /// Makes a call that is expected to fail.
    pub(crate) fn refusal<F: Future<Output = Result<(), StoreError>>>(
        &self,
        call: impl FnOnce(H::Store) -> F,
    ) -> Option<StoreError> {
        self.harness.block_on(call(self.store().clone())).err()
    }

    pub(crate) fn apply(&mut self, commands: Vec<Command>) -> Applied {
        self.batches += 1;
        let id = BatchId { server: self.server, n: self.batches };
        let batch = Batch { id, jitter_seed: self.batches, budgets: self.budgets, commands };
        self.ask(self.store().apply(batch.into()))
    }

    pub(crate) fn one(&mut self, command: Command) -> Reply {
        let mut replies = self.apply(vec![command]).replies;
        assert_eq!(replies.len(), 1, "one reply for each command");
        replies.remove(0)
    }

    fn uuid(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0001_0000 + self.ids)
    }

    /// A job with a new id, three attempts and no jitter.
    pub(crate) fn job(&mut self) -> NewJob {
        NewJob {
            payload: Payload { args: "[1]".into(), ..Payload::default() },
            rules: rules(3),
            by: "producer".into(),
            ..plain_job(JobId(self.uuid()))
        }
    }

    pub(crate) fn add(&mut self, job: NewJob) -> JobId {
        let id = job.id;
        match self.one(Command::Enqueue(Box::new(job))) {
            Reply::Enqueued(Ok(stored)) => assert_eq!(stored.id, id),
            other => panic!("not stored: {other:?}"),
        }
        id
    }

    pub(crate) fn add_plain(&mut self) -> JobId {
        let job = self.job();
        self.add(job)
    }

    pub(crate) fn registration(&mut self) -> Registration {
        Registration {
            id: WorkerId(self.uuid()),
            name: "worker".into(),
            role: WorkerRole::Sdk,
            concurrency: 10,
            queues: vec!["default".into()],
            runtimes: Vec::new(),
            labels: BTreeMap::new(),
            lease: LEASE,
            about: "{}".into(),
            plain_id: None,
            previous: Vec::new(),
        }
    }

    /// A worker that is registered and attached.
    pub(crate) fn worker(&mut self) -> Hand {
        let registration = self.registration();
        let worker = registration.id;
        match self.one(Command::Register(Box::new(registration))) {
            Reply::Registered(Ok(standing)) => assert!(standing.is_active()),
            other => panic!("not registered: {other:?}"),
        }
        let session = self.attach(worker);
        Hand { worker, session }
    }

    pub(crate) fn attach(&mut self, worker: WorkerId) -> u64 {
        let attachment = self.row(worker).attachment + 1;
        match self.one(Command::Attach(Attach { worker, attachment, lease: LEASE })) {
            Reply::Attached(Ok(attached)) => attached.session,
            other => panic!("not attached: {other:?}"),
        }
    }

    pub(crate) fn try_claim(&mut self, hand: Hand, max: u32) -> Result<Vec<Claimed>, ClaimRefusal> {
        self.claim_by(hand.claimant(), self.all_classes(), max)
    }

    /// All classes that have claimable jobs.
    pub(crate) fn all_classes(&self) -> ClaimFrom {
        let classes = self.ask(self.store().backlog()).into_iter().map(|class| class.id);
        ClaimFrom::Classes(classes.collect())
    }

    pub(crate) fn claim_by(
        &mut self,
        claimant: Claimant,
        from: ClaimFrom,
        max: u32,
    ) -> Result<Vec<Claimed>, ClaimRefusal> {
        self.claims_by(claimant, from, max).map(|taken| {
            assert_eq!(taken.passed_over, [], "no other transaction uses the store");
            taken.jobs
        })
    }

    /// Claims, and returns all that the store says.
    pub(crate) fn claims_by(
        &mut self,
        claimant: Claimant,
        from: ClaimFrom,
        max: u32,
    ) -> Result<Claims, ClaimRefusal> {
        let max = NonZeroU32::new(max).expect("a claim asks for something");
        match self.one(Command::Claim(Claim {
            claimant,
            from,
            max,
            is_prefetch: false,
            avoids: Vec::new(),
            asked: self.asked,
        })) {
            Reply::Claimed(taken) => taken,
            other => panic!("not a claim's reply: {other:?}"),
        }
    }

    pub(crate) fn claim(&mut self, hand: Hand, max: u32) -> Vec<Claimed> {
        self.try_claim(hand, max).expect("the worker may claim")
    }

    /// Claims the one job there is.
    pub(crate) fn take(&mut self, hand: Hand) -> Claimed {
        let mut taken = self.claim(hand, 10);
        assert_eq!(taken.len(), 1, "exactly one job is claimable");
        taken.remove(0)
    }

    /// Claims and starts the one job there is.
    pub(crate) fn run(&mut self, hand: Hand) -> Claimed {
        let claimed = self.take(hand);
        self.start(&claimed, hand).expect("the holder may start");
        claimed
    }

    pub(crate) fn fetch(&mut self, name: Option<&str>, max: u32) -> Vec<Claimed> {
        let worker = name.map(str::to_owned);
        let from = ClaimFrom::Queues { queues: vec!["default".into()], tenant: None };
        self.claim_by(Claimant::Plain { worker, visibility: VISIBILITY }, from, max)
            .expect("the worker is active, or has no standing")
    }

    pub(crate) fn start(&mut self, claimed: &Claimed, hand: Hand) -> Result<Moved, MoveRefusal> {
        self.start_with(claimed, hand, None)
    }

    pub(crate) fn start_with(
        &mut self,
        claimed: &Claimed,
        hand: Hand,
        pack_digest: Option<&str>,
    ) -> Result<Moved, MoveRefusal> {
        let fence = hand.fence(claimed.epoch);
        let start = Start { job: claimed.job.id, fence, pack_digest: pack_digest.map(Into::into) };
        self.moved(Command::Start(start))
    }

    pub(crate) fn moved(&mut self, command: Command) -> Result<Moved, MoveRefusal> {
        match self.one(command) {
            Reply::Moved(moved) => moved,
            other => panic!("not a move's reply: {other:?}"),
        }
    }

    pub(crate) fn finish(
        &mut self,
        claimed: &Claimed,
        hand: Hand,
        reported: ReportedOutcome,
    ) -> Result<Moved, MoveRefusal> {
        self.moved(finish(claimed.job.id, hand.fence(claimed.epoch), reported))
    }

    pub(crate) fn cancel(&mut self, job: JobId) -> Result<Moved, MoveRefusal> {
        self.moved(Command::Order(order(JobAction::Cancel, job)))
    }

    pub(crate) fn replay(&mut self, job: JobId) -> Result<Moved, MoveRefusal> {
        self.moved(Command::Order(order(JobAction::Replay, job)))
    }

    pub(crate) fn move_worker(
        &mut self,
        worker: WorkerId,
        event: WorkerEvent,
    ) -> Result<WorkerMoved, WorkerMoveRefusal> {
        let (by, evidence) = ("test".into(), "because".into());
        match self.one(Command::Worker(WorkerMove {
            worker,
            event,
            ordered: None,
            session: None,
            by,
            evidence,
        })) {
            Reply::WorkerMoved(moved) => moved,
            other => panic!("not a worker's reply: {other:?}"),
        }
    }

    pub(crate) fn lapse(
        &mut self,
        worker: WorkerId,
        scope: LapseScope,
    ) -> Result<WorkerMoved, WorkerMoveRefusal> {
        let renewal = self.row(worker).renewal;
        match self.one(lapse(worker, renewal, scope)) {
            Reply::WorkerMoved(moved) => moved,
            other => panic!("not a lapse's reply: {other:?}"),
        }
    }

    /// Lets the lease pass and declares the worker dead.
    pub(crate) fn bury(&mut self, worker: WorkerId) -> WorkerMoved {
        self.wait(LEASE);
        self.lapse(worker, LapseScope::Everything).expect("the lease has passed")
    }

    pub(crate) fn sweep(&mut self) -> Swept {
        let sweep = Sweep { limit: 100, watched: Span::from_secs(86_400) };
        match self.one(Command::Sweep(sweep)) {
            Reply::Swept(swept) => swept,
            other => panic!("not a sweep's reply: {other:?}"),
        }
    }

    /// Makes a server the leader of retention and returns the fence of its work.
    pub(crate) fn retention(&mut self) -> LeadershipFence {
        let (name, holder) = (RETENTION.to_owned(), self.server);
        let hold = Some(Span::from_secs(60));
        match self.one(Command::Leadership(LeadershipRequest { name: name.clone(), holder, hold }))
        {
            Reply::Leadership(Ok(leadership)) => {
                LeadershipFence { name, holder, epoch: leadership.epoch }
            }
            other => panic!("another server leads: {other:?}"),
        }
    }

    /// Deletes what is older than a time, from history too.
    pub(crate) fn prune(&mut self, before: Timestamp) -> Pruned {
        self.prune_up_to(before, 100)
    }

    /// The same, no more than so many of each sort.
    pub(crate) fn prune_up_to(&mut self, before: Timestamp, limit: u32) -> Pruned {
        let leadership = self.retention();
        let (finished_before, workers_before) = (before, before);
        let tend = Maintain { leadership: leadership.clone(), finished_before, limit };
        let prune = Prune { leadership, finished_before, workers_before, limit, from_start: true };
        match self.one(Command::Prune(prune)) {
            Reply::Pruned(Ok(pruned)) => {
                let tended = self.ask(self.store().maintain(tend)).expect("this server leads");
                assert_eq!(tended.put_off, 0, "no other transaction uses the store");
                pruned
            }
            other => panic!("not a prune's reply: {other:?}"),
        }
    }

    pub(crate) fn find(&self, job: JobId) -> Option<JobRecord> {
        self.ask(self.store().job(job))
    }

    pub(crate) fn read(&self, job: JobId) -> JobRecord {
        self.find(job).expect("the job is known")
    }

    pub(crate) fn attempts(&self, job: JobId) -> Vec<AttemptRecord> {
        self.ask(self.store().attempts(job))
    }

    pub(crate) fn row(&self, worker: WorkerId) -> WorkerRecord {
        let workers = self.ask(self.store().workers());
        workers.into_iter().find(|row| row.id == worker).expect("the worker is known")
    }
}

pub(crate) fn finish(job: JobId, fence: Fence, reported: ReportedOutcome) -> Command {
    let detail = EndDetail { evidence: "said so".into(), ..EndDetail::default() };
    Command::Finish(Box::new(Finish { job, fence, reported, detail, by: "test".into() }))
}

pub(crate) fn order(action: JobAction, job: JobId) -> JobOrder {
    JobOrder { job, action, tenant: None, by: "test".into(), expected: None }
}

pub(crate) fn forget(job: JobId) -> ForgetDeadLetter {
    ForgetDeadLetter { job, tenant: None, by: "test".into(), life: None }
}

pub(crate) fn lapse(worker: WorkerId, renewal: u64, scope: LapseScope) -> Command {
    let (by, evidence) = ("test".into(), Evidence::of(EvidenceCode::Frozen, "silent"));
    Command::Lapse(Lapse { worker, renewal, scope, mass: false, by, evidence })
}
