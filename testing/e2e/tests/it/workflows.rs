//! Workflows by real servers and workers, some of which are killed. What ran is judged from a ledger
//! that the server does not know of, from the API, and from the rows of the store.

mod again;
mod chaos;
mod ends;
mod history;
mod judge;
mod killed;
mod nested;
mod races;
mod refused;
mod repeats;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, poll, within};
use outlast_e2e::{Api, Scene, Server, ServerOptions, Worker, WorkerOptions};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Everything that a workflow of a few steps may take.
const SOON: Duration = LEASE;
/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(120);

const WORKFLOWS: &str = "/api/v1/workflows";

const STEP: &str = "runner_type: shell
entry_point: step.sh
parameter_format: dotenv
output_format: json
parameters:
  ledger: {type: string, required: true}
  workflow: {type: string, required: true}
  step: {type: string, required: true}
  item: {type: integer, default: 0}
  ticks: {type: integer, default: 0}
  until: {type: string, default: ''}
  needs: {type: string, default: ''}
  fail_before_epoch: {type: integer, default: 0}
  bytes: {type: integer, default: 0}
  value: {type: string, default: ''}
";

/// What an action of a step wrote.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    workflow: String,
    step: String,
    item: u64,
    job: String,
    epoch: u64,
    event: String,
}

/// A server whose pack has an action that leaves a trace.
struct Site {
    // Dropped in this order: what runs before the folder that it writes to.
    scene: Scene,
    folder: TempDir,
}

impl Site {
    fn start() -> Self {
        Self::with(ServerOptions::default())
    }

    fn with(options: ServerOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("outlast-e2e-").tempdir().expect("a folder");
        put(&folder, "flow/pack.yaml", "ref: flow\n");
        action(&folder, "step", STEP, include_str!("workflows/step.sh"));
        Self { scene: Scene::with(Self::options(&folder, options)), folder }
    }

    fn options(folder: &TempDir, options: ServerOptions) -> ServerOptions {
        options.argument("--packs").argument(&folder.path().join("packs").display().to_string())
    }

    /// Starts another server on the same store.
    fn another_server(&self, name: &str) -> Server {
        let options = Self::options(&self.folder, ServerOptions::default());
        self.scene.another_server_with(name, options)
    }

    fn worker(&self, name: &str) -> Worker {
        self.worker_with(WorkerOptions::named(name))
    }

    fn worker_with(&self, options: WorkerOptions) -> Worker {
        let packs = self.folder.path().join("packs").display().to_string();
        self.scene.worker_with(&options.flag("--packs", &packs))
    }

    /// Returns the path of a file that steps wait for or need.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file that steps wait for or need.
    fn make(&self, name: &str) {
        fs::write(self.path(name), "").expect("writing a file");
    }

    /// Writes a workflow of the pack.
    fn workflow(&self, name: &str, definition: &Value) {
        put(&self.folder, &format!("flow/workflows/{name}.yaml"), &definition.to_string());
    }

    /// Has the server read its packs as they are now.
    fn read_packs(&self) {
        let digest = || {
            let reply = self.scene.api().try_get("/api/v1/packs/flow").ok()?;
            reply.is_success().then(|| reply.body["data"]["digest"].clone())
        };
        let before = digest();
        self.scene.server().process().signal(rustix::process::Signal::HUP);
        let after = poll(within(SOON), || digest().filter(|after| Some(after) != before.as_ref()));
        assert!(after.is_some(), "the packs were not read again");
    }

    /// Describes a step that leaves a trace: what its action is given, and its other keys.
    fn step(&self, name: &str, with: &Value, keys: &Value) -> Value {
        let mut parameters = Map::new();
        parameters.insert("ledger".to_owned(), json!(self.path("ledger")));
        parameters.insert("workflow".to_owned(), json!("${{ workflow.id }}"));
        parameters.insert("step".to_owned(), json!(name));
        parameters.extend(with.as_object().cloned().unwrap_or_default());
        let mut step = Map::new();
        step.insert("name".to_owned(), json!(name));
        step.insert("action".to_owned(), json!("flow.step"));
        step.insert("with".to_owned(), Value::Object(parameters));
        step.extend(keys.as_object().cloned().unwrap_or_default());
        Value::Object(step)
    }

    /// Begins a workflow of these steps and returns its id.
    #[track_caller]
    fn begin(&self, steps: &[Value]) -> String {
        self.begin_with(&json!({"workflow": {"name": "test", "steps": steps}}))
    }

