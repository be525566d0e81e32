//! F31 at the store: the answer to a commit is lost, and it cannot be looked up.

use std::thread;
use std::time::Duration;

use outlast_cluster::{Cluster, Session};
use outlast_e2e::proxy::{Proxy, Weather};
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Scene, ServerOptions};
use serde_json::json;

/// Makes every commit that hands out a job take a while.
const SLOW_COMMIT: &str = "
    create function public.slow() returns trigger language plpgsql as
        $$ begin perform pg_sleep(2); return null; end $$;
    create constraint trigger slow after insert on outlast.active deferrable initially deferred
        for each row execute function public.slow()";

/// The client got 503, no client held the job, and it came back after half an hour.
#[test]
fn job_of_a_plain_fetch_that_got_no_answer_is_soon_handed_to_another() {
    let cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let proxy = Proxy::to(&format!("127.0.0.1:{}", cluster.port()));
    let through = database
        .replace(&format!("127.0.0.1:{}", cluster.port()), &proxy.url().replace("http://", ""));
    let scene = Scene::with(ServerOptions::default().database(&through));
    let beside = Session::open(&database).expect("a session");
    let api = scene.api();
    let job = api.ojs_enqueue("work", &json!({ "queue": "plain" }));
    beside.run(SLOW_COMMIT).expect("a trigger");
    let fetch = || {
        let body = json!({ "queues": ["plain"], "worker_id": "w", "count": 1 });
        api.post("/ojs/v1/workers/fetch", &body)
    };
    thread::scope(|threads| {
        let lost = threads.spawn(fetch);
        let committing = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        eventually("the claim is committed", within(Duration::from_secs(5)), || {
            (beside.number(committing).expect("a number") > 0).then_some(())
        });
        // The commit goes on; its answer is lost, and so is every other.
        proxy.set(Weather::DropReplies);
        let lost = lost.join().expect("an answer");
        assert_eq!(lost.status, 503, "{lost:?}");
    });
    let held = "select count(*) from outlast.active";
    assert_eq!(beside.number(held).expect("attempts"), 1, "it took effect");
    beside.run("drop trigger slow on outlast.active").expect("no trigger");
    proxy.set(Weather::Clear);
    let again = eventually("the job is handed out again", within(Duration::from_secs(20)), || {
        let reply = fetch();
        reply.body["jobs"].as_array()?.first().cloned()
    });
    assert_eq!(again["id"], json!(job), "{again}");
    let acknowledged = api.post("/ojs/v1/workers/ack", &json!({ "job_id": job }));
    assert_eq!(acknowledged.status, 200, "{acknowledged:?}");
    assert_eq!(beside.number("select epoch::bigint from job").expect("an epoch"), 2);
}
