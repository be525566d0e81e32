//! What looks at workflows do, over the model store with a clock that is turned by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_core::time::Timestamp;
use outlast_core::workflow::{WorkflowId, WorkflowItem};
use outlast_packs::PackSet;
use outlast_store::Store as _;
use outlast_store::command::{Batch, BatchId, Command, JobAction, JobOrder, Strand, WriteWorkflow};
use outlast_store::store::ManualClock;
use outlast_store::workflow::{
    ItemQuery, ItemRecord, Runs, WhichItems, WorkflowQuery, WorkflowState,
};
use outlast_store_rules::apply::workflow::running;
use outlast_store_testkit::model::ModelStore;
use outlast_wire::workflow::{Status, WorkflowView};
use outlast_workflow::Definition;
use serde_json::{Map, json};
use uuid::Uuid;

use super::look::{Ask, look, nothing};
use super::service::{Begun, Wanted, begin};
use super::{unnoted, view};
use crate::engine::Engine;
use crate::settings::Settings;

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp(1_767_225_600_000);

struct World {
    clock: ManualClock,
    store: ModelStore,
    engine: Engine,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::at(START);
        let store = ModelStore::new(Arc::new(clock.clone()));
        let packs = PackSet::embedded_core().expect("the core pack is sound");
        let settings = Settings::with_packs(Arc::new(packs));
        let engine = Engine::start(Arc::new(store.clone()), settings);
        Self { clock, store, engine }
    }

    /// Begins a workflow of one step; returns it, and its job.
    async fn begin(&self) -> (WorkflowId, JobId) {
        let described = json!({"steps": {"one": {"action": "core.noop"}}});
        let wanted = Wanted {
            definition: Definition::read(&described).expect("a workflow"),
            reference: None,
            parameters: Map::new(),
            labels: BTreeMap::new(),
            keys: BTreeMap::new(),
            name: None,
            tenant: None,
            by: None,
            repeat: None,
            schedule: None,
        };
        let begun = begin(&self.engine, wanted).await.expect("it begins");
        let Begun::Now(id) = begun else { panic!("it began before: {begun:?}") };
        let item = self.item(id).await;
        (id, item.runs.and_then(Runs::job).expect("a job"))
    }

    async fn item(&self, workflow: WorkflowId) -> ItemRecord {
        let query = ItemQuery {
            workflow,
            step: None,
            which: WhichItems::All,
            with_values: true,
            after: None,
            limit: 10,
            bytes: usize::MAX,
        };
        let items = self.store.workflow_items(query).await.expect("the store answers");
        let [item] = <[ItemRecord; 1]>::try_from(items).expect("one item");
        item
    }

    /// Writes that something else carries out the item. Its end is not noted for the workflow.
    async fn runs(&self, workflow: WorkflowId, runs: Runs) {
        let record = self.store.workflow(workflow).await.expect("the store answers");
        let record = record.expect("it is there");
        let item = WorkflowItem { workflow, step: 0, item: 0, keeps_result: true };
        let write = WriteWorkflow {
            to: Some(record.state),
            items: vec![running(item, runs)],
            ..nothing(workflow, Some(record.revision), "me")
        };
        assert!(self.engine.submit(write).await.expect("it is up").is_ok());
    }

    /// Looks at a workflow and notes what was not noted; returns how it stands then, and why.
    async fn note(&self, workflow: WorkflowId) -> (Status, Option<String>) {
        // Ends of other jobs that the item had before are passed over.
        look(&self.engine, workflow, Ask::Nothing, "me").await.expect("it is looked at");
        for run in self.store.unnoted_ends(10).await.expect("the store answers") {
            unnoted::note(&self.engine, run).await.expect("it is noted");
        }
        assert_eq!(self.store.unnoted_ends(10).await.expect("the store answers"), []);
        look(&self.engine, workflow, Ask::Nothing, "me").await.expect("it is looked at");
        let view = view::find(&self.engine, workflow, None, None).await.expect("it is there");
        (view.status, view.steps[0].error.clone())
    }
}

/// A job that no worker ran has no message, but an error and a reason, and both are long.
#[tokio::test]
async fn an_end_that_was_never_noted_says_what_one_that_was_does() {
    let world = World::new();
    let (noted, job) = world.begin().await;
    let (unnoted, _) = world.begin().await;
    world.runs(unnoted, Runs::Job(job)).await;
    let class = world.store.job(job).await.expect("the store answers").expect("a job").job.class;
    let since = world.store.now().await.expect("the store answers");
    world.clock.advance(3_600_000);
    let reason = "no worker is eligible; ".repeat(100);
    let strand = Command::Strand(Strand { class, since, reason, limit: 10 });
    let id = BatchId { server: Uuid::now_v7(), n: 1 };
    let budgets = Budgets::DEFAULT;
    let batch = Batch { id, jitter_seed: 0, budgets, commands: vec![strand] };
    world.store.apply(Arc::new(batch)).await.expect("the store answers");
    let state = world.store.job(job).await.expect("the store answers").map(|job| job.state);
    assert_eq!(state, Some(State::Discarded));

    let (status, error) = world.note(unnoted).await;
    assert_eq!(status, Status::Failed);
    let error = error.expect("an error");
    assert!(error.contains("did not pick up task"), "{error}");
    assert!(error.contains("no worker is eligible"), "{error}");
    assert_eq!(world.note(noted).await, (Status::Failed, Some(error)));
}

#[tokio::test]
async fn an_end_that_was_never_noted_ends_the_workflow_as_its_job_ended() {
    let world = World::new();
    let (_, job) = world.begin().await;
    let (id, _) = world.begin().await;
    world.runs(id, Runs::Job(job)).await;
    assert_eq!(world.note(id).await, (Status::Running, None));
    let (by, action) = ("me".to_owned(), JobAction::Cancel);
    let order = JobOrder { job, action, tenant: None, by, expected: None };
    assert!(world.engine.submit(order).await.expect("it is up").is_ok());
    let (status, error) = world.note(id).await;
    assert_ne!(status, Status::Running, "{error:?}");

    let (id, _) = world.begin().await;
    world.runs(id, Runs::Job(JobId(Uuid::now_v7()))).await;
    assert_eq!(world.note(id).await.0, Status::Failed);
}

/// One that cannot be read does not hide the others.
#[tokio::test]
async fn a_damaged_workflow_is_left_out_of_a_list() {
    let world = World::new();
    let ids = [world.begin().await.0, world.begin().await.0, world.begin().await.0];
    let record = world.store.workflow(ids[1]).await.expect("the store answers").expect("a row");
    let state = WorkflowState { progress: "{".to_owned(), ..record.state };
    let write = WriteWorkflow { to: Some(state), ..nothing(ids[1], Some(record.revision), "me") };
    assert!(world.engine.submit(write).await.expect("it is up").is_ok());
    let list = |limit| {
        let query = WorkflowQuery { status: None, name: None, tenant: None, after: None, limit };
        view::list(&world.engine, query)
    };
    let listed = |views: Vec<WorkflowView>| views.iter().map(|view| view.id).collect::<Vec<_>>();
    assert_eq!(listed(list(10).await.expect("a list")), [ids[2].0, ids[0].0]);
    assert_eq!(listed(list(2).await.expect("a list")), [ids[2].0, ids[0].0], "it is filled up");
    assert_eq!(listed(list(1).await.expect("a list")), [ids[2].0]);
}
