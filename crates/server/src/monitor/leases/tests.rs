use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use outlast_core::budget::Budgets;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::limits;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::{Standing, WorkerEvent};
use outlast_packs::PackSet;
use outlast_store::command::{Start, WorkerMove};
use outlast_store::event::EventQuery;
use outlast_store::record::JobRecord;
use outlast_store::store::ManualClock;
use outlast_store::{Command, StoreError};
use outlast_store_testkit::model::ModelStore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::engine::output::SessionOutput;
use crate::engine::tests::{attach_sdk_worker, noop_job, register_sdk_worker, sdk_profile};
use crate::session::convert::native_fence;
use crate::settings::Settings;

const WORKERS: u128 = 50;
const SLOTS: u32 = 40;
const JOBS: u128 = 2_000;
/// Generous: a loaded machine is slow, and a stuck server is stuck forever.
const PATIENCE: Duration = Duration::from_secs(120);

type Outputs = UnboundedReceiver<SessionOutput>;

struct Scene {
    engine: Engine,
}

impl Scene {
    fn start() -> Self {
        let mut settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
        settings.check_interval = Span(20);
        // Longer than the sessions of a fleet take to be detached.
        settings.reconnect_window = Span(500);
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let engine = Engine::start(Arc::new(store), settings);
        tokio::spawn(run(engine.clone()));
        Self { engine }
    }

    /// Attaches a fleet; its streams must be kept.
    async fn fleet(&self, generation: u128) -> (Vec<WorkerId>, Vec<Outputs>) {
        let workers: Vec<WorkerId> =
            (0..WORKERS).map(|n| WorkerId(Uuid::from_u128(generation * 1_000 + n))).collect();
        let mut streams = Vec::new();
        for worker in &workers {
            streams.push(attach_sdk_worker(&self.engine, *worker, SLOTS).await);
        }
        (workers, streams)
    }

