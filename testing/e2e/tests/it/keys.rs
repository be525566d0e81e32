//! Keys of jobs through every door: what was asked for is shown again by each of them, after a
//! restart, a retry and a copy too.

use std::fs;
use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, within};
use outlast_e2e::{Scene, ServerOptions};
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(30);

/// A scene whose server and workers know `site.it`: its jobs have the key `tenant` of a parameter.
/// It fails.
fn scene() -> (Scene, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("packs/site");
    fs::create_dir_all(site.join("actions")).unwrap();
    fs::write(site.join("pack.yaml"), "ref: site\n").unwrap();
    let action = "runner_type: shell\nentry_point: it.sh\nretry: {max_attempts: 1}\n\
                  parameters: {tenant: {default: none}}\nkeys: {tenant: '{{tenant}}'}\n";
    fs::write(site.join("actions/it.yaml"), action).unwrap();
    fs::write(site.join("actions/it.sh"), "#!/bin/sh\nexit 1\n").unwrap();
    let packs = folder.path().join("packs").display().to_string();
    let scene = Scene::with(ServerOptions::default().argument("--packs").argument(&packs));
    (scene, packs, folder)
}

/// Runs a command and returns what it printed as JSON.
fn outlast(scene: &Scene, words: &[&str]) -> Value {
    let url = scene.server().url();
    let said = run_to_end(&[words, &["-o", "json", "--server", &url]].concat(), BOUND);
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

/// Checks that every view of a job shows these keys.
fn check(scene: &Scene, id: &str, keys: &Value) {
    assert_eq!(&scene.api().execution(id)["keys"], keys);
    let job = scene.api().ojs_job(id);
    assert_eq!((&job["options"]["keys"], &job["keys"]), (keys, keys));
    assert_eq!(&outlast(scene, &["jobs", "show", id])["keys"], keys);
    let list = scene.api().get(&format!("/api/v1/executions?id={id}")).expect(200);
    assert_eq!(&list["data"][0]["keys"], keys, "{list}");
}

fn id_of(job: &Value) -> String {
    job["id"].as_str().unwrap_or_else(|| panic!("no id: {job}")).to_owned()
}

#[test]
fn keys_of_every_door_are_shown_at_every_door_and_survive_a_killed_server() {
    let (mut scene, _packs, _folder) = scene();
    let mut jobs = Vec::new();
    let ran = outlast(&scene, &["run", "site.it", "-p", "tenant=acme", "--key", "account=a b"]);
    jobs.push((id_of(&ran), json!({"account": "a b", "tenant": "acme"})));
    let ran = outlast(&scene, &["run", "site.it", "-p", "tenant=acme", "--key", "tenant=42"]);
    jobs.push((id_of(&ran), json!({"tenant": "42"})));
    let ran = outlast(&scene, &["run", "mail", "--any-type", "--key", "tenant=42"]);
    jobs.push((id_of(&ran), json!({"tenant": "42"})));
    let body = json!({"action_ref": "core.noop", "keys": {"tenant": 42, "beta": true}});
    let new = scene.api().post("/executions", &body).expect(201);
    jobs.push((id_of(&new["data"]), json!({"beta": "true", "tenant": "42"})));
    let job = json!({"type": "mail", "args": [], "options": {"keys": {"tenant": "7"}}});
    let new = scene.api().post("/ojs/v1/jobs", &job).expect(201);
    jobs.push((id_of(&new["job"]), json!({"tenant": "7"})));
    let action = json!({"type": "site.it", "args": [{"tenant": "b"}], "queue": "later"});
    let batch = json!({"jobs": [job, action]});
    let new = scene.api().post("/ojs/v1/jobs/batch", &batch).expect(201);
    jobs.push((id_of(&new["jobs"][0]), json!({"tenant": "7"})));
    jobs.push((id_of(&new["jobs"][1]), json!({"tenant": "b"})));
    for (id, keys) in &jobs {
        check(&scene, id, keys);
    }
    scene.server_mut().kill();
    scene.server_mut().start_again();
    await_ready(scene.api(), BOUND);
    for (id, keys) in &jobs {
        check(&scene, id, keys);
    }
}

#[test]
fn keys_are_kept_by_a_retry_and_by_a_copy() {
    let (scene, packs, _folder) = scene();
    let options = outlast_e2e::WorkerOptions::named("w").flag("--packs", &packs);
    let _worker = scene.worker_with(&options);
    let keys = json!({"account": "a", "tenant": "acme"});
    let ran = outlast(&scene, &["run", "site.it", "-p", "tenant=acme", "--key", "account=a"]);
    let id = id_of(&ran);
    scene.await_status(&id, "failed", within(LEASE));
    check(&scene, &id, &keys);
    let copy = scene.api().post(&format!("/api/v1/executions/{id}/rerun"), &json!({})).expect(201);
    check(&scene, &id_of(&copy["data"]), &keys);
    let again = scene.api().post(&format!("/api/v1/executions/{id}/retry"), &json!({})).expect(200);
    assert_eq!((&again["data"]["keys"], &again["data"]["life"]), (&keys, &json!(2)));
    scene.await_status(&id, "failed", within(LEASE));
    check(&scene, &id, &keys);
}

#[test]
fn wrong_keys_are_refused_with_the_flag_that_gave_them() {
    let (scene, _packs, _folder) = scene();
    let url = scene.server().url();
    let refused = |words: &[&str]| {
        let said = run_to_end(&[words, &["--server", &url]].concat(), BOUND);
        assert_eq!((said.code, &*said.stdout), (Some(2), ""), "{words:?}: {}", said.stderr);
        said.stderr
    };
    let said = refused(&["run", "core.noop", "--key", "Tenant=42"]);
    assert!(said.contains("--key names a key `Tenant`; a name has 1 to 64"), "{said}");
    let said = refused(&["run", "mail", "--any-type", "--key", "Tenant=42"]);
    assert!(said.contains("--key names a key `Tenant`; a name has 1 to 64"), "{said}");
    let said = refused(&["run", "core.noop", "--key", "tenant"]);
    assert!(said.contains("--key is `tenant`, which is not NAME=VALUE"), "{said}");
    let long = format!("tenant={}", "v".repeat(257));
    let said = refused(&["run", "site.it", "-p", &long]);
    assert!(said.contains("makes key `tenant` 257 bytes long; at most 256 are taken"), "{said}");
}
