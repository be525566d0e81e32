//! Environments of packs: made by `outlast packs sync` with the real uv, pip and npm, and used by
//! workers.
//!
//! Nothing is downloaded: what is installed are packages in the pack. Their build leaves a file
//! behind, as that of most packages does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use outlast_e2e::process::{command, run_against, run_to_end};
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Scene, ServerOptions, WorkerOptions, skip};
use serde_json::{Value, json};

/// Longest that pip or npm may take on a machine that is busy with other tests.
const INSTALL_MAX: Duration = Duration::from_secs(120);

/// Builds a wheel of the folder `greet`; waits for a file that TEST_HOLD names.
const BACKEND: &str = r#"
import os, time, zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    hold = os.environ.get("TEST_HOLD")
    if hold:
        open(hold + ".reached", "w").close()
        while not os.path.exists(hold):
            # The test has ended, and not well.
            if not os.path.isdir(os.path.dirname(hold)):
                raise SystemExit("nobody waits")
            time.sleep(0.02)
    open("build.log", "w").close()
    name = "greet-1.0-py3-none-any.whl"
    about = "greet-1.0.dist-info/"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        wheel.write("greet/__init__.py")
        wheel.write("greet/late.py")
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(about + "RECORD", "")
    return name
"#;

/// Imports one module at once and one when it may go on.
const SCRIPT: &str = r"
import json, os, sys, time
import greet
hold = json.load(sys.stdin).get('hold')
if hold:
    open(hold + '.reached', 'w').close()
    while not os.path.exists(hold):
        time.sleep(0.02)
from greet import late
print(greet.VERSION, late.VERSION)
";

/// A pack called `site` with a Python action and a package of its own.
struct Site {
    folder: tempfile::TempDir,
    /// The PATH of `packs sync`.
    path: String,
}

impl Site {
    fn new() -> Self {
        let path = std::env::var("PATH").unwrap();
        let site = Self { folder: tempfile::tempdir().unwrap(), path };
        site.put("pack.yaml", "ref: site\n");
        site.put("actions/greet.yaml", "runner_type: python\nentry_point: run.py\n");
        site.put("actions/run.py", SCRIPT);
        site
    }

    fn in_python() -> Self {
        let site = Self::new();
        site.put("requirements.txt", "# ours\n./local\n");
        let project = "[project]\nname = \"greet\"\nversion = \"1.0\"\n[build-system]\nrequires = []\n\
                       build-backend = \"backend\"\nbackend-path = [\".\"]\n";
        site.put("local/pyproject.toml", project);
        site.put("local/backend.py", BACKEND);
        site.version("one");
        site
    }

