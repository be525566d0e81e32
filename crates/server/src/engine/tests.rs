mod orders;
mod unresolved;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_core::budget::{Budgets, ScheduledTimeout};
use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_packs::PackSet;
use outlast_store::command::{
    AskedByQueues, Attach, ClaimFrom, Claimant, ClassKey, EndDetail, Fence, Finish, First,
    JobAction, JobOrder, NewJob, QueueOrder, Registration, ReportedOutcome, SetLimit, Start, Sweep,
    WorkerMove, WorkerRole,
};
use outlast_store::event::EventQuery;
use outlast_store::idempotency::EnqueueOnce;
use outlast_store::record::JobRecord;
use outlast_store::signal::Heard;
use outlast_store::store::ManualClock;
use outlast_store::{Batch, BatchId};
use outlast_store_testkit::job::plain_job;
use outlast_store_testkit::model::ModelStore;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::input::SessionReport;
use crate::engine::output::{Output, SessionOrder, SessionOutput};
use crate::engine::profile::Profile;
use crate::engine::sessions::{AttachedAs, Session};
use crate::session::convert::native_fence;

/// Every second job once waited for the monitor's next look.
#[tokio::test]
async fn job_is_pushed_to_a_waiting_worker_without_any_other_input() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store), settings);
    let worker = WorkerId(Uuid::from_u128(1));
    let mut outputs = attach_sdk_worker(&engine, worker, 10).await;
    for n in 1..=5 {
        engine.submit(Command::Enqueue(Box::new(noop_job(n)))).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(5), outputs.recv()).await;
        let sent = sent.expect("the job should be pushed at once").unwrap();
        assert!(matches!(sent.output, Output::Deliveries(_)), "{sent:?}");
    }
}

/// A full disk was reported as a store that cannot be reached.
#[tokio::test]
async fn a_full_disk_is_named_by_health_and_to_producers() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(|_| Some(StoreError::Full("no room".into())));
    let engine = Engine::start(Arc::new(store), settings);
    let enqueue = |n| engine.submit(Command::Enqueue(Box::new(noop_job(n))));
    enqueue(1).await.unwrap_err();
    let health = engine.health();
    assert_eq!((health.ready, health.store.as_str()), (false, "disk is full"));
    assert_eq!(health.reason, Some("disk_full"));
    let refused = enqueue(2).await.unwrap_err();
    assert!(refused.reason.ends_with("disk is full"), "{refused}");
}

/// Enqueue and claim were once two commits, and an idle system twice as slow.
#[tokio::test]
async fn job_is_claimed_for_a_free_worker_in_the_batch_that_stores_it() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store), settings);
    let mut outputs = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 10).await;
    // The first of its class makes the class known.
    let once =
        EnqueueOnce { key: [1; 32], request: [1; 32], keep: Span(1_000), jobs: vec![noop_job(3)] };
    for command in [
        Command::Enqueue(Box::new(noop_job(1))),
        Command::Enqueue(Box::new(noop_job(2))),
        Command::EnqueueOnce(Box::new(once)),
    ] {
        engine.submit(command).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(5), outputs.recv()).await;
        assert!(matches!(sent, Ok(Some(_))));
    }
    for job in [2, 3] {
        let query = EventQuery { job: Some(JobId(Uuid::from_u128(job))), ..EventQuery::all(10) };
        let page = engine.store().events(query).await.unwrap();
        let batches: Vec<_> =
            page.events.iter().map(|(cursor, _)| cursor.rsplit_once('.').unwrap().0).collect();
        assert_eq!(batches.len(), 2, "enqueued and claimed: {page:?}");
        assert_eq!(batches[0], batches[1]);
    }
}

