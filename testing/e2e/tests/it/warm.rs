//! Actions that ask for warm interpreters: forked by a process of the worker's, or run by an interpreter that
//! was started ahead, with nothing of one another, and executed wherever that cannot be.

use std::fs;

use outlast_e2e::process_table::{self, ProcessId};
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Scene, ServerOptions, WorkerOptions};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A pack called `oven` with a module of its own, in one language.
struct Oven {
    folder: tempfile::TempDir,
    language: Language,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Node,
}

/// Says whether its module was there before, and what it finds of attempts before it.
const SCRIPT: &str = r#"
import json, os, sys
was_there = "dough" in sys.modules
import dough
parameters = json.load(sys.stdin)
found = [name for name in os.environ if name.startswith("LEFT")] + getattr(dough, "left", [])
os.environ["LEFT"] = parameters["secret"]
dough.left = [parameters["secret"]]
print(json.dumps({"warm": was_there, "version": dough.VERSION, "found": found, "parent": os.getppid()}))
"#;

/// The same for Node.js, and a file in its own folder.
const SCRIPT_OF_NODE: &str = r#"
const fs = require("fs");
const wasThere = Object.keys(require.cache).some((file) => file.endsWith("dough.js"));
const dough = require("./dough.js");
const parameters = JSON.parse(fs.readFileSync(0, "utf8"));
const found = Object.keys(process.env).filter((name) => name.startsWith("LEFT"));
found.push(...(dough.left ?? []), ...(globalThis.left ?? []), ...fs.readdirSync(process.env.TMPDIR));
process.env.LEFT = parameters.secret;
dough.left = globalThis.left = [parameters.secret];
fs.writeFileSync(process.env.TMPDIR + "/left", parameters.secret);
console.log(JSON.stringify({warm: wasThere, version: dough.VERSION, found, parent: process.ppid}));
"#;

impl Oven {
    fn new(warm: &str) -> Self {
        Self::of(Language::Python, warm)
    }

    fn of(language: Language, warm: &str) -> Self {
        let oven = Self { folder: tempfile::tempdir().unwrap(), language };
        oven.put("pack.yaml", "ref: oven\n");
        let (runner, script, text) = match language {
            Language::Python => ("python", "bake.py", SCRIPT),
            Language::Node => ("node", "bake.js", SCRIPT_OF_NODE),
        };
        let action = format!(
            "runner_type: {runner}\nentry_point: {script}\noutput_format: json\nwarm: {warm}\n\
             parameters: {{secret: {{type: string, secret: true}}}}\n"
        );
        oven.put("actions/bake.yaml", &action);
        oven.put(&format!("actions/{script}"), text);
        oven.put_dough(1);
        oven
    }

    /// Writes the module.
    fn put_dough(&self, version: u32) {
        match self.language {
            Language::Python => self.put("actions/dough.py", &format!("VERSION = {version}\n")),
            Language::Node => {
                self.put("actions/dough.js", &format!("exports.VERSION = {version};\n"))
            }
        }
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.folder.path().join("packs/oven").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn packs(&self) -> String {
        self.folder.path().join("packs").display().to_string()
    }

    fn scene(&self) -> Scene {
        Scene::with(ServerOptions::default().argument("--packs").argument(&self.packs()))
    }

    fn options(&self) -> WorkerOptions {
        let options = WorkerOptions::named("baker").flag("--packs", &self.packs());
        options.flag("--containment", "pidns")
    }
}

fn bake(scene: &Scene) -> Value {
    let body = json!({"action_ref": "oven.bake", "parameters": {"secret": "sesame-open"}});
    let accepted = scene.api().post("/api/v1/executions", &body).expect(201);
    let id = accepted["data"]["id"].as_str().unwrap().to_owned();
    scene.await_status(&id, "completed", within(LEASE * 5))["result"].clone()
}

/// The warm interpreters of a worker for a pack.
fn warm_of(guardian: ProcessId, pack: &str) -> Vec<ProcessId> {
    let mut found = process_table::descendants(guardian);
    found.retain(|pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&str> = text.split(['\0', ' ']).collect();
        words.starts_with(&["outlast", "warm", pack]) && !words.contains(&"(starting)")
    });
    found
}

