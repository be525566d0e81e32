//! F36: the primary of PostgreSQL dies and a standby takes its place, while jobs come and run.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use outlast_cluster::{Bouncer, Cluster, Pooling, Session, Stop};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions, WorkerOptions, process};
use serde_json::json;

/// How soon after a promotion jobs are taken again.
const BACK: Duration = Duration::from_secs(10);
/// How often the primary dies.
const PROMOTIONS: usize = 5;
/// How long jobs flow between two deaths.
const CALM: Duration = Duration::from_secs(1);
/// A producer's pause: what two cores run beside all the rest.
const PACE: Duration = Duration::from_millis(50);

/// Two clusters, of which one is the primary and the other follows it.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    /// The name of the database.
    name: String,
}

impl Pair {
    fn start() -> Self {
        let primary = Cluster::start(&[]).expect("PostgreSQL");
        let database = primary.create_database().expect("a database");
        let name = database.rsplit('/').next().unwrap_or_default().to_owned();
        let standby = primary.standby().expect("a standby");
        Self { primary, standby, name }
    }

    /// The address of the store, whichever of the two is the primary.
    fn url(&self) -> String {
        let (one, other) = (self.primary.port(), self.standby.port());
        format!("postgres://outlast@127.0.0.1:{one},127.0.0.1:{other}/{}", self.name)
    }

    fn session(cluster: &Cluster) -> Session {
        Session::open(&format!("{}/postgres", cluster.url())).expect("a session")
    }

    /// From now on nothing is acknowledged that the standby does not have.
    fn wait_for_standby(&self) {
        let session = Self::session(&self.primary);
        session.run("alter system set synchronous_standby_names = '*'").expect("a setting");
        session.run("select pg_reload_conf()").expect("a reload");
        let in_step = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        eventually("the standby is synchronous", within(Duration::from_secs(10)), || {
            (session.number(in_step).ok()? == 1).then_some(())
        });
    }

    /// Kills the primary and promotes the standby.
    fn fail_over(&mut self) {
        self.primary.stop(Stop::Kill).expect("a dead primary");
        Self::session(&self.standby).run("select pg_promote()").expect("a primary");
        std::mem::swap(&mut self.primary, &mut self.standby);
    }

    /// From now on the standby learns nothing of what the primary acknowledges.
    fn cut_off(&self) {
        let standby = Self::session(&self.standby);
        standby.run("alter system set primary_conninfo = ''").expect("a setting");
        standby.run("select pg_reload_conf()").expect("a reload");
        let session = Self::session(&self.primary);
        eventually("the standby is cut off", within(Duration::from_secs(10)), || {
            (session.number("select count(*) from pg_stat_replication").ok()? == 0).then_some(())
        });
    }

    /// Waits until the standby has all that the primary has acknowledged.
    fn catch_up(&self) {
        let session = Self::session(&self.primary);
        let behind = "select count(*) from pg_stat_replication
            where replay_lsn is null or replay_lsn < pg_current_wal_lsn()";
        eventually("the standby has caught up", within(Duration::from_secs(10)), || {
            (session.number(behind).ok()? == 0).then_some(())
        });
    }

    /// Makes the old primary a copy of the new one.
    fn heal(&mut self) {
        self.standby.follow(&self.primary).expect("a standby");
    }
}

/// Stores jobs one after another until it is to stop, each until it is acknowledged.
fn produce(scene: &Scene, servers: &[Api], stop: &AtomicBool, made: &AtomicUsize, name: &str) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{name}-{n}");
        let run = || match n % 3 {
            0 => Run::holding(Duration::from_millis(300)).with("overlap", json!("forbidden")),
            1 => Run::holding(Duration::from_millis(100)),
            _ => Run::short(),
        };
        let headers = [("idempotency-key", key.as_str())];
        let mut servers = servers.iter().cycle().skip(n % servers.len());
        let accepted = |api: &Api| scene.try_run_at(api, &headers, run());
        while servers.next().is_some_and(|api| accepted(api).is_none()) {
            thread::sleep(Duration::from_millis(100));
        }
        made.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PACE);
    }
}

