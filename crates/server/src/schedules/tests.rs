//! What looks at schedules do, over the model store with a clock that is turned by hand.

use std::fs;
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::{Span, Timestamp};
use outlast_packs::PackSet;
use outlast_store::Store as _;
use outlast_store::command::{Command, JobAction, JobOrder, WriteSchedule};
use outlast_store::query::{JobQuery, Page};
use outlast_store::reply::Reply;
use outlast_store::store::ManualClock;
use outlast_store_testkit::model::ModelStore;
use outlast_wire::schedule::{NamedSchedule, listed};
use serde_json::{Value, json};

use super::definition::Definition;
use super::fire::{self, Looked, Unplanned};
use super::service::{self, Author, Schedule, Wanted};
use crate::engine::Engine;
use crate::settings::Settings;

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp(1_767_225_600_000);

struct World {
    clock: ManualClock,
    store: ModelStore,
    engine: Engine,
    unplanned: Unplanned,
}

fn engine_on(store: &ModelStore) -> Engine {
    let packs = PackSet::embedded_core().expect("the core pack is sound");
    Engine::start(Arc::new(store.clone()), Settings::with_packs(Arc::new(packs)))
}

impl World {
    fn new() -> Self {
        Self::with(PackSet::embedded_core().expect("the core pack is sound"))
    }

    fn with(packs: PackSet) -> Self {
        let clock = ManualClock::at(START);
        let store = ModelStore::new(Arc::new(clock.clone()));
        let engine = Engine::start(Arc::new(store.clone()), Settings::with_packs(Arc::new(packs)));
        Self { clock, store, engine, unplanned: Unplanned::default() }
    }

    /// Another server on the same store.
    fn another(&self) -> Self {
        let (clock, store) = (self.clock.clone(), self.store.clone());
        Self { clock, engine: engine_on(&store), store, unplanned: Unplanned::default() }
    }

    async fn set(&self, fields: Value) -> ScheduleName {
        let NamedSchedule { name, request } =
            listed(fields.as_object().expect("an object")).expect("a schedule");
        let definition = Definition::of(&request, None, START).expect("a schedule");
        let wanted = Wanted { definition, paused: request.paused };
        let author = Author { by: "me".into(), is_configuration: false, tenant: None };
        service::set(&self.engine, &name, &wanted, &author).await.expect("it is set");
        name
    }

    async fn schedule(&self, name: &ScheduleName) -> Schedule {
        service::find(&self.engine, name, None)
            .await
            .expect("the store answers")
            .expect("it is there")
    }

    /// What the store says now; an engine only estimates it.
    async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the store answers")
    }

    /// Looks at a schedule after so many seconds.
    async fn look_after(&self, name: &ScheduleName, seconds: u32) -> Looked {
        self.clock.advance(seconds * 1000);
        let schedule = self.schedule(name).await;
        fire::look(&self.engine, &schedule, self.now().await, &self.unplanned)
            .await
            .expect("it is looked at")
    }

    /// Ids and states of all jobs, oldest first.
    async fn jobs(&self) -> Vec<(JobId, State)> {
        let query = JobQuery::all(Page { limit: 100, cursor: None });
        let page = self.store.jobs(query).await.expect("the store answers");
        page.jobs.iter().rev().map(|job| (job.job.id, job.state)).collect()
    }

    async fn states(&self) -> Vec<State> {
        self.jobs().await.into_iter().map(|(_, state)| state).collect()
    }

    /// Ends a job, whatever it does.
    async fn end(&self, job: JobId) {
        let by = "me".to_owned();
        let order = JobOrder { job, action: JobAction::Cancel, tenant: None, by, expected: None };
        assert!(self.engine.submit(order).await.expect("it is up").is_ok());
    }
}

fn minutely(more: Value) -> Value {
    let mut fields = json!({"name": "it", "cron": "* * * * *", "type": "t"});
    fields.as_object_mut().expect("an object").extend(more.as_object().expect("fields").clone());
    fields
}