    /// Changes the package to another version.
    fn version(&self, version: &str) {
        for file in ["__init__", "late"] {
            let text = format!("VERSION = '{version}'\n");
            self.put(&format!("local/greet/{file}.py"), &text);
        }
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.folder.path().join("packs/site").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn packs(&self) -> String {
        self.folder.path().join("packs").display().to_string()
    }

    fn sync(&self) -> Command {
        let mut sync = command(&["packs", "sync", &self.packs()].map(str::to_owned));
        sync.env("PATH", &self.path);
        // Settings of the caller's own tools, which would install elsewhere.
        let elsewhere = self.folder.path().join("elsewhere");
        for name in ["PIP_PREFIX", "PIP_TARGET", "npm_config_prefix"] {
            sync.env(name, &elsewhere);
        }
        sync.env("npm_config_global", "true").env("PIP_USER", "1");
        sync
    }

    /// What `packs sync` says about the only environment.
    fn state(&self, more: &[&str], code: i32) -> Value {
        let synced = self.sync().args(["--output", "jsonl"]).args(more).output().unwrap();
        assert_eq!(synced.status.code(), Some(code), "{synced:?}");
        let row: Value = serde_json::from_slice(&synced.stdout).unwrap();
        row["state"].clone()
    }

    /// Starts `packs sync`, which stops in the middle of its installation until `hold` is made.
    fn sync_held_by(&self, hold: &Path) -> Child {
        let child = self.sync().env("TEST_HOLD", hold).spawn().unwrap();
        eventually("the installation has begun", INSTALL_MAX, || reached(hold).then_some(()));
        child
    }

    fn environments(&self) -> Vec<PathBuf> {
        let home = self.folder.path().join("packs/site/.outlast");
        let entries = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    fn scene(&self) -> Scene {
        Scene::with(ServerOptions::default().argument("--packs").argument(&self.packs()))
    }
}

fn reached(hold: &Path) -> bool {
    hold.with_extension("reached").exists()
}

fn run(scene: &Scene, parameters: &Value) -> String {
    let body = json!({"action_ref": "site.greet", "parameters": parameters});
    let accepted = scene.api().post("/api/v1/executions", &body).expect(201);
    accepted["data"]["id"].as_str().unwrap().to_owned()
}

fn completed(scene: &Scene, id: &str) -> Value {
    scene.await_status(id, "completed", within(LEASE * 2))["result"]["stdout"].clone()
}

#[test]
fn a_job_waits_for_its_packs_environment_and_keeps_it_while_a_new_one_is_made() {
    let mut site = Site::in_python();
    // The folder with uv, where it is not in PATH.
    if let Ok(folder) = std::env::var("OUTLAST_TEST_UV") {
        site.path = format!("{folder}:{}", site.path);
    }
    if !std::env::split_paths(&site.path).any(|folder| folder.join("uv").is_file()) {
        return skip::for_want_of("uv (pip install uv)");
    }
    let scene = site.scene();
    let options = WorkerOptions::named("site").flag("--packs", &site.packs());
    let worker = scene.worker_with(&options);
    assert_eq!(site.state(&["--check"], 1), "missing");
    let first = run(&scene, &json!({}));
    eventually("the reason is given", within(LEASE), || {
        let reason = scene.api().execution(&first)["waiting_reason"].to_string();
        let words = "site lacks its pack's Python environment (`outlast packs sync` makes it)";
        reason.contains(words).then_some(())
    });
    assert_eq!(site.state(&[], 0), "made");
    assert_eq!(completed(&scene, &first), "one one");
    assert_eq!(scene.api().execution(&first)["failures"], 0);
    assert_eq!(site.state(&["--check"], 0), "fresh");
    let stamp = fs::read(site.environments()[0].join("outlast.json")).unwrap();
    let stamp: Value = serde_json::from_slice(&stamp).unwrap();
    assert_eq!(stamp["made_with"], "uv");

    // One that runs with the old environment, and imports from it when there is a new one.
    let hold = site.folder.path().join("hold");
    let held = run(&scene, &json!({"hold": hold}));
    eventually("it runs", within(LEASE), || reached(&hold).then_some(()));
    site.version("two");
    worker.hang_up();
    let url = scene.server().url();
    eventually("the worker says that the environment is stale", within(LEASE), || {
        let doctor = run_against(&url, &["doctor", "--output", "json"]).stdout;
        let words =
            "site runs pack site in a stale Python environment: requirements.txt has changed";
        doctor.contains(words).then_some(())
    });
    let stale = run(&scene, &json!({}));
    assert_eq!(completed(&scene, &stale), "one one", "it does no harm");
    let log = scene.api().get(&format!("/api/v1/executions/{stale}/logs")).expect(200);
    assert!(log.to_string().contains("[the environment is stale: "), "{log}");

    assert_eq!(site.state(&[], 0), "made");
    let new = run(&scene, &json!({}));
    assert_eq!(completed(&scene, &new), "two two");
    assert_eq!(site.environments().len(), 2, "the old one is in use");
    fs::write(&hold, "").unwrap();
    assert_eq!(completed(&scene, &held), "one one");
    eventually("the old one is removed", within(LEASE), || {
        assert_eq!(site.state(&[], 0), "fresh");
        (site.environments().len() == 1).then_some(())
    });
    assert!(!Path::new(&site.packs()).join("site/local/build.log").exists());
    scene.server().process().signal(rustix::process::Signal::HUP);
    eventually("server and worker have the same pack, and it is not stale", within(LEASE), || {
        let shown = scene.api().get(&format!("/api/v1/workers/{}", worker.id())).expect(200);
        // The scene's own pack is another matter.
        (!shown["data"]["skew"].to_string().contains("site")).then_some(())
    });
}

#[test]
fn of_two_syncs_at_once_one_installs_and_what_a_killed_one_left_is_removed() {
    let site = Site::in_python();
    let hold = site.folder.path().join("hold");
    let mut killed = site.sync_held_by(&hold);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Its pip lives on, and is waited for.
    let log = site.folder.path().join("log");
    let mut two: Vec<Child> = [0, 1]
        .map(|n| {
            let log = fs::File::create(log.with_extension(n.to_string())).unwrap();
            site.sync().stderr(log).spawn().unwrap()
        })
        .into();
    let says = |n: u8| fs::read_to_string(log.with_extension(n.to_string())).unwrap();
    for n in [0, 1] {
        eventually("it waits", INSTALL_MAX, || {
            says(n).contains("another process makes environments of pack site").then_some(())
        });
    }
    assert_eq!(site.state(&["--check"], 1), "missing", "half an environment is none");
    fs::write(&hold, "").unwrap();
    for one in &mut two {
        assert!(one.wait().unwrap().success());
    }
    let makers = [0, 1].into_iter().filter(|n| says(*n).contains("making it")).count();
    assert_eq!(makers, 1, "{} {}", says(0), says(1));
    assert_eq!(site.state(&["--check"], 0), "fresh");
    assert_eq!(site.environments().len(), 1);
    let check = run_to_end(&["packs", "check", "--strict", &site.packs()], within(LEASE));
    assert_eq!(check.code, Some(0), "{check:?}");
    let scene = site.scene();
    let _worker = scene.worker_with(&WorkerOptions::named("site").flag("--packs", &site.packs()));
    assert_eq!(completed(&scene, &run(&scene, &json!({}))), "one one");
}

#[test]
fn npm_installs_for_actions_in_node_and_a_failure_leaves_what_is_there() {
    if !skip::has("npm", "npm") {
        return;
    }
    let site = Site::new();
    let action = "runner_type: nodejs\nentry_point: greet.mjs\n";
    site.put("actions/greet.yaml", action);
    site.put("actions/greet.mjs", "import greet from 'greet';\nconsole.log(greet);\n");
    let package = |version: &str| format!(r#"{{"dependencies": {{"greet": "{version}"}}}}"#);
    site.put("package.json", &package("file:local"));
    site.put("local/package.json", r#"{"name": "greet", "version": "1.0.0"}"#);
    site.put("local/index.js", "module.exports = 'hello';\n");
    let check = run_to_end(&["packs", "check", "--strict", &site.packs()], within(LEASE));
    assert_eq!(check.code, Some(1), "{check:?}");
    let words = "the Node.js environment of pack site is missing; run `outlast packs sync ";
    assert!(check.stdout.contains(words), "{check:?}");

    assert_eq!(site.state(&[], 0), "made");
    let scene = site.scene();
    let _worker = scene.worker_with(&WorkerOptions::named("site").flag("--packs", &site.packs()));
    assert_eq!(completed(&scene, &run(&scene, &json!({}))), "hello");
    site.put("package.json", &package("file:nowhere.tgz"));
    assert_eq!(site.state(&[], 1), "failed");
    assert_eq!(site.state(&["--check"], 1), "stale");
    assert_eq!(completed(&scene, &run(&scene, &json!({}))), "hello");
    assert_eq!(site.environments().len(), 1);

    // With a lock file it is `npm ci`, which refuses one that does not fit.
    site.put("package.json", &package("file:local"));
    site.put("package-lock.json", r#"{"lockfileVersion": 3, "packages": {"": {}}}"#);
    assert_eq!(site.state(&[], 1), "failed");
    let link = r#""node_modules/greet": {"resolved": "local", "link": true}"#;
    let lock = format!(
        r#"{{"lockfileVersion": 3, "packages": {{"": {}, "local": {{"name": "greet", "version": "1.0.0"}}, {link}}}}}"#,
        package("file:local")
    );
    site.put("package-lock.json", &lock);
    assert_eq!(site.state(&[], 0), "made");
}
