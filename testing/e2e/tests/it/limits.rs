//! Limits: never one start more than they allow, and never a slot lost. What ran when is read from
//! the ledger that the jobs write, and from the times at which they were claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use outlast_e2e::process::{Finished, run_to_end};
use outlast_e2e::wait::{KILL_AFTER, LEASE, eventually, poll, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};

/// What many short jobs may take on a small, loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

fn embedded() -> Scene {
    Scene::start()
}

fn postgres() -> Scene {
    Scene::with(ServerOptions::default().postgres())
}

fn try_limits(scene: &Scene, words: &[&str]) -> Finished {
    let url = scene.server().url();
    run_to_end(&[&["limits"], words, &["--server", &url]].concat(), Duration::from_secs(30))
}

#[track_caller]
pub(crate) fn limits(scene: &Scene, words: &[&str]) -> String {
    let said = try_limits(scene, words);
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    said.stdout
}

#[track_caller]
fn shown(scene: &Scene, name: &str) -> Value {
    serde_json::from_str(&limits(scene, &["show", name, "-o", "json"])).expect("JSON")
}

fn of_tenant(run: Run, tenant: &str) -> Run {
    run.with("keys", json!({ "tenant": tenant }))
}

pub(crate) fn await_all(scene: &Scene, jobs: &[String]) {
    for job in jobs {
        scene.await_status(job, "completed", LONG);
    }
}

fn time(attempt: &Value, field: &str) -> Option<Timestamp> {
    attempt[field].as_str()?.parse().ok()
}

/// When each attempt of these jobs was claimed and ended, as the store's clock says.
fn attempts(scene: &Scene, jobs: &[String]) -> Vec<(Timestamp, Option<Timestamp>)> {
    let attempts = jobs.iter().flat_map(|job| scene.api().attempts(job));
    let mut times: Vec<_> = attempts
        .map(|attempt| (time(&attempt, "claimed").expect("a time"), time(&attempt, "finished")))
        .collect();
    times.sort_unstable();
    times
}

/// Waits until one of the jobs shows such a reason for waiting.
fn await_reason(scene: &Scene, jobs: &[String], is_it: impl Fn(&str) -> bool) {
    eventually("a job says why it waits", LONG, || {
        let mut reasons =
            jobs.iter().map(|job| scene.api().execution(job)["waiting_reason"].clone());
        reasons.any(|reason| reason.as_str().is_some_and(&is_it)).then_some(())
    });
}

fn each_tenant_has_its_own_limit(scene: &Scene) {
    limits(scene, &["set", "tenant", "--key", "tenant", "--concurrency", "1"]);
    let _workers = ["one", "two"].map(|name| scene.worker(name));
    let mut tenants: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for n in 0..16 {
        let tenant = ["42", "43"][n % 2];
        let job = scene.run(of_tenant(Run::holding(Duration::from_millis(150)), tenant));
        tenants.entry(tenant).or_default().push(job);
    }
    let all: Vec<String> = tenants.values().flatten().cloned().collect();
    await_reason(scene, &all, |reason| reason == "limit tenant:42 is 1/1 (held by 1 worker)");
    let held = shown(scene, "tenant")["in_use"].clone();
    for gate in held.as_array().expect("gates") {
        assert!(gate["in_flight"].as_u64().is_some_and(|count| count <= 1), "{held:#}");
    }
    await_all(scene, &all);
    for jobs in tenants.values() {
        assert_eq!(scene.ledger().most_at_a_time(|job| jobs.iter().any(|one| one == job)), 1);
    }
    assert_eq!(scene.ledger().most_at_a_time(|_| true), 2, "tenants do not wait for each other");
    assert_eq!(shown(scene, "tenant")["in_use"], json!([]));
    scene.judge();
}

#[test]
fn each_tenant_has_its_own_limit_on_sqlite() {
    each_tenant_has_its_own_limit(&embedded());
}

#[test]
fn each_tenant_has_its_own_limit_on_postgresql() {
    each_tenant_has_its_own_limit(&postgres());
}

fn rate_is_never_exceeded_in_any_window(scene: &Scene) {
    const STARTS: usize = 10;
    const PERIOD: i64 = 2_000;
    limits(scene, &["set", "slow", "--type", "ledger.run", "--rate", "10/2s"]);
    let _workers = ["one", "two"].map(|name| scene.worker(name));
    let jobs: Vec<String> = (0..25).map(|_| scene.run(Run::short())).collect();
    await_reason(scene, &jobs, |reason| reason.starts_with("rate slow opens in "));
    await_all(scene, &jobs);
    let claimed: Vec<i64> =
        attempts(scene, &jobs).iter().map(|(claimed, _)| claimed.as_millisecond()).collect();
    assert_eq!(claimed.len(), jobs.len());
    for window in claimed.windows(STARTS + 1) {
        assert!(window[STARTS] - window[0] >= PERIOD, "too many in one window: {window:?}");
    }
    scene.judge();
}

