//! A worker that is killed or frozen, and a server that goes away and comes back.

use std::time::Duration;

use outlast_e2e::process_table;
use outlast_e2e::wait::{eventually, within};
use rustix::process::Signal;

use super::{LEASE, Language, NODE, PYTHON, Site};

/// The handlers end with their worker, and their jobs run elsewhere when the lease is over.
fn killed(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut killed = site.worker(Duration::ZERO);
    let jobs: Vec<String> = language.kinds.iter().map(|kind| site.job(kind, 1.5)).collect();
    for job in &jobs {
        site.has_started(job, 1);
    }
    killed.kill();
    let _other = site.worker(Duration::ZERO);
    for job in &jobs {
        site.ended_well(job, &["lost", "completed"]);
        let traces = site.scene.ledger().of(job);
        assert!(traces[0].last <= traces[1].first, "it ran twice at a time: {traces:?}");
    }
}

#[test]
fn jobs_of_a_python_worker_that_is_killed_run_elsewhere() {
    killed(PYTHON);
}

#[test]
fn jobs_of_a_node_worker_that_is_killed_run_elsewhere() {
    killed(NODE);
}

/// What a worker did while it was frozen out counts for nothing, and it works on afterwards.
fn frozen(language: Language) {
    let Some(site) = Site::of(language) else { return };
    let mut frozen = site.worker(Duration::ZERO);
    let job = site.job("work", 3.0);
    site.has_started(&job, 1);
    frozen.signal(Signal::STOP);
    eventually("the worker is stopped", within(LEASE), || {
        process_table::is_stopped(frozen.pid()).then_some(())
    });
    let mut other = site.worker(Duration::ZERO);
    site.has_started(&job, 2);
    frozen.signal(Signal::CONT);
    let _line =
        frozen.await_line(&format!("job {job} is not this worker's any more"), within(LEASE));
    let _job = site.awaited(&job, "completed");
    let outcomes = site.scene.api().outcomes(&job);
    // The frozen worker's fetch may still have waited for a job, and been given this one.
    let (last, before) = outcomes.split_last().expect("attempts");
    assert_eq!(last, "completed", "{outcomes:?}");
    assert!(before.iter().all(|outcome| outcome == "lost"), "{outcomes:?}");
    other.signal(Signal::TERM);
    assert_eq!(other.await_end(within(LEASE)), Some(0));
    site.ended_well(&site.job("work", 0.1), &["completed"]);
}

#[test]
fn a_python_worker_that_thaws_ends_nothing_a_second_time() {
    frozen(PYTHON);
}

#[test]
fn a_node_worker_that_thaws_ends_nothing_a_second_time() {
    frozen(NODE);
}

/// A restart is not noticed by jobs; an outage that is too long stops them, at no charge.
fn outage(language: Language) {
    let Some(mut site) = Site::with(language, Duration::from_secs(60)) else { return };
    let mut worker = site.worker_with(Duration::ZERO, &["--lease", "60"]);
    let jobs: Vec<String> = language.kinds.iter().map(|kind| site.job(kind, 2.0)).collect();
    for job in &jobs {
        site.has_started(job, 1);
    }
    site.scene.server_mut().kill();
    site.scene.server_mut().start_again();
    for job in &jobs {
        site.ended_well(job, &["completed"]);
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(within(LEASE)), Some(0));

    let mut worker = site.worker_with(Duration::ZERO, &["--lease", "3"]);
    let jobs: Vec<String> = language.kinds.iter().map(|kind| site.job(kind, 5.0)).collect();
    for job in &jobs {
        site.has_started(job, 1);
    }
    site.scene.server_mut().kill();
    let _line = worker.await_line("no server: jobs are stopped", within(LEASE));
    site.scene.server_mut().start_again();
    for job in &jobs {
        let _job = site.awaited(job, "completed");
        let outcomes = site.scene.api().outcomes(job);
        assert_eq!(outcomes, ["interrupted", "completed"]);
    }
}

#[test]
fn a_python_worker_outlasts_restarts_and_outages_of_its_server() {
    outage(PYTHON);
}

#[test]
fn a_node_worker_outlasts_restarts_and_outages_of_its_server() {
    outage(NODE);
}

/// Heartbeats of Node.js have a thread of their own.
#[test]
fn a_handler_that_keeps_the_event_loop_busy_for_longer_than_the_lease_keeps_its_job() {
    let Some(site) = Site::with(NODE, Duration::from_secs(3)) else { return };
    let _worker = site.worker_with(Duration::ZERO, &["--lease", "3"]);
    site.ended_well(&site.job("busy", 5.0), &["completed"]);
}
