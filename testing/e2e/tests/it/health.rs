//! Workers that check their own health: a probe, disk space. An unhealthy one takes no work, says
//! why, and takes work again by itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::process_table;
use outlast_e2e::proxy::{Proxy, Weather};
use outlast_e2e::wait::{HEARTBEAT, LEASE, eventually, within};
use outlast_e2e::{Run, Scene, Worker, WorkerOptions};
use serde_json::{Value, json};

/// Starts a worker whose probe is this line for the shell.
fn probed(scene: &Scene, name: &str, line: &str, failures: u32) -> Worker {
    let set = |key: &str, value: &str| format!("OUTLAST_WORKER__PROBE__{key}={value}");
    let variables = [
        set("COMMAND", line),
        set("INTERVAL", "0.1"),
        set("TIMEOUT", "0.5"),
        set("FAILURES", &failures.to_string()),
        set("RECOVERIES", "2"),
    ];
    let program = ["env"].into_iter().chain(variables.iter().map(String::as_str));
    let program: Vec<&str> = program.collect();
    scene.worker_with(&WorkerOptions::named(name).below(&program))
}

fn await_health(scene: &Scene, worker: &Worker, status: &str) -> Value {
    eventually(&format!("it is {status}"), within(HEARTBEAT * 2), || {
        let shown = scene.api().try_worker(worker.id())?;
        (shown["health"]["status"] == status).then_some(shown)
    })
}

/// Waits until the engine that follows is healthy or not.
fn await_next(scene: &Scene, before: &Worker, status: &str) -> Value {
    eventually(&format!("the next engine is {status}"), within(LEASE), || {
        let listed = scene.api().get("/api/v1/workers").expect(200);
        let is_next = |it: &&Value| it["id"] != before.id() && it["health"]["status"] == status;
        listed["data"].as_array()?.iter().find(is_next).cloned()
    })
}

fn touch(path: &Path) {
    fs::write(path, "").unwrap();
}