#[test]
fn five_promotions_of_a_synchronous_standby_under_load_lose_nothing() {
    let mut pair = Pair::start();
    let scene = Scene::with(ServerOptions::default().database(&pair.url()));
    let other = scene.another_server("other");
    let workers = [
        scene.worker("one"),
        scene.worker_with(&WorkerOptions::named("two").through(&other.url())),
    ];
    let servers = [scene.api().clone(), Api::new(&other.url())];
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut waited = Vec::new();
    thread::scope(|threads| {
        for name in ["a", "b", "c"] {
            let (scene, servers, stop, made) = (&scene, &servers, &stop, &made);
            threads.spawn(move || produce(scene, servers, stop, made, name));
        }
        for _ in 0..PROMOTIONS {
            pair.wait_for_standby();
            // Jobs flow; nothing is awaited here.
            thread::sleep(CALM);
            pair.fail_over();
            let (promoted, before) = (Instant::now(), made.load(Ordering::Relaxed));
            eventually("jobs are taken again", within(BACK), || {
                (made.load(Ordering::Relaxed) > before + 3).then_some(())
            });
            waited.push(promoted.elapsed());
            pair.heal();
        }
        stop.store(true, Ordering::Relaxed);
    });
    eprintln!("{} jobs; back after {waited:?}", made.load(Ordering::Relaxed));
    for api in &servers {
        await_ready(api, within(BACK));
    }
    for worker in &workers {
        scene.await_named_worker(worker.name(), "running", within(LEASE * 2));
    }
    scene.judge();
    for server in [scene.server(), &other] {
        let log = server.process().log();
        assert!(log.lines().count() < 60 * PROMOTIONS, "{log}");
    }
}

/// Returns the jobs that events of this name are about.
fn jobs_of_events(api: &Api, name: &str) -> BTreeSet<String> {
    let page = api.get(&format!("/api/v1/events?stream=false&type={name}&limit=1000")).expect(200);
    let all = page["data"].as_array().expect("events");
    all.iter()
        .map(|event| event["data"]["job_id"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The standby lacks the last commits: that jobs were stored, that one was given out, that one ended.
#[test]
fn promotion_of_a_standby_that_lags_names_what_is_lost_and_runs_nothing_twice() {
    let mut pair = Pair::start();
    let scene = Scene::with(ServerOptions::default().database(&pair.url()));
    let other = scene.another_server("other");
    let servers = [scene.api().clone(), Api::new(&other.url())];
    let worker = scene.worker_with(&WorkerOptions::named("one").concurrency(1));
    let second = WorkerOptions::named("two").concurrency(1).through(&other.url());
    let _second = scene.worker_with(&second);
    // Two jobs run, and two wait, when the standby is cut off.
    let first: Vec<_> = (0..2).map(|_| scene.run(Run::holding(LEASE))).collect();
    for job in &first {
        scene.await_start(job, 1, within(LEASE));
    }
    let waiting: Vec<_> = (0..2).map(|_| scene.run(Run::holding(LEASE * 6))).collect();
    pair.catch_up();
    pair.cut_off();
    for job in &waiting {
        scene.await_start(job, 1, within(LEASE * 3));
    }
    let lost: BTreeSet<String> =
        servers.iter().map(|api| api.ojs_enqueue("nobody.runs.it", &json!({}))).collect();
    pair.fail_over();
    for (server, api) in [scene.server(), &other].into_iter().zip(&servers) {
        eventually("the server has started again", within(BACK), || {
            server.process().log().contains("the server starts again").then_some(())
        });
        await_ready(api, within(BACK));
    }
    for api in &servers {
        assert_eq!(jobs_of_events(api, "store.job_lost"), lost);
        assert_eq!(jobs_of_events(api, "store.claim_lost"), BTreeSet::new());
        let ended = jobs_of_events(api, "store.result_lost");
        assert_eq!(ended, first.iter().cloned().collect());
    }
    for job in &waiting {
        let done = scene.await_status(job, "completed", within(LEASE * 10));
        assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{done}");
        assert_eq!(scene.ledger().of(job).len(), 1, "it ran once");
    }
    for job in &first {
        scene.await_status(job, "completed", within(LEASE * 10));
        assert_eq!(scene.api().outcomes(job), ["lost", "completed"]);
    }
    assert_eq!(scene.worker_of(&waiting[0]).is_empty(), worker.id().is_empty());
    let raised = "select count(*) from outlast.generation where number > restored";
    let beside =
        Session::open(&format!("{}/{}", pair.primary.url(), pair.name)).expect("a session");
    assert_eq!(beside.number(raised).expect("a number"), 1);
    scene.judge();
}

/// A pooler in front of PostgreSQL is no reason for a server to behave otherwise.
#[test]
fn jobs_run_through_a_pooler_of_sessions_and_one_of_transactions_is_refused() {
    let cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let bouncer = Bouncer::start(&cluster, Pooling::Session, "").expect("PgBouncer");
    let scene =
        Scene::with(ServerOptions::default().database(&bouncer.before(&cluster, &database)));
    let other = scene.another_server("other");
    let _worker = scene.worker("one");
    // Servers hear of each other's jobs by notifications, which need sessions, too.
    for api in [scene.api(), &Api::new(&other.url())] {
        let job = scene.try_run_at(api, &[], Run::short()).expect("an answer");
        scene.await_status(&job, "completed", within(Duration::from_secs(2)));
    }
    scene.judge();
    let bouncer = Bouncer::start(&cluster, Pooling::Transaction, "").expect("PgBouncer");
    let address = bouncer.before(&cluster, &database);
    let bound = within(Duration::from_secs(5));
    let refused = process::run_to_end(&["server", "--database", &address], bound);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("pool_mode=session"), "{}", refused.stderr);
}
