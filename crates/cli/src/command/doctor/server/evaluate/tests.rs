//! Each condition that is not well, and the verdict on it.

use jiff::Timestamp;
use outlast_core::finding::Rule;
use serde_json::{Value, json};

use super::super::super::check::{Check, Level};
use super::{clocks, found, minor_distance, queues, store, versions, workers};

fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]
    let millis = (seconds * 1000.0) as i64;
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn level(checks: &[Check], name: &str) -> Level {
    checks.iter().find(|check| check.name == name).unwrap().level
}

#[test]
fn versions_may_be_one_minor_apart() {
    assert_eq!(minor_distance("1.2.3", "1.3.0"), Some(1));
    assert_eq!(minor_distance("1.2.3", "2.2.3"), None);
    let report = |version: &str| versions(&json!({"version": version})).level;
    assert_eq!(report(env!("CARGO_PKG_VERSION")), Level::Ok);
    assert_eq!(report("0.1.99"), Level::Warn);
    assert_eq!(report("0.9.0"), Level::Fail);
    assert_eq!(report("nonsense"), Level::Fail);
}

#[test]
fn clocks_are_compared_with_the_time_the_answer_took_left_out() {
    let skew = |wall: f64, store: f64| {
        let report =
            json!({"wall_time": at(wall).to_string(), "store_time": at(store).to_string()});
        let checks = clocks(&report, at(0.0), at(2.0));
        (level(&checks, "clock skew"), level(&checks, "store clock"))
    };
    assert_eq!(skew(1.0, 1.0), (Level::Ok, Level::Ok));
    assert_eq!(skew(7.0, 7.0), (Level::Warn, Level::Ok));
    assert_eq!(skew(-60.0, -60.0), (Level::Fail, Level::Ok));
    assert_eq!(skew(1.0, 90.0), (Level::Ok, Level::Fail));
}

fn store_with(durable: bool, median: f64, free: u64) -> Value {
    json!({"store": {"kind": "sqlite", "folder": "/d", "durability": "x", "durable": durable,
        "fsync": {"median_ms": median, "slowest_ms": median, "rounds": 5},
        "disk": {"free_bytes": free, "total_bytes": 1_000_000_000_000_u64}}})
}

#[test]
fn a_store_must_be_durable_and_have_room_and_a_quick_disk() {
    let checks = store(&store_with(true, 0.4, 500_000_000_000));
    assert!(checks.iter().all(|check| check.level == Level::Ok), "{checks:?}");
    let checks = store(&store_with(false, 80.0, 1_000_000));
    assert_eq!(level(&checks, "store durability"), Level::Fail);
    assert_eq!(level(&checks, "store fsync"), Level::Warn);
    assert_eq!(level(&checks, "store disk"), Level::Fail);
}

#[test]
fn a_folder_that_cannot_be_measured_fails() {
    let report = json!({"store": {"kind": "sqlite", "folder": "/d", "durability": "x",
        "durable": true, "fsync_error": "read-only file system"}});
    assert_eq!(level(&store(&report), "store fsync"), Level::Fail);
}

fn finding(rule: Rule, what: &str, evidence: &str) -> Value {
    json!({"rule": rule.name(), "stands_still": rule.stands_still(), "what": what,
        "evidence": evidence, "fix": rule.fix(), "page": rule.page()})
}

/// All checks that follow from what the server finds.
fn judged(findings: &[Value]) -> Vec<Check> {
    let report = json!({"findings": findings,
        "queues": [{"name": "a", "available": 9, "oldest_waits_seconds": 7200.0}],
        "workers": [{"name": "w", "holds_lease": true, "state": "running"}]});
    let mut checks = queues(&report);
    checks.push(workers(&report));
    checks.extend(found(&report));
    checks
}

