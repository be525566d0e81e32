//! Drains, orders and cancels.

use std::time::Duration;

use outlast_e2e::ledger::Event;
use outlast_e2e::wait::{eventually, stays, within};
use rustix::process::Signal;
use serde_json::json;

use super::{LEASE, Language, NODE, PYTHON, Site};

/// What runs in its grace ends; what does not is stopped, ended with its worker, and handed back.
fn drains(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut patient = site.worker(Duration::from_secs(60));
    let jobs: Vec<String> = language.kinds.iter().map(|kind| site.job(kind, 2.0)).collect();
    for job in &jobs {
        site.has_started(job, 1);
    }
    patient.signal(Signal::TERM);
    let _line = patient.await_line("draining", within(LEASE));
    assert_eq!(patient.await_end(within(LEASE)), Some(0), "{}", patient.tail());
    for job in &jobs {
        site.ended_well(job, &["completed"]);
    }

    let mut hasty = site.worker(Duration::from_millis(200));
    let kinds = [language.kinds, &["deaf"]].concat();
    let jobs = site.running(&kinds);
    hasty.signal(Signal::TERM);
    assert_eq!(hasty.await_end(within(LEASE)), Some(0), "{}", hasty.tail());
    let lines = site.scene.ledger().read().len();
    for (job, kind) in jobs.iter().zip(&kinds) {
        site.was_handed_back(job);
        let asked = site.scene.ledger().read();
        let asked = asked.iter().any(|line| line.job == *job && line.event == Event::Term);
        assert_eq!(asked, *kind != "deaf", "{kind} is asked to end, and says so");
        let _cancelled = site.scene.api().delete(&format!("/ojs/v1/jobs/{job}")).expect(200);
    }
    stays("no handler has outlived its worker", Duration::from_millis(300), || {
        let more = site.scene.ledger().read().len() - lines;
        (more > 0).then(|| format!("{more} more lines"))
    });

    let mut doomed = site.worker(Duration::from_secs(60));
    let jobs = site.running(&language.kinds[..1]);
    doomed.signal_taken(Signal::TERM);
    let _line = doomed.await_line("draining", within(LEASE));
    doomed.signal(Signal::TERM);
    assert_eq!(doomed.await_end(within(LEASE)), Some(0), "{}", doomed.tail());
    site.was_handed_back(&jobs[0]);
}

#[test]
fn a_python_worker_drains_and_hands_back_what_does_not_end() {
    drains(PYTHON);
}

#[test]
fn a_node_worker_drains_and_hands_back_what_does_not_end() {
    drains(NODE);
}

/// Cancels reach running handlers; quiet, resume and drain are obeyed.
fn obeys(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut worker = site.worker(Duration::from_secs(60));
    let api = site.scene.api();
    for job in site.running(language.kinds) {
        let _cancelled = api.delete(&format!("/ojs/v1/jobs/{job}")).expect(200);
        eventually("the handler is stopped", within(LEASE), || {
            let lines = site.scene.ledger().read();
            lines.iter().any(|line| line.job == job && line.event == Event::Term).then_some(())
        });
        assert_eq!(api.ojs_job(&job)["state"], "cancelled");
    }
    let slow = json!({ "type": language.kinds[0], "args": [super::ENDLESS],
        "options": { "queue": "tests", "timeout_ms": 700, "retry": { "max_attempts": 1 } } });
    let slow = api.post("/ojs/v1/jobs", &slow).expect(201)["job"]["id"].clone();
    let slow = site.awaited(slow.as_str().expect("an id"), "discarded");
    assert_eq!(slow["error"]["type"], "timeout", "{slow}");

    let workers = api.get("/api/v1/workers?live=true").expect(200);
    let id = workers["data"][0]["id"].as_str().expect("a worker").to_owned();
    let order =
        |order: &str| api.post(&format!("/api/v1/workers/{id}/{order}"), &json!({})).expect(200);
    let _quiet = order("quiet");
    let _line = worker.await_line("ordered to take no jobs", within(LEASE));
    let job = site.job(language.kinds[0], 0.0);
    stays("a quiet worker takes no job", Duration::from_millis(700), || {
        let state = api.ojs_job(&job)["state"].clone();
        (state != "available").then(|| state.to_string())
    });
    let _resumed = order("resume");
    site.ended_well(&job, &["completed"]);
    let job = site.job(language.kinds[0], 3.0);
    site.has_started(&job, 1);
    let _drained = order("drain");
    let _line = worker.await_line("ordered to drain", within(LEASE));
    assert_eq!(worker.await_end(within(LEASE)), Some(0), "{}", worker.tail());
    site.ended_well(&job, &["completed"]);
}

#[test]
fn a_python_worker_obeys_cancels_time_limits_and_orders() {
    obeys(PYTHON);
}

#[test]
fn a_node_worker_obeys_cancels_time_limits_and_orders() {
    obeys(NODE);
}
