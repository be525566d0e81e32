//! F35: connections to PostgreSQL that are open and say nothing, while new ones work: as after a
//! failover behind a load balancer, or behind a network that forgot them.

use std::time::{Duration, Instant};

use outlast_cluster::{Cluster, Session};
use outlast_e2e::proxy::Proxy;
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene, ServerOptions};

/// How soon everything must be back.
const BACK: Duration = Duration::from_secs(20);

/// Lets connections fall silent, and checks that the server notices, and goes on in full.
fn check(scene: &Scene, silence: impl FnOnce()) {
    let api = scene.api();
    let mut dies = scene.worker("dies");
    let job = scene.run(Run::holding_once(Duration::from_secs(300)));
    scene.await_start(&job, 1, within(LEASE));
    // Connections that only lists use are open.
    assert_eq!(api.get("/api/v1/executions?limit=1").status, 200);
    silence();
    let began = Instant::now();
    dies.kill_whole();
    let status = |path: &str| api.try_get(path).ok().map(|reply| reply.status);
    eventually("the server is not ready", BACK, || {
        (status("/health/ready") == Some(503)).then_some(())
    });
    await_ready(api, within(BACK));
    eventually("lists are answered", within(BACK), || {
        (status("/api/v1/executions?limit=1") == Some(200)).then_some(())
    });
    // A new worker, and what the dead one had: its lease was judged, and its job handed on.
    let fresh = scene.worker("fresh");
    scene.await_worker(dies.id(), "lapsed", within(BACK));
    let done = scene.await_status(&job, "completed", within(BACK));
    assert_eq!(done["worker"]["id"], fresh.id(), "{done}");
    let took = began.elapsed();
    // On a loaded machine, twice as long.
    assert!(took < BACK * 2, "{took:?}");
    assert_eq!(status("/health/ready"), Some(200));
    scene.judge();
}

/// Lists took ten seconds each for as long as it was watched, no lease was judged for more than a
/// minute, and the server was ready all the time.
#[test]
fn server_is_back_soon_when_the_processes_that_serve_it_have_stopped() {
    let cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let scene = Scene::with(ServerOptions::default().database(&database));
    let beside = Session::open(&database).expect("a session");
    let pids = "select coalesce(min(pid), 0)::bigint from pg_stat_activity
        where datname = current_database() and application_name like 'outlast%' and pid > ";
    check(&scene, || {
        let mut last = 0;
        loop {
            last = beside.number(&format!("{pids}{last}")).expect("a process");
            if last == 0 {
                break;
            }
            cluster.freeze(i32::try_from(last).expect("a process id")).expect("freezing it");
        }
    });
}

#[test]
fn server_is_back_soon_when_a_proxy_has_forgotten_its_connections() {
    let cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let port = format!(":{}/", cluster.port());
    let proxy = Proxy::to(&format!("127.0.0.1{}", port.trim_end_matches('/')));
    let through = proxy.url().replace("http://127.0.0.1", "") + "/";
    let scene = Scene::with(ServerOptions::default().database(&database.replace(&port, &through)));
    check(&scene, || proxy.forget());
}
