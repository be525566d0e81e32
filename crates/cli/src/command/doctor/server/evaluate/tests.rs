//! Each condition that is not well, and the verdict on it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::super::check::{Check, Verdict};
use super::{clocks, minor_distance, queues, store, versions, workers};

fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]
    let millis = (seconds * 1000.0) as i64;
    Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
}

fn verdict(checks: &[Check], name: &str) -> Verdict {
    checks.iter().find(|check| check.name == name).unwrap().verdict
}

#[test]
fn versions_may_be_one_minor_apart() {
    assert_eq!(minor_distance("1.2.3", "1.3.0"), Some(1));
    assert_eq!(minor_distance("1.2.3", "2.2.3"), None);
    let report = |version: &str| versions(&json!({"version": version})).verdict;
    assert_eq!(report(env!("CARGO_PKG_VERSION")), Verdict::Ok);
    assert_eq!(report("0.1.99"), Verdict::Warn);
    assert_eq!(report("0.9.0"), Verdict::Fail);
    assert_eq!(report("nonsense"), Verdict::Fail);
}

#[test]
fn clocks_are_compared_with_the_time_the_answer_took_left_out() {
    let skew = |wall: f64, store: f64| {
        let report =
            json!({"wall_time": at(wall).to_string(), "store_time": at(store).to_string()});
        let checks = clocks(&report, at(0.0), at(2.0));
        (verdict(&checks, "clock skew"), verdict(&checks, "store clock"))
    };
    assert_eq!(skew(1.0, 1.0), (Verdict::Ok, Verdict::Ok));
    assert_eq!(skew(7.0, 7.0), (Verdict::Warn, Verdict::Ok));
    assert_eq!(skew(-60.0, -60.0), (Verdict::Fail, Verdict::Ok));
    assert_eq!(skew(1.0, 90.0), (Verdict::Ok, Verdict::Fail));
}

fn told_of_store(durable: bool, median: f64, free: u64) -> Value {
    json!({"store": {"kind": "sqlite", "folder": "/d", "durability": "x", "durable": durable,
        "fsync": {"median_ms": median, "slowest_ms": median, "rounds": 5},
        "disk": {"free_bytes": free, "total_bytes": 1_000_000_000_000_u64}}})
}

#[test]
fn a_store_must_be_durable_and_have_room_and_a_quick_disk() {
    let checks = store(&told_of_store(true, 0.4, 500_000_000_000));
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
    let checks = store(&told_of_store(false, 80.0, 1_000_000));
    assert_eq!(verdict(&checks, "store durability"), Verdict::Fail);
    assert_eq!(verdict(&checks, "store fsync"), Verdict::Warn);
    assert_eq!(verdict(&checks, "store disk"), Verdict::Fail);
}

#[test]
fn a_folder_that_cannot_be_measured_fails() {
    let report = json!({"store": {"kind": "sqlite", "folder": "/d", "durability": "x",
        "durable": true, "fsync_error": "read-only file system"}});
    assert_eq!(verdict(&store(&report), "store fsync"), Verdict::Fail);
}

#[test]
fn work_that_nobody_can_run_fails_and_a_paused_queue_warns() {
    let class = |paused: bool| {
        json!({"queue": "mail", "type": "m.send", "paused": paused,
            "reason": "no eligible worker: 2 without runtime node"})
    };
    let stranded = queues(&json!({"untaken": [class(true), class(false)]}));
    assert_eq!(verdict(&stranded, "queues"), Verdict::Fail);
    let fact = &stranded.first().unwrap().fact;
    assert!(fact.contains("m.send in queue mail: no eligible worker: 2 without"), "{fact}");
    let paused = queues(&json!({"untaken": [class(true)]}));
    assert_eq!(verdict(&paused, "queues"), Verdict::Warn);
    assert_eq!(paused.first().unwrap().fix.as_deref(), Some("outlast queues resume mail"));
    let checks = queues(&json!({"untaken": []}));
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
}

#[test]
fn a_long_wait_and_a_claim_that_does_not_start_warn() {
    let report = json!({"start_timeout_seconds": 30.0,
        "queues": [{"name": "a", "available": 1, "oldest_waits_seconds": 2.0},
            {"name": "b", "available": 9, "oldest_waits_seconds": 7200.0}],
        "unstarted": [{"id": "j1", "worker": "w1", "claimed_seconds_ago": 61.0}]});
    let checks = queues(&report);
    assert_eq!(verdict(&checks, "oldest waiting"), Verdict::Warn);
    assert!(checks.get(1).unwrap().fact.contains("2h00m in queue b, one of 9"), "{checks:?}");
    assert_eq!(verdict(&checks, "unstarted"), Verdict::Warn);
}

fn worker(state: &str, age: f64, deaf: Option<f64>) -> Value {
    json!({"name": "w", "state": state, "holds_lease": state != "stopped",
        "heartbeat_age_seconds": age, "interval_seconds": 5.0, "lease_seconds": 15.0,
        "deaf_seconds": deaf})
}

#[test]
fn workers_that_are_silent_late_or_deaf_warn() {
    let cases = [
        (worker("running", 3.0, None), Verdict::Ok, "1 send heartbeats in time"),
        (worker("quiet", 3.0, None), Verdict::Ok, "0 take jobs"),
        (worker("suspect", 3.0, None), Verdict::Warn, "suspect"),
        (worker("running", 11.0, None), Verdict::Warn, "is late"),
        (worker("running", 1.0, Some(12.0)), Verdict::Warn, "sends heartbeats but"),
        (worker("stopped", 900.0, None), Verdict::Warn, "no worker"),
    ];
    for (worker, expected, words) in cases {
        let check = workers(&json!({"workers": [worker]})).remove(0);
        assert_eq!(check.verdict, expected, "{check:?}");
        assert!(check.fact.contains(words), "{check:?}");
    }
}