/// Every waiting client was once woken each second, and each queried the store for nothing.
#[tokio::test]
async fn jobs_of_a_paused_queue_wake_no_client_and_cost_no_claims() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let claims = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&claims);
    let store = store.failing(move |batch| {
        let is_claim = |command: &&Command| matches!(command, Command::Claim(_));
        count.fetch_add(batch.commands.iter().filter(is_claim).count(), Ordering::Relaxed);
        None
    });
    let engine = Engine::start(Arc::new(store), settings);
    let pause = |paused| {
        let order = QueueOrder { queue: "default".into(), paused, by: "test".into() };
        engine.submit(Command::Queue(order))
    };
    pause(true).await.unwrap();
    let _outputs = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 10).await;
    let claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(60) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let (engine, claim) = (engine.clone(), claim.clone());
            tokio::spawn(async move { engine.claim_plain(claim, Some(Span::from_secs(60))).await })
        })
        .collect();
    while claims.load(Ordering::Relaxed) < waiting.len() {
        tokio::task::yield_now().await;
    }
    engine.submit(Command::EnqueueAll((1..=20).map(noop_job).collect())).await.unwrap();
    for _ in 0..20 {
        let backlog = engine.look_for_claimable().await.unwrap();
        engine.send(Input::Backlog(backlog)).await.unwrap();
        // The loop answers what came before.
        engine.submit(Command::Enqueue(Box::new(noop_job(rand::random())))).await.unwrap();
    }
    assert_eq!(claims.load(Ordering::Relaxed), waiting.len());
    pause(false).await.unwrap();
    for one in waiting {
        let claimed = tokio::time::timeout(Duration::from_secs(60), one).await;
        assert_eq!(claimed.expect("jobs").unwrap().unwrap().len(), 1);
    }
}

fn one_of_default() -> Claim {
    Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(60) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    }
}

/// Sets a limit on the queue, and waits until the loop knows it.
async fn limit_default(engine: &Engine, concurrency: Option<u32>, rate: Option<Rate>) {
    let scope = Scope::Queue("default".into());
    let limit = Limit { name: LimitName::new("test").unwrap(), scope, concurrency, rate };
    let order = SetLimit { limit, configured: false, by: "test".into() };
    engine.submit(Command::SetLimit(Box::new(order))).await.unwrap();
    let backlog = engine.look_for_claimable().await.unwrap();
    engine.send(Input::Backlog(backlog)).await.unwrap();
    // The loop answers what came before.
    engine.submit(Command::Enqueue(Box::new(noop_job(rand::random())))).await.unwrap();
}

/// They were woken by the next look at the backlog, once a second, and not by the rate.
#[tokio::test]
async fn plain_clients_are_woken_when_a_rate_lets_the_next_job_start() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let clock = ManualClock::at(Timestamp(1_000));
    let engine = Engine::start(Arc::new(ModelStore::new(Arc::new(clock.clone()))), settings);
    limit_default(&engine, None, Rate::new(5, Span::from_secs(1))).await;
    engine.submit(Command::EnqueueAll((1..=5).map(noop_job).collect())).await.unwrap();
    let clients = (0..5).map(|_| engine.claim_plain(one_of_default(), Some(Span::from_secs(60))));
    let all = futures_util::future::join_all(clients);
    let passing = async {
        loop {
            // The store's time passes as the real one does: a rate opens then.
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(20);
        }
    };
    let claimed = tokio::select! {
        claimed = tokio::time::timeout(Duration::from_secs(30), all) => claimed.expect("woken"),
        () = passing => unreachable!("time does not end"),
    };
    assert!(claimed.iter().all(|claimed| claimed.as_ref().unwrap().len() == 1), "{claimed:?}");
}