#[test]
fn rate_is_never_exceeded_in_any_window_on_sqlite() {
    rate_is_never_exceeded_in_any_window(&embedded());
}

#[test]
fn rate_is_never_exceeded_in_any_window_on_postgresql() {
    rate_is_never_exceeded_in_any_window(&postgres());
}

fn limit_changes_under_load(scene: &Scene) {
    limits(scene, &["set", "load", "--queue", "default", "--concurrency", "4"]);
    // All wait before the first one runs: on a slow machine they would else have run already.
    let run = || scene.run(Run::holding(Duration::from_millis(150)));
    let jobs: Vec<String> = (0..40).map(|_| run()).collect();
    let _workers = ["one", "two"].map(|name| scene.worker(name));
    scene.await_status(&jobs[3], "completed", LONG);
    limits(scene, &["set", "load", "--queue", "default", "--concurrency", "1"]);
    let lowered = time(&shown(scene, "load"), "set_at").expect("a time");
    scene.await_status(&jobs[14], "completed", LONG);
    limits(scene, &["remove", "load"]);
    await_all(scene, &jobs);
    let attempts = attempts(scene, &jobs);
    let removed = removal(scene);
    assert!(scene.ledger().most_at_a_time(|_| true) > 1);
    for (at, _) in attempts.iter().filter(|(at, _)| *at < removed) {
        let in_flight = attempts
            .iter()
            .filter(|(claimed, ended)| claimed <= at && ended.is_none_or(|ended| ended > *at))
            .count();
        let most = if *at > lowered { 1 } else { 4 };
        assert!(in_flight <= most, "{in_flight} in flight at {at}, lowered {lowered}");
    }
    // It acts at once on what is stored.
    let after = attempts.iter().filter(|(at, _)| *at >= removed).count();
    assert!(after > 4, "only {after} jobs were left when the limit was removed");
    scene.judge();
}

/// When the limit was removed, as the event log has it.
fn removal(scene: &Scene) -> Timestamp {
    let events = scene.api().get("/api/v1/events?stream=false&type=limit.removed").expect(200);
    time(&events["data"][0], "time").expect("an event")
}

#[test]
fn limit_changes_under_load_on_sqlite() {
    limit_changes_under_load(&embedded());
}

#[test]
fn limit_changes_under_load_on_postgresql() {
    limit_changes_under_load(&postgres());
}

#[test]
fn limit_holds_across_servers_and_a_server_that_dies_loses_no_slot() {
    let mut scene = postgres();
    let other = scene.another_server("other");
    let there = Api::new(&other.url());
    limits(&scene, &["set", "two", "--type", "ledger.run", "--concurrency", "2"]);
    let _near = scene.worker("near");
    let _far = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    let jobs: Vec<String> = (0..20)
        .map(|n| {
            let api = if n % 2 == 0 { scene.api() } else { &there };
            let run = Run::holding(Duration::from_millis(200));
            scene.try_run_at(api, &[], run).expect("an answer")
        })
        .collect();
    let last = &jobs[19];
    for api in [scene.api(), &there] {
        eventually("both servers name the limit", within(LEASE), || {
            let reason = api.execution(last)["waiting_reason"].clone();
            reason.as_str()?.starts_with("limit two is 2/2 (held by ").then_some(())
        });
    }
    scene.server_mut().kill();
    eventually("some are done", LONG, || {
        let done = jobs.iter().filter_map(|job| there.try_execution(job));
        (done.filter(|job| job["status"] == "completed").count() > 8).then_some(())
    });
    scene.server_mut().start_again();
    await_all(&scene, &jobs);
    assert_eq!(scene.ledger().most_at_a_time(|_| true), 2);
    let in_flight = shown(&scene, "two")["in_use"][0]["in_flight"].clone();
    assert_eq!(in_flight, 0);
    scene.judge();
}

#[test]
fn slot_of_a_dead_worker_is_free_when_its_lease_is_over() {
    let scene = embedded();
    limits(&scene, &["set", "one", "--type", "ledger.run", "--concurrency", "1"]);
    let mut first = scene.worker("first");
    let job = scene.run(Run::holding_once(Duration::from_secs(600)));
    scene.await_start(&job, 1, within(LEASE));
    let second = scene.run(Run::short());
    first.kill_whole();
    let _other = scene.worker("other");
    for job in [&job, &second] {
        scene.await_status(job, "completed", within(LEASE * 3));
    }
    assert_eq!(shown(&scene, "one")["in_use"][0]["in_flight"], 0);
    scene.judge();
}

