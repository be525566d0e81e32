//! Cancel, retry and replay: what was done stays done, and nothing is started that should not be.

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{eventually, within};
use serde_json::{Value, json};

use super::{SOON, Site, ids, step_of};

/// One attempt, and a dead letter after it.
fn letter() -> Value {
    json!({"max_attempts": 1, "on_exhaustion": "dead_letter"})
}

/// What is asked of one that fails until a file is there.
fn needs(site: &Site, file: &str) -> Value {
    json!({"needs": site.path(file)})
}

#[test]
fn cancelled_workflow_stops_what_runs_and_starts_nothing_more() {
    let site = Site::start();
    let _worker = site.worker("one");
    let endless = json!({"until": site.path("never"), "item": "${{ index }}"});
    let id = site.begin(&[
        site.step("first", &json!({}), &json!({})),
        site.step(
            "many",
            &endless,
            &json!({"after": "first", "for_each": [0, 1, 2, 3, 4], "concurrency": 2}),
        ),
        site.step("next", &json!({}), &json!({"after": "many"})),
        site.step("always", &json!({}), &json!({"after": "many", "when": "always"})),
    ]);
    site.await_begun(&id, "many", 2);
    site.order(&id, "cancel");
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "cancelled", "{ended:#}");
    let of = |name: &str| step_of(&ended, name)["status"].clone();
    assert_eq!(of("first"), "completed", "{ended:#}");
    for name in ["many", "next", "always"] {
        assert!(["cancelled", "skipped"].map(Value::from).contains(&of(name)), "{ended:#}");
    }
    // Two ran; the others never had a job.
    let rows = site.rows(&["workflow_item", "workflow_end"]);
    let cancelled = rows["workflow_item"].iter().filter(|row| row["state"] == "cancelled").count();
    let with_job = rows["workflow_item"].iter().filter(|row| !row["job"].is_null()).count();
    assert_eq!((cancelled, with_job, rows["workflow_end"].len()), (5, 3, 0), "{rows:#?}");
    for job in ids(&step_of(&ended, "many"), "job_ids") {
        assert_eq!(site.scene.api().execution(&job)["status"], "cancelled");
    }
    let begun = ["many", "next", "always"].map(|step| site.begun(&id, step));
    assert_eq!(begun, [2, 0, 0]);
}

#[test]
fn workflow_that_was_cancelled_goes_on_with_a_retry() {
    let site = Site::start();
    let _worker = site.worker("one");
    let held = json!({"until": site.path("go"), "item": "${{ index }}"});
    let id = site.begin(&[
        site.step("first", &json!({}), &json!({})),
        site.step(
            "many",
            &held,
            &json!({"after": "first", "for_each": [0, 1, 2, 3], "concurrency": 2}),
        ),
        site.step("next", &json!({}), &json!({"after": "many"})),
    ]);
    site.await_begun(&id, "many", 2);
    site.order(&id, "cancel");
    assert_eq!(site.ended(&id)["status"], "cancelled");
    site.make("go");
    site.order(&id, "retry");
    let ended = site.ended(&id);
    assert_eq!(
        (&ended["status"], &ended["retries"]),
        (&json!("completed"), &json!(1)),
        "{ended:#}"
    );
    let begun = ["first", "many", "next"].map(|step| site.begun(&id, step));
    assert_eq!(begun, [1, 6, 1]);
}

/// Only the items that failed run again, and the steps behind them.
#[test]
fn retry_keeps_what_was_done() {
    let site = Site::start();
    let _worker = site.worker("one");
    // Of four items, two lack something.
    let files = ["ledger", "missing", "ledger", "missing"].map(|file| site.path(file));
    let list = "${{ steps.many.result.map(it, string(it.item)).join(',') }}";
    let many = json!({"item": "${{ index }}", "needs": "${{ item }}"});
    let id = site.begin(&[
        site.step("first", &json!({}), &json!({})),
        site.step(
            "many",
            &many,
            &json!({"after": "first", "for_each": files, "retry": {"max_attempts": 1}}),
        ),
        site.step("beside", &json!({}), &json!({"after": "first"})),
        site.step("next", &json!({"value": list}), &json!({"after": ["many", "beside"]})),
        site.step("alarm", &json!({}), &json!({"after": "many", "when": "failure"})),
    ]);
    let failed = site.ended(&id);
    assert_eq!(failed["status"], "failed", "{failed:#}");
    let many = step_of(&failed, "many");
    assert_eq!((&many["completed"], &many["failed"]), (&json!(2), &json!(2)), "{many:#}");
    let before = ids(&many, "job_ids");
    // It fails again, for the same reason.
    site.order(&id, "retry");
    assert_eq!(site.ended(&id)["status"], "failed");
    site.make("missing");
    site.order(&id, "retry");
    let ended = site.ended(&id);
    assert_eq!(
        (&ended["status"], &ended["error"]),
        (&json!("completed"), &Value::Null),
        "{ended:#}"
    );
    assert_eq!(step_of(&ended, "next")["result"]["value"], "0,1,2,3", "{ended:#}");
    let begun = ["first", "many", "beside", "next"].map(|step| site.begun(&id, step));
    assert_eq!(begun, [1, 4 + 2 + 2, 1, 1]);
    let after = ids(&step_of(&ended, "many"), "job_ids");
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "what completed stays");
    assert!(after[1] != before[1] && after[3] != before[3], "{after:?}");
    let refused = site.scene.api().post(&format!("/api/v1/workflows/{id}/retry"), &json!({}));
    assert_eq!(refused.status, 409, "{}", refused.text);
}

