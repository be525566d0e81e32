//! Schedules by real servers that are killed, with jobs that really run. What fired is judged from the
//! store.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use outlast_cluster::Session;
use outlast_e2e::process::run_against;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Scene, ServerOptions, WorkerOptions};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

/// How long a server is away before its fires count as missed; longer than the ten seconds that an
/// ordinary fire may be late.
const OUTAGE: Duration = Duration::from_secs(13);
/// How long a schedule of each second is watched while servers die.
const WATCHED: Duration = Duration::from_secs(20);
/// How long a server lives there.
const ALIVE: Duration = Duration::from_secs(4);

fn set(api: &Api, name: &str, schedule: &Value) {
    let (path, body) = (format!("/api/v1/schedules/{name}"), schedule.to_string().into_bytes());
    let reply = api.try_send(Method::PUT, &path, "application/json", Some(body));
    let reply = reply.expect("an answer");
    assert!(reply.is_success(), "{reply:?}");
}

fn schedule(api: &Api, name: &str) -> Value {
    api.get(&format!("/api/v1/schedules/{name}")).expect(200)["data"].clone()
}

/// The executions of a schedule, newest first.
fn jobs_of(api: &Api, name: &str) -> Vec<Value> {
    let path = format!("/api/v1/executions?schedule={name}&limit=1000");
    api.get(&path).expect(200)["data"].as_array().expect("a list").clone()
}

fn seconds(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().expect("a time").parse().expect("a time");
    time.as_second()
}

#[test]
fn each_second_fires_once_while_two_servers_are_killed_in_turn() {
    kill_in_turn(WATCHED);
}

#[test]
#[ignore = "takes three minutes: .ci/nightly runs it"]
fn each_second_fires_once_while_two_servers_are_killed_in_turn_for_long() {
    kill_in_turn(Duration::from_secs(180));
}

/// Each second's fire exists once, whichever server lives, and those that came late say so.
fn kill_in_turn(watched: Duration) {
    let mut scene = Scene::with(ServerOptions::default().postgres());
    let mut other = scene.another_server("other");
    let tick = json!({"cron": "@every 1s", "type": "tick", "overlap": "allow", "catch_up": "all"});
    set(scene.api(), "tick", &tick);
    let begun = Instant::now();
    let mut first = true;
    while begun.elapsed() < watched {
        thread::sleep(ALIVE);
        if first {
            scene.server_mut().kill();
            scene.server_mut().start_again();
        } else {
            other.kill();
            other.start_again();
        }
        first = !first;
    }
    await_ready(scene.api(), within(LEASE));
    eventually("it fires", within(LEASE), || {
        let last = schedule(scene.api(), "tick")["last_fire"]["late_seconds"].as_f64()?;
        (last < 1.0).then_some(())
    });
    let session = Session::open(scene.server().database()).expect("a session");
    let fires = "(select extra::jsonb->'schedule'->>'fire_time' as at,
                         (extra::jsonb->'schedule'->>'late_seconds')::float as late
                  from outlast.job_row where extra like '%\"schedule\":{\"name\":\"tick\"%') f";
    let ask = |sql: &str| session.number(&format!("{sql} from {fires}")).expect("a number");
    let count = ask("select count(*)");
    assert!(count >= i64::try_from(watched.as_secs()).expect("few") - 1, "{count} fires");
    assert_eq!(ask("select count(*) - count(distinct at)"), 0, "a second fired twice");
    let span = "select extract(epoch from max(at::timestamptz) - min(at::timestamptz))::bigint + 1";
    assert_eq!(ask(&format!("{span} - count(*)")), 0, "a second is missing");
    let shown = schedule(scene.api(), "tick");
    assert_eq!(shown["skipped"], 0, "{shown:#}");
    // Two lived at most times, so few were late, and none by as long as a server is away.
    assert_eq!(ask("select count(*) filter (where late > 8)"), 0, "a fire came very late");
}

/// One server that is away: what it missed is made up for as each schedule says.
#[test]
fn outage_is_caught_up_with_as_the_schedule_says() {
    let mut scene = Scene::start();
    for catch_up in ["none", "one", "all"] {
        let tick = json!({
            "cron": "@every 1s", "type": "tick", "overlap": "allow", "catch_up": catch_up,
        });
        set(scene.api(), catch_up, &tick);
    }
    eventually("all have fired", within(LEASE), || {
        let has_fired = |name| schedule(scene.api(), name)["fired"].as_u64() > Some(0);
        ["none", "one", "all"].into_iter().all(has_fired).then_some(())
    });
    scene.server_mut().kill();
    thread::sleep(OUTAGE);
    scene.server_mut().start_again();
    let back = Instant::now();
    let caught_up = |name: &str| {
        eventually("it has caught up", within(LEASE), || {
            let shown = schedule(scene.api(), name);
            let last = shown["last_fire"]["late_seconds"].as_f64()?;
            (last < 1.0).then_some(shown)
        })
    };
    let [none, one, all] = ["none", "one", "all"].map(caught_up);
    assert!(back.elapsed() < within(LEASE));
    for (shown, name) in [(&none, "none"), (&one, "one"), (&all, "all")] {
        let jobs = jobs_of(scene.api(), name);
        let times: BTreeSet<i64> =
            jobs.iter().map(|job| seconds(&job["schedule"]["fire_time"])).collect();
        assert_eq!(times.len(), jobs.len(), "{name}: a second fired twice");
        let late = |job: &&Value| job["schedule"]["late_seconds"].as_f64() > Some(10.0);
        let late = jobs.iter().filter(late).count();
        let (first, last) = (times.first().expect("one"), times.last().expect("one"));
        let missing = usize::try_from(last - first + 1).expect("few") - times.len();
        if name == "all" {
            assert_eq!((missing, &shown["skipped"]), (0, &json!(0)), "{shown:#}");
            assert!(late > 0, "none was late by more than the outage's first seconds");
        } else {
            // Those that are ten seconds late or less are ordinary ones, and stand for the rest.
            assert_eq!(late, 0, "{name}");
            assert_eq!(shown["skipped"], json!(missing), "{shown:#}");
            assert!(missing > 0, "{name}");
            let reason = shown["last_skip"]["reason"].as_str().expect("a reason");
            assert!(reason.starts_with("missed while no server could fire it"), "{reason}");
        }
    }
}

