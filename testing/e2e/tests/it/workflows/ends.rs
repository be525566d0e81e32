//! However the job of a step ends, its workflow goes on and says why.

use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{ServerOptions, WorkerOptions};
use serde_json::{Value, json};

use super::{SOON, Site, ids, step_of};

/// Runs one attempt, and no other after a failure.
fn once() -> Value {
    json!({"max_attempts": 1})
}

fn quickly(attempts: u32) -> Value {
    json!({"max_attempts": attempts, "initial_interval": "50ms", "jitter": false})
}

impl Site {
    /// Begins a workflow of a step, one that runs if it succeeded, and one that runs if not.
    #[track_caller]
    fn begin_around(&self, step: Value) -> String {
        self.begin(&[
            step,
            self.step("next", &json!({}), &json!({"after": "it"})),
            self.step("alarm", &json!({}), &json!({"after": "it", "when": "failure"})),
        ])
    }

    /// Waits until such a workflow has failed, and says why the step did, of which the job ran or
    /// could have.
    #[track_caller]
    fn why_failed(&self, id: &str, status: &str) -> String {
        let why = self.why(id, status);
        self.judge(&[id.to_owned()]);
        why
    }

    /// Waits until such a workflow has failed, and says why there was no job for the step.
    #[track_caller]
    fn why_refused(&self, id: &str) -> String {
        let why = self.why(id, "failed");
        let rows = self.rows(&["workflow_end"]);
        let left = rows["workflow_end"].iter().any(|end| end["workflow"] == id);
        assert!(!left, "an end was never taken: {rows:#?}");
        why
    }

    #[track_caller]
    fn why(&self, id: &str, status: &str) -> String {
        let ended = self.ended(id);
        let it = step_of(&ended, "it");
        let others = ["next", "alarm"].map(|name| step_of(&ended, name)["status"].clone());
        assert_eq!(
            (&ended["status"], &it["status"]),
            (&json!("failed"), &json!(status)),
            "{ended:#}"
        );
        assert_eq!(others, ["skipped", "completed"], "{ended:#}");
        let error = it["error"].as_str().unwrap_or_else(|| panic!("no reason: {ended:#}"));
        assert_eq!(ended["error"], json!(format!("step `it`: {error}")), "{ended:#}");
        error.to_owned()
    }
}

#[test]
fn completed_job_lets_the_next_step_run() {
    let site = Site::start();
    let _worker = site.worker("one");
    let id = site.begin_around(site.step("it", &json!({"value": "x"}), &json!({})));
    let ended = site.ended(&id);
    let of = |name: &str| step_of(&ended, name)["status"].clone();
    assert_eq!(["it", "next", "alarm"].map(of), ["completed", "completed", "skipped"]);
    assert_eq!((&ended["status"], &ended["error"]), (&json!("completed"), &Value::Null));
    assert_eq!(step_of(&ended, "it")["result"], json!({"item": 0, "value": "x"}));
    site.judge(&[id]);
}

#[test]
fn failed_job_fails_its_workflow_once_its_attempts_are_used_up() {
    let site = Site::start();
    let _worker = site.worker("one");
    let missing = json!({"needs": site.path("missing")});
    let id = site.begin_around(site.step("it", &missing, &json!({"retry": quickly(3)})));
    let why = site.why_failed(&id, "failed");
    assert!(why.contains("exit code 7"), "{why}");
    assert_eq!(site.begun(&id, "it"), 3);
}

#[test]
fn job_that_takes_too_long_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let endless = json!({"until": site.path("never")});
    let keys = json!({"timeout": "1s", "retry": once()});
    let id = site.begin_around(site.step("it", &endless, &keys));
    let why = site.why_failed(&id, "timeout");
    assert!(why.contains("limit"), "{why}");
}

#[test]
fn job_that_a_user_cancels_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let endless = json!({"until": site.path("never")});
    let id = site.begin_around(site.step("it", &endless, &json!({})));
    site.await_begun(&id, "it", 1);
    let job = ids(&step_of(&site.show(&id), "it"), "job_ids").remove(0);
    assert!(site.scene.api().cancel(&job).is_success());
    let why = site.why_failed(&id, "cancelled");
    assert!(why.contains("cancelled"), "{why}");
}

#[test]
fn job_that_expires_before_it_runs_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let soon = jiff::Timestamp::now() + Duration::from_secs(2);
    let options = json!({"queue": "unserved", "expires_at": soon.to_string()});
    let id = site.begin_around(json!({"name": "it", "type": "plain", "options": options}));
    let why = site.why_failed(&id, "failed");
    assert!(why.contains("expired"), "{why}");
}

