//! Several servers at one store: what is done once is done by one of them, and by another
//! when that one goes away.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use outlast_core::id::JobId;
use outlast_core::keys::Keys;
use outlast_core::leadership::Leadership;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::time::{Span, Timestamp};
use outlast_packs::PackSet;
use outlast_server::http::router;
use outlast_server::{Reserved, Server, Settings};
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, ClassKey, JobAction, JobOrder, NewJob, Payload,
    RETENTION, SetLimit,
};
use outlast_store::store::ManualClock;
use outlast_store::{Batch, BatchId, Clock as _, Command, Store as _, StoreError};
use outlast_store_testkit::job::plain_job;
use outlast_store_testkit::model::ModelStore;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tower::ServiceExt as _;
use uuid::Uuid;

/// Kept for less than it takes to look twice.
const KEPT: Span = Span(50);
/// More than the lease of the leader.
const LEASE_OVER: u32 = 60_000;

/// A server with a runtime of its own, so that it can die all at once.
struct Process {
    runtime: Runtime,
    id: Uuid,
    router: Router,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

impl Process {
    fn start(store: &ModelStore) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let packs = Arc::new(PackSet::default());
        let mut settings = Settings::with_packs(packs);
        (settings.retention_finished, settings.retention_workers) = (KEPT, KEPT);
        let address = "127.0.0.1:0".parse().expect("an address");
        let reserved = Reserved::new(address).expect("a free port");
        let bound = runtime.block_on(Server::bind(Arc::new(store.clone()), settings, reserved));
        let server = bound.expect("a server");
        let id = server.engine().server_id();
        let router = router(server.engine());
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = runtime.spawn(async move {
            let shutdown = async move { drop(stopped.await) };
            server.run(shutdown).await.expect("a clean stop");
        });
        Self { runtime, id, router, stop, ended }
    }

    /// Stops in order.
    fn stop(self) {
        self.stop.send(()).expect("the server runs");
        self.runtime.block_on(self.ended).expect("the server ends");
    }

    /// Ends without a word.
    fn die(self) {
        self.runtime.shutdown_background();
    }
}

struct Scene {
    clock: ManualClock,
    store: ModelStore,
    runtime: Runtime,
    batches: u64,
}

impl Scene {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp(1_700_000_000_000));
        let store = ModelStore::new(Arc::new(clock.clone()));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { clock, store, runtime, batches: 0 }
    }

    fn pause(&self, ms: u64) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    }

    fn leadership(&self) -> Option<Leadership> {
        self.store.reopen().leadership(RETENTION).expect("the store is open")
    }

    fn await_leadership(&self, of: &str, wanted: impl Fn(Leadership) -> bool) -> Leadership {
        for _ in 0..1500 {
            if let Some(leadership) = self.leadership().filter(|leadership| wanted(*leadership)) {
                return leadership;
            }
            self.pause(10);
        }
        panic!("{of}: {:?}", self.leadership());
    }

    fn await_gone(&self, id: JobId) {
        for _ in 0..1500 {
            self.clock.advance(10);
            let store = self.store.reopen();
            if self.runtime.block_on(store.job(id)).expect("the store is open").is_none() {
                return;
            }
            self.pause(10);
        }
        panic!("job {id} is not deleted");
    }

    fn apply(&mut self, commands: Vec<Command>) {
        let batch = Batch {
            id: BatchId { server: Uuid::from_u128(7), n: self.batches },
            jitter_seed: 1,
            budgets: outlast_core::budget::Budgets::DEFAULT,
            commands,
        };
        self.store.reopen().apply_now(&batch).expect("the store is open");
    }

    /// A job that has ended.
    fn ended(&mut self) -> JobId {
        let new = self.new_job();
        let job = new.id;
        let action = JobAction::Cancel;
        let cancel = JobOrder { job, action, tenant: None, by: "test".into(), expected: None };
        self.apply(vec![Command::Enqueue(Box::new(new)), Command::Order(cancel)]);
        job
    }

    fn new_job(&mut self) -> NewJob {
        self.batches += 1;
        plain_job(JobId(Uuid::from_u128(u128::from(self.batches))))
    }
}