#[test]
fn replayed_dead_letter_moves_its_workflow_on() {
    let site = Site::start();
    let _worker = site.worker("one");
    let id = site.begin(&[
        site.step("first", &json!({}), &json!({})),
        site.step("it", &needs(&site, "missing"), &json!({"after": "first", "retry": letter()})),
        site.step("next", &json!({}), &json!({"after": "it"})),
    ]);
    let failed = site.ended(&id);
    assert_eq!(failed["status"], "failed", "{failed:#}");
    let job = ids(&step_of(&failed, "it"), "job_ids").remove(0);
    site.make("missing");
    let url = site.scene.server().url();
    let replayed = run_against(&url, &["dead-letters", "retry", "--all"]);
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    let ended = eventually("it completes", within(SOON), || {
        let shown = site.show(&id);
        (shown["status"] == "completed").then_some(shown)
    });
    assert_eq!(ids(&step_of(&ended, "it"), "job_ids"), [job], "the same job runs again");
    assert_eq!(["first", "it", "next"].map(|step| site.begun(&id, step)), [1, 2, 1]);
    site.judge(&[id]);
}

/// The step behind ran because of the failure, and it stays as it ran.
#[test]
fn replay_of_a_letter_that_was_dealt_with_runs_what_was_skipped() {
    let site = Site::start();
    let _worker = site.worker("one");
    let id = site.begin(&[
        site.step("it", &needs(&site, "missing"), &json!({"retry": letter()})),
        site.step("alarm", &json!({}), &json!({"after": "it", "when": "failure"})),
        site.step("next", &json!({}), &json!({"after": "it"})),
        site.step("always", &json!({}), &json!({"after": ["alarm", "next"], "when": "always"})),
    ]);
    let failed = site.ended(&id);
    assert_eq!(failed["status"], "failed", "{failed:#}");
    let job = ids(&step_of(&failed, "it"), "job_ids").remove(0);
    site.make("missing");
    let url = site.scene.server().url();
    let replayed = run_against(&url, &["dead-letters", "retry", &job]);
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    let ended = eventually("it completes", within(SOON), || {
        let shown = site.show(&id);
        (shown["status"] == "completed").then_some(shown)
    });
    assert_eq!(step_of(&ended, "next")["status"], "completed", "{ended:#}");
    let begun = ["it", "alarm", "next", "always"].map(|step| site.begun(&id, step));
    assert_eq!(begun, [2, 1, 1, 1]);
}

/// Cancelled while its server dies: the next server stops what still runs.
#[test]
fn cancel_is_kept_by_a_server_that_starts_again() {
    let mut site = Site::start();
    let _worker = site.worker("one");
    let endless = json!({"until": site.path("never"), "item": "${{ index }}"});
    let items: Vec<u32> = (0..200).collect();
    let id = site.begin(&[
        site.step("many", &endless, &json!({"for_each": items})),
        site.step("next", &json!({}), &json!({"after": "many", "when": "always"})),
    ]);
    site.await_begun(&id, "many", 4);
    site.order(&id, "cancel");
    site.scene.server_mut().kill();
    super::revive(site.scene.server_mut());
    let ended = site.ended(&id);
    assert_eq!(ended["status"], "cancelled", "{ended:#}");
    let rows = site.rows(&["workflow_item"]);
    let cancelled = rows["workflow_item"].iter().filter(|row| row["state"] == "cancelled").count();
    assert_eq!(cancelled, 200);
    assert_eq!(site.begun(&id, "next"), 0);
    site.judge(&[id]);
}