#[test]
fn worker_whose_probe_fails_takes_no_jobs_until_it_succeeds_again() {
    let scene = Scene::start();
    let sick = scene.folder().join("sick");
    let line = format!(
        "if [ -e '{0}' ]; then echo checking; echo no licence >&2; exit 3; fi",
        sick.display()
    );
    let checked = probed(&scene, "checked", &line, 3);
    let first = scene.run(Run::short());
    scene.await_status(&first, "completed", within(LEASE));
    let running = scene.run(Run::holding(Duration::from_secs(3)));
    scene.await_start(&running, 1, within(LEASE));
    touch(&sick);
    let shown = await_health(&scene, &checked, "unhealthy");
    let reason = shown["health"]["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(reason, "probe failed 3 times: exited with code 3: no licence");
    assert!(shown["health"]["since"].is_string(), "{shown}");
    scene.await_worker(checked.id(), "quiet", within(HEARTBEAT));
    let waiting = scene.run(Run::short());
    scene.stays_waiting(&waiting, HEARTBEAT * 2);
    let why = scene.api().execution(&waiting)["waiting_reason"].to_string();
    assert!(why.contains("unhealthy"), "{why}");
    let metrics = scene.api().get("/metrics").text;
    assert!(metrics.contains("outlast_workers_unhealthy 1\n"), "{metrics}");
    let url = scene.server().url();
    let listed = run_against(&url, &["workers", "list"]);
    assert!(listed.stdout.contains("unhealthy"), "{}", listed.stdout);
    let found = run_against(&url, &["doctor"]).stdout;
    assert!(found.contains("checked is unhealthy and takes no jobs: probe failed"), "{found}");
    let shown = run_against(&url, &["workers", "show", "checked"]);
    assert!(shown.stdout.contains(&format!("ago: {reason}")), "{}", shown.stdout);
    // What runs is not ended for it.
    scene.await_status(&running, "completed", within(LEASE + Duration::from_secs(3)));
    fs::remove_file(&sick).unwrap();
    scene.await_status(&waiting, "completed", within(LEASE));
    let shown = await_health(&scene, &checked, "healthy");
    assert_eq!((&shown["state"], &shown["health"]["reason"]), (&json!("running"), &Value::Null));
    let events = scene
        .api()
        .get("/api/v1/events?stream=false&type=worker.*&limit=100")
        .expect(200)
        .to_string();
    for name in ["worker.unhealthy", "worker.healthy"] {
        assert_eq!(events.matches(&format!("\"{name}\"")).count(), 1, "{events}");
    }
    scene.judge();
}

#[test]
fn probe_that_hangs_is_killed_with_all_its_processes() {
    let scene = Scene::start();
    let pids = scene.folder().join("pids");
    let line = format!("sleep 600.5 & echo $! >> '{}'; trap '' TERM; wait", pids.display());
    let checked = probed(&scene, "hanging", &line, 1);
    let shown = await_health(&scene, &checked, "unhealthy");
    assert!(shown["health"]["reason"].to_string().contains("ran longer than 500ms"), "{shown}");
    eventually("only the probe under way is left", within(LEASE), || {
        let sleepers = process_table::with_argument("600.5").len();
        let begun = fs::read_to_string(&pids).unwrap_or_default().lines().count();
        (begun >= 3 && sleepers <= 1).then_some(())
    });
}

/// An order to a worker that was quiet already did not reach it once: it took jobs when it was well.
#[test]
fn order_to_an_unhealthy_worker_outlasts_its_recovery() {
    let scene = Scene::start();
    let sick = scene.folder().join("sick");
    touch(&sick);
    let checked = probed(&scene, "both", &format!("[ ! -e '{}' ]", sick.display()), 1);
    let url = scene.server().url();
    for (quiet, resume) in [
        (&["workers", "quiet", "both"][..], &["workers", "resume", "both"][..]),
        (
            &["workers", "quiet", "--selector", "!spot"],
            &["workers", "resume", "--selector", "!spot"],
        ),
    ] {
        touch(&sick);
        await_health(&scene, &checked, "unhealthy");
        assert_eq!(run_against(&url, quiet).code, Some(0));
        fs::remove_file(&sick).unwrap();
        await_health(&scene, &checked, "healthy");
        let quiet = scene.api().try_worker(checked.id()).unwrap();
        assert_eq!(quiet["state"], "quiet", "{quiet}");
        assert_eq!(run_against(&url, resume).code, Some(0));
        scene.await_worker(checked.id(), "running", within(HEARTBEAT));
    }
}

/// A small file system of the worker's own, in a mount namespace that goes with it.
#[test]
fn worker_without_disk_space_takes_no_jobs() {
    let scene = Scene::start();
    let work = scene.folder().join("small");
    fs::create_dir(&work).unwrap();
    let path = work.display().to_string();
    let mount = "mount -t tmpfs -o size=8m tmpfs \"$0\" && exec \"$@\"";
    let options = WorkerOptions::named("full").flag("--work-dir", &path);
    let full = scene.worker_with(&options.below(&["unshare", "--mount", "sh", "-c", mount, &path]));
    let seen = PathBuf::from(format!("/proc/{}/root", full.engine()));
    let filler = seen.join(work.strip_prefix("/").unwrap()).join("filler");
    fs::write(&filler, vec![0_u8; 7_600_000]).unwrap();
    let shown = await_health(&scene, &full, "unhealthy");
    let reason = shown["health"]["reason"].to_string();
    assert!(reason.contains("free, and needs 819 KiB"), "{reason}");
    fs::remove_file(&filler).unwrap();
    await_health(&scene, &full, "healthy");
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
}

/// It was ready for as long as no server answered.
#[test]
fn worker_that_is_cut_off_is_not_ready_once_its_lease_is_over() {
    let scene = Scene::start();
    let proxy = Proxy::to(&scene.server().url());
    let away = scene.worker_with(&WorkerOptions::named("cut").through(&proxy.url()));
    assert_eq!(away.health(&["--ready"], within(LEASE)).code, Some(0));
    proxy.set(Weather::Cut);
    eventually("it is not ready", within(LEASE * 2), || {
        let said = away.health(&["--ready"], within(LEASE));
        (said.code == Some(1) && said.stderr.contains("cut off")).then_some(())
    });
    // It lives, and its loop turns.
    assert_eq!(away.health(&[], within(LEASE)).code, Some(0));
    proxy.set(Weather::Clear);
    eventually("it is ready again", within(LEASE * 2), || {
        (away.health(&["--ready"], within(LEASE)).code == Some(0)).then_some(())
    });
}

/// A worker whose engine had been restarted took jobs until its probe had failed as often as before.
#[test]
fn worker_that_is_not_well_takes_no_job_from_its_start_and_after_its_engine_was_killed() {
    let scene = Scene::start();
    let sick = scene.folder().join("sick");
    touch(&sick);
    let checked = probed(&scene, "sick", &format!("[ ! -e '{}' ]", sick.display()), 3);
    let waiting = scene.run(Run::short());
    let shown = await_health(&scene, &checked, "unhealthy");
    assert_eq!(shown["state"], "quiet", "{shown}");
    checked.kill_engine();
    await_next(&scene, &checked, "unhealthy");
    assert_eq!(scene.api().attempts(&waiting).len(), 0);
    fs::remove_file(&sick).unwrap();
    scene.await_status(&waiting, "completed", within(LEASE));
    scene.judge();
}

/// The recovery of an engine that had been restarted lifted an operator's order.
#[test]
fn order_outlasts_the_recovery_of_the_engine_that_follows() {
    let scene = Scene::start();
    let sick = scene.folder().join("sick");
    let checked = probed(&scene, "both", &format!("[ ! -e '{}' ]", sick.display()), 1);
    let url = scene.server().url();
    assert_eq!(run_against(&url, &["workers", "quiet", "both"]).code, Some(0));
    touch(&sick);
    checked.kill_engine();
    await_next(&scene, &checked, "unhealthy");
    fs::remove_file(&sick).unwrap();
    assert_eq!(await_next(&scene, &checked, "healthy")["state"], "quiet");
    let waiting = scene.run(Run::short());
    scene.stays_waiting(&waiting, HEARTBEAT * 2);
    assert_eq!(run_against(&url, &["workers", "resume", "both"]).code, Some(0));
    scene.await_status(&waiting, "completed", within(LEASE));
    scene.judge();
}
