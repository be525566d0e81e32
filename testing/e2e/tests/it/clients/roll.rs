//! A rolling deploy of Python workers under load, with deaths in between.

use std::time::Duration;

use outlast_e2e::ledger::Trace;
use outlast_e2e::process_table::since_boot;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Process};
use rustix::process::Signal;
use serde_json::Value;

use super::{LEASE, PYTHON, Site};

/// How the workers are replaced.
struct Roll {
    jobs: usize,
    drained: usize,
    killed: usize,
    /// Between two replacements.
    pause: Duration,
}

#[test]
fn a_short_roll_of_python_workers_loses_nothing_and_charges_no_interruption() {
    roll(&Roll { jobs: 160, drained: 2, killed: 1, pause: Duration::from_millis(200) });
}

#[test]
#[ignore = "takes a minute: .ci/nightly runs it"]
fn a_roll_of_python_workers_loses_nothing_and_charges_no_interruption() {
    roll(&Roll { jobs: 500, drained: 5, killed: 3, pause: Duration::from_secs(1) });
}

fn roll(roll: &Roll) {
    let Some(site) = Site::of(PYTHON) else { return };
    let kinds = PYTHON.kinds;
    let jobs: Vec<String> = (0..roll.jobs).map(|n| site.job(kinds[n % kinds.len()], 1.0)).collect();
    // Jobs that are cut off by SIGTERM do not fit into the grace.
    let start = || site.worker(Duration::from_millis(100));
    let mut workers: Vec<Process> = vec![start(), start()];
    for turn in 0..roll.drained + roll.killed {
        std::thread::sleep(roll.pause);
        let mut old = workers.remove(0);
        busy(&site, roll.jobs);
        workers.push(start());
        // A death between drains, as long as there are deaths left.
        if turn % 2 == 1 && turn / 2 < roll.killed {
            old.kill();
        } else {
            old.signal(Signal::TERM);
            assert_eq!(old.await_end(within(LEASE)), Some(0), "{}", old.tail());
        }
    }
    let counted = judge(&site, &jobs);
    assert!(counted.interrupted > 0, "drains cut jobs off");
    assert!(counted.lost > 0, "deaths did");
    println!("{} jobs, {counted:?}", roll.jobs);
}

/// Waits until several jobs run, so that the next blow hits some.
#[track_caller]
fn busy(site: &Site, jobs: usize) {
    eventually("jobs run", within(LEASE * 2), || {
        // Reading takes a while: what is new is so before.
        let lately = since_boot().saturating_sub(Duration::from_millis(300));
        let traces = site.scene.ledger().traces();
        let ended = traces.values().filter(|attempts| attempts.iter().any(|one| one.ended));
        assert!(ended.count() < jobs, "the roll is over before its end");
        let running = traces.values().flatten().filter(|one| one.last > lately && !one.ended);
        (running.count() >= 4).then_some(())
    });
}

/// What the attempts came to.
#[derive(Debug, Default)]
struct Counted {
    completed: usize,
    interrupted: usize,
    lost: usize,
    requeued: usize,
}

/// Compares what the server says of each job with what its handlers wrote.
#[track_caller]
fn judge(site: &Site, jobs: &[String]) -> Counted {
    let api = site.scene.api();
    let mut counted = Counted::default();
    let mut wrong = Vec::new();
    for job in jobs {
        let _job = site.awaited(job, "completed");
    }
    let traces = site.scene.ledger().traces();
    for job in jobs {
        let attempts = api.attempts(job);
        let count = |outcome: &str| attempts.iter().filter(|one| one["outcome"] == outcome).count();
        let one = Counted {
            completed: count("completed"),
            interrupted: count("interrupted"),
            lost: count("lost"),
            requeued: count("requeued"),
        };
        let known = one.completed + one.interrupted + one.lost + one.requeued;
        if one.completed != 1 || known != attempts.len() {
            wrong.push(format!("{job}: it has these outcomes: {:?}", api.outcomes(job)));
        }
        wrong.extend(charges(api, job, &one));
        wrong.extend(ledger(&attempts, &traces[job]).map(|why| format!("{job}: {why}")));
        counted.completed += one.completed;
        counted.interrupted += one.interrupted;
        counted.lost += one.lost;
        counted.requeued += one.requeued;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    counted
}

/// Interruptions and losses are counted as what they are, and nothing as a failure.
fn charges(api: &Api, job: &str, one: &Counted) -> Option<String> {
    let shown = api.execution(job);
    let is_right = shown["interruptions"] == one.interrupted && shown["losses"] == one.lost;
    // As in the standard, a worker's death costs a retry, too.
    let failures = shown["failures"].as_u64().and_then(|count| usize::try_from(count).ok());
    let is_free = failures.is_some_and(|count| count <= one.lost);
    (!is_right || !is_free).then(|| format!("{job}: {one:?}, but {shown}"))
}

fn ledger(attempts: &[Value], traces: &[Trace]) -> Option<String> {
    let outcome = |epoch: u64| {
        let found = attempts.iter().find(|attempt| attempt["epoch"] == epoch);
        found.map(|attempt| attempt["outcome"].clone()).unwrap_or_default()
    };
    if let Some(trace) =
        traces.iter().find(|trace| trace.starts != 1 || outcome(trace.epoch).is_null())
    {
        return Some(format!("the server knows nothing of {trace:?}"));
    }
    let ended = traces.iter().find(|trace| outcome(trace.epoch) == "completed");
    if !ended.is_some_and(|trace| trace.ended) {
        return Some(format!("it is completed, and its handler did not end: {traces:?}"));
    }
    let overlap = traces.windows(2).find(|pair| pair[1].first < pair[0].last);
    overlap.map(|pair| format!("it ran twice at a time: {pair:?}"))
}
