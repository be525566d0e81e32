//! `outlast bench`: what it counts is true, what it prints has its fixed shape, and nothing of
//! it is left. How fast anything was is nobody's business here.

use std::path::Path;
use std::time::Duration;

use outlast_cluster::{Database, Session};
use outlast_e2e::process::{Finished, run_to_end};
use outlast_e2e::wait::eventually;
use outlast_e2e::{Process, Scene, process_table};
use rustix::process::Signal;
use serde_json::{Value, json};

const RUN: Duration = Duration::from_secs(120);

/// Runs it, tiny, with a data folder in which nothing may be left.
fn bench(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let finished = run(arguments, folder.path());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_nothing_left(folder.path());
    serde_json::from_str(&finished.stdout).unwrap()
}

fn run(arguments: &[&str], folder: &Path) -> Finished {
    let mut all = vec!["bench"];
    all.extend_from_slice(arguments);
    all.extend(["--ceiling-seconds", "0.05", "-o", "json", "--data", folder.to_str().unwrap()]);
    run_to_end(&all, RUN)
}

fn assert_nothing_left(folder: &Path) {
    eventually("no process works in the folder", Duration::from_secs(20), || {
        children_in(folder).is_empty().then_some(())
    });
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the folder is empty again");
}

/// Processes that were started with a path in the folder.
fn children_in(folder: &Path) -> Vec<process_table::ProcessId> {
    process_table::with_argument_containing(&format!("{}/outlast-bench-", folder.display()))
}

fn result<'a>(report: &'a Value, name: &str) -> &'a Value {
    let results = report["results"].as_array().unwrap();
    let found = results.iter().find(|result| result["name"] == name);
    found.unwrap_or_else(|| panic!("no result {name} in {report}"))
}

fn names(report: &Value) -> Vec<&str> {
    let results = report["results"].as_array().unwrap();
    results.iter().map(|result| result["name"].as_str().unwrap()).collect()
}

/// Checks the fields that every result has, and returns how many rounds it had.
/// Those that are not named are null.
#[track_caller]
fn check_shape(result: &Value, numbers: &[&str]) -> usize {
    for field in ["per_second", "p50_ms", "p99_ms"] {
        let is_as_expected =
            if numbers.contains(&field) { result[field].is_f64() } else { result[field].is_null() };
        assert!(is_as_expected, "{field} of {result}");
    }
    let rounds = result["rounds"].as_array().unwrap();
    assert!(rounds.iter().all(|round| round.as_f64().unwrap() > 0.0), "{result}");
    rounds.len()
}

