//! A server that is killed between the end of a job and the step that follows from it.

use outlast_cluster::Session;
use outlast_e2e::ServerOptions;
use outlast_e2e::wait::{eventually, within};
use serde_json::{Value, json};

use super::races::{end, take};
use super::{SOON, Site, revive, step_of};

/// A lock keeps all from writing the row of a workflow, while ends are noted as ever: so the server is killed
/// exactly in between.
#[test]
fn step_behind_an_end_runs_once_though_the_server_was_killed_in_between() {
    let mut site = Site::with(ServerOptions::default().postgres());
    let of_type = |name: &str, after: &Value| json!({"name": name, "type": "plain", "after": after, "options": {"queue": name}});
    let id = site.begin(&[of_type("first", &json!([])), of_type("next", &json!(["first"]))]);
    let job = take(site.scene.api(), "first");
    let session = Session::open(site.scene.server().database()).expect("a session");
    session.run("BEGIN; LOCK TABLE workflow IN EXCLUSIVE MODE").expect("the lock");

    // The answer waits for the workflow for a moment only.
    end(site.scene.api(), &job);
    let noted = session.number("SELECT count(*) FROM workflow_end").expect("a number");
    let following = session.number("SELECT count(*) FROM job_row").expect("a number");
    assert_eq!((noted, following), (1, 1), "the end is stored, and nothing follows from it");
    let waiting =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'workflow'::regclass";
    eventually("the next step waits for the lock", SOON, || {
        (session.number(waiting).expect("a number") > 0).then_some(())
    });
    site.scene.server_mut().kill();
    session.run("ROLLBACK").expect("the lock is gone");
    revive(site.scene.server_mut());

    let next = take(site.scene.api(), "next");
    end(site.scene.api(), &next);
    let ended = site.ended_within(&id, within(SOON));
    assert_eq!(ended["status"], "completed", "{ended:#}");
    assert_eq!(step_of(&ended, "next")["job_ids"], json!([next]), "{ended:#}");
    let rows = site.rows(&["job_row", "finished", "workflow_end"]);
    let counts = [rows["job_row"].len(), rows["finished"].len(), rows["workflow_end"].len()];
    assert_eq!(counts, [2, 2, 0], "{rows:#?}");
}