fn fired(count: u64, late: u64) -> Looked {
    Looked { fired: count, skipped: 0, late: Span(late) }
}

#[tokio::test]
async fn a_fire_stores_one_job_whichever_server_looks() {
    let world = World::new();
    let other = world.another();
    let name = world.set(minutely(json!({"overlap": "allow"}))).await;
    assert_eq!(world.look_after(&name, 59).await, Looked::default());
    world.clock.advance(1_250);
    let (schedule, now) = (world.schedule(&name).await, world.now().await);
    // Both have read it before either fires.
    let first =
        fire::look(&world.engine, &schedule, now, &world.unplanned).await.expect("it is looked at");
    let second =
        fire::look(&other.engine, &schedule, now, &other.unplanned).await.expect("it is looked at");
    assert_eq!((first, second), (fired(1, 250), Looked::default()));
    assert_eq!(other.look_after(&name, 0).await, Looked::default());
    assert_eq!(world.jobs().await.len(), 1);
    assert_eq!(other.look_after(&name, 60).await, fired(1, 250));
    let last = world.schedule(&name).await.progress.last_fire.expect("it has fired");
    assert_eq!(last.fire_time, START.after(Span::from_secs(120)));
}

/// A schedule that was restored, or removed and made again in the same millisecond, has the same
/// jobs.
#[tokio::test]
async fn a_fire_that_the_store_has_already_is_left_out() {
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "allow"}))).await;
    let before = world.schedule(&name).await;
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
    let after = world.schedule(&name).await;
    let back = WriteSchedule {
        name: name.clone(),
        expected: Some(after.record.revision),
        to: Some(before.record.state.clone()),
        jobs: vec![],
        workflows: vec![],
        events: vec![],
        by: "a restore".into(),
    };
    let reply = world.engine.submit(Command::from(back)).await.expect("it is up");
    assert!(matches!(reply, Reply::ScheduleWritten(Ok(_))));
    assert_eq!(world.look_after(&name, 0).await.skipped, 1);
    assert_eq!(world.jobs().await.len(), 1);
    let skip = world.schedule(&name).await.progress.last_skip.expect("it says so");
    assert!(skip.reason.starts_with("it has fired already: job "), "{skip:?}");
}

#[tokio::test]
async fn an_outage_is_caught_up_with_as_the_schedule_says() {
    for (catch_up, jobs, skipped) in [("none", 0, 61), ("one", 1, 60), ("all", 61, 0)] {
        let world = World::new();
        let name = world.set(minutely(json!({"overlap": "allow", "catch_up": catch_up}))).await;
        // 61 minutes and 30 seconds: no fire is a few seconds late only.
        let looked = world.look_after(&name, 3_690).await;
        assert_eq!((looked.fired, looked.skipped), (jobs, skipped), "{catch_up}");
        let progress = world.schedule(&name).await.progress;
        assert_eq!((progress.fired, progress.skipped), (jobs, skipped), "{catch_up}");
        assert_eq!(progress.next, Some(START.after(Span::from_secs(62 * 60))), "{catch_up}");
    }
}

#[tokio::test]
async fn a_job_that_waits_counts_as_one_that_runs() {
    let world = World::new();
    let name = world.set(minutely(json!({}))).await;
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
    assert_eq!(world.states().await, [State::Available]);
    let looked = world.look_after(&name, 60).await;
    assert_eq!((looked.fired, looked.skipped), (0, 1));
    let (job, _) = world.jobs().await[0];
    let progress = world.schedule(&name).await.progress;
    let reason = progress.last_skip.expect("it says so").reason;
    assert_eq!(reason, format!("job {job} of an earlier fire has not ended; overlap is skip"));
    world.end(job).await;
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
}