#[test]
fn rates_and_latency_are_measured_on_a_server_of_its_own() {
    let what = ["enqueue", "bulk", "drain", "latency"];
    let sizes = ["--rounds", "2", "--jobs", "40", "--batch", "10", "--producers", "3"];
    let report = bench(&[&what[..], &sizes[..], &["--embedded"]].concat());
    assert_eq!(names(&report), what);
    for (name, numbers) in [
        ("enqueue", &["per_second", "p50_ms", "p99_ms"][..]),
        ("bulk", &["per_second", "p50_ms", "p99_ms"]),
        ("drain", &["per_second"]),
        ("latency", &["p50_ms", "p99_ms"]),
    ] {
        let result = result(&report, name);
        assert_eq!(check_shape(result, numbers), 2, "{result}");
        assert_eq!(result["jobs"], 80, "{result}");
    }
    for ceiling in [
        "fsync_per_second",
        "sqlite_commits_per_second",
        "sqlite_rows_per_second",
        "http_per_second",
    ] {
        assert!(report["ceilings"][ceiling].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["server"].is_null() && report["filled"].is_null(), "{report}");
}

#[test]
fn on_postgres_every_figure_has_a_database_of_its_own_and_none_is_left() {
    let database = Database::new().expect("PostgreSQL");
    let what = ["enqueue", "drain"];
    let sizes = ["--rounds", "1", "--jobs", "40", "--producers", "3"];
    let report = bench(&[&what[..], &sizes[..], &["--database", &database.url]].concat());
    assert_eq!(names(&report), what);
    for ceiling in
        ["postgres_commits_per_second", "postgres_rows_per_second", "postgres_claims_per_second"]
    {
        assert!(report["ceilings"][ceiling].as_f64().unwrap() > 0.0, "{report}");
    }
    let session = Session::open(&database.url).expect("a session");
    let left = "select count(*) from pg_database where datname like 'outlast\\_bench\\_%'";
    assert_eq!(session.number(left).unwrap(), 0);
    let refused = run_to_end(&["bench", "restart", "--database", &database.url], RUN);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

#[test]
fn every_figure_of_a_filled_store_stands_beside_that_of_an_empty_one() {
    let what = ["enqueue", "bulk", "drain", "latency"];
    let sizes = ["--rounds", "1", "--jobs", "20", "--batch", "10"];
    let fill = ["--waiting", "30", "--unserved", "20", "--finished", "10"];
    let report = bench(&[&what[..], &sizes, &fill, &["--embedded"]].concat());
    assert_eq!(report["filled"], json!({"waiting": 30, "unserved": 20, "finished": 10}));
    assert_eq!(names(&report)[..4], what);
    for name in what {
        assert!(result(&report, name)["of_empty"].is_null(), "{report}");
        let filled = result(&report, &format!("{name}.filled"));
        assert_eq!(filled["jobs"], 20, "{filled}");
        assert!(filled["of_empty"].as_f64().unwrap() > 0.0, "{filled}");
    }
}

#[test]
fn a_named_server_has_run_every_job_that_was_counted_and_keeps_none_waiting() {
    let scene = Scene::start();
    let url = scene.server().url();
    let sizes = ["--jobs", "25", "--batch", "5", "--rounds", "2"];
    let fill = ["--waiting", "7", "--unserved", "5", "--finished", "3"];
    let report = bench(&[&["enqueue", "drain", "--server", &url], &sizes[..], &fill].concat());
    assert_eq!(report["server"], url);
    assert_eq!(names(&report), ["enqueue", "drain", "enqueue.filled", "drain.filled"]);
    let results = report["results"].as_array().unwrap().iter();
    let sent: u64 = results
        .map(|result| result["jobs"].as_u64().unwrap() + result["warm_up_jobs"].as_u64().unwrap())
        .sum();
    let queues = scene.api().get("/ojs/v1/queues").expect(200);
    let queues = queues["queues"].as_array().unwrap().iter();
    let names = queues.filter_map(|queue| queue["name"].as_str());
    let (mut completed, mut available) = (0, 0);
    for name in names.filter(|name| name.starts_with("bench-")) {
        let stats = scene.api().get(&format!("/ojs/v1/queues/{name}/stats")).expect(200);
        completed += stats["stats"]["completed"].as_u64().unwrap();
        available += stats["stats"]["available"].as_u64().unwrap();
    }
    assert_eq!((completed, available), (sent + 7 + 5 + 3, 0));
}

#[test]
fn memory_of_an_idle_server_and_an_idle_worker_is_measured() {
    let report = bench(&["memory", "--rounds", "1"]);
    let expected = ["memory.server", "memory.worker.engine", "memory.worker.guardian"];
    assert_eq!(names(&report), expected);
    for name in expected {
        let result = result(&report, name);
        assert_eq!(check_shape(result, &[]), 1);
        assert_eq!(result["rounds_unit"], "MiB");
    }
}

#[test]
fn restarts_are_measured_by_killing_an_engine_a_worker_and_a_server() {
    let report = bench(&["restart", "--rounds", "1"]);
    let expected = ["restart.engine", "restart.worker", "restart.server"];
    assert_eq!(names(&report), expected);
    for name in expected {
        let result = result(&report, name);
        assert_eq!(check_shape(result, &["p50_ms", "p99_ms"]), 1);
        assert_eq!((&result["kills"], &result["rounds_unit"]), (&1.into(), &"ms".into()));
    }
}

#[test]
fn a_bench_that_is_stopped_takes_its_server_and_its_store_along() {
    let folder = tempfile::tempdir().unwrap();
    let logs = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let arguments = ["bench", "enqueue", "--embedded", "--seconds", "100", "--data", data];
    let arguments = arguments.map(str::to_owned);
    let mut process = Process::start("bench", &arguments, logs.path());
    eventually("its server runs", Duration::from_secs(60), || {
        (!children_in(folder.path()).is_empty()).then_some(())
    });
    process.signal(Signal::TERM);
    assert_eq!(process.await_end(Duration::from_secs(30)), Some(1));
    assert_nothing_left(folder.path());
}

#[test]
fn limits_shares_and_unique_keys_are_measured_beside_plain_jobs() {
    let report = bench(&["limits", "--rounds", "2", "--jobs", "60", "--embedded"]);
    let cases = ["plain", "keyed", "open", "tight", "full", "fair", "unique"];
    let all = cases.iter().flat_map(|case| ["enqueue", "drain"].map(|what| (what, *case)));
    let expected: Vec<String> = all.map(|(what, case)| format!("limits.{what}.{case}")).collect();
    assert_eq!(names(&report), expected);
    for name in &expected {
        let result = result(&report, name);
        assert_eq!(check_shape(result, &["per_second"]), 2, "{result}");
        assert_eq!(result["of_plain"].is_f64(), !name.ends_with("plain"), "{result}");
    }
}

#[test]
fn chains_and_groups_are_measured_beside_plain_jobs() {
    let report = bench(&["workflows", "--rounds", "2", "--jobs", "30", "--embedded"]);
    let expected = ["workflows.plain", "workflows.chain", "workflows.group"];
    assert_eq!(names(&report), expected);
    for name in expected {
        let result = result(&report, name);
        assert_eq!(check_shape(result, &["per_second"]), 2, "{result}");
        assert_eq!(result["of_plain"].is_f64(), !name.ends_with("plain"), "{result}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], code: i32, named: &str| {
        let finished = run(arguments, folder.path());
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        assert!(finished.stderr.contains(named), "{named:?} is not in {}", finished.stderr);
    };
    let nowhere = "http://127.0.0.1:1";
    refused(&["restart", "--server", nowhere], 2, "--embedded");
    refused(&["memory", "--server", nowhere], 2, "--embedded");
    refused(&["enqueue", "--server", "ftp://127.0.0.1:1"], 2, "http://");
    refused(&["enqueue", "--server", nowhere], 6, "cannot be reached");
    refused(&["speed"], 2, "enqueue");
    refused(&["enqueue", "--rounds", "0"], 2, "--rounds");
    refused(&["enqueue", "--seconds", "never"], 2, "seconds above 0");
    assert_nothing_left(folder.path());
}