/// Each end of an attempt once woke all clients that waited for the limit, at every server; and then
/// one for each type of jobs.
#[tokio::test]
async fn slot_that_is_free_wakes_one_plain_client() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let claims = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&claims);
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(move |batch| {
        let is_claim = |command: &&Command| matches!(command, Command::Claim(_));
        count.fetch_add(batch.commands.iter().filter(is_claim).count(), Ordering::Relaxed);
        None
    });
    let engine = Engine::start(Arc::new(store), settings);
    limit_default(&engine, Some(1), None).await;
    let jobs = (1..=50).map(|n| {
        let job = noop_job(n);
        NewJob { class: ClassKey { job_type: format!("type-{}", n % 25), ..job.class }, ..job }
    });
    engine.submit(Command::EnqueueAll(jobs.collect())).await.unwrap();
    let (results, mut claimed) = mpsc::unbounded_channel();
    for _ in 0..50 {
        let (engine, results) = (engine.clone(), results.clone());
        tokio::spawn(async move {
            let got = engine.claim_plain(one_of_default(), Some(Span::from_secs(60))).await;
            results.send(got.unwrap()).unwrap();
        });
    }
    while claims.load(Ordering::Relaxed) < 50 {
        tokio::task::yield_now().await;
    }
    let before = claims.load(Ordering::Relaxed);
    for _ in 0..20 {
        let got = tokio::time::timeout(Duration::from_secs(30), claimed.recv()).await;
        let job = got.expect("woken").unwrap().pop().expect("a job");
        let finish = Finish {
            job: job.job.id,
            fence: Fence { epoch: Some(job.epoch), ..Fence::default() },
            reported: ReportedOutcome::Completed,
            detail: EndDetail::default(),
            by: "test".into(),
        };
        engine.submit(Command::Finish(Box::new(finish))).await.unwrap();
    }
    let made = claims.load(Ordering::Relaxed) - before;
    assert!(made <= 60, "{made} claims for 20 jobs");
}

/// Each time, one read for each session was once made, and these at the same time.
#[tokio::test]
async fn what_missed_signals_said_is_read_for_all_sessions_at_once() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store.clone()), settings);
    let workers: Vec<WorkerId> = (1..=200).map(|n| WorkerId(Uuid::from_u128(n))).collect();
    let mut outputs = Vec::new();
    for worker in &workers {
        outputs.push(attach_sdk_worker(&engine, *worker, 1).await);
    }
    let jobs = (1..=workers.len()).map(|n| noop_job(u128::try_from(n).unwrap())).collect();
    engine.submit(Command::EnqueueAll(jobs)).await.unwrap();
    let within = Duration::from_secs(60);
    let mut held = Vec::new();
    for outputs in &mut outputs {
        let sent = tokio::time::timeout(within, outputs.recv()).await.unwrap().unwrap();
        let Output::Deliveries(claimed) = sent.output else { panic!("{sent:?}") };
        held.push((claimed[0].job.id, claimed[0].epoch));
    }
    // Another server cancels them, and its signals are lost.
    let cancel = |(job, _epoch): &(JobId, Epoch)| {
        Command::Order(JobOrder {
            job: *job,
            action: JobAction::Cancel,
            tenant: None,
            by: "test".into(),
            expected: None,
        })
    };
    store.apply_now(&from_elsewhere(held.iter().map(cancel).collect())).unwrap();
    let before = store.reads_of_workers();
    for _ in 0..50 {
        engine.send(Input::Heard(Heard::Missed)).await.unwrap();
    }
    for (outputs, (job, epoch)) in outputs.iter_mut().zip(held) {
        let stopped = async {
            loop {
                let Some(sent) = outputs.recv().await else { panic!("session was closed") };
                let Output::Orders(orders) = sent.output else { continue };
                if orders.contains(&SessionOrder::Stop { job, epoch }) {
                    return;
                }
            }
        };
        tokio::time::timeout(within, stopped).await.unwrap();
    }
    let reads = store.reads_of_workers() - before;
    assert!(reads <= 10, "{reads} reads");
}

/// On a store that is busy now and then, contact never lasted for half an hour, and jobs of the
/// default visibility were never given back.
#[tokio::test]
async fn a_long_visibility_ends_though_contact_with_the_store_is_younger() {
    let mut settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    settings.ojs_lease = Span(100);
    let clock = ManualClock::at(Timestamp(1_000));
    let engine = Engine::start(Arc::new(ModelStore::new(Arc::new(clock.clone()))), settings);
    engine.submit(Command::Enqueue(Box::new(noop_job(1)))).await.unwrap();
    let claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(1_800) },
        from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    assert_eq!(engine.claim_plain(claim, None).await.unwrap().len(), 1);
    clock.advance(1_800_001);
    let swept = async {
        loop {
            let sweep = Sweep { limit: 10, watched: Span(u64::MAX) };
            match engine.submit(Command::Sweep(sweep)).await.unwrap() {
                Reply::Swept(swept) if swept.moved.is_empty() => {}
                Reply::Swept(swept) => return swept.moved.len(),
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), swept).await, Ok(1));
}

