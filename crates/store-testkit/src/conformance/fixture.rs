//! A store that was made when the schema was first written, and is kept: every later build must
//! open it and find in it what was put there.
//!
//! The stores' crates keep it as SQL (`tests/fixtures/first.sql`) and never make it again.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use outlast_core::budget::{Budgets, ScheduledTimeout};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::keys::Keys;
use outlast_core::retry::OnExhaustion;
use outlast_core::time::{Span, Timestamp};
use outlast_core::unique::{OnConflict, States, Unique};
use outlast_store::command::{
    AskedByQueues, Attach, Batch, BatchId, Claim, ClaimFrom, Claimant, Command, Fence, JobAction,
    LogChunk, Progress, QueueOrder, Registration, ReportedOutcome, Reporter, SetLimit, Start,
    Stream, WorkerRole,
};
use outlast_store::event::EventQuery;
use outlast_store::idempotency::{EnqueueOnce, EnqueuedOnce};
use outlast_store::job::{
    ClassId, ClassKey, EnqueueRefusal, First, NewJob, Origin, Payload, Route,
};
use outlast_store::limit::GateQuery;
use outlast_store::query::{JobQuery, LogQuery, Page};
use outlast_store::reply::{Claimed, Reply};
use outlast_store::store::Store;
use uuid::Uuid;

use crate::conformance::limit::{keys, per_tenant};
use crate::conformance::world::{failed, finish, order, rules};

const AVAILABLE: u8 = 1;
const SCHEDULED: u8 = 2;
const PENDING: u8 = 3;
const ACTIVE: u8 = 4;
const COMPLETED: u8 = 5;
const DISCARDED: u8 = 6;
const CANCELLED: u8 = 7;
const RETRYABLE: u8 = 8;
const KEYED: u8 = 9;
const LIMITED: u8 = 10;

/// The pack that the attempts ran.
const PACK: &str = "pack digest";

/// Every job, with the state that it was left in.
const JOBS: [(u8, State); 10] = [
    (AVAILABLE, State::Available),
    (SCHEDULED, State::Scheduled),
    (PENDING, State::Pending),
    (ACTIVE, State::Active),
    (COMPLETED, State::Completed),
    (DISCARDED, State::Discarded),
    (CANCELLED, State::Cancelled),
    (RETRYABLE, State::Retryable),
    (KEYED, State::Available),
    (LIMITED, State::Available),
];

const fn id(n: u8) -> JobId {
    JobId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n as u128))
}

const fn worker(n: u8) -> WorkerId {
    WorkerId(Uuid::from_u128(0x0190_0000_0000_7000_9000_0000_0000_0000 + n as u128))
}

fn job(n: u8) -> NewJob {
    let mut rules = rules(if n == DISCARDED { 1 } else { 3 });
    if n == DISCARDED {
        rules.retry.on_exhaustion = OnExhaustion::DeadLetter;
    }
    NewJob {
        id: id(n),
        class: ClassKey {
            queue: if n == KEYED { "mail" } else { "default" }.into(),
            job_type: format!("type-{n}"),
            route: Route::Plain,
            tenant: (n == AVAILABLE).then(|| "acme".to_owned()),
            isolated: false,
            keyed: n == LIMITED,
            placement: Default::default(),
        },
        keys: if n == LIMITED { keys(&[("tenant", "acme")]) } else { Keys::default() },
        priority: 5,
        payload: Payload {
            args: format!("[{n}]"),
            meta: r#"{"note":"kept"}"#.into(),
            extra: r#"{"tags":["a"]}"#.into(),
        },
        rules,
        first: match n {
            // In the year 2100.
            SCHEDULED => First::At(Timestamp(4_102_444_800_000)),
            PENDING => First::OnActivation,
            _ => First::Now,
        },
        timeout: Some(Span::from_secs(60)),
        visibility: None,
        scheduled_timeout: ScheduledTimeout::After(Span::from_secs(300)),
        origin: Origin::Ojs,
        by: "producer".into(),
        unique: (n == LIMITED).then_some(Unique {
            fingerprint: [9; 32],
            states: States::LIVE,
            period: None,
            on_conflict: OnConflict::Reject,
        }),
    }
}