#[test]
fn one_server_deletes_what_is_old_until_it_stops_and_then_another_does() {
    let mut scene = Scene::new();
    let one = Process::start(&scene.store.reopen());
    let first =
        scene.await_leadership("the first has it", |leadership| leadership.holder == one.id);
    let job = scene.ended();
    scene.await_gone(job);
    let two = Process::start(&scene.store.reopen());
    let (id_of_one, id_of_two) = (one.id, two.id);
    assert_eq!(scene.leadership().map(|leadership| leadership.holder), Some(id_of_one));
    let before = scene.clock.now();
    one.stop();
    let second =
        scene.await_leadership("the second has it", |leadership| leadership.holder == id_of_two);
    assert_eq!(second.epoch, first.epoch.next());
    assert!(scene.clock.now() == before, "a lease that is given back need not pass");
    let job = scene.ended();
    scene.await_gone(job);
    two.stop();
}

#[test]
fn leadership_of_a_server_that_dies_is_another_s_when_its_lease_is_over() {
    let mut scene = Scene::new();
    let one = Process::start(&scene.store.reopen());
    let first =
        scene.await_leadership("the first has it", |leadership| leadership.holder == one.id);
    let two = Process::start(&scene.store.reopen());
    one.die();
    let job = scene.ended();
    // Time stands still: the second asks, and waits.
    scene.pause(500);
    assert_eq!(scene.leadership().map(|leadership| leadership.epoch), Some(first.epoch));
    scene.clock.advance(LEASE_OVER);
    let second =
        scene.await_leadership("the second has it", |leadership| leadership.holder == two.id);
    assert_eq!(second.epoch, first.epoch.next());
    scene.await_gone(job);
    two.stop();
}

/// Makes a limit count one attempt more than there are, and waits until that is corrected.
fn miscount_and_await(scene: &Scene) {
    scene.store.miscount(1).expect("the store is open");
    for _ in 0..1500 {
        let suspects = scene.runtime.block_on(scene.store.miscounted_gates(None, 10));
        if suspects.expect("the store is open").is_empty() {
            return;
        }
        scene.pause(10);
    }
    panic!("what the limit counts is still wrong");
}

/// A job that runs and holds a limit.
fn holding(scene: &mut Scene) {
    let (name, scope) = (LimitName::new("all"), Scope::Queue("default".into()));
    let (name, concurrency) = (name.expect("a name"), Some(5));
    let limit = Limit { name, scope, concurrency, rate: None };
    let set = Box::new(SetLimit { limit, configured: false, by: "operator".into() });
    let claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(3600) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    let new = scene.new_job();
    let commands =
        vec![Command::SetLimit(set), Command::Enqueue(Box::new(new)), Command::Claim(claim)];
    scene.apply(commands);
}

#[test]
fn count_of_a_limit_that_is_wrong_is_corrected_once_and_told_and_nothing_is_written_otherwise() {
    let mut scene = Scene::new();
    holding(&mut scene);
    let recounts = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&recounts);
    let store = scene.store.reopen().failing(move |batch| {
        let recount = |command: &&Command| matches!(command, Command::Recount(_));
        counting.fetch_add(batch.commands.iter().filter(recount).count(), Ordering::SeqCst);
        None
    });
    let server = Process::start(&store);
    for _ in 0..2 {
        // Some prunes pass, and audits between them.
        for _ in 0..3 {
            let id = scene.ended();
            scene.await_gone(id);
        }
        miscount_and_await(&scene);
    }
    let id = scene.ended();
    scene.await_gone(id);
    assert_eq!(recounts.load(Ordering::SeqCst), 2);
    let get = |path: &str| {
        let request = Request::get(path).header("host", "localhost").body(Body::empty());
        let answer = server.router.clone().oneshot(request.expect("a request"));
        scene.runtime.block_on(async {
            let body = answer.await.expect("an answer").into_body();
            let bytes = body.collect().await.expect("a body").to_bytes();
            String::from_utf8(bytes.to_vec()).expect("text")
        })
    };
    let metrics = get("/metrics");
    assert!(metrics.contains("\noutlast_limit_recounts_total 2\n"), "{metrics}");
    let events = get("/api/v1/events?stream=false&type=limit.recounted");
    assert_eq!(events.matches("all counted 2, and 1 held it").count(), 2, "{events}");
    server.stop();
}