#[test]
fn job_that_a_full_queue_refuses_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let url = site.scene.server().url();
    let set = run_against(&url, &["queues", "set", "narrow", "--max-depth", "1"]);
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    let _fills = site.scene.api().ojs_enqueue("plain", &json!({"queue": "narrow"}));
    let full = |after: &Value| json!({"name": "it", "type": "plain", "options": {"queue": "narrow"}, "after": after});
    // At once, and when its turn comes.
    let first = site.begin_around(full(&json!([])));
    let later = site.begin(&[
        site.step("before", &json!({}), &json!({})),
        full(&json!("before")),
        site.step("next", &json!({}), &json!({"after": "it"})),
        site.step("alarm", &json!({}), &json!({"after": "it", "when": "failure"})),
    ]);
    for id in [first, later] {
        let why = site.why_refused(&id);
        assert!(why.contains("narrow") && why.contains("full"), "{why}");
    }
}

#[test]
fn job_that_is_refused_as_a_duplicate_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let unique = json!({"keys": ["type"], "on_conflict": "reject"});
    let options = json!({"queue": "unserved", "unique": unique});
    let _first = site.scene.api().ojs_enqueue("plain", &options);
    let id = site.begin_around(json!({"name": "it", "type": "plain", "options": options}));
    let why = site.why_refused(&id);
    assert!(why.contains("same unique key"), "{why}");
}

#[test]
fn job_that_may_run_once_and_loses_its_worker_fails_its_workflow() {
    let site = Site::start();
    let _steady = site.worker("steady");
    let options = WorkerOptions::named("doomed").flag("--queues", "doomed");
    let mut doomed = site.worker_with(options);
    let endless = json!({"until": site.path("never")});
    let keys = json!({"queue": "doomed", "retry": once()});
    let id = site.begin_around(site.step("it", &endless, &keys));
    site.await_begun(&id, "it", 1);
    doomed.kill_whole();
    let why = site.why_failed(&id, "abandoned");
    assert!(why.contains("lost"), "{why}");
}

#[test]
fn job_that_no_worker_can_run_fails_its_workflow() {
    let site = Site::with(ServerOptions::default().set("executor.scheduled_timeout", json!(2)));
    let _worker = site.worker("one");
    let id = site.begin_around(site.step("it", &json!({}), &json!({"requires": "moon=true"})));
    let why = site.why_failed(&id, "failed");
    assert!(why.contains("did not pick up") && why.contains("moon"), "{why}");
}

/// The letter goes; the workflow stays as it ended, and a retry says what it lacks.
#[test]
fn dead_letter_that_is_removed_leaves_its_workflow_failed() {
    let site = Site::start();
    let _worker = site.worker("one");
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let missing = json!({"needs": site.path("missing")});
    let id = site.begin_around(site.step("it", &missing, &json!({"retry": retry})));
    let why = site.why_failed(&id, "failed");
    let url = site.scene.server().url();
    let purged = run_against(&url, &["dead-letters", "purge", "--all"]);
    assert_eq!(purged.code, Some(0), "{}", purged.stderr);
    let ended = site.ended(&id);
    assert_eq!(ended["error"], json!(format!("step `it`: {why}")));
}

/// A server that has an action when a workflow begins may not have it when its turn comes.
#[test]
fn action_that_is_gone_when_its_turn_comes_fails_its_workflow() {
    let site = Site::start();
    let _worker = site.worker("one");
    let about = "runner_type: shell\nentry_point: passing.sh\n";
    super::action(&site.folder, "passing", about, "#!/bin/sh\necho here\n");
    site.read_packs();
    let until = json!({"until": site.path("go")});
    let id = site.begin(&[
        site.step("before", &until, &json!({})),
        json!({"name": "it", "action": "flow.passing", "after": "before"}),
        site.step("next", &json!({}), &json!({"after": "it"})),
        site.step("alarm", &json!({}), &json!({"after": "it", "when": "failure"})),
    ]);
    site.await_begun(&id, "before", 1);
    for file in ["passing.yaml", "passing.sh"] {
        let path = site.path("packs/flow/actions").join(file);
        std::fs::remove_file(path).expect("removing a file of a pack");
    }
    site.read_packs();
    site.make("go");
    let why = site.why_refused(&id);
    assert!(why.contains("flow.passing is not known"), "{why}");
    // It is back, and what it lacked is all that the retry runs.
    super::action(&site.folder, "passing", about, "#!/bin/sh\necho here\n");
    site.read_packs();
    let _again = site.worker("again");
    site.order(&id, "retry");
    eventually("it completes", within(SOON), || {
        (site.show(&id)["status"] == "completed").then_some(())
    });
    assert_eq!(site.begun(&id, "before"), 1);
}