/// Jobs that queue run one after another, on whatever worker, and each fire has its turn.
#[test]
fn queued_fires_never_run_side_by_side() {
    let scene = Scene::start();
    let _workers = ["one", "two"].map(|name| scene.worker(name));
    let nap = json!({
        "cron": "@every 1s", "action_ref": "core.sleep", "parameters": {"duration": 1.5},
        "overlap": "queue",
    });
    set(scene.api(), "nap", &nap);
    let done = || -> Vec<Value> {
        let jobs = jobs_of(scene.api(), "nap");
        jobs.into_iter().rev().filter(|job| job["status"] == "completed").collect()
    };
    let jobs = eventually("four have run", within(LEASE * 10), || {
        let done = done();
        (done.len() >= 4).then_some(done)
    });
    let waiting = jobs_of(scene.api(), "nap");
    let waiting = waiting.iter().find(|job| job["state"] == "pending").expect("one waits");
    assert_eq!(waiting["waiting_reason"], "waits for an earlier job of schedule nap");
    let time = |job: &Value, field: &str| -> jiff::Timestamp {
        job[field].as_str().expect("a time").parse().expect("a time")
    };
    for pair in jobs.windows(2) {
        assert!(time(&pair[1], "started") >= time(&pair[0], "finished"), "{pair:#?}");
        let fires = pair.iter().map(|job| seconds(&job["schedule"]["fire_time"]));
        let fires: Vec<i64> = fires.collect();
        assert_eq!(fires[1] - fires[0], 1, "a fire had no turn");
    }
}

/// What the configuration declares belongs to it, and a reload changes it.
#[test]
fn configuration_decides_about_its_schedules() {
    let declared = |cron: &str| {
        json!([{"name": "night", "cron": cron, "time_zone": "Europe/Vienna",
                "action_ref": "core.echo", "parameters": {"message": "good night"}}])
    };
    let options = |schedules: Value| ServerOptions::default().set("server.schedules", schedules);
    let scene = Scene::with(options(declared("0 2 * * *")));
    let url = scene.server().url();
    let shown = schedule(scene.api(), "night");
    assert_eq!((&shown["configured"], &shown["cron"]), (&json!(true), &json!("0 2 * * *")));
    let refused = run_against(&url, &["cron", "remove", "night"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("belongs to the configuration"), "{}", refused.stderr);
    let fired = run_against(&url, &["cron", "trigger", "night"]);
    assert_eq!(fired.code, Some(0), "{}", fired.stderr);
    options(declared("0 3 * * *")).write(&scene.folder().join("outlast.yaml"));
    scene.server().process().signal(Signal::HUP);
    eventually("the other times are in force", within(LEASE), || {
        (schedule(scene.api(), "night")["cron"] == "0 3 * * *").then_some(())
    });
    assert_eq!(schedule(scene.api(), "night")["fired"], 1);
    options(json!([])).write(&scene.folder().join("outlast.yaml"));
    scene.server().process().signal(Signal::HUP);
    eventually("it is gone", within(LEASE), || {
        let reply = scene.api().get("/api/v1/schedules/night");
        (!reply.is_success()).then_some(())
    });
    // What it stored stays.
    assert_eq!(jobs_of(scene.api(), "night").len(), 1);
}

/// From the command line to the job, and no further while it is paused.
#[test]
fn schedule_runs_its_action_at_the_time_and_says_how_late() {
    let scene = Scene::start();
    let _worker = scene.worker_with(&WorkerOptions::named("one"));
    let url = scene.server().url();
    let words = ["cron", "add", "tick", "@every 2s", "core.echo", "-p", "message=hi"];
    let added = run_against(&url, &words);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    let job = eventually("one has run", within(LEASE * 3), || {
        let jobs = jobs_of(scene.api(), "tick");
        jobs.into_iter().find(|job| job["status"] == "completed")
    });
    let schedule = &job["schedule"];
    assert_eq!(schedule["name"], "tick");
    assert!(schedule["late_seconds"].as_f64() < Some(1.0), "{schedule}");
    let id = job["id"].as_str().expect("an id");
    let shown = run_against(&url, &["jobs", "show", id]);
    assert!(shown.stdout.contains("schedule"), "{}", shown.stdout);
    let paused = run_against(&url, &["cron", "pause", "tick", "--reason", "audit"]);
    assert!(paused.stdout.contains("audit"), "{}", paused.stdout);
    let fired = schedule_count(scene.api());
    thread::sleep(Duration::from_secs(3));
    assert_eq!(schedule_count(scene.api()), fired);
}

fn schedule_count(api: &Api) -> Value {
    schedule(api, "tick")["fired"].clone()
}
