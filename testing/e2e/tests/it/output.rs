//! F33: parameters that are never read, lines without an end, binary noise, floods.

use std::time::Duration;

use outlast_e2e::process_table::resident_bytes;
use outlast_e2e::wait::{KILL_AFTER, LEASE, eventually, within};
use outlast_e2e::{Proxy, Run, Scene, ServerOptions, Weather, WorkerOptions};
use serde_json::json;

const LOAD: usize = 1_000_000;
/// More than a worker may keep in memory for one attempt, by far.
const ENGINE_BYTES_MAX: u64 = 160 << 20;
/// What the server keeps of an attempt's output, with room for marks and replaced bytes.
const LOG_BYTES_MAX: usize = 4 * (10 << 20);

#[test]
fn a_megabyte_of_parameters_to_a_program_that_never_reads_does_no_harm() {
    let scene = Scene::start();
    let _worker = scene.worker("patient");
    let job = scene.run(Run::action("ledger.deaf").parameter("load", json!("x".repeat(LOAD))));
    scene.await_status(&job, "completed", within(LEASE));
    scene.judge();
}

#[test]
fn timeout_and_cancel_work_while_parameters_wait_to_be_read() {
    let scene = Scene::start();
    let _worker = scene.worker("patient");
    let deaf = || Run::action("ledger.deaf_long").parameter("load", json!("x".repeat(LOAD)));
    let limited =
        scene.run(deaf().with("timeout", json!(1)).with("retry", json!({"max_attempts": 1})));
    let cancelled = scene.run(deaf());
    scene.await_status(&cancelled, "running", within(LEASE));
    assert!(scene.cancel(&cancelled).is_success());
    scene.await_status(&limited, "timeout", within(Duration::from_secs(1) + KILL_AFTER));
    scene.judge();
}

#[test]
fn binary_output_beyond_the_limit_is_cut_and_the_cut_is_marked() {
    let scene = Scene::start();
    let _worker = scene.worker("patient");
    let job = scene.run(Run::action("ledger.flood").parameter("bytes", json!("33554432")));
    scene.await_status(&job, "completed", within(Duration::from_secs(5)));
    let log = eventually("the cut is marked in the log", within(Duration::from_secs(2)), || {
        let log = whole_log(&scene, &job);
        (log.contains("truncated") || log.contains("dropped")).then_some(log)
    });
    assert!(log.len() < LOG_BYTES_MAX, "{} bytes of log", log.len());
    scene.judge();
}

#[test]
fn an_endless_line_neither_fills_memory_nor_escapes_its_time_limit() {
    let scene = Scene::start();
    let worker = scene.worker("patient");
    let endless = || Run::action("ledger.flood").parameter("bytes", json!("endless"));
    let limited =
        scene.run(endless().with("timeout", json!(2)).with("retry", json!({"max_attempts": 1})));
    let mut peak = 0;
    eventually("its time limit ends it", within(Duration::from_secs(2) + KILL_AFTER), || {
        peak = peak.max(resident_bytes(worker.engine()).unwrap_or(0));
        (scene.api().try_execution(&limited)?["status"] == "timeout").then_some(())
    });
    assert!(peak > 0 && peak < ENGINE_BYTES_MAX, "the engine held {peak} bytes");
    let cancelled = scene.run(endless());
    scene.await_start(&cancelled, 1, within(LEASE));
    assert!(scene.cancel(&cancelled).is_success());
    scene.judge();
}

/// Runs a job that prints `bytes` behind a proxy, with the default times; returns what is kept.
#[track_caller]
fn printed_through(proxy_is: Weather, then: impl FnOnce(&Proxy), bytes: usize) -> String {
    const INTERVAL: Duration = Duration::from_secs(1);
    let options = ServerOptions::default()
        .set("worker.heartbeat_interval", json!(INTERVAL.as_secs_f64()))
        .set("worker.heartbeat_staleness_multiplier", json!(6))
        .set("worker.reconnect_window", json!(5));
    let scene = Scene::with(options);
    let proxy = Proxy::to(&scene.server().url());
    let options = WorkerOptions::named("far").through(&proxy.url()).heartbeat(INTERVAL);
    let _worker = scene.worker_with(&options);
    proxy.set(proxy_is);
    let flood = Run::action("ledger.flood")
        .parameter("bytes", json!(bytes.to_string()))
        .parameter("letter", json!("x"));
    let job = scene.run(flood);
    then(&proxy);
    scene.await_status(&job, "completed", within(Duration::from_secs(20)));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    let log = whole_log(&scene, &job);
    scene.judge();
    log
}

#[test]
fn output_behind_a_slow_link_is_whole() {
    const BYTES: usize = 4_000_000;
    let log = printed_through(Weather::Slow(400_000), |_| (), BYTES);
    assert_whole(&log, BYTES);
}

#[test]
fn output_behind_a_link_that_is_cut_again_and_again_is_whole() {
    const BYTES: usize = 4_000_000;
    let cuts = |proxy: &Proxy| {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(700));
            proxy.set(Weather::Cut);
            std::thread::sleep(Duration::from_millis(100));
            proxy.set(Weather::Slow(1_000_000));
        }
        proxy.set(Weather::Clear);
    };
    let log = printed_through(Weather::Slow(1_000_000), cuts, BYTES);
    assert_whole(&log, BYTES);
}

#[test]
fn output_behind_a_link_that_stands_still_is_whole() {
    const BYTES: usize = 4_000_000;
    let stall = |proxy: &Proxy| {
        std::thread::sleep(Duration::from_millis(300));
        proxy.set(Weather::Hold);
        // The session ends for want of answers, and the lease goes on.
        std::thread::sleep(Duration::from_secs(3));
        proxy.set(Weather::Clear);
    };
    let log = printed_through(Weather::Slow(2_000_000), stall, BYTES);
    assert_whole(&log, BYTES);
}

#[track_caller]
fn assert_whole(log: &str, bytes: usize) {
    let kept = log.chars().filter(|&letter| letter == 'x').count();
    let end: String = log.chars().skip(log.chars().count().saturating_sub(120)).collect();
    assert_eq!(kept, bytes, "the log ends with {end:?}");
}

/// Reads every page of an execution's log as one text.
fn whole_log(scene: &Scene, job: &str) -> String {
    let mut log = String::new();
    let mut after: Option<String> = None;
    loop {
        let cursor = after.as_ref().map_or_else(String::new, |cursor| format!("?after={cursor}"));
        let page = scene.api().get(&format!("/api/v1/executions/{job}/logs{cursor}")).expect(200);
        let entries = page["data"].as_array().cloned().unwrap_or_default();
        for entry in &entries {
            log.push_str(entry["text"].as_str().unwrap_or_default());
            // A mark may stand beside the text as well as in it.
            if entry["truncated"] == true || entry["dropped"].as_u64().is_some_and(|n| n > 0) {
                log.push_str("[truncated]");
            }
        }
        let next = &page["pagination"]["next_cursor"];
        let next =
            next.as_u64().map(|n| n.to_string()).or_else(|| next.as_str().map(str::to_owned));
        if entries.is_empty() || next.is_none() || next == after {
            return log;
        }
        after = next;
    }
}
