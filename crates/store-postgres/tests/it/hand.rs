//! What servers would ask of a store, for tests in which several of them meet in one
//! database.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::budget::Budgets;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Rules;
use outlast_core::keys::Keys;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::retry::{OnExhaustion, RetryPolicy};
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    AskedByQueues, Attach, Claim, ClaimFrom, Claimant, EndDetail, Fence, Finish, ForgetDeadLetter,
    JobAction, JobOrder, Lapse, LapseScope, NewJob, Origin, Payload, Registration, Renew,
    ReportedOutcome, Reporter, SetLimit, WorkerMove, WorkerRole,
};
use outlast_store::reply::{Claimed, Resolved};
use outlast_store::store::ManualClock;
use outlast_store::{Applied, Batch, BatchId, Command, Reply, Store as _, StoreError};
use outlast_store_postgres::{Options, PostgresStore};
use outlast_store_testkit::job::plain_job;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

pub(crate) const LEASE: Span = Span::from_secs(15);

/// Longest that a session holds a row in a test.
const HELD_MAX: Duration = Duration::from_secs(60);

/// Runs a test that talks to a real PostgreSQL.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test)
}

/// Opens a connection past the store.
pub(crate) async fn sql(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("set search_path = outlast, public").await.unwrap();
    client
}

/// Asks for one number.
pub(crate) async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Checks that every job is in exactly one place; a cancelled one that is held is also among
/// the ended ones.
pub(crate) async fn check_places(client: &Client) {
    let row = client
        .query_one(
            "with places as (
                 select seq from ready union all select seq from waiting
                 union all select seq from active where not cancelled
                 union all select seq from finished)
             select (select count(*) from job_row), count(*), count(distinct p.seq),
                 count(j.seq), (select count(*) from active a where a.cancelled and not exists
                     (select 1 from finished f where f.seq = a.seq and f.state = 'cancelled'))
             from places p left join job_row j on j.seq = p.seq",
            &[],
        )
        .await
        .unwrap();
    let counts: Vec<i64> = (0..5).map(|at| row.get(at)).collect();
    let jobs = counts[0];
    assert_eq!(counts, [jobs, jobs, jobs, jobs, 0], "jobs, places, different, known, astray");
    check_tally(client).await;
}

/// Checks that gates count the attempts that hold them.
pub(crate) async fn check_gates(client: &Client) {
    let wrong = "select count(*) from (
            (select gate, sum(n)::bigint from gate_held group by gate having sum(n) <> 0
             except select id, in_flight from outlast.gate_counted)
            union all
            (select id, in_flight from outlast.gate_counted
             except select gate, sum(n)::bigint from gate_held group by gate)) d";
    assert_eq!(number(client, wrong).await, 0, "gates that count wrong");
}

/// Checks that the live counts are those that counting gives.
pub(crate) async fn check_tally(client: &Client) {
    let sums: Vec<String> = outlast_store::tally::COLUMNS
        .iter()
        .map(|column| format!("coalesce(sum({column}), 0)::bigint as {column}"))
        .collect();
    let sums = sums.join(", ");
    let columns = outlast_store::tally::COLUMNS.join(", ");
    let kept = format!("select class, {sums} from outlast.live_tally group by class");
    let counted = format!("select class, {columns} from outlast.tally_counted");
    let nothing = outlast_store::tally::COLUMNS.map(|column| format!("{column} = 0")).join(" and ");
    let sql = format!(
        "select count(*) from (
             (select * from ({kept}) k where not ({nothing}) except {counted})
             union all
             ({counted} except {kept})) d"
    );
    assert_eq!(number(client, &sql).await, 0, "classes whose live counts are wrong");
    let wrong = "with kept as (
             select queue, sum(n)::bigint as n from outlast.live_depth group by queue),
         counted as (
             select c.queue, sum(t.scheduled + t.available + t.pending + t.retryable)::bigint as n
             from outlast.tally_counted t join class c on c.id = t.class group by c.queue)
         select count(*) from kept k full join counted c on c.queue = k.queue
         where coalesce(k.n, 0) <> coalesce(c.n, 0)";
    assert_eq!(number(client, wrong).await, 0, "queues whose depth is wrong");
    let of_queues = format!(
        "with kept as (select queue, {sums} from outlast.live_queue_tally group by queue),
         counted as (
             select c.queue, {sums} from outlast.tally_counted t join outlast.class c on c.id = t.class
             group by c.queue)
         select count(*) from (
             (select * from kept where not ({nothing}) except select * from counted)
             union all
             (select * from counted except select * from kept)) d"
    );
    assert_eq!(number(client, &of_queues).await, 0, "queues whose live counts are wrong");
    let of_seconds = "with kept as (
             select queue, second, sum(jobs)::bigint as jobs from outlast.live_ready_second
             group by queue, second),
         counted as (
             select c.queue, v.second, sum(c.jobs)::bigint as jobs
             from outlast.ready_second_counted c
             cross join lateral (values (c.second), (-1::bigint)) v(second)
             group by c.queue, v.second)
         select count(*) from kept k full join counted c on c.queue = k.queue and c.second = k.second
         where coalesce(k.jobs, 0) <> coalesce(c.jobs, 0)";
    assert_eq!(number(client, of_seconds).await, 0, "seconds whose claimable jobs are wrong");
}