/// A server that could not read the workers for minutes once failed the jobs of those it did not
/// know of.
#[tokio::test]
async fn no_job_is_failed_for_want_of_workers_unless_the_workers_were_read_a_moment_ago() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let clock = ManualClock::at(Timestamp(1_000));
    let store = ModelStore::new(Arc::new(clock.clone()));
    let engine = Engine::start(Arc::new(store), settings);
    let timeout = ScheduledTimeout::After(Span::from_secs(3));
    let job = NewJob { scheduled_timeout: timeout, ..noop_job(1) };
    engine.submit(Command::Enqueue(Box::new(job))).await.unwrap();
    let read = async |fleet_is_read: bool| {
        for _ in 0..8 {
            if fleet_is_read {
                engine.read_fleet().await.unwrap();
            }
            let job = NewJob { first: First::OnActivation, ..noop_job(rand::random()) };
            engine.submit(Command::Enqueue(Box::new(job))).await.unwrap();
            let (reply, checked) = oneshot::channel();
            let fleet_age_max = Span::from_secs(60);
            engine.send(Input::CheckUnclaimable { fleet_age_max, reply }).await.unwrap();
            checked.await.unwrap();
            clock.advance(1_000);
        }
        let job = engine.store().job(JobId(Uuid::from_u128(1))).await.unwrap().unwrap();
        job.state
    };
    assert_eq!(read(false).await, State::Available);
    assert_eq!(read(true).await, State::Discarded);
}