fn await_warm(scene: &Scene) -> Value {
    let mut last = Value::Null;
    eventually("an attempt has a warm interpreter", within(LEASE * 20), || {
        last = bake(scene);
        (last["warm"] == json!(true)).then_some(())
    });
    last
}

#[test]
fn an_action_that_asks_for_it_is_forked_and_finds_nothing_of_attempts_before_it() {
    let oven = Oven::new("{preload: [dough], idle: 30s}");
    let scene = oven.scene();
    let worker = scene.worker_with(&oven.options());
    let first = bake(&scene);
    assert_eq!(first["warm"], false, "nothing waits for the first one");
    let second = await_warm(&scene);
    assert_eq!((&second["found"], &second["version"]), (&json!([]), &json!(1)), "{second}");
    let third = bake(&scene);
    assert_eq!((&third["warm"], &third["found"]), (&json!(true), &json!([])), "{third}");
    assert_eq!(third["parent"], 1);
    let serving = warm_of(worker.guardian().pid(), "oven");
    assert_eq!(serving.len(), 1);

    // A changed module is used after the packs were read again, and never before half of it.
    oven.put_dough(1000);
    worker.hang_up();
    eventually("the one before has ended", within(LEASE * 5), || {
        (!process_table::is_alive(serving[0])).then_some(())
    });
    assert_eq!(await_warm(&scene)["version"], 1000);
    let serving = warm_of(worker.guardian().pid(), "oven");
    kill_process(Pid::from_raw(serving[0]).unwrap(), Signal::KILL).unwrap();
    assert_eq!(bake(&scene)["version"], 1000, "nothing fails by it");
    let next = await_warm(&scene);
    assert_eq!(next["found"], json!([]));
    scene.judge();
}

#[test]
fn what_cannot_be_imported_ahead_is_said_once_and_jobs_run() {
    let oven = Oven::new("{preload: [dough, nowhere_to_be_found]}");
    let scene = oven.scene();
    let worker = scene.worker_with(&oven.options());
    for _ in 0..3 {
        assert_eq!(bake(&scene)["warm"], false);
    }
    let words = "cannot import nowhere_to_be_found: ModuleNotFoundError";
    eventually("the log says why", within(LEASE * 20), || {
        bake(&scene);
        worker.log().contains(words).then_some(())
    });
    bake(&scene);
    assert_eq!(worker.log().matches(words).count(), 1, "{}", worker.log());
    assert_eq!(warm_of(worker.guardian().pid(), "oven"), [] as [ProcessId; 0]);
}

#[test]
fn where_jobs_are_held_otherwise_they_are_executed_and_the_log_says_why() {
    let oven = Oven::new("{preload: [dough]}");
    let scene = oven.scene();
    let options = WorkerOptions::named("baker").flag("--packs", &oven.packs());
    let worker = scene.worker_with(&options.flag("--containment", "subreaper"));
    for _ in 0..3 {
        assert_eq!(bake(&scene)["warm"], false);
    }
    let words = "attempts are forked into PID namespaces only, and jobs are held by subreaper";
    eventually("the log says why", within(LEASE * 5), || {
        worker.log().contains(words).then_some(())
    });
    assert_eq!(worker.log().matches(words).count(), 1, "{}", worker.log());
    assert_eq!(warm_of(worker.guardian().pid(), "oven"), [] as [ProcessId; 0]);
}

#[test]
fn warm_processes_end_with_their_engine_and_with_their_worker() {
    let oven = Oven::new("{preload: [dough]}");
    let scene = oven.scene();
    let mut worker = scene.worker_with(&oven.options());
    await_warm(&scene);
    let first = warm_of(worker.guardian().pid(), "oven");
    worker.kill_engine();
    eventually("it ends with the engine", within(LEASE * 5), || {
        (!process_table::is_alive(first[0])).then_some(())
    });
    await_warm(&scene);
    let second = warm_of(worker.guardian().pid(), "oven");
    assert_ne!(first, second);
    worker.terminate();
    assert_eq!(worker.await_end(within(LEASE * 10)), Some(0));
    assert!(!process_table::is_alive(second[0]));
}