#[tokio::test]
async fn jobs_that_queue_run_one_after_another_in_order() {
    use State::{Available, Cancelled, Pending};
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "queue"}))).await;
    for _ in 0..3 {
        assert_eq!(world.look_after(&name, 60).await.fired, 1);
    }
    assert_eq!(world.states().await, [Available, Pending, Pending]);
    let jobs = world.jobs().await;
    // Nothing happens as long as the first has not ended, but it is looked at each second.
    assert_eq!(world.look_after(&name, 1).await, Looked::default());
    assert_eq!(world.states().await, [Available, Pending, Pending]);
    let due = world.schedule(&name).await.record.state.due.expect("it is looked at");
    assert!(due <= world.now().await.after(Span::from_secs(1)));
    world.end(jobs[0].0).await;
    world.look_after(&name, 1).await;
    assert_eq!(world.states().await, [Cancelled, Available, Pending]);
    // One that was cancelled while it waited is passed over.
    world.end(jobs[2].0).await;
    world.end(jobs[1].0).await;
    world.look_after(&name, 1).await;
    assert!(world.schedule(&name).await.progress.open.is_empty());
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
    assert_eq!(world.states().await.last(), Some(&Available));
}

#[tokio::test]
async fn a_fire_that_replaces_cancels_the_one_before() {
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "replace"}))).await;
    for _ in 0..2 {
        assert_eq!(world.look_after(&name, 60).await.fired, 1);
    }
    assert_eq!(world.states().await, [State::Cancelled, State::Available]);
}

#[tokio::test]
async fn a_schedule_whose_action_is_gone_says_so_and_goes_on() {
    let world = World::new();
    let fields =
        json!({"name": "it", "cron": "* * * * *", "action_ref": "gone.away", "catch_up": "all"});
    let name = world.set(fields).await;
    // Another server may have the action, for a moment.
    assert_eq!(world.look_after(&name, 60).await, Looked::default());
    let looked = world.look_after(&name, 4).await;
    assert_eq!((looked.fired, looked.skipped), (0, 1));
    let progress = world.schedule(&name).await.progress;
    let reason = progress.last_skip.expect("it says so").reason;
    assert!(reason.starts_with("action gone.away is not known"), "{reason}");
    assert_eq!(progress.next, Some(START.after(Span::from_secs(120))));
}

#[tokio::test]
async fn a_full_queue_is_a_reason_to_leave_a_fire_out() {
    use outlast_core::queue::{Change, QueueChange};
    use outlast_store::command::SetQueue;
    let world = World::new();
    let change = QueueChange { max_depth: Change::Set(1), ..QueueChange::default() };
    let bound = SetQueue { queue: "small".into(), change, by: "me".into() };
    assert!(world.engine.submit(bound).await.expect("it is up").is_ok());
    let name = world.set(minutely(json!({"overlap": "allow", "queue": "small"}))).await;
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
    let looked = world.look_after(&name, 60).await;
    assert_eq!((looked.fired, looked.skipped), (0, 1));
    let skip = world.schedule(&name).await.progress.last_skip.expect("it says so");
    assert!(skip.reason.starts_with("queue small is full"), "{skip:?}");
}

/// Too many jobs for one write are stored by several.
#[tokio::test]
async fn a_long_outage_is_caught_up_with_in_pieces() {
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "allow", "catch_up": "all"}))).await;
    let first = world.look_after(&name, 250 * 60 + 30).await;
    assert_eq!(first.fired, 100);
    let due = world.schedule(&name).await.record.state.due.expect("more is due");
    assert!(due <= world.now().await);
    let rest = [world.look_after(&name, 0).await.fired, world.look_after(&name, 0).await.fired];
    assert_eq!(rest, [100, 50]);
    let progress = world.schedule(&name).await.progress;
    assert_eq!((progress.fired, progress.skipped), (250, 0));
}

/// A queue with room for some of the fires takes the first of them.
#[tokio::test]
async fn a_queue_with_room_for_some_takes_as_many() {
    use outlast_core::queue::{Change, QueueChange};
    use outlast_store::command::SetQueue;
    let world = World::new();
    let change = QueueChange { max_depth: Change::Set(7), ..QueueChange::default() };
    let bound = SetQueue { queue: "small".into(), change, by: "me".into() };
    assert!(world.engine.submit(bound).await.expect("it is up").is_ok());
    let fields = json!({"overlap": "allow", "catch_up": "all", "queue": "small"});
    let name = world.set(minutely(fields)).await;
    let looked = world.look_after(&name, 30 * 60 + 30).await;
    assert_eq!((looked.fired, looked.skipped), (7, 23));
}