pub(crate) fn new_id() -> Uuid {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 | u128::from(n))
}

/// One server's way to the store.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) store: PostgresStore,
    pub(crate) id: Uuid,
    batches: AtomicU64,
}

impl Server {
    /// Opens a store that need not survive a power cut.
    pub(crate) async fn open(url: &str) -> Self {
        let options = Options { unsafe_no_fsync: true, ..Options::default() };
        Self::with(url, &options).await
    }

    /// Opens a store with a clock of its own: no batch asks the database for the time.
    pub(crate) async fn with_clock(url: &str) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000)));
        Self::with(url, &Options { unsafe_no_fsync: true, clock: Some(clock) }).await
    }

    pub(crate) async fn with(url: &str, options: &Options) -> Self {
        let store = PostgresStore::open(url, options).await.unwrap();
        Self { store, id: new_id(), batches: AtomicU64::new(0) }
    }

    /// Opens a store whose statements may take only so long.
    pub(crate) async fn with_limit(url: &str, limit: Duration) -> Self {
        let options = Options { unsafe_no_fsync: true, ..Options::default() };
        let store = PostgresStore::open_with_statement_limit(url, &options, limit).await.unwrap();
        Self { store, id: new_id(), batches: AtomicU64::new(0) }
    }

    /// The same server, with new connections and what it remembers lost.
    pub(crate) async fn reopen(self, url: &str) -> Self {
        self.store.close().await.unwrap();
        let options = Options { unsafe_no_fsync: true, ..Options::default() };
        let store = PostgresStore::open(url, &options).await.unwrap();
        Self { store, ..self }
    }

    /// The same store, with batches that are numbered by themselves.
    pub(crate) fn lane(&self) -> Self {
        Self { store: self.store.clone(), id: new_id(), batches: AtomicU64::new(0) }
    }

    /// Applies commands; returns how many statements that took.
    pub(crate) async fn statements_of(&self, commands: Vec<Command>) -> u64 {
        let before = self.store.statements_sent().await;
        self.try_apply(commands).await.unwrap();
        self.store.statements_sent().await - before
    }

    pub(crate) async fn try_apply(&self, commands: Vec<Command>) -> Result<Applied, StoreError> {
        let n = self.batches.fetch_add(1, Ordering::Relaxed) + 1;
        let id = BatchId { server: self.id, n };
        let batch = Batch { id, jitter_seed: n, budgets: Budgets::DEFAULT, commands };
        self.store.apply(batch.into()).await
    }

    /// Finds out what the latest batch did.
    pub(crate) async fn resolve(&self) -> Result<Resolved, StoreError> {
        self.store
            .resolve(BatchId { server: self.id, n: self.batches.load(Ordering::Relaxed) })
            .await
    }

    /// Applies commands; while another session holds what they need, again and again, as a
    /// server does.
    pub(crate) async fn apply(&self, commands: Vec<Command>) -> Vec<Reply> {
        let trying = async {
            loop {
                match self.try_apply(commands.clone()).await {
                    Err(StoreError::Locked(_)) => tokio::task::yield_now().await,
                    applied => return applied.unwrap().replies,
                }
            }
        };
        tokio::time::timeout(HELD_MAX, trying).await.unwrap()
    }

    pub(crate) async fn one(&self, command: Command) -> Reply {
        self.apply(vec![command]).await.remove(0)
    }

    /// Makes a worker known and attaches its first session.
    pub(crate) async fn worker(&self) -> WorkerId {
        self.worker_of(LEASE).await
    }

    pub(crate) async fn worker_of(&self, lease: Span) -> WorkerId {
        let worker = WorkerId(new_id());
        let replies = self.apply(arrival(worker, lease)).await;
        assert!(matches!(replies.as_slice(), [Reply::Registered(Ok(_)), Reply::Attached(Ok(_))]));
        worker
    }

    /// Stores jobs of the class `work`.
    pub(crate) async fn add(&self, count: usize) -> Vec<JobId> {
        let jobs: Vec<NewJob> = (0..count).map(|_| job()).collect();
        let ids = jobs.iter().map(|job| job.id).collect();
        let reply = self.one(Command::EnqueueAll(jobs)).await;
        assert!(matches!(reply, Reply::EnqueuedAll(Ok(_))), "{reply:?}");
        ids
    }

    /// Takes jobs of any class.
    pub(crate) async fn claim(&self, worker: WorkerId, max: u32) -> Vec<Claimed> {
        match self.one(self.claiming(worker, max).await).await {
            Reply::Claimed(Ok(claimed)) => claimed.jobs,
            other => panic!("nothing may be claimed: {other:?}"),
        }
    }

    pub(crate) async fn claiming(&self, worker: WorkerId, max: u32) -> Command {
        let classes = self.store.backlog().await.unwrap().into_iter().map(|class| class.id);
        let from = ClaimFrom::Classes(classes.collect());
        let claimant = Claimant::Native { worker, session: 1 };
        Command::Claim(Claim {
            claimant,
            from,
            max: NonZeroU32::new(max).unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        })
    }

    /// Returns the number of a worker's latest renewal.
    pub(crate) async fn renewal(&self, worker: WorkerId) -> u64 {
        let workers = self.store.workers().await.unwrap();
        workers.iter().find(|row| row.id == worker).unwrap().renewal
    }
}