/// As many gates as one audit corrects stay wrong: another session has them locked.
#[test]
fn gates_that_stay_wrong_hide_no_others_from_the_audit() {
    const GATES: usize = 150;
    const AT_ONCE: usize = 100;
    let mut scene = Scene::new();
    let (name, scope) = (LimitName::new("each").expect("a name"), Scope::Key("tenant".into()));
    let limit = Limit { name, scope, concurrency: Some(5), rate: None };
    let set = SetLimit { limit, configured: false, by: "operator".into() };
    let jobs = (0..GATES).map(|n| {
        let mut job = scene.new_job();
        job.keys = Keys::new([("tenant".into(), format!("t{n}"))].into()).expect("keys");
        job.class.keyed = true;
        job
    });
    let enqueue = Command::EnqueueAll(jobs.collect());
    let claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(3600) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MAX,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    scene.apply(vec![Command::SetLimit(Box::new(set)), enqueue, Command::Claim(claim)]);
    scene.store.miscount(1).expect("the store is open");
    let suspects = |scene: &Scene| {
        scene.runtime.block_on(scene.store.miscounted_gates(None, 1000)).expect("the store is open")
    };
    let all = suspects(&scene);
    assert_eq!(all.len(), GATES);
    let locked = all[0];
    let server = Process::start(&scene.store.reopen().failing(move |batch| {
        let is_locked = |command: &Command| match command {
            Command::Recount(recount) => recount.gates.contains(&locked),
            _ => false,
        };
        batch.commands.iter().any(is_locked).then(|| StoreError::Locked("a gate".into()))
    }));
    let mut left = GATES;
    for _ in 0..100 {
        let id = scene.ended();
        scene.await_gone(id);
        left = suspects(&scene).len();
        if left < GATES {
            break;
        }
    }
    assert_eq!(left, AT_ONCE, "the others are corrected");
    server.stop();
}

/// A look reads whole days, and once nothing was deleted meanwhile.
#[test]
fn jobs_are_deleted_while_a_look_after_history_goes_on() {
    let mut scene = Scene::new();
    scene.store = scene.store.maintaining_forever();
    let server = Process::start(&scene.store);
    for _ in 0..3 {
        let id = scene.ended();
        scene.await_gone(id);
    }
    server.stop();
}

/// The last rule was removed, and all servers were started again: once such jobs waited forever.
#[test]
fn handlers_that_wait_run_though_no_server_has_rules_any_more() {
    let mut scene = Scene::new();
    let new = scene.new_job();
    let (queue, job_type) = ("outlast.handlers".to_owned(), "outlast.dead_letter".to_owned());
    let class = ClassKey { queue, job_type, ..new.class };
    let args = r#"[{"webhook":"https://example.com #1","message":{}}]"#.to_owned();
    let payload = Payload { args, ..new.payload };
    let id = new.id;
    scene.apply(vec![Command::Enqueue(Box::new(NewJob { class, payload, ..new }))]);
    let server = Process::start(&scene.store.reopen());
    for _ in 0..1500 {
        let store = scene.store.reopen();
        let attempts = scene.runtime.block_on(store.attempts(id)).expect("the store is open");
        // While it runs it has no error.
        if let Some(error) = attempts.first().and_then(|attempt| attempt.error.clone()) {
            assert!(error.contains("no rule has this receiver any more"), "{error}");
            return server.stop();
        }
        scene.pause(10);
    }
    panic!("it was not claimed");
}
