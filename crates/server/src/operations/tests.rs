//! What operations do, over the model store with a clock that is turned by hand.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::job::{Rules, State};
use outlast_core::operation::{OperationKind, OperationStatus, Skip};
use outlast_core::retry::RetryPolicy;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, EndDetail, Fence, Finish, JobAction, JobOrder,
    NewJob, ReportedOutcome,
};
use outlast_store::event::EventQuery;
use outlast_store::operation::OperationRecord;
use outlast_store::store::ManualClock;
use outlast_store::{Command, Store as _, StoreError};
use outlast_store_testkit::job::plain_job;
use outlast_store_testkit::model::ModelStore;
use outlast_wire::operation::JobFilter;
use uuid::Uuid;

use super::definition::Definition;
use super::pace::Pace;
use super::service::{self, Author, Begun, Operation};
use super::steps::{Left, go_on};
use crate::engine::Engine;
use crate::settings::Settings;

const START: Timestamp = Timestamp(1_767_225_600_000);

struct World {
    clock: ManualClock,
    store: ModelStore,
    engine: Engine,
    pace: Pace,
}

fn engine_on(store: &ModelStore) -> Engine {
    let packs = PackSet::embedded_core().expect("the core pack is sound");
    Engine::start(Arc::new(store.clone()), Settings::with_packs(Arc::new(packs)))
}