    #[track_caller]
    fn begin_with(&self, request: &Value) -> String {
        id_of(&self.scene.api().post(WORKFLOWS, request).expect(201))
    }

    #[track_caller]
    fn show(&self, id: &str) -> Value {
        self.scene.api().get(&format!("{WORKFLOWS}/{id}")).expect(200)["data"].clone()
    }

    #[track_caller]
    fn order(&self, id: &str, order: &str) {
        let path = format!("{WORKFLOWS}/{id}/{order}");
        let _shown = self.scene.api().post(&path, &json!({})).expect(200);
    }

    /// Waits until a workflow has ended, and returns it.
    #[track_caller]
    fn ended(&self, id: &str) -> Value {
        self.ended_within(id, within(SOON))
    }

    #[track_caller]
    fn ended_within(&self, id: &str, bound: Duration) -> Value {
        let ended = poll(bound, || {
            try_show(self.scene.api(), id).filter(|shown| shown["status"] != "running")
        });
        ended.unwrap_or_else(|| panic!("waited {bound:?} in vain for its end: {:#}", self.show(id)))
    }

    /// Waits until a step of a workflow is so, and returns it.
    #[track_caller]
    fn await_step(&self, id: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let found = poll(within(SOON), || {
            let step = step_of(&try_show(self.scene.api(), id)?, name);
            is_so(&step).then_some(step)
        });
        found.unwrap_or_else(|| panic!("step {name} never was so: {:#}", self.show(id)))
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.path("ledger")).unwrap_or_default();
        // What a killed process was about to write is no line.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
    }

    /// Returns how often items of a step of a workflow began.
    fn begun(&self, id: &str, step: &str) -> usize {
        let is_it =
            |line: &&Line| line.workflow == id && line.step == step && line.event == "begin";
        self.lines().iter().filter(is_it).count()
    }

    /// Waits until so many items of a step of a workflow have begun.
    #[track_caller]
    fn await_begun(&self, id: &str, step: &str, count: usize) {
        let begun = poll(within(SOON), || (self.begun(id, step) >= count).then_some(()));
        assert!(begun.is_some(), "{count} of {step} never began: {:#}", self.show(id));
    }

    /// Copies the store and returns the rows of these tables.
    fn rows(&self, tables: &[&str]) -> BTreeMap<String, Vec<Value>> {
        let copy = tempfile::tempdir().expect("a folder");
        let folder = copy.path().join("export");
        let out = folder.display().to_string();
        let words = ["export", "--database", self.scene.server().database(), "--out", &out];
        let said = run_to_end(&words, PATIENCE);
        assert_eq!(said.code, Some(0), "{said:?}");
        tables.iter().map(|table| ((*table).to_owned(), rows_of(&folder, table))).collect()
    }

    fn count(&self, table: &str) -> usize {
        self.rows(&[table])[table].len()
    }
}

fn put(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join("packs").join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, text).expect("writing a file of a pack");
    path
}

/// Writes an action of the pack.
fn action(folder: &TempDir, name: &str, about: &str, script: &str) {
    put(folder, &format!("flow/actions/{name}.yaml"), about);
    let path = put(folder, &format!("flow/actions/{name}.sh"), script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

fn rows_of(export: &Path, table: &str) -> Vec<Value> {
    let text = fs::read_to_string(export.join(format!("{table}.jsonl"))).expect("a section");
    let row = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("a row");
        line["row"].take()
    };
    text.lines().map(row).collect()
}

fn try_show(api: &Api, id: &str) -> Option<Value> {
    let reply = api.try_get(&format!("{WORKFLOWS}/{id}")).ok()?;
    reply.is_success().then(|| reply.body["data"].clone())
}

#[track_caller]
fn id_of(answer: &Value) -> String {
    answer["data"]["id"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn step_of(workflow: &Value, name: &str) -> Value {
    let steps = workflow["steps"].as_array().expect("steps");
    let step = steps.iter().find(|step| step["name"] == name);
    step.unwrap_or_else(|| panic!("no step {name}: {workflow:#}")).clone()
}

/// Returns what carries out the items of a step: `job_ids` or `workflow_ids`.
fn ids(step: &Value, field: &str) -> Vec<String> {
    let ids = step[field].as_array().cloned().unwrap_or_default();
    ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

/// Starts a server that was killed again.
fn revive(server: &mut Server) {
    server.start_again();
    await_ready(&Api::new(&server.url()), within(SOON));
}
