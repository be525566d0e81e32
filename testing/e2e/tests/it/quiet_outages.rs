//! F15, F36: while PostgreSQL is away or a standby, servers say so at once and write few lines, and
//! they go on when it is back.

use std::thread;
use std::time::{Duration, Instant};

use outlast_cluster::{Cluster, Session, Stop};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Run, Scene, Server, ServerOptions, process};
use serde_json::json;

/// How long PostgreSQL is away.
const AWAY: Duration = Duration::from_secs(10);
/// How soon servers notice.
const NOTICED: Duration = Duration::from_secs(3);
/// Most lines of a server in that time, whatever is logged when a connection breaks.
const LINES_MAX: usize = 40;

fn lines(server: &Server) -> usize {
    server.process().log().lines().count()
}

/// Lets PostgreSQL be away, and checks how many lines the idle servers write about it.
fn check_quiet(servers: &[&Server]) {
    let before: Vec<usize> = servers.iter().map(|server| lines(server)).collect();
    // The outage is what is tested; nothing is awaited here.
    thread::sleep(AWAY);
    for (server, before) in servers.iter().zip(before) {
        let written = lines(server) - before;
        let log = server.process().tail();
        assert!(written < LINES_MAX, "{written} lines in {AWAY:?}:\n{log}");
    }
}

/// Three idle servers wrote forty lines a second each.
#[test]
fn idle_servers_write_few_lines_while_postgresql_is_stopped() {
    let mut cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let scene = Scene::with(ServerOptions::bare().database(&database));
    let others = ["b", "c"].map(|name| scene.another_server_with(name, ServerOptions::bare()));
    cluster.stop(Stop::Fast).expect("stopping PostgreSQL");
    check_quiet(&[scene.server(), &others[0], &others[1]]);
    cluster.start_again().expect("PostgreSQL");
    for server in [scene.server(), &others[0], &others[1]] {
        await_ready(&Api::new(&server.url()), within(Duration::from_secs(5)));
    }
}

#[test]
fn standby_is_named_at_once_and_refused_at_start_and_used_when_it_is_promoted() {
    let mut cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let scene = Scene::with(ServerOptions::default().database(&database));
    let api = scene.api();
    cluster.stop(Stop::Fast).expect("stopping PostgreSQL");
    cluster.start_as_standby().expect("a standby");
    let began = Instant::now();
    eventually("producers are refused", within(NOTICED), || {
        let body = json!({ "action_ref": "core.noop" });
        let reply = api.try_post_with("/executions", &[], &body).ok()?;
        (reply.status == 503 && reply.text.contains("read-only (standby)")).then_some(())
    });
    assert!(began.elapsed() < NOTICED * 2, "{:?}", began.elapsed());
    let health = api.get("/health/ready");
    assert_eq!((health.status, &health.body["store"]), (503, &json!("read-only (standby)")));
    check_quiet(&[scene.server()]);
    let started = process::run_to_end(&["server", "--database", &database], within(NOTICED));
    let words = &started.stderr;
    assert!(words.contains("is read-only (standby)") && words.contains("primary"), "{words}");
    assert_ne!(started.code, Some(0));
    let beside = Session::open(&database).expect("a session");
    beside.run("select pg_promote()").expect("a primary");
    await_ready(api, within(Duration::from_secs(5)));
    let worker = scene.worker("after");
    let job = scene.run(Run::short());
    let done = scene.await_status(&job, "completed", within(Duration::from_secs(5)));
    assert_eq!(done["worker"]["id"], worker.id());
    scene.judge();
}