/// One server's batches.
struct Server<'a> {
    store: &'a dyn Store,
    id: Uuid,
    batches: u64,
}

impl<'a> Server<'a> {
    fn new(store: &'a dyn Store) -> Self {
        Self { store, id: Uuid::now_v7(), batches: 0 }
    }

    async fn one(&mut self, command: Command) -> Reply {
        self.batches += 1;
        let id = BatchId { server: self.id, n: self.batches };
        let commands = vec![command];
        let batch = Batch { id, jitter_seed: 0, budgets: Budgets::DEFAULT, commands };
        self.store.apply(Arc::new(batch)).await.expect("the store takes a batch").replies.remove(0)
    }

    async fn worker(&mut self, worker: WorkerId) {
        let lease = Span::from_secs(15);
        let registration = Registration {
            id: worker,
            name: "worker".into(),
            role: WorkerRole::Sdk,
            concurrency: 10,
            queues: vec!["default".into()],
            runtimes: vec!["shell".into()],
            labels: BTreeMap::from([("zone".into(), "a".into())]),
            lease,
            about: "{}".into(),
            plain_id: None,
            previous: Vec::new(),
        };
        self.one(Command::Register(Box::new(registration))).await;
        self.one(Command::Attach(Attach { worker, attachment: 1, lease })).await;
    }

