//! A pack made for another system, named as the built-in one, runs as it is in its place.

use std::path::{Path, PathBuf};

use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Scene, ServerOptions, Worker, WorkerOptions};
use serde_json::{Value, json};

fn packs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packs")
}

fn scene() -> Scene {
    let folder = packs().display().to_string();
    Scene::with(ServerOptions::default().argument("--packs").argument(&folder))
}

fn worker(scene: &Scene) -> Worker {
    let folder = packs().display().to_string();
    scene.worker_with(&WorkerOptions::named("foreign").flag("--packs", &folder))
}

#[test]
fn every_action_of_a_foreign_core_pack_runs_unmodified() {
    let scene = scene();
    let _worker = worker(&scene);
    let result = |action: &'static str, parameters: Value| {
        let body = json!({"action_ref": action, "parameters": parameters});
        let accepted = scene.api().post("/api/v1/executions", &body).expect(201);
        let id = accepted["data"]["id"].as_str().unwrap().to_owned();
        (id.clone(), scene.await_status(&id, "completed", within(LEASE))["result"].clone())
    };
    let (_, echoed) = result("core.echo", json!({"message": "a = \"b\" $HOME"}));
    assert_eq!(echoed, json!({"stdout": "a = \"b\" $HOME"}));
    let (_, slept) = result("core.sleep", json!({"seconds": 0}));
    assert_eq!(slept, json!({"stdout": "slept for 0"}));
    let (_, nothing) = result("core.noop", json!({}));
    assert_eq!(nothing, json!({"stdout": ""}));
    let request =
        json!({"url": "http://x/", "headers": {"Accept": "text/plain"}, "auth_token": "abc"});
    let (_, requested) = result("core.http_request", request);
    let expected = json!({"url": "http://x/", "method": "GET", "verify": true, "token_length": 3,
                          "headers": {"Accept": "text/plain"}});
    assert_eq!(requested, expected);
    let (id, context) = result("core.context", json!({}));
    let expected = json!({"action": "core.context", "execution": id, "pack": "core",
                          "server": scene.server().url(), "format": "json"});
    assert_eq!(context, expected);
}

#[test]
fn what_a_foreign_pack_wants_and_does_not_get_is_named() {
    let scene = scene();
    let packs = scene.api().try_get("/api/v1/packs").unwrap().expect(200);
    let core = packs["data"].as_array().and_then(|packs| packs.iter().find(|p| p["ref"] == "core"));
    let core = core.expect("the pack is listed");
    assert_eq!((&core["built_in"], &core["replaces_built_in"]), (&json!(false), &json!(true)));
    let notes = core["notes"].to_string();
    for named in [
        "replaces the built-in pack core",
        "without core.echo_node",
        "sensors",
        "triggers",
        "rules",
        "queues",
        "permission_sets",
        "conf_schema",
        "worker_selector",
        "action core.ask",
    ] {
        assert!(notes.contains(named), "{named} is not in {notes}");
    }
    let body = json!({"action_ref": "core.fail", "parameters": {}});
    assert_eq!(scene.api().post("/api/v1/executions", &body).status, 404, "only its own actions");
    let body = json!({"action_ref": "core.sleep", "parameters": {"seconds": 3601}});
    assert_eq!(scene.api().post("/api/v1/executions", &body).status, 422, "its own bounds hold");
}
