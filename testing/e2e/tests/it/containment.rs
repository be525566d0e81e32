//! F25: a job that tries to outlive itself.

use std::time::Duration;

use outlast_e2e::process_table::{children, kill_all, with_argument};
use outlast_e2e::wait::{KILL_AFTER, LEASE, eventually, within};
use outlast_e2e::{Run, Scene, ServerOptions, WorkerOptions};
use serde_json::json;

/// Ends what the product should have ended, even when the test fails.
struct Marker(String);

impl Drop for Marker {
    fn drop(&mut self) {
        let _left = kill_all(|| with_argument(&self.0));
    }
}

impl Marker {
    fn new(name: &str) -> Self {
        Self(format!("marker-{name}-{}", std::process::id()))
    }

    fn escapee(&self) -> Run {
        Run::action("ledger.escape").parameter("marker", json!(self.0))
    }

    fn await_gone(&self) {
        eventually("the escaped process is gone", within(KILL_AFTER), || {
            with_argument(&self.0).is_empty().then_some(())
        });
    }
}

#[test]
fn an_attempt_ends_with_its_main_process_and_takes_the_whole_tree_along() {
    let scene = Scene::start();
    let _worker = scene.worker_with(&WorkerOptions::named("warden").concurrency(1));
    let marker = Marker::new("end");
    let job = scene.run(marker.escapee());
    scene.await_status(&job, "completed", within(KILL_AFTER));
    // The end is reported only when the tree is empty.
    assert!(with_argument(&marker.0).is_empty(), "a process outlived its attempt");
    let next = scene.run(Run::short());
    scene.await_status(&next, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn a_cancelled_escape_artist_leaves_nothing_behind() {
    let scene = Scene::start();
    let _worker = scene.worker("warden");
    let marker = Marker::new("cancel");
    let job = scene.run(marker.escapee().parameter("ticks", json!(2400)));
    eventually("the escapee runs", within(LEASE), || {
        (!with_argument(&marker.0).is_empty()).then_some(())
    });
    assert!(scene.cancel(&job).is_success());
    scene.await_status(&job, "cancelled", within(LEASE));
    marker.await_gone();
    scene.judge();
}

#[test]
fn a_killed_worker_takes_its_escape_artists_along() {
    let scene = Scene::start();
    let mut doomed = scene.worker("doomed");
    let marker = Marker::new("kill");
    let job = scene.run(marker.escapee().parameter("ticks", json!(2400)));
    eventually("the escapee runs", within(LEASE), || {
        (!with_argument(&marker.0).is_empty()).then_some(())
    });
    doomed.kill_whole();
    marker.await_gone();
    assert!(scene.cancel(&job).is_success());
    scene.judge();
}

#[test]
fn an_attempt_over_its_time_limit_is_ended_with_its_tree() {
    let scene = Scene::start();
    let _worker = scene.worker("warden");
    let marker = Marker::new("timeout");
    let limited = marker
        .escapee()
        .parameter("ticks", json!(2400))
        .with("timeout", json!(1))
        .with("retry", json!({"max_attempts": 1}));
    let job = scene.run(limited);
    scene.await_status(&job, "timeout", within(Duration::from_secs(1) + KILL_AFTER));
    marker.await_gone();
    assert_eq!(scene.api().outcomes(&job), ["timeout"]);
    scene.judge();
}

/// What a job asked for was once not heard: only its action's own word counted (I9).
#[test]
fn a_job_that_forbids_overlap_waits_for_a_worker_that_can_prove_an_end() {
    let scene = Scene::with(ServerOptions::default().set("worker.containment", json!("subreaper")));
    let weak = scene.worker("weak");
    let shown = scene.api().try_worker(weak.id()).expect("it is registered");
    assert_eq!(shown["labels"]["containment"], "subreaper", "{shown}");
    let forbidding = scene.run(Run::short().with("overlap", json!("forbidden")));
    let stranded = Run::short().with("overlap", json!("forbidden"));
    let stranded = scene.run(stranded.with("scheduled_timeout", json!(1)));
    let allowing = scene.run(Run::short());
    scene.await_status(&allowing, "completed", within(LEASE));
    let failed = scene.await_status(&stranded, "failed", within(LEASE * 2));
    let lack = "no eligible worker: 1 without containment pidns, which \
                `overlap: forbidden` needs";
    assert_eq!(failed["result"]["reason"], lack, "{failed}");
    let waiting = scene.api().execution(&forbidding);
    assert_eq!(
        (&waiting["status"], &waiting["waiting_reason"]),
        (&json!("requested"), &json!(lack))
    );
    let config = scene.folder().join("outlast.yaml");
    let text = std::fs::read_to_string(&config).expect("the settings");
    std::fs::write(&config, text.replace("subreaper", "pidns")).expect("the settings");
    let strong = scene.worker("strong");
    let done = scene.await_status(&forbidding, "completed", within(LEASE));
    assert_eq!(done["worker"]["id"], strong.id(), "{done}");
    scene.judge();
}

/// C3: six of six trees lived on when shim, engine and guardian were killed at the same moment.
#[test]
fn a_cgroup_ends_with_its_worker_also_when_the_shims_are_killed_with_it() {
    const WORKERS: usize = 6;
    let scene = Scene::start();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let name = format!("group-{number}");
        let options = WorkerOptions::named(&name).concurrency(1).flag("--containment", "cgroup");
        workers.push(scene.worker_with(&options));
    }
    let marker = Marker::new("group");
    let run = || scene.run(marker.escapee().parameter("ticks", json!(2400)));
    let jobs: Vec<String> = (0..WORKERS).map(|_| run()).collect();
    let forbidden = scene.run(Run::short().with("overlap", json!("forbidden")));
    eventually("the escapees run", within(LEASE), || {
        (with_argument(&marker.0).len() >= WORKERS).then_some(())
    });
    for worker in &mut workers {
        worker.kill_whole_with(|engine| {
            let shims = children(engine)
                .into_iter()
                .flat_map(|shim| children(shim).into_iter().chain([shim]).collect::<Vec<_>>());
            shims.filter(|pid| jobs.iter().any(|job| with_argument(job).contains(pid))).collect()
        });
    }
    marker.await_gone();
    for job in &jobs {
        assert!(scene.cancel(job).is_success());
    }
    let _proving = scene.worker_with(&WorkerOptions::named("proving"));
    scene.await_status(&forbidden, "completed", within(LEASE));
    scene.judge();
}