    async fn claim(&mut self, worker: WorkerId, class: ClassId) -> Claimed {
        let claimant = Claimant::Native { worker, session: 1 };
        let from = ClaimFrom::Classes([class].into());
        let claim = Claim {
            claimant,
            from,
            max: NonZeroU32::MIN,
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        match self.one(Command::Claim(claim)).await {
            Reply::Claimed(Ok(mut claims)) if claims.jobs.len() == 1 => claims.jobs.remove(0),
            other => panic!("not claimed: {other:?}"),
        }
    }

    /// Stores a job and has the worker start it.
    async fn start(&mut self, n: u8) -> Claimed {
        let class = self.enqueue(n).await;
        let claimed = self.claim(worker(1), class).await;
        let (job, fence) = (claimed.job.id, fence(1, claimed.epoch));
        self.one(Command::Start(Start { job, fence, pack_digest: Some(PACK.into()) })).await;
        claimed
    }

    async fn enqueue(&mut self, n: u8) -> ClassId {
        match self.one(Command::Enqueue(Box::new(job(n)))).await {
            Reply::Enqueued(Ok(stored)) => stored.class,
            other => panic!("not stored: {other:?}"),
        }
    }

    async fn finish(&mut self, n: u8, by: u8, epoch: Epoch, reported: ReportedOutcome) {
        let ended = self.one(finish(id(n), fence(by, epoch), reported)).await;
        assert!(matches!(ended, Reply::Moved(Ok(_))), "job {n}: {ended:?}");
    }

    async fn keyed(&mut self) -> Reply {
        let keep = Span::from_secs(100 * 365 * 86_400);
        let once = EnqueueOnce { key: [7; 32], request: [8; 32], keep, jobs: vec![job(KEYED)] };
        self.one(Command::EnqueueOnce(Box::new(once))).await
    }
}

fn fence(by: u8, epoch: Epoch) -> Fence {
    Fence { epoch: Some(epoch), worker: Some(Reporter::Native(worker(by))), attempt: None }
}

/// Fills an empty store.
pub async fn make(store: &dyn Store) {
    let mut server = Server::new(store);
    server.worker(worker(1)).await;
    for n in [AVAILABLE, SCHEDULED, PENDING, CANCELLED] {
        server.enqueue(n).await;
    }
    server.one(Command::Order(order(JobAction::Cancel, id(CANCELLED)))).await;
    for n in [ACTIVE, COMPLETED, DISCARDED, RETRYABLE] {
        let epoch = server.start(n).await.epoch;
        let (stream, bytes) = (Stream::Stdout, b"printed".to_vec());
        server.one(Command::Log(LogChunk { job: id(n), epoch, n: 0, stream, bytes })).await;
        let checkpoint = Some(b"half".to_vec());
        let progress = Progress { job: id(n), fence: fence(1, epoch), checkpoint };
        server.one(Command::Progress(Box::new(progress))).await;
        match n {
            COMPLETED => server.finish(n, 1, epoch, ReportedOutcome::Completed).await,
            DISCARDED | RETRYABLE => server.finish(n, 1, epoch, failed()).await,
            _ => {}
        }
    }
    server.keyed().await;
    server.enqueue(LIMITED).await;
    let order = SetLimit { limit: per_tenant(1), configured: false, by: "operator".into() };
    server.one(Command::SetLimit(Box::new(order))).await;
    let pause = QueueOrder { queue: "mail".into(), paused: true, by: "operator".into() };
    server.one(Command::Queue(pause)).await;
}

/// Checks that all of it is there and that work goes on.
pub async fn check(store: &dyn Store) {
    for (n, state) in JOBS {
        let found = store.job(id(n)).await.expect("the store reads").expect("the job is there");
        let expected = job(n);
        assert_eq!(found.state, state, "job {n}");
        assert_eq!(
            (found.job.key.as_ref(), &found.job.payload),
            (&expected.class, &expected.payload)
        );
        assert_eq!((&found.job.rules, found.job.timeout), (&expected.rules, expected.timeout));
    }
    let tried = store.attempts(id(COMPLETED)).await.expect("the store reads");
    assert_eq!((tried.len(), tried[0].worker), (1, Some(worker(1))));
    assert_eq!(tried[0].pack_digest.as_deref(), Some(PACK));
    let logs = LogQuery { job: id(COMPLETED), after: 0, limit: 10 };
    assert_eq!(store.logs(logs).await.expect("the store reads").lines[0].bytes, b"printed");
    let letters = JobQuery::dead_letters(Page { limit: 10, cursor: None });
    assert_eq!(store.dead_letters(letters).await.expect("the store reads").total, Some(1));
    let pauses = store.pauses().await.expect("the store reads");
    assert_eq!(pauses.iter().filter(|queue| queue.paused).count(), 1);
    let query = EventQuery { job: Some(id(RETRYABLE)), ..EventQuery::all(100) };
    assert_eq!(store.events(query).await.expect("the store reads").events.len(), 5);
    let mut server = Server::new(store);
    assert_eq!(
        server.keyed().await,
        Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(vec![id(KEYED)])))
    );
    let again = NewJob { id: id(LIMITED + 1), ..job(LIMITED) };
    let refused = server.one(Command::Enqueue(Box::new(again))).await;
    assert!(
        matches!(refused, Reply::Enqueued(Err(EnqueueRefusal::NotUnique { holder, .. })) if holder == id(LIMITED)),
        "{refused:?}"
    );
    server.finish(ACTIVE, 1, Epoch(1), ReportedOutcome::Completed).await;
    server.worker(worker(2)).await;
    for n in [AVAILABLE, LIMITED] {
        let class = store.job(id(n)).await.expect("the store reads").expect("it is there");
        let claimed = server.claim(worker(2), class.job.class).await;
        let query = GateQuery { name: per_tenant(1).name, limit: 10 };
        let held = store.gates(query).await.expect("the store reads");
        assert_eq!(held.len(), usize::from(n == LIMITED), "job {n}");
        server.finish(n, 2, claimed.epoch, ReportedOutcome::Completed).await;
        let ended = store.job(id(n)).await.expect("the store reads").expect("it is there");
        assert_eq!(ended.state, State::Completed);
    }
}