#[test]
fn work_that_nobody_can_run_fails_and_a_paused_queue_warns() {
    let reason = "no eligible worker: 2 without runtime node";
    let stranded =
        finding(Rule::NobodyEligible, "1 job of m.send in queue mail can run nowhere", reason);
    let paused =
        finding(Rule::QueuePaused, "queue mail is paused, and 1 job waits in it", "for long");
    let checks = judged(&[stranded, paused.clone()]);
    assert_eq!(level(&checks, "queues"), Level::Fail);
    let fact = &checks.first().unwrap().fact;
    assert!(fact.contains("m.send in queue mail can run nowhere: no eligible worker: 2"), "{fact}");
    assert!(fact.contains("queue mail is paused"), "{fact}");
    assert_eq!(level(&judged(&[paused]), "queues"), Level::Warn);
    let checks = judged(&[]);
    assert!(checks.iter().all(|check| check.level == Level::Ok), "{checks:?}");
}

#[test]
fn each_finding_is_in_the_words_of_the_server_in_a_check_of_its_own() {
    for rule in Rule::ALL.into_iter().filter(|rule| !rule.is_for_alerts_only()) {
        let checks = judged(&[finding(rule, "what is so", "why")]);
        let wrong: Vec<&Check> =
            checks.iter().filter(|check| !matches!(check.level, Level::Ok)).collect();
        let [check] = wrong[..] else { panic!("{}: {wrong:?}", rule.name()) };
        assert_eq!((&*check.fact, check.fix.as_deref()), ("what is so: why", Some(rule.fix())));
        let expected = if rule.stands_still() { Level::Fail } else { Level::Warn };
        assert_eq!(check.level, expected, "{}", rule.name());
    }
}

#[test]
fn server_of_an_earlier_build_tells_no_findings() {
    let checks = found(&json!({"queues": []}));
    assert!(checks.iter().all(|check| check.level == Level::Skipped), "{checks:?}");
}

#[test]
fn a_claim_that_does_not_start_warns() {
    let report = json!({"start_timeout_seconds": 30.0, "findings": [],
        "queues": [{"name": "a", "available": 1, "oldest_waits_seconds": 2.0},
            {"name": "b", "available": 9, "oldest_waits_seconds": 7200.0}],
        "unstarted": [{"id": "j1", "worker": "w1", "claimed_seconds_ago": 61.0}]});
    let checks = queues(&report);
    assert_eq!(level(&checks, "oldest waiting"), Level::Ok, "the server found nothing");
    assert!(checks.get(1).unwrap().fact.contains("2h00m in queue b, one of 9"), "{checks:?}");
    assert_eq!(level(&checks, "unstarted"), Level::Warn);
}

#[test]
fn isolated_jobs_that_wait_for_an_idle_worker_are_counted_and_the_first_is_named() {
    let of = |classes: Value| {
        queues(&json!({"isolated": classes})).into_iter().find(|it| it.name == "isolated").unwrap()
    };
    assert_eq!(of(json!([])).level, Level::Ok);
    let class = |count: u32, first: Option<&str>, waits: Option<f64>| {
        json!({"queue": "mail", "type": "m.send", "count": count, "first": first,
            "waits_seconds": waits})
    };
    let check = of(json!([class(1, Some("j1"), Some(60.0)), class(2, Some("j2"), Some(7200.0))]));
    assert_eq!(check.level, Level::Warn);
    assert!(check.fact.starts_with("3 jobs wait for a worker that holds nothing"), "{check:?}");
    assert!(check.fact.ends_with("the first for 2h00m: j2"), "{check:?}");
    assert!(check.fix.as_deref().unwrap_or_default().contains("queue mail"), "{check:?}");
    let check = of(json!([class(1, None, None)]));
    assert!(check.fact.starts_with("1 job waits") && !check.fact.contains("first"), "{check:?}");
}

#[test]
fn a_server_without_workers_warns() {
    let of = |workers: Value| super::workers(&json!({"findings": [], "workers": workers}));
    let held = json!({"name": "w", "holds_lease": true, "state": "quiet"});
    let check = of(json!([held]));
    assert_eq!((check.level, &*check.fact), (Level::Ok, "1 send heartbeats in time, 0 take jobs"));
    let gone = json!({"name": "w", "holds_lease": false, "state": "stopped"});
    let check = of(json!([gone]));
    assert_eq!((check.level, &*check.fact), (Level::Warn, "no worker is connected"));
}