/// Waits until a worker holds a job.
async fn holder_of(engine: &Engine, job: JobId) -> (WorkerId, JobRecord) {
    let begun = tokio::time::Instant::now();
    loop {
        let found = engine.store().job(job).await.unwrap().unwrap();
        if let Some(worker) = found.holder.as_ref().and_then(|holder| holder.worker) {
            return (worker, found);
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts an attempt and ends its worker.
async fn die_under(engine: &Engine, worker: WorkerId, job: JobId, epoch: Epoch) {
    let start = Start { job, fence: native_fence(worker, epoch), pack_digest: None };
    engine.submit(Command::Start(start)).await.unwrap();
    let died = WorkerMove {
        worker,
        event: WorkerEvent::Died,
        ordered: None,
        session: None,
        by: "test".into(),
        evidence: "killed".into(),
    };
    engine.submit(Command::Worker(died)).await.unwrap();
    engine.send(Input::WorkerLapsed { worker }).await.unwrap();
}

/// Completes an attempt, as its worker's session would.
async fn complete(engine: &Engine, worker: WorkerId, job: JobId, epoch: Epoch) {
    let finish = Finish {
        job,
        fence: native_fence(worker, epoch),
        reported: ReportedOutcome::Completed,
        detail: EndDetail::default(),
        by: "test".into(),
    };
    let command = Command::Finish(Box::new(finish));
    let report = SessionReport { job, epoch, command, finished: true };
    let reports = Input::Reports { worker, session: 1, reports: vec![report] };
    engine.send(reports).await.unwrap();
    // The loop answers what came before.
    engine.submit(Command::Enqueue(Box::new(noop_job(rand::random())))).await.unwrap();
}

/// Without a worker kept free, such a job would wait forever.
#[tokio::test]
async fn job_that_must_run_alone_gets_a_worker_of_a_fleet_that_is_always_full() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let engine = Engine::start(Arc::new(store), settings);
    let poison = JobId(Uuid::from_u128(1));
    let fleet = [1_000, 1_001, 1_002].map(|n| WorkerId(Uuid::from_u128(n)));
    let mut streams = Vec::new();
    for worker in fleet {
        streams.push(attach_sdk_worker(&engine, worker, 2).await);
    }
    // More than ever end in this test.
    engine.submit(Command::EnqueueAll((100..200).map(noop_job).collect())).await.unwrap();
    let better = NewJob { priority: 9, ..noop_job(1) };
    engine.submit(Command::Enqueue(Box::new(better))).await.unwrap();
    for victim in 1..=2 {
        let victim = WorkerId(Uuid::from_u128(victim));
        streams.push(attach_sdk_worker(&engine, victim, 1).await);
        let (worker, found) = holder_of(&engine, poison).await;
        assert_eq!((worker, found.isolated), (victim, false));
        die_under(&engine, victim, poison, found.epoch).await;
    }
    let found = engine.store().job(poison).await.unwrap().unwrap();
    assert!(found.isolated && found.state == State::Available, "{found:?}");
    let why = engine.waiting_reason(&found).expect("it waits");
    assert!(why.starts_with("waits for a worker that holds nothing else: "), "{why}");
    // Jobs end one by one, on one worker after the other, as they do on any fleet.
    for turn in 0..9 {
        // Slower than a server looks for workers to keep free.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let worker = fleet[turn % fleet.len()];
        match engine.store().in_flight_of(worker).await.unwrap().pop() {
            Some(attempt) if attempt.job != poison => {
                complete(&engine, worker, attempt.job, attempt.epoch).await;
            }
            _ => break,
        }
    }
    let (worker, _) = holder_of(&engine, poison).await;
    let in_flight = async |worker| engine.store().in_flight_of(worker).await.unwrap().len();
    for other in fleet.into_iter().filter(|other| *other != worker) {
        let all_slots = async {
            while in_flight(other).await < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let full = tokio::time::timeout(Duration::from_secs(30), all_slots).await;
        full.expect("no other worker is kept free");
    }
    assert_eq!(in_flight(worker).await, 1, "it runs alone");
}

/// A batch of another server.
fn from_elsewhere(commands: Vec<Command>) -> Batch {
    let id = BatchId { server: Uuid::from_u128(9), n: 1 };
    Batch { id, jitter_seed: 1, budgets: Budgets::DEFAULT, commands }
}

pub(crate) async fn attach_sdk_worker(
    engine: &Engine,
    worker: WorkerId,
    slots: u32,
) -> mpsc::UnboundedReceiver<SessionOutput> {
    let lease = Span::from_secs(15);
    let profile = register_sdk_worker(engine, worker, slots, lease).await;
    engine.submit(Command::Attach(Attach { worker, attachment: 1, lease })).await.unwrap();
    let (outputs, received) = mpsc::unbounded_channel();
    let closer = CancellationToken::new().drop_guard();
    let session = Session::new(
        AttachedAs { worker, number: 1, name: "w" },
        Arc::new(profile),
        outputs,
        closer,
    );
    engine.send(Input::Attached(Box::new(session))).await.unwrap();
    let capacity = Input::Capacity { worker, session: 1, slots, prefetch: 0 };
    engine.send(capacity).await.unwrap();
    received
}

pub(crate) fn sdk_profile() -> Profile {
    Profile {
        role: WorkerRole::Sdk,
        queues: vec!["default".into()],
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        types: ["noop".to_owned()].into(),
        lacking: BTreeMap::new(),
        stale: Vec::new(),
    }
}

pub(crate) async fn register_sdk_worker(
    engine: &Engine,
    worker: WorkerId,
    slots: u32,
    lease: Span,
) -> Profile {
    let profile = sdk_profile();
    let registration = Registration {
        id: worker,
        name: "w".into(),
        role: profile.role,
        concurrency: slots,
        queues: profile.queues.clone(),
        runtimes: Vec::new(),
        labels: BTreeMap::new(),
        lease,
        about: r#"{"types":["noop"]}"#.into(),
        plain_id: None,
        previous: Vec::new(),
    };
    engine.submit(Command::Register(Box::new(registration))).await.unwrap();
    profile
}

pub(crate) fn noop_job(n: u128) -> NewJob {
    let mut job = plain_job(JobId(Uuid::from_u128(n)));
    job.class.job_type = "noop".into();
    job
}