fn job_id(n: u64) -> JobId {
    JobId(Uuid::from_u128(0x1000 + u128::from(n)))
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::at(START);
        let store = ModelStore::new(Arc::new(clock.clone()));
        Self { clock, engine: engine_on(&store), store, pace: Pace::default() }
    }

    /// Another server on the same store.
    fn another(&self) -> Self {
        let (clock, store) = (self.clock.clone(), self.store.clone());
        Self { clock, engine: engine_on(&store), store, pace: Pace::default() }
    }

    async fn add(&self, n: u64) -> JobId {
        let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::standard() };
        let job = NewJob { rules: Rules { retry, ..Rules::standard() }, ..plain_job(job_id(n)) };
        self.engine.submit(job).await.expect("it is up").expect("it is stored").id
    }

    /// Fails the next `count` jobs.
    async fn fail(&self, count: u32) {
        let claim = Claim {
            claimant: Claimant::Plain {
                worker: Some("w".into()),
                visibility: outlast_core::time::Span::from_secs(60),
            },
            from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
            max: count.try_into().expect("not none"),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        let claims = self.engine.submit(claim).await.expect("it is up").expect("it may");
        assert_eq!(claims.jobs.len(), usize::try_from(count).expect("few"));
        for claimed in claims.jobs {
            let finish = Finish {
                job: claimed.job.id,
                fence: Fence { epoch: Some(claimed.epoch), ..Fence::default() },
                reported: ReportedOutcome::Failed { error_type: "e".into(), retryable: true },
                detail: EndDetail::default(),
                by: "w".into(),
            };
            self.engine.submit(finish).await.expect("it is up").expect("it ends");
        }
    }

    async fn begin(&self, kind: OperationKind) -> Operation {
        let filter = JobFilter { queue: Some("default".into()), ..JobFilter::default() };
        let definition = Definition {
            kind,
            filter,
            tenant: None,
            as_of: None,
            expected: None,
            estimate: None,
            reason: String::new(),
            request: None,
        };
        let author = Author { by: "me".into(), key: None };
        match service::begin(&self.engine, definition, author).await.expect("it begins") {
            Begun::Now(operation) => operation,
            Begun::Before(before) => panic!("it began before: {before:?}"),
        }
    }

    async fn read(&self, of: &Operation) -> OperationRecord {
        let found = self.store.operation(of.record.id).await.expect("the store answers");
        found.expect("it is there")
    }

    async fn again(&self, of: &Operation) -> Operation {
        service::read(self.read(of).await).expect("it can be read")
    }

    async fn go_on(&self, operation: &Operation) -> Left {
        let operation = self.again(operation).await;
        go_on(&self.engine, operation, &self.pace).await.expect("it goes on")
    }

    /// Goes on until so many jobs are changed, and then ends as a server that is killed.
    async fn go_on_until(&self, operation: &Operation, changed: u64) {
        let enough = async {
            while self.read(operation).await.changed < changed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            left = self.go_on(operation) => panic!("it has ended: {left:?}"),
        }
    }

    async fn states(&self, jobs: impl Iterator<Item = u64>) -> Vec<State> {
        let mut states = Vec::new();
        for n in jobs {
            let job = self.store.job(job_id(n)).await.expect("the store answers");
            states.push(job.expect("it is there").state);
        }
        states
    }

    /// Which jobs an event of this name is about, each as often as there is one.
    async fn logged(&self, name: &str) -> Vec<JobId> {
        let query = EventQuery { names: vec![name.to_owned()], ..EventQuery::all(10_000) };
        let page = self.store.events(query).await.expect("the store answers");
        let mut jobs: Vec<JobId> = page.events.iter().filter_map(|(_, event)| event.job).collect();
        jobs.sort_unstable();
        jobs
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_is_killed_leaves_out_no_job_and_counts_none_twice() {
    let world = World::new();
    for n in 0..1_200 {
        world.add(n).await;
    }
    let operation = world.begin(OperationKind::Cancel).await;
    world.go_on_until(&operation, 100).await;
    // Its server is gone; a job is added that another one must not touch.
    world.clock.advance(1);
    world.add(1_200).await;
    let other = world.another();
    other.go_on_until(&operation, 700).await;
    assert_eq!(world.another().go_on(&operation).await, Left::Ended);
    let record = world.read(&operation).await;
    assert_eq!(record.status, OperationStatus::Done);
    assert_eq!((record.matched, record.changed, record.skipped()), (1_200, 1_200, 0));
    let all: Vec<JobId> = (0..1_200).map(job_id).collect();
    assert_eq!(world.logged("job.cancelled").await, all);
    assert_eq!(world.states(1_199..1_201).await, [State::Cancelled, State::Available]);
}

#[tokio::test(start_paused = true)]
async fn two_servers_that_go_on_at_once_do_it_once() {
    let world = World::new();
    for n in 0..500 {
        world.add(n).await;
    }
    let operation = world.begin(OperationKind::Cancel).await;
    let other = world.another();
    let (one, two) = tokio::join!(world.go_on(&operation), other.go_on(&operation));
    assert!(one != two, "{one:?}");
    let record = world.read(&operation).await;
    assert_eq!((record.matched, record.changed), (500, 500));
    assert_eq!(world.logged("job.cancelled").await.len(), 500);
}

#[tokio::test(start_paused = true)]
async fn job_that_fails_again_while_others_are_retried_is_not_retried_again() {
    let world = World::new();
    for n in 0..200 {
        world.add(n).await;
    }
    world.fail(200).await;
    let operation = world.begin(OperationKind::Retry).await;
    world.go_on_until(&operation, 60).await;
    // What was retried fails again, and so does one that was made since.
    world.clock.advance(1);
    let retried = world.logged("job.replayed").await.len();
    world.add(200).await;
    world.fail(u32::try_from(retried + 1).expect("few")).await;
    assert_eq!(world.another().go_on(&operation).await, Left::Ended);
    let record = world.read(&operation).await;
    assert_eq!((record.matched, record.changed, record.skipped()), (200, 200, 0));
    let all: Vec<JobId> = (0..200).map(job_id).collect();
    assert_eq!(world.logged("job.replayed").await, all);
}

#[tokio::test(start_paused = true)]
async fn job_that_someone_else_changed_meanwhile_is_named() {
    let world = World::new();
    for n in 0..3 {
        world.add(n).await;
    }
    world.fail(3).await;
    let operation = world.begin(OperationKind::Retry).await;
    world.clock.advance(1);
    let order = JobOrder {
        job: job_id(1),
        action: JobAction::Replay,
        tenant: None,
        by: "someone".into(),
        expected: None,
    };
    assert!(world.engine.submit(order).await.expect("it is up").is_ok());
    world.fail(1).await;
    assert_eq!(world.go_on(&operation).await, Left::Ended);
    let record = world.read(&operation).await;
    assert_eq!((record.matched, record.changed), (3, 2));
    assert_eq!(record.skipped, [(Skip::Changed, 1)].into());
    let states = [State::Available, State::Discarded, State::Available];
    assert_eq!(world.states(0..3).await, states);
}

#[tokio::test(start_paused = true)]
async fn job_that_cannot_be_written_is_left_out_and_named() {
    let world = World::new();
    for n in 0..100 {
        world.add(n).await;
    }
    let operation = world.begin(OperationKind::Cancel).await;
    let is_damaged = |order: &JobOrder| order.job == job_id(41);
    let store = world.store.clone().failing(move |batch| {
        let has_it = batch.commands.iter().any(|command| match command {
            Command::WriteOperation(write) => write.orders.iter().any(is_damaged),
            _ => false,
        });
        has_it.then(|| StoreError::Corrupt("its row".into()))
    });
    let broken = World {
        clock: world.clock.clone(),
        engine: engine_on(&store),
        store,
        pace: Pace::default(),
    };
    assert_eq!(broken.go_on(&operation).await, Left::Ended);
    let record = world.read(&operation).await;
    assert_eq!((record.matched, record.changed), (100, 99));
    assert_eq!(record.skipped, [(Skip::Unwritable, 1)].into());
    assert_eq!(world.states(41..42).await, [State::Available]);
}

#[tokio::test(start_paused = true)]
async fn stop_acts_before_the_next_step() {
    let world = World::new();
    for n in 0..400 {
        world.add(n).await;
    }
    let operation = world.begin(OperationKind::Cancel).await;
    let stop = async {
        while world.read(&operation).await.changed == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        service::stop(&world.engine, operation.record.id, "ops").await.expect("it runs")
    };
    let (left, stopped) = tokio::join!(world.go_on(&operation), stop);
    let stopped = stopped.record();
    assert_eq!((left, stopped.status), (Left::Elsewhere, OperationStatus::Stopped));
    assert_eq!(stopped.note, "stopped by ops");
    assert!(stopped.changed < 400, "{stopped:?}");
    assert_eq!(world.read(&operation).await, *stopped);
    let cancelled = world.logged("job.cancelled").await.len();
    assert_eq!(u64::try_from(cancelled).expect("few"), stopped.changed);
    let again = service::stop(&world.engine, operation.record.id, "ops").await;
    assert!(again.is_err_and(|error| error.to_string().contains("is stopped")));
}
