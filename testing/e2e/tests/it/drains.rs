//! What a drain does with running jobs, by what their actions say.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use outlast_e2e::wait::{HEARTBEAT, KILL_AFTER, LEASE, SWEEP, eventually, within};
use outlast_e2e::{Scene, ServerOptions, WorkerOptions};
use serde_json::json;

/// Counts the lines of its checkpoint, adds one, and waits to be stopped; the second attempt ends.
const COUNTS: &str = r#"#!/bin/sh
echo line >> "$OUTLAST_CHECKPOINT"
[ "$(wc -l < "$OUTLAST_CHECKPOINT")" -ge 2 ] && exit 0
trap 'exit 75' TERM
echo waiting >&2
while :; do sleep 0.05; done
"#;

/// Ends by itself after a while, and badly if it is stopped.
const FINISHES: &str = "#!/bin/sh
trap 'exit 9' TERM
i=0
while [ $i -lt 20 ]; do sleep 0.05; i=$((i + 1)); done
";

fn put(folder: &Path, name: &str, more: &str, script: &str) {
    let actions = folder.join("site/actions");
    fs::create_dir_all(&actions).unwrap();
    fs::write(folder.join("site/pack.yaml"), "ref: site\n").unwrap();
    let action = format!("runner_type: shell\nentry_point: {name}.sh\n{more}");
    fs::write(actions.join(format!("{name}.yaml")), action).unwrap();
    let script_path = actions.join(format!("{name}.sh"));
    fs::write(&script_path, script).unwrap();
    fs::set_permissions(&script_path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_action_that_wants_to_stop_is_asked_when_the_drain_begins_and_goes_on_elsewhere() {
    let packs = tempfile::tempdir().unwrap();
    put(packs.path(), "counts", "on_drain: stop\n", COUNTS);
    put(packs.path(), "finishes", "interruptible: false\n", FINISHES);
    let folder = packs.path().display().to_string();
    let scene = Scene::with(ServerOptions::default().argument("--packs").argument(&folder));
    let options = |name| WorkerOptions::named(name).flag("--packs", &folder);
    // Long enough that the end of the grace period ends nothing here.
    let mut leaving =
        scene.worker_with(&options("leaving").shutdown_timeout(Duration::from_secs(120)));
    let run = |action: &str| {
        let created = scene.api().post("/api/v1/executions", &json!({ "action_ref": action }));
        created.expect(201)["data"]["id"].as_str().unwrap().to_owned()
    };
    let (counts, finishes) = (run("site.counts"), run("site.finishes"));
    for job in [&counts, &finishes] {
        scene.await_status(job, "running", within(LEASE));
    }
    eventually("it waits to be stopped", within(LEASE), || {
        let logs = scene.api().get(&format!("/api/v1/executions/{counts}/logs")).expect(200);
        logs.to_string().contains("waiting").then_some(())
    });
    leaving.terminate();
    scene.await_worker(leaving.id(), "draining", within(HEARTBEAT));
    assert_eq!(leaving.await_end(within(KILL_AFTER)), Some(0));
    let _heir = scene.worker_with(&options("heir"));
    let done = scene.await_status(&counts, "completed", within(LEASE + SWEEP));
    assert_eq!(scene.api().outcomes(&counts), ["interrupted", "completed"]);
    let spent = (&done["interruptions"], &done["failures"], &done["losses"]);
    assert_eq!(spent, (&json!(1), &json!(0), &json!(0)), "{done}");
    let first = &scene.api().attempts(&counts)[0];
    assert_eq!((&first["exit_code"], &first["evidence_code"]), (&json!(75), &json!("drained")));
    assert_eq!(scene.api().outcomes(&finishes), ["completed"], "it had the grace period");
}