pub(crate) fn registration(worker: WorkerId, lease: Span) -> Registration {
    Registration {
        id: worker,
        name: "shell-1".into(),
        role: WorkerRole::Action,
        concurrency: 10,
        queues: vec!["default".into()],
        runtimes: vec!["shell".into()],
        labels: BTreeMap::new(),
        lease,
        about: "{}".into(),
        plain_id: None,
        previous: Vec::new(),
    }
}

pub(crate) fn arrival(worker: WorkerId, lease: Span) -> Vec<Command> {
    let attach = Attach { worker, attachment: 1, lease };
    vec![Command::Register(Box::new(registration(worker, lease))), Command::Attach(attach)]
}

/// A job with a new id that is tried three times, then a dead letter.
pub(crate) fn job() -> NewJob {
    let on_exhaustion = OnExhaustion::DeadLetter;
    let retry =
        RetryPolicy { max_attempts: 3, jitter: false, on_exhaustion, ..RetryPolicy::standard() };
    NewJob {
        payload: Payload { args: "[{}]".into(), ..Payload::default() },
        rules: Rules { retry, ..Rules::standard() },
        origin: Origin::Execution,
        ..plain_job(JobId(new_id()))
    }
}

pub(crate) fn enqueue(job: NewJob) -> Command {
    Command::Enqueue(Box::new(job))
}

pub(crate) fn finish(
    worker: WorkerId,
    job: JobId,
    epoch: Epoch,
    reported: ReportedOutcome,
) -> Command {
    let fence = Fence { epoch: Some(epoch), worker: Some(Reporter::Native(worker)), attempt: None };
    let detail = EndDetail { result: Some("1".into()), ..EndDetail::default() };
    let by = format!("worker {worker}");
    Command::Finish(Box::new(Finish { job, fence, reported, detail, by }))
}

/// A job of a tenant, by a key.
pub(crate) fn of_tenant(tenant: &str) -> NewJob {
    let keys = Keys::new([("tenant".into(), tenant.into())].into()).unwrap();
    NewJob { keys, ..job() }
}

/// Sets a limit.
pub(crate) fn limit(name: &str, scope: Scope, concurrency: u32) -> Command {
    let name = LimitName::new(name).unwrap();
    let limit = Limit { name, scope, concurrency: Some(concurrency), rate: None };
    Command::SetLimit(Box::new(SetLimit { limit, configured: false, by: "operator".into() }))
}

pub(crate) fn per_tenant(concurrency: u32) -> Command {
    limit("tenant", Scope::Key("tenant".into()), concurrency)
}

pub(crate) fn renew(worker: WorkerId) -> Command {
    Command::Renew(Renew { worker, lease: LEASE, in_flight: 0 })
}

pub(crate) fn lapse(worker: WorkerId, renewal: u64) -> Command {
    let scope = LapseScope::Everything;
    let (by, evidence) = ("sweeper".into(), "silent".into());
    Command::Lapse(Lapse { worker, renewal, scope, mass: true, by, evidence })
}

pub(crate) fn goodbye(worker: WorkerId) -> Command {
    let (by, evidence) = ("worker".into(), "goodbye".into());
    let event = WorkerEvent::Goodbye;
    Command::Worker(WorkerMove { worker, event, ordered: None, session: None, by, evidence })
}

pub(crate) fn order(action: JobAction, job: JobId) -> JobOrder {
    JobOrder { job, action, tenant: None, by: "operator".into(), expected: None }
}

pub(crate) fn forget(job: JobId) -> ForgetDeadLetter {
    ForgetDeadLetter { job, tenant: None, by: "operator".into(), life: None }
}