const NODE: &str = "{preload: [./dough.js, util], idle: 30s}";

#[test]
fn a_node_action_that_asks_for_it_is_run_by_an_interpreter_that_was_started_ahead() {
    let oven = Oven::of(Language::Node, NODE);
    let scene = oven.scene();
    let worker = scene.worker_with(&oven.options());
    assert_eq!(bake(&scene)["warm"], false, "nothing waits for the first one");
    for _ in 0..3 {
        let result = await_warm(&scene);
        assert_eq!((&result["found"], &result["version"]), (&json!([]), &json!(1)), "{result}");
        assert_eq!(result["parent"], 1);
    }

    // A changed module is used after the packs were read again, and never before half of it.
    let before = warm_of(worker.guardian().pid(), "oven");
    oven.put_dough(1000);
    worker.hang_up();
    eventually("those of before have ended", within(LEASE * 5), || {
        before.iter().all(|pid| !process_table::is_alive(*pid)).then_some(())
    });
    assert_eq!(await_warm(&scene)["version"], 1000);
    let waiting = eventually("the next one waits", within(LEASE * 5), || {
        warm_of(worker.guardian().pid(), "oven").first().copied()
    });
    kill_process(Pid::from_raw(waiting).unwrap(), Signal::KILL).unwrap();
    assert_eq!(bake(&scene)["version"], 1000, "nothing fails by it");
    assert_eq!(await_warm(&scene)["found"], json!([]));
    scene.judge();
}

#[test]
fn modules_of_node_that_cannot_be_imported_ahead_are_named_once_and_jobs_run() {
    for (module, words) in [
        ("throw new Error('no licence')", "cannot import ./odd.js: Error: no licence"),
        ("console.log('hello')", "importing them prints: hello"),
    ] {
        let oven = Oven::of(Language::Node, "{preload: [./odd.js]}");
        oven.put("actions/odd.js", module);
        let scene = oven.scene();
        let worker = scene.worker_with(&oven.options());
        eventually("the log says why", within(LEASE * 20), || {
            assert_eq!(bake(&scene)["warm"], false);
            worker.log().contains(words).then_some(())
        });
        bake(&scene);
        assert_eq!(worker.log().matches(words).count(), 1, "{}", worker.log());
        eventually("nothing waits", within(LEASE * 5), || {
            warm_of(worker.guardian().pid(), "oven").is_empty().then_some(())
        });
    }
}

#[test]
fn interpreters_that_wait_end_with_their_engine_their_guardian_and_their_worker() {
    let oven = Oven::of(Language::Node, NODE);
    let scene = oven.scene();
    let worker = scene.worker_with(&oven.options());
    let waiting = |guardian: ProcessId| {
        eventually("one waits", within(LEASE * 20), || {
            bake(&scene);
            Some(warm_of(guardian, "oven")).filter(|waiting| !waiting.is_empty())
        })
    };
    let all_end = |pids: &[ProcessId]| {
        eventually("they end", within(LEASE * 5), || {
            pids.iter().all(|pid| !process_table::is_alive(*pid)).then_some(())
        });
    };
    let first = waiting(worker.guardian().pid());
    worker.kill_engine();
    all_end(&first);
    let second = waiting(worker.guardian().pid());
    assert!(first.iter().all(|pid| !second.contains(pid)));
    kill_process(Pid::from_raw(worker.guardian().pid()).unwrap(), Signal::KILL).unwrap();
    all_end(&second);
    let mut next = scene.worker_with(&oven.options());
    let third = waiting(next.guardian().pid());
    next.terminate();
    assert_eq!(next.await_end(within(LEASE * 10)), Some(0));
    all_end(&third);
}