#[tokio::test]
async fn a_fire_that_is_refused_replaces_nothing() {
    use outlast_core::queue::{Change, QueueChange};
    use outlast_store::command::SetQueue;
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "replace", "queue": "small"}))).await;
    assert_eq!(world.look_after(&name, 60).await.fired, 1);
    let change = QueueChange { max_depth: Change::Set(1), ..QueueChange::default() };
    let bound = SetQueue { queue: "small".into(), change, by: "me".into() };
    assert!(world.engine.submit(bound).await.expect("it is up").is_ok());
    assert_eq!(world.look_after(&name, 60).await.skipped, 1);
    assert_eq!(world.states().await, [State::Available]);
}

/// Whatever its owner does, no job of it waits forever.
#[tokio::test]
async fn jobs_that_queue_have_their_turn_when_the_schedule_changes_or_goes() {
    use State::Available;
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "queue"}))).await;
    for _ in 0..3 {
        world.look_after(&name, 60).await;
    }
    world.set(minutely(json!({"overlap": "skip"}))).await;
    world.look_after(&name, 1).await;
    assert_eq!(world.states().await, [Available; 3]);
    let world = World::new();
    let name = world.set(minutely(json!({"overlap": "queue"}))).await;
    for _ in 0..3 {
        world.look_after(&name, 60).await;
    }
    let author = Author { by: "me".into(), is_configuration: false, tenant: None };
    service::remove(&world.engine, &name, &author).await.expect("it is removed");
    assert_eq!(world.states().await, [Available; 3]);
}

/// As after a rollback to a build that does not know what a later one has written.
#[tokio::test]
async fn a_schedule_that_cannot_be_read_can_be_set_and_removed() {
    let world = World::new();
    let name = world.set(minutely(json!({}))).await;
    for removes in [false, true] {
        let record = world.store.schedule(name.clone()).await.expect("an answer").expect("one");
        let mut state = record.state.clone();
        state.definition = r#"{"cron":"@sometimes"}"#.into();
        let write = WriteSchedule {
            name: name.clone(),
            expected: Some(record.revision),
            to: Some(state),
            jobs: vec![],
            workflows: vec![],
            events: vec![],
            by: "a later build".into(),
        };
        assert!(world.engine.submit(write).await.expect("it is up").is_ok());
        if removes {
            let author = Author { by: "me".into(), is_configuration: false, tenant: None };
            service::remove(&world.engine, &name, &author).await.expect("it is removed");
        } else {
            world.set(minutely(json!({}))).await;
            assert_eq!(world.look_after(&name, 60).await.fired, 1);
        }
    }
}

/// A hundred of its fires would be one command of 60 MB.
#[tokio::test]
async fn long_workflows_are_caught_up_with_a_few_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: &str| {
        let path = folder.path().join("long").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    put("pack.yaml", "ref: long\n");
    let with = json!({"message": "x".repeat(600 * 1024)});
    let steps = json!({"steps": {"it": {"action": "core.echo", "with": with}}});
    put("workflows/one.yaml", &steps.to_string());
    let world = World::with(PackSet::load(&[folder.path().to_owned()]).expect("the pack is sound"));
    let name = world
        .set(json!({
            "name": "it", "cron": "* * * * *", "workflow_ref": "long.one",
            "overlap": "allow", "catch_up": "all",
        }))
        .await;
    let mut fired = vec![world.look_after(&name, 15 * 60).await.fired];
    while fired.iter().sum::<u64>() < 15 && fired.len() < 15 {
        fired.push(world.look_after(&name, 0).await.fired);
    }
    assert_eq!(fired, [6, 6, 3]);
    assert_eq!(world.schedule(&name).await.progress.fired, 15);
}