    async fn await_in_flight(&self, wanted: usize) {
        let in_flight = || -> usize {
            self.engine.shared().fleet.sessions().iter().map(|session| session.in_flight()).sum()
        };
        let begun = Instant::now();
        while in_flight() < wanted {
            assert!(begun.elapsed() < PATIENCE, "{} of {wanted} jobs are held", in_flight());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn job(&self, n: u128) -> JobRecord {
        self.engine.store().job(JobId(Uuid::from_u128(n))).await.unwrap().unwrap()
    }

    /// Each job is said to have started.
    async fn start_all(&self, workers: &[WorkerId]) {
        for worker in workers {
            let in_flight = self.engine.store().in_flight_of(*worker).await.unwrap();
            let starts = in_flight.iter().map(|attempt| {
                let fence = native_fence(*worker, attempt.epoch);
                self.engine.submit(Start { job: attempt.job, fence, pack_digest: None })
            });
            for reply in join_all(starts).await {
                assert!(matches!(reply, Ok(Ok(_))), "{reply:?}");
            }
        }
    }

    /// Every connection is reset.
    async fn kill(&self, workers: &[WorkerId]) {
        let drops = workers.iter().map(|worker| {
            let (by, evidence) = ("test".into(), "reset".into());
            let event = WorkerEvent::Drop;
            let step = WorkerMove {
                worker: *worker,
                event,
                ordered: None,
                session: Some(1),
                by,
                evidence,
            };
            self.engine.submit(step)
        });
        assert!(join_all(drops).await.iter().all(Result::is_ok));
        // All at one moment, however busy the machine is: so they are given up at one.
        let now = boot_time();
        for worker in workers {
            self.engine.shared().leases.watch().dropped(*worker, now);
        }
        for worker in workers {
            self.engine.send(Input::Detached { worker: *worker, session: 1 }).await.unwrap();
        }
        self.engine.shared().leases.notify();
    }

    /// Returns the batches in which workers were given up, when that many were.
    async fn await_lapses(&self, wanted: usize) -> HashSet<String> {
        let begun = Instant::now();
        loop {
            let query =
                EventQuery { names: vec!["worker.lapsed".to_owned()], ..EventQuery::all(1_000) };
            let page = self.engine.store().events(query).await.unwrap();
            if page.events.len() >= wanted {
                let batch = |cursor: &String| cursor.rsplit_once('.').unwrap().0.to_owned();
                return page.events.iter().map(|(cursor, _)| batch(cursor)).collect();
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {wanted} were given up", page.events.len());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// F28: lapses were once awaited one by one, a commit each; only those of one look counted as
/// lost together; and everything was handed out again at once. On one thread, the loop sees all
/// lapses of a look before it makes a batch of them.
#[tokio::test]
async fn a_fleet_that_dies_three_times_costs_few_commits_and_no_job_is_blamed() {
    const ROUNDS: u128 = 3;
    let scene = Scene::start();
    let all = |jobs: u128| usize::try_from(jobs).unwrap();
    let jobs = (1..=JOBS).map(noop_job).collect();
    scene.engine.submit(Command::EnqueueAll(jobs)).await.unwrap();
    let (mut workers, mut _streams) = scene.fleet(1).await;
    scene.await_in_flight(all(JOBS)).await;
    for round in 1..=ROUNDS {
        scene.start_all(&workers).await;
        // Before the first can be given up: the rest of a death may take long here.
        let died = Instant::now();
        scene.kill(&workers).await;
        let batches = scene.await_lapses(all(WORKERS * round)).await;
        assert_eq!(batches.len(), all(round), "commits");
        (workers, _streams) = scene.fleet(round + 1).await;
        scene.await_in_flight(all(JOBS)).await;
        let limited = u64::try_from(JOBS).unwrap() - limits::REDISPATCH.burst;
        let fastest = Duration::from_millis(limited * 1_000 / limits::REDISPATCH.per_second);
        assert!(died.elapsed() >= fastest, "handed out within {:?}", died.elapsed());
    }
    for n in 1..=JOBS {
        let job = scene.job(n).await;
        let losses = u32::try_from(ROUNDS).unwrap();
        assert_eq!((job.state, job.spent.losses, job.isolated), (State::Active, losses, false));
    }
}

/// Jobs that kill their workers at about the same time look like a mass loss. No job was ever
/// isolated or given up then, and every fleet died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_lost_with_every_fleet_are_isolated_and_given_up_in_the_end() {
    const JOBS: u128 = 60;
    let all = |jobs: u128| usize::try_from(jobs).unwrap();
    let scene = Scene::start();
    let jobs = (1..=JOBS).map(noop_job).collect();
    scene.engine.submit(Command::EnqueueAll(jobs)).await.unwrap();
    let mut left = JOBS;
    for round in 1..=10 {
        let (workers, _streams) = scene.fleet(round).await;
        let is_suspected = round > u128::from(Budgets::DEFAULT.losses) + 1;
        // Then each goes alone to a worker of its own.
        scene.await_in_flight(all(if is_suspected { left.min(WORKERS) } else { left })).await;
        scene.start_all(&workers).await;
        scene.kill(&workers).await;
        scene.await_lapses(all(WORKERS * round)).await;
        left = 0;
        for n in 1..=JOBS {
            let job = scene.job(n).await;
            left += u128::from(job.state == State::Available);
            assert_eq!(job.isolated, job.spent.losses > Budgets::DEFAULT.losses, "{job:?}");
            let is_given_up = job.spent.losses > 2 * Budgets::DEFAULT.losses;
            assert_eq!(job.state == State::Discarded, is_given_up, "{job:?}");
        }
    }
    assert_eq!(left, 0);
}

/// A server that died with its worker's connection once made the others say `frozen`.
#[test]
fn only_the_server_that_sees_a_connection_says_that_its_worker_is_frozen() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let worker = WorkerBrief {
        id: WorkerId(Uuid::from_u128(1)),
        standing: Standing::NEW,
        renewal: 4,
        lease: Span::from_secs(15),
        last_heartbeat: Timestamp(1_000),
        updated: Timestamp(1_000),
        lapsed_holding: false,
        unhealthy: false,
    };
    let code = |attached_here| {
        let age = Span::from_secs(16);
        evidence_of(&worker, LapseScope::Everything, age, attached_here, &settings).code
    };
    assert_eq!(code(true), Some(EvidenceCode::Frozen));
    assert_eq!(code(false), Some(EvidenceCode::Lease));
}

/// The log said that a heartbeat was stale of workers whose connection had dropped, of those that
/// were inactive already, and of those that were kept after all.
#[test]
fn the_log_says_what_happened_to_a_worker_that_was_given_up() {
    let said = |liveness, scope| {
        let brief = WorkerBrief {
            id: WorkerId(Uuid::nil()),
            standing: Standing { liveness, ..Standing::NEW },
            renewal: 4,
            lease: Span::from_secs(15),
            last_heartbeat: Timestamp(1_000),
            updated: Timestamp(1_000),
            lapsed_holding: liveness == Liveness::Lapsed,
            unhealthy: false,
        };
        let profile = Arc::new(sdk_profile());
        let member = Member { brief, name: "w".into(), profile };
        given_up(&member, scope, Span(5_200))
    };
    let id = "00000000-0000-0000-0000-000000000000";
    assert_eq!(
        said(Liveness::Live, LapseScope::Everything),
        format!("Worker w (ID: {id}) heartbeat is stale (5.2s old), marking as inactive")
    );
    let dropped = said(Liveness::Suspect, LapseScope::OverlapAllowed);
    assert!(dropped.contains("did not reconnect in time"), "{dropped}");
    let again = said(Liveness::Lapsed, LapseScope::Everything);
    assert!(again.contains("is inactive") && !again.contains("marking"), "{again}");
}

/// The same freeze was once `frozen` or `lease`, as the ping of the connection or the lease was
/// over first.
#[test]
fn a_worker_that_fell_silent_before_its_connection_was_closed_is_frozen() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let suspect_since = |silent_for: Span| {
        let worker = WorkerBrief {
            id: WorkerId(Uuid::from_u128(1)),
            standing: Standing { liveness: Liveness::Suspect, ..Standing::NEW },
            renewal: 4,
            lease: Span::from_secs(15),
            last_heartbeat: Timestamp(1_000),
            updated: Timestamp(1_000).after(silent_for),
            lapsed_holding: false,
            unhealthy: false,
        };
        let evidence = |scope| evidence_of(&worker, scope, Span(16_669), true, &settings);
        let whole = evidence(LapseScope::Everything);
        assert_eq!(evidence(LapseScope::OverlapAllowed).code, whole.code);
        whole
    };
    let frozen = suspect_since(Span::from_secs(14));
    assert_eq!(frozen.code, Some(EvidenceCode::Frozen));
    assert!(frozen.text.starts_with("no heartbeat for 16.669 s, lease is 15 s;"), "{frozen}");
    let killed = suspect_since(Span::from_secs(2));
    assert_eq!(killed.code, Some(EvidenceCode::WorkerKilled));
}

/// One row that an operator's transaction held once kept the whole fleet from being watched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_row_of_one_worker_does_not_keep_another_from_being_given_up() {
    let worker = |n| WorkerId(Uuid::from_u128(n));
    let renew = |worker| Command::Renew(Renew { worker, lease: Span(400), in_flight: 0 });
    let (locked, dead) = (worker(1), worker(2));
    let clock = ManualClock::at(Timestamp(1_000));
    let store = ModelStore::new(Arc::new(clock.clone()));
    let store = store.failing(move |batch| {
        let is_about_it = |command: &Command| match command {
            Command::Renew(renew) => renew.worker == locked,
            Command::Lapse(lapse) => lapse.worker == locked,
            _ => false,
        };
        let any = batch.commands.iter().any(is_about_it);
        any.then(|| StoreError::Locked("a row".into()))
    });
    let mut settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    settings.check_interval = Span(20);
    let engine = Engine::start(Arc::new(store), settings);
    let others: Vec<WorkerId> = (3..8).map(worker).collect();
    for one in [locked, dead].iter().chain(&others) {
        register_sdk_worker(&engine, *one, 1, Span(400)).await;
    }
    tokio::spawn(run(engine.clone()));
    let lapsed = async {
        loop {
            // All but the dead one beat, and one of these in vain.
            let beating = others.iter().chain([&locked]);
            let beats = join_all(beating.map(|one| engine.beat(renew(*one)))).await;
            assert_eq!(beats.iter().filter(|beat| beat.is_err()).count(), 1, "{beats:?}");
            let names = vec!["worker.lapsed".to_owned()];
            let query = EventQuery { names, ..EventQuery::all(10) };
            let page = engine.store().events(query).await.unwrap();
            let about: Vec<_> = page.events.iter().map(|(_, event)| event.worker).collect();
            if !about.is_empty() {
                return about;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(20);
        }
    };
    let lapsed = tokio::time::timeout(PATIENCE, lapsed).await.expect("the dead worker lapses");
    assert_eq!(lapsed, [Some(dead)]);
}

/// A proxy in front of three servers that was away for longer than the closed window ended three
/// sessions at each, and each server gave up its three workers.
#[test]
fn closed_window_does_not_hold_while_many_of_the_fleet_are_dropped() {
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let now = Timestamp(100_000);
    let worker = |n: u128, dropped: Option<i64>| WorkerBrief {
        id: WorkerId(Uuid::from_u128(n)),
        standing: dropped
            .map_or(Standing::NEW, |_| Standing { liveness: Liveness::Suspect, ..Standing::NEW }),
        renewal: 1,
        lease: Span::from_secs(15),
        last_heartbeat: now,
        updated: Timestamp(dropped.map_or(1, |ago| now.0 - ago)),
        lapsed_holding: false,
        unhealthy: false,
    };
    // Each line: how many were dropped a moment ago, how many long ago, how many stand.
    for (lately, long_ago, stand, flood) in [
        (3, 0, 0, false),
        (3, 9, 0, false),
        (4, 0, 0, true),
        (9, 0, 0, true),
        (10, 0, 40, false),
        (11, 0, 39, true),
    ] {
        let dropped = (0..lately).map(|n| worker(n, Some(1_900)));
        let before = (0..long_ago).map(|n| worker(100 + n, Some(2_100)));
        let standing = (0..stand).map(|n| worker(200 + n, None));
        let all: Vec<WorkerBrief> = dropped.chain(before).chain(standing).collect();
        let expected = if flood { settings.reconnect_window } else { settings.closed_window };
        assert_eq!(
            closed_window(&settings, all.iter(), now),
            expected,
            "{lately} {long_ago} {stand}"
        );
    }
}