#[test]
fn cancelled_attempt_keeps_its_slot_until_its_processes_have_ended() {
    let scene = embedded();
    limits(&scene, &["set", "one", "--type", "ledger.run", "--concurrency", "1"]);
    let _worker = scene.worker("worker");
    // It ends only when it is killed.
    let stubborn = Run::holding(Duration::from_secs(600)).parameter("on_term", json!("ignore"));
    let job = scene.run(stubborn);
    scene.await_start(&job, 1, within(LEASE));
    let next = scene.run(Run::short());
    assert!(scene.cancel(&job).is_success());
    scene.await_status(&job, "cancelled", within(LEASE));
    assert_eq!(shown(&scene, "one")["in_use"][0]["in_flight"], 1);
    scene.await_status(&next, "completed", within(KILL_AFTER));
    let (cancelled, next) = (scene.ledger().of(&job), scene.ledger().of(&next));
    // The ledger's clock counts in hundredths of a second.
    let last = cancelled[0].last.saturating_sub(Duration::from_millis(10));
    assert!(next[0].first >= last, "{cancelled:?}\n{next:?}");
    scene.judge();
}

#[test]
fn limit_of_the_configuration_wins_over_the_api_and_is_read_again() {
    let limit = |most: u32| json!([{"name": "tenant", "key": "tenant", "concurrency": most}]);
    let options = |most| ServerOptions::default().set("server.limits", limit(most));
    let scene = Scene::with(options(1));
    let refused = try_limits(&scene, &["set", "tenant", "--key", "tenant", "--concurrency", "9"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("limit tenant is set by the server's configuration"));
    assert_eq!(try_limits(&scene, &["remove", "tenant"]).code, Some(4));
    assert!(limits(&scene, &["list"]).contains("configuration"));
    options(2).write(&scene.folder().join("outlast.yaml"));
    scene.server().process().signal(rustix::process::Signal::HUP);
    let renewed =
        poll(within(LEASE), || (shown(&scene, "tenant")["concurrency"] == 2).then_some(()));
    assert!(renewed.is_some(), "{}", scene.server().process().log());
    eventually("the log says so", within(LEASE), || {
        let log = scene.server().process().log();
        (log.matches("limits of the configuration are in force").count() == 2).then_some(())
    });
    let reload = |options: ServerOptions| {
        options.write(&scene.folder().join("outlast.yaml"));
        scene.server().process().signal(rustix::process::Signal::HUP);
    };
    let reloads = || scene.server().process().log().matches("SIGHUP: tokens").count();
    let before = reloads();
    reload(ServerOptions::default());
    eventually("it is reloaded", within(LEASE), || (reloads() > before).then_some(()));
    let kept = shown(&scene, "tenant");
    assert_eq!((&kept["concurrency"], &kept["configured"]), (&json!(2), &json!(true)));
    reload(ServerOptions::default().set("server.limits", json!([])));
    eventually("the limit is gone", within(LEASE), || {
        (try_limits(&scene, &["show", "tenant"]).code == Some(3)).then_some(())
    });
}

#[test]
fn limits_end_with_the_codes_of_the_contract() {
    let scene = embedded();
    let cases: &[(&[&str], i32)] = &[
        (&["set", "tenant", "--key", "tenant", "--concurrency", "5", "--rate", "100/1m"], 0),
        (&["list"], 0),
        (&["show", "tenant"], 0),
        (&["show", "tenant", "--value", "42"], 0),
        (&["set", "tenant", "--key", "tenant"], 2),
        (&["set", "tenant", "--concurrency", "1"], 2),
        (&["set", "tenant", "--key", "tenant", "--rate", "fast"], 2),
        (&["set", "Tenant", "--key", "tenant", "--concurrency", "1"], 2),
        (&["remove", "tenant"], 0),
        (&["remove", "tenant"], 3),
        (&["show", "tenant"], 3),
    ];
    for (words, code) in cases {
        let said = try_limits(&scene, words);
        assert_eq!(said.code, Some(*code), "{words:?}: {}", said.stderr);
    }
    let wrong = try_limits(&scene, &["set", "a", "--key", "Tenant", "--concurrency", "1"]);
    assert!(wrong.stderr.contains("--key must have 1 to 64"), "{}", wrong.stderr);
}
