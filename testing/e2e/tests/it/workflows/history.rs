//! What a workflow did stays with it: when its jobs are deleted, when its server starts again, and
//! when its store is moved.

use std::time::Duration;

use outlast_cluster::Database;
use outlast_e2e::process::run_to_end;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{ServerOptions, WorkerOptions};
use serde_json::{Value, json};

use super::{PATIENCE, SOON, Site, ids, revive, step_of};

/// How long finished jobs are kept; the shortest that a server takes.
const KEPT: Duration = Duration::from_secs(1);
const MANY: usize = 300;

#[test]
fn results_outlive_the_jobs_that_gave_them() {
    let kept = json!(KEPT.as_secs());
    let site = Site::with(ServerOptions::default().set("retention.finished", kept));
    let _worker = site.worker("one");
    let all = "${{ steps.many.result.map(it, it.value).join(',') + steps.first.result.value }}";
    let many = json!({"item": "${{ index }}", "value": "${{ item }}"});
    let id = site.begin(&[
        site.step("first", &json!({"value": "!"}), &json!({})),
        site.step("many", &many, &json!({"after": "first", "for_each": ["a", "b", "c"]})),
        site.step("slow", &json!({"until": site.path("go")}), &json!({"after": "many"})),
        site.step("next", &json!({"value": all}), &json!({"after": "slow"})),
    ]);
    site.await_begun(&id, "slow", 1);
    let shown = site.show(&id);
    let jobs = ["first", "many"].map(|name| ids(&step_of(&shown, name), "job_ids")).concat();
    assert_eq!(jobs.len(), 4);
    eventually("their jobs are deleted", within(KEPT * 20), || {
        let is_gone = |job: &String| site.scene.api().try_execution(job).is_none();
        jobs.iter().all(is_gone).then_some(())
    });
    site.make("go");
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(step_of(&ended, "next")["result"]["value"], "a,b,c!", "{ended:#}");
    // Then the workflow is deleted with all that is about it.
    eventually("it is deleted", within(KEPT * 20), || {
        let reply = site.scene.api().get(&format!("/api/v1/workflows/{id}"));
        (reply.status == 404).then_some(())
    });
    let tables = ["workflow", "workflow_step", "workflow_item", "workflow_end"];
    let rows = site.rows(&tables);
    assert!(rows.values().all(Vec::is_empty), "{rows:#?}");
}

/// A workflow whose failed job was deleted says so when it is retried, and does not hang.
#[test]
fn retry_says_that_what_it_needs_was_deleted() {
    let options = ServerOptions::default().set("retention.finished", json!(KEPT.as_secs()));
    let site = Site::with(options);
    let _worker = site.worker("one");
    let once = json!({"max_attempts": 1});
    let missing = json!({"needs": site.path("missing")});
    let id = site.begin(&[
        site.step("it", &missing, &json!({"retry": once})),
        site.step("slow", &json!({"until": site.path("go")}), &json!({})),
    ]);
    let failed = site.await_step(&id, "it", |step| step["status"] == "failed");
    let job = ids(&failed, "job_ids").remove(0);
    eventually("its job is deleted", within(KEPT * 20), || {
        site.scene.api().try_execution(&job).is_none().then_some(())
    });
    site.make("go");
    site.make("missing");
    assert_eq!(site.ended(&id)["status"], "failed");
    site.order(&id, "retry");
    let ended = site.ended(&id);
    let error = step_of(&ended, "it")["error"].clone();
    assert!(error.as_str().is_some_and(|why| why.contains("was deleted")), "{ended:#}");
}

/// Export and import of a store in which workflows run; they go on in the other store.
#[test]
fn workflows_go_on_in_another_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let there = Database::new().expect("PostgreSQL");
    let back = format!("sqlite:{}", path("back.db"));
    let mut site =
        Site::with(ServerOptions::default().database(&format!("sqlite:{}", path("a.db"))));
    let _worker = site.worker("one");
    let all = "${{ steps.many.result.map(it, it.value).join('') }}";
    let many = json!({"item": "${{ index }}", "value": "${{ item }}", "until": site.path("one")});
    let id = site.begin(&[
        site.step("first", &json!({}), &json!({})),
        site.step(
            "many",
            &many,
            &json!({
                "after": "first", "for_each": ["a", "b", "c", "d"], "concurrency": 2,
            }),
        ),
        site.step("slow", &json!({"until": site.path("two")}), &json!({"after": "many"})),
        site.step("next", &json!({"value": all}), &json!({"after": "slow"})),
    ]);
    site.await_begun(&id, "many", 2);
    move_to(&mut site, &there.url, &path("there"));
    site.make("one");
    site.await_begun(&id, "slow", 1);
    move_to(&mut site, &back, &path("again"));
    site.make("two");
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(step_of(&ended, "next")["result"]["value"], "abcd", "{ended:#}");
    let begun = ["first", "many", "slow", "next"].map(|step| site.begun(&id, step));
    assert_eq!(begun, [1, 4, 1, 1]);
    site.judge(&[id]);
}

fn move_to(site: &mut Site, database: &str, folder: &str) {
    assert_eq!(site.scene.server_mut().stop(), Some(0));
    let from = site.scene.server().database().to_owned();
    for words in [
        ["export", "--database", &from, "--out", folder].as_slice(),
        &["import", "--database", database, folder],
        &["import", "--verify", "--database", database, folder],
    ] {
        let said = run_to_end(words, PATIENCE);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    site.scene.server_mut().start_again_on(database);
    await_ready(site.scene.api(), within(SOON));
}

/// A list of many items of which some run at once, while the server is killed again and again: each
/// has one place in the list of results.
#[test]
fn many_items_survive_restarts_of_their_server() {
    let mut site = Site::start();
    let _worker = site.worker_with(WorkerOptions::named("one").concurrency(8));
    let items: Vec<String> = (0..MANY).map(|n| n.to_string()).collect();
    let many = json!({"item": "${{ index }}", "value": "${{ item }}"});
    let all = "${{ steps.many.result.map(it, it.value).join(',') }}";
    let id = site.begin(&[
        site.step("many", &many, &json!({"for_each": items, "concurrency": 20})),
        site.step("next", &json!({"value": all}), &json!({"after": "many"})),
    ]);
    for part in 1..=4 {
        site.await_begun(&id, "many", MANY * part / 8);
        site.scene.server_mut().kill();
        revive(site.scene.server_mut());
    }
    let ended = site.ended_within(&id, PATIENCE);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    let next = step_of(&ended, "next");
    assert_eq!(next["result"]["value"], json!(items.join(",")), "{next:#}");
    site.judge(&[id]);
}

/// Long results go from step to step as they are.
#[test]
fn long_results_are_passed_on() {
    const LONG: usize = 900_000;
    let site = Site::start();
    let _worker = site.worker("one");
    let sizes = "${{ steps.many.result.map(it, string(size(it.value))).join(',') }}";
    let long = json!({"item": "${{ index }}", "bytes": LONG});
    let id = site.begin(&[
        site.step("many", &long, &json!({"for_each": [0, 1, 2, 3]})),
        site.step("next", &json!({"value": sizes}), &json!({"after": "many"})),
    ]);
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "completed", "{:#}", without_results(ended.clone()));
    let expected = vec![LONG.to_string(); 4].join(",");
    assert_eq!(ended["result"]["value"], json!(expected), "{:#}", without_results(ended.clone()));
}

fn without_results(mut workflow: Value) -> Value {
    for step in workflow["steps"].as_array_mut().into_iter().flatten() {
        step["result"].take();
    }
    workflow
}
