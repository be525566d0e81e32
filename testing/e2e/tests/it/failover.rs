//! F36: the primary of PostgreSQL dies and a standby takes its place, while jobs come and run.

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

    /// Makes the old primary a copy of the new one.
    fn heal(&mut self) {
        self.standby.follow(&self.primary).expect("a standby");
    }
}

/// Stores jobs one after another until it is told to stop, each until it is acknowledged.
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
