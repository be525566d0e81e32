//! Alert rules and dashboard: Prometheus takes them, and every metric that they name is on the
//! page of a live server.

use std::collections::BTreeSet;
use std::process::Command;

use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene};
use regex::Regex;
use serde_json::{Value, json};

use super::{root, text, yaml};

const RULES: &str = "prometheus/outlast.rules.yaml";

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

#[test]
fn prometheus_finds_no_fault_in_the_rules() {
    let rules = root().join("deploy").join(RULES);
    let said = match Command::new("promtool").args(["check", "rules"]).arg(&rules).output() {
        Ok(said) => said,
        Err(error) => {
            let allowed = std::env::var_os("OUTLAST_ALLOW_SKIP").is_some_and(|value| value == "1");
            eprintln!("NOT HERE: promtool (package prometheus), so the rules were not checked");
            assert!(allowed, "promtool: {error} (or allow this with OUTLAST_ALLOW_SKIP=1)");
            return;
        }
    };
    let stdout = String::from_utf8_lossy(&said.stdout);
    let faults = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && stdout.contains("15 rules found"), "{stdout}{faults}");
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
