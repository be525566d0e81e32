//! Alert rules and dashboard: Prometheus takes them, and every metric that they name is on the
//! page of a live server.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Authority, Process, Run, Scene, ServerOptions, skip};
use regex::Regex;
use serde_json::{Value, json};

use super::{root, text, yaml};

const RULES: &str = "prometheus/outlast.rules.yaml";
const CONFIG: &str = "prometheus/prometheus.yaml";
const ADMIN: &str = "an-admin-token-for-tests";
const VIEWER: &str = "a-viewer-token-for-tests";

/// The expressions of the rules, and of the dashboard's panels.
fn expressions() -> Vec<String> {
    let all = |list: &Value| list.as_array().expect("a list").clone();
    let mut expressions = Vec::new();
    for group in all(&yaml(&text(RULES))["groups"]) {
        for rule in all(&group["rules"]) {
            expressions.push(rule["expr"].as_str().expect("an expression").to_owned());
        }
    }
    let dashboard: Value = serde_json::from_str(&text("grafana/outlast.json")).expect("JSON");
    for panel in all(&dashboard["panels"]) {
        for target in all(&panel["targets"]) {
            expressions.push(target["expr"].as_str().expect("an expression").to_owned());
        }
    }
    assert!(expressions.len() > 25, "{expressions:?}");
    expressions
}

/// Runs promtool; nothing where it is missing and that is allowed.
fn promtool(words: &[&str], file: &Path) -> Option<Output> {
    match Command::new("promtool").args(words).arg(file).output() {
        Ok(said) => Some(said),
        Err(error) => {
            skip::for_want_of(&format!("promtool (package prometheus): {error}"));
            None
        }
    }
}

/// Writes the sample configuration, with what it names, below `folder`.
fn configured(folder: &Path, change: impl FnOnce(String) -> String) -> PathBuf {
    std::fs::write(folder.join("outlast.rules.yaml"), text(RULES)).expect("the rules");
    std::fs::write(folder.join("outlast.token"), VIEWER).expect("a token");
    let ca = Authority::new(folder, "outlast-ca");
    std::fs::copy(ca.file(), folder.join("outlast-ca.pem")).expect("an authority");
    let path = folder.join("prometheus.yaml");
    std::fs::write(&path, change(text(CONFIG))).expect("the configuration");
    path
}

#[test]
fn prometheus_takes_the_sample_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = configured(folder.path(), |text| text);
    let Some(said) = promtool(&["check", "config"], &path) else { return };
    let faults = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{}{faults}", String::from_utf8_lossy(&said.stdout));
    std::fs::remove_file(folder.path().join("outlast.token")).expect("no token");
    let said = promtool(&["check", "config"], &path).expect("promtool");
    assert!(!said.status.success(), "it looks for the file that the sample names");
}

/// `/metrics` needs a token where there are any.
#[test]
fn prometheus_scrapes_a_server_that_has_tokens() {
    let tokens = json!([
        {"name": "root", "role": "admin", "token": ADMIN},
        {"name": "prometheus", "role": "viewer", "token": VIEWER},
    ]);
    let options = ServerOptions::default().set("server.tokens", tokens);
    let scene = Scene::with(options).acting_as(ADMIN);
    assert_eq!(Api::new(scene.api().url()).get("/metrics").status, 401);
    let folder = tempfile::tempdir().expect("a folder");
    let target = scene.api().url().trim_start_matches("http://").to_owned();
    let path = configured(folder.path(), |text| {
        let text = text.replace("outlast.example.com:8080", &target);
        text.replace(
            "scheme: https",
            "scheme: http\n    scrape_interval: 1s\n    scrape_timeout: 1s",
        )
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    drop(listener);
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", path.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    command.arg(format!("--web.listen-address={address}"));
    if let Err(error) = Command::new("prometheus").arg("--version").output() {
        return skip::for_want_of(&format!("prometheus (package prometheus): {error}"));
    }
    let mut prometheus = Process::spawn("prometheus", command, folder.path());
    let api = Api::new(&format!("http://{address}"));
    let seen = eventually("Prometheus has scraped the server", within(LEASE), || {
        let targets = api.try_get("/api/v1/targets").ok()?;
        let target: Value = serde_json::from_str(&targets.text).ok()?;
        let target = target["data"]["activeTargets"][0].clone();
        (target["health"] != "unknown" && target["health"].is_string()).then_some(target)
    });
    prometheus.kill();
    assert_eq!(seen["health"], "up", "{seen}\n{}", prometheus.log());
}

#[test]
fn prometheus_finds_no_fault_in_the_rules() {
    let rules = root().join("deploy").join(RULES);
    let Some(said) = promtool(&["check", "rules"], &rules) else { return };
    let stdout = String::from_utf8_lossy(&said.stdout);
    let faults = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && stdout.contains("19 rules found"), "{stdout}{faults}");
}

#[test]
fn every_metric_that_a_rule_or_a_panel_names_is_on_the_page_of_a_live_server() {
    let scene = Scene::start();
    let _worker = scene.worker("one");
    for run in [Run::short(), Run::action("core.fail")] {
        let job = scene.run(run.with("retry", json!({"max_attempts": 1})));
        let ended = |shown: &Value| shown["finished"].is_string();
        eventually("the job has ended", within(LEASE), || {
            scene.api().try_execution(&job).filter(ended)
        });
    }
    let expiring = json!({ "queue": "nobody", "expires_at": "+PT0.5S" });
    let expiring = scene.api().ojs_enqueue("late", &expiring);
    eventually("the job expires", within(LEASE), || {
        (scene.api().ojs_job(&expiring)["state"] == "discarded").then_some(())
    });
    let page = scene.api().get("/metrics").text;
    let of_line = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<String> = samples.clone().map(of_line).collect();
    let name = Regex::new(r"\b(?:outlast|ojs)_[a-z0-9_]+").expect("a pattern");
    for expression in expressions() {
        for found in name.find_iter(&expression) {
            let found = found.as_str();
            assert!(there.contains(found), "{found} is not on the page; {expression}");
        }
    }
    // No label carries an id.
    let id = Regex::new(r"[0-9a-f]{8}-[0-9a-f]{4}-").expect("a pattern");
    let with_id: Vec<&str> = samples.filter(|line| id.is_match(line)).collect();
    assert!(with_id.is_empty(), "{with_id:?}");
    let has = |line: &str| assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    has("ojs_queue_depth{queue=\"default\",state=\"completed\"} 1");
    has("ojs_job_failed_total{queue=\"default\",type=\"core.fail\"} 1");
    has("ojs_job_queue_time_seconds_count{queue=\"default\",type=\"ledger.run\"} 1");
    has("ojs_job_expired_total{queue=\"nobody\",type=\"late\"} 1");
    has("ojs_job_enqueue_duration_seconds_count{queue=\"nobody\"} 1");
    for check in ["due", "stranded"] {
        let none = format!("outlast_timeout_check_seconds_count{{check=\"{check}\"}} 0");
        assert!(!page.contains(&none) && page.contains(none.trim_end_matches('0')), "{page}");
    }
    has("outlast_store_up 1");
    has("outlast_workers_registered_total 1");
}
