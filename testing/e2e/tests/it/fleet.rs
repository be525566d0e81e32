//! F24, F28, F29, F32: what happens to many workers at once, to orders that miss their worker,
//! and to workers beside noisy clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use outlast_e2e::wait::{HEARTBEAT, LEASE, RECONNECT, SWEEP, within};
use outlast_e2e::{Proxy, Run, Scene, ServerOptions, Weather, Worker, WorkerOptions};
use serde_json::json;

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn a_rolling_restart_under_load_fails_nothing_and_runs_no_short_job_twice() {
    let scene = Scene::start();
    let mut fleet: Vec<Worker> = (0..3).map(|n| scene.worker(&format!("old-{n}"))).collect();
    let mut jobs = Vec::new();
    for n in 0..3 {
        jobs.extend((0..20).map(|_| scene.run(Run::holding(SHORT))));
        let new = scene.worker(&format!("new-{n}"));
        let mut old = fleet.remove(0);
        fleet.push(new);
        old.terminate();
        assert_eq!(old.await_end(within(LEASE)), Some(0), "{}", old.log());
    }
    for job in &jobs {
        let done = scene.await_status(job, "completed", within(LEASE));
        assert_eq!((&done["failures"], &done["interruptions"]), (&json!(0), &json!(0)), "{done}");
        assert_eq!(scene.ledger().of(job).len(), 1, "{done}");
    }
    scene.judge();
}

#[test]
fn jobs_of_a_fleet_that_dies_together_run_again_and_none_is_blamed() {
    const WORKERS: usize = 6;
    // One loss alone makes a suspect, unless most workers went with it: long enough for all of
    // them to be killed before the first is given up.
    let window = RECONNECT * 4;
    let options = ServerOptions::default()
        .set("executor.loss_budget", json!(1))
        .set("worker.heartbeat_staleness_multiplier", json!(15))
        .set("worker.reconnect_window", json!(window.as_secs_f64()));
    let scene = Scene::with(options);
    let alone = |n| WorkerOptions::named(&format!("doomed-{n}")).concurrency(1);
    let mut fleet: Vec<Worker> = (0..WORKERS).map(|n| scene.worker_with(&alone(n))).collect();
    let held: Vec<String> =
        fleet.iter().map(|_| scene.run(Run::holding_once(Duration::from_secs(120)))).collect();
    for job in &held {
        scene.await_start(job, 1, within(LEASE));
    }
    let waiting: Vec<String> = (0..60).map(|_| scene.run(Run::short())).collect();
    for worker in &mut fleet {
        worker.kill_whole();
    }
    let _heirs = [scene.worker("heir-1"), scene.worker("heir-2")];
    for job in &held {
        let done = scene.await_status(job, "completed", within(LEASE + window + SWEEP));
        assert_eq!((&done["losses"], &done["failures"]), (&json!(1), &json!(0)), "{done}");
    }
    for job in &waiting {
        scene.await_status(job, "completed", within(LEASE));
    }
    scene.judge();
}

/// Without a worker kept free, such a job would wait for as long as the fleet is full.
#[test]
fn a_job_that_kills_its_workers_runs_alone_on_a_full_fleet_and_is_given_up() {
    let scene = Scene::start();
    let start = |n: usize| {
        let named = WorkerOptions::named(&format!("full-{n}"));
        scene.worker_with(&named.concurrency(2))
    };
    // So many that two deaths in a row are no mass loss.
    let mut fleet: Vec<Worker> = (0..5).map(start).collect();
    // Enough for all slots until the end.
    let others: Vec<String> = (0..400).map(|_| scene.run(Run::holding(SHORT * 8))).collect();
    let poison = scene.run(Run::holding(Duration::from_secs(300)).with("priority", json!(9)));
    let bound = within(LEASE + RECONNECT + SWEEP * 2);
    for epoch in 1..=3 {
        scene.await_start(&poison, epoch, bound);
        // A start that the server does not know of would be free.
        let running = scene.await_status(&poison, "running", bound);
        let nth = fleet.iter().position(|worker| running["worker"]["id"] == worker.id());
        let mut killed = fleet.remove(nth.expect("it runs on one of them"));
        if epoch > 2 {
            let shown = scene.api().try_worker(killed.id()).expect("the worker is known");
            assert_eq!(shown["in_flight"], 1, "epoch {epoch} does not run alone: {shown}");
        }
        killed.kill_whole();
        fleet.push(start(10 + usize::try_from(epoch).unwrap()));
    }
    let given_up = scene.await_status(&poison, "abandoned", bound);
    assert_eq!(given_up["dead_letter"], "poison_suspect", "{given_up}");
    let waiting = |job: &&String| scene.api().execution(job)["status"] == "requested";
    assert!(others.iter().rev().find(waiting).is_some(), "the fleet was full all the time");
    for job in &others {
        scene.cancel(job);
    }
    scene.judge();
}

#[test]
fn a_drain_ordered_while_the_worker_is_away_reaches_it_when_it_is_back() {
    let interval = Duration::from_secs(1);
    let options = ServerOptions::default().set("worker.reconnect_window", json!(5));
    let scene = Scene::with(options);
    let proxy = Proxy::to(&scene.server().url());
    let options = WorkerOptions::named("away").through(&proxy.url()).heartbeat(interval);
    let mut away = scene.worker_with(&options);
    let job = scene.run(Run::holding(interval * 2));
    scene.await_start(&job, 1, within(LEASE));
    proxy.set(Weather::Cut);
    scene.await_worker(away.id(), "suspect", within(interval));
    let path = format!("/api/v1/workers/{}/drain", away.id());
    let ordered = scene.api().post(&path, &json!({}));
    assert!(ordered.is_success(), "{}", ordered.text);
    proxy.set(Weather::Clear);
    assert_eq!(away.await_end(within(interval * 3)), Some(0));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    scene.judge();
}

#[test]
fn idle_and_slow_clients_keep_no_worker_from_its_beats_and_are_sent_away() {
    let scene = Scene::start();
    let address = scene.server().url().trim_start_matches("http://").to_owned();
    let worker = scene.worker("beside");
    let connect = || TcpStream::connect(&address).expect("the server listens");
    let _idle: Vec<TcpStream> = (0..400).map(|_| connect()).collect();
    let slow: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"POST /api/v1/executions HTTP/1.1\r\nHost: x\r\nX-Slow: ").unwrap();
            stream
        })
        .collect();
    let job = scene.run(Run::holding(LEASE * 3));
    scene.await_status(&job, "completed", within(LEASE * 3));
    assert_eq!(scene.api().outcomes(&job), ["completed"]);
    let shown = scene.await_worker(worker.id(), "running", within(HEARTBEAT));
    assert_eq!(shown["status"], "active", "{shown}");
    for mut stream in slow {
        stream.set_read_timeout(Some(within(Duration::from_secs(10)))).unwrap();
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        let reset = ended.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(ended.is_ok() || reset, "it is still let wait: {ended:?}");
    }
    scene.judge();
}
