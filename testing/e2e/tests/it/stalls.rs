//! F15, F16: PostgreSQL that stands still, wholly or in part, for longer than a lease. No
//! worker lapses, nothing is run again, and results are held until they are taken. F38: a statement
//! that takes too long costs its own caller an answer, and no other.

use std::thread;
use std::time::{Duration, Instant};

use outlast_cluster::{Cluster, Session};
use outlast_e2e::scene::await_ready;
use outlast_e2e::wait::{LEASE, eventually, stays, within};
use outlast_e2e::{Run, Scene, ServerOptions, Worker, WorkerOptions};
use serde_json::json;

/// How long things stand still.
const STALL: Duration = Duration::from_secs(4);
/// What a batch that is stuck takes to be given up, and the next one.
const OVER: Duration = Duration::from_secs(15);

/// A scene on a database, and a session beside it.
fn scene() -> (Scene, Session) {
    let scene = Scene::with(ServerOptions::default().postgres());
    let beside = Session::open(scene.server().database()).expect("a session");
    (scene, beside)
}

/// One job that ends while nothing moves, one that goes on after it.
fn jobs(scene: &Scene) -> [String; 2] {
    let ends = scene.run(Run::holding(Duration::from_millis(1500)));
    let goes_on = scene.run(Run::holding(STALL * 2));
    for job in [&ends, &goes_on] {
        scene.await_start(job, 1, within(LEASE));
    }
    [ends, goes_on]
}

/// Checks that the jobs end as if nothing had been, on the worker that had them.
fn check_unharmed(scene: &Scene, beside: &Session, worker: &Worker, jobs: &[String]) {
    for job in jobs {
        let done = scene.await_status(job, "completed", within(OVER + STALL * 2));
        assert_eq!(scene.api().outcomes(job), ["completed"], "{done}");
        assert_eq!((&done["epoch"], &done["losses"]), (&json!(1), &json!(0)), "{done}");
        assert_eq!(done["worker"]["id"], worker.id(), "{done}");
    }
    scene.await_worker(worker.id(), "running", within(OVER));
    let lapsed = "select count(*) from event where type = 'worker.lapsed'";
    assert_eq!(beside.number(lapsed).expect("events"), 0);
    scene.judge();
}

/// Locks that another session may hold: whole tables, or the rows of all workers.
const HOLDS: &[&str] = &[
    "lock table outlast.active in access exclusive mode",
    "lock table worker in access exclusive mode",
    "lock table worker in exclusive mode",
    "lock table outlast.job_row, outlast.ready in access exclusive mode",
    "lock table outlast.event_batch, outlast.attempt_row in exclusive mode",
    "select * from worker for update",
];

#[test]
fn locks_that_another_session_holds_for_longer_than_a_lease_cost_no_worker_its_jobs() {
    let (scene, beside) = scene();
    let worker = scene.worker("patient");
    for hold in HOLDS {
        let jobs = jobs(&scene);
        let holder = Session::open(scene.server().database()).expect("a session");
        holder.run(&format!("begin; {hold}")).expect(hold);
        eventually("the first job ends", within(STALL), || {
            scene.ledger().of(&jobs[0])[0].ended.then_some(())
        });
        // The stall is what is tested; nothing is awaited here.
        thread::sleep(STALL);
        drop(holder);
        check_unharmed(&scene, &beside, &worker, &jobs);
    }
}

/// Heartbeats and reads go on meanwhile: only new jobs are held up.
#[test]
fn server_that_can_store_no_new_job_for_a_lock_is_not_ready_until_it_can() {
    let (scene, _) = scene();
    for hold in
        ["lock table outlast.job_row in share mode", "lock table outlast.ready in share mode"]
    {
        let holder = Session::open(scene.server().database()).expect("a session");
        holder.run(&format!("begin; {hold}")).expect(hold);
        let body = json!({ "action_ref": "core.noop" });
        let health = eventually("the server is not ready", within(OVER), || {
            let reply = scene.api().try_post_with("/executions", &[], &body).ok()?;
            assert_eq!(reply.status, 503, "{hold}");
            let health = scene.api().get("/health/ready");
            (health.status == 503).then_some(health)
        });
        assert_eq!(health.body["store"], "new jobs wait for a lock of another session");
        drop(holder);
        eventually("new jobs are stored", within(OVER), || {
            let reply = scene.api().try_post_with("/executions", &[], &body).ok()?;
            (reply.status == 201).then_some(())
        });
        assert_eq!(scene.api().get("/health/ready").status, 200);
    }
}

/// The server that watches is not the one whose beats are stuck.
#[test]
fn server_that_only_looks_on_does_not_take_a_stall_for_silence() {
    let (scene, beside) = scene();
    let other = scene.another_server("other");
    let worker = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    for hold in HOLDS {
        let jobs = jobs(&scene);
        let holder = Session::open(scene.server().database()).expect("a session");
        holder.run(&format!("begin; {hold}")).expect(hold);
        // The stall is what is tested; nothing is awaited here.
        thread::sleep(STALL);
        drop(holder);
        check_unharmed(&scene, &beside, &worker, &jobs);
    }
}

#[test]
fn postgresql_that_freezes_for_longer_than_a_lease_costs_no_job_and_no_attempt() {
    let cluster = Cluster::start(&[]).expect("PostgreSQL");
    let database = cluster.create_database().expect("a database");
    let scene = Scene::with(ServerOptions::default().database(&database));
    let other = scene.another_server("other");
    let here = scene.worker("here");
    let beside = Session::open(&database).expect("a session");
    let jobs = jobs(&scene);
    cluster.freeze_all().expect("freezing PostgreSQL");
    eventually("the server is not ready", within(LEASE), || {
        (scene.api().get("/health/ready").status == 503).then_some(())
    });
    eventually("new jobs are refused", within(OVER), || {
        let body = json!({ "action_ref": "core.noop" });
        let reply = scene.api().try_post_with("/executions", &[], &body).ok()?;
        (reply.status == 503 && reply.headers.contains_key("retry-after")).then_some(())
    });
    // The stall is what is tested; nothing is awaited here.
    thread::sleep(STALL);
    cluster.thaw_all().expect("thawing PostgreSQL");
    await_ready(scene.api(), within(OVER));
    check_unharmed(&scene, &beside, &here, &jobs);
    drop(other);
}

/// Reading a list waits for a lock; leases and new jobs do not wait for that reader.
#[test]
fn reads_that_are_stuck_hold_up_no_heartbeat() {
    let (scene, beside) = scene();
    let worker = scene.worker("steady");
    let holder = Session::open(scene.server().database()).expect("a session");
    // Finished jobs are read by lists only.
    holder
        .run("begin; lock table outlast.finished, outlast.dead_letter_row in access exclusive mode")
        .expect("locks");
    thread::scope(|threads| {
        for _ in 0..12 {
            threads.spawn(|| scene.api().try_get("/api/v1/executions?limit=1000"));
        }
        stays("the worker runs", STALL, || {
            let now = beside.number(
                "select count(*) from worker where status = 'active'
                     and last_heartbeat > clock_timestamp() - interval '3 s'",
            );
            let live = now.expect("workers");
            (live != 1).then(|| format!("{live} workers live"))
        });
        drop(holder);
    });
    let job = scene.run(Run::short());
    check_unharmed(&scene, &beside, &worker, &[job]);
}

/// Locks the row of a job in a table for as long as the session lives.
fn hold(scene: &Scene, table: &str, job: &str) -> Session {
    let holder = Session::open(scene.server().database()).expect("a session");
    let sql = format!(
        "begin; select 1 from outlast.{table} t join outlast.job_row j on j.seq = t.seq where j.id = '{job}'
         for update of t"
    );
    holder.run(&sql).expect("a lock");
    holder
}

/// A heartbeat of a plain worker once went through the engine loop: one locked row of its own, or
/// of another worker in the same batch, cost it the response.
#[test]
fn heartbeats_of_a_plain_worker_are_answered_whatever_holds_a_job_of_it() {
    let (scene, beside) = scene();
    let api = scene.api();
    // A heartbeat takes up to half a second, and several times as long on a busy machine.
    let visibility = Duration::from_secs(4);
    let options = json!({ "queue": "plain", "visibility_timeout_ms": visibility.as_millis() });
    let jobs = [(); 2].map(|()| api.ojs_enqueue("work", &options));
    assert_eq!(api.ojs_fetch("plain", "w", 2).len(), 2);
    let beat = |worker: &str, state: &str, jobs: &[String]| {
        let said = json!({ "worker_id": worker, "state": state, "active_jobs": jobs });
        let reply = api.post("/ojs/v1/workers/heartbeat", &said).expect(200);
        assert_eq!(reply["state"], state, "{reply}");
        (reply["jobs_extended"].clone(), reply["stale_jobs"].clone())
    };
    beat("w", "running", &jobs);
    let holder = hold(&scene, "active", &jobs[0]);
    let end = Instant::now() + visibility + visibility / 2;
    thread::scope(|threads| {
        // Others are made known, and say what they like. The beats of the first wait for none of it:
        // they must come more often than its visibility passes.
        threads.spawn(|| {
            for n in (0..).take_while(|_| Instant::now() < end) {
                let other = format!("other-{n}");
                beat(&other, "running", &[]);
                beat(&other, "quiet", &[]);
            }
        });
        while Instant::now() < end {
            // What is held is not said to be another's.
            assert_eq!(beat("w", "running", &jobs), (json!([jobs[1]]), json!([])));
        }
    });
    // Its silence would have counted by now.
    assert_eq!(api.ojs_job(&jobs[1])["state"], "active");
    drop(holder);
    eventually("the held job is prolonged, or is back", within(LEASE), || {
        (beat("w", "running", &jobs).0.as_array()?.contains(&json!(jobs[1]))).then_some(())
    });
    let lapsed = "select count(*) from event where type = 'worker.lapsed'";
    assert_eq!(beside.number(lapsed).expect("events"), 0);
}

/// Cancels a job whose row is held: the caller gets an error and may try again.
fn refused(scene: &Scene, job: &str) {
    let reply = scene.cancel(job);
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.headers.contains_key("retry-after"), "{reply:?}");
}

/// One row that somebody's psql holds once failed everybody's batch after 12 s and closed every
/// session.
#[test]
fn row_that_another_session_holds_costs_its_own_callers_an_answer_and_nobody_else_anything() {
    let (scene, beside) = scene();
    let worker = scene.worker("busy");
    let sessions = "select max(session_seq) from worker";
    let before = beside.number(sessions).expect("sessions");
    let held = scene.run(Run::holding(Duration::from_millis(1500)));
    scene.await_start(&held, 1, within(LEASE));
    let waiting = scene.run(Run::short().with("queue", json!("nobody")));
    for (table, job) in [("active", &held), ("ready", &waiting), ("job_row", &held)] {
        let holder = hold(&scene, table, job);
        let others: Vec<String> = (0..5).map(|_| scene.run(Run::short())).collect();
        if table != "job_row" {
            refused(&scene, job);
        }
        for other in &others {
            scene.await_status(other, "completed", within(LEASE));
        }
        assert_eq!(scene.api().get("/health/ready").status, 200);
        let beats = "select count(*) from worker
                     where last_heartbeat > clock_timestamp() - interval '5 s'";
        assert_eq!(beside.number(beats).expect("beats"), 1);
        drop(holder);
        if table == "ready" {
            eventually("the job is cancelled", within(LEASE), || {
                (scene.cancel(job).status != 503).then_some(())
            });
        } else {
            scene.await_status(job, "completed", within(LEASE));
        }
    }
    assert_eq!(beside.number(sessions).expect("sessions"), before, "a session was closed");
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.judge();
}

/// With more than eight locked rows all other commands of a batch were deferred with them, and
/// their callers were told that their own rows were locked.
#[test]
fn many_rows_that_another_session_holds_cost_nobody_else_an_answer() {
    const HELD: u32 = 24;
    let (scene, _beside) = scene();
    let api = scene.api();
    let worker = scene.worker("beside");
    let enqueue = || api.ojs_enqueue("work", &json!({ "queue": "plain" }));
    let fetch = |count| {
        let jobs = api.ojs_fetch("plain", "w", count);
        jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let acknowledge = |job: &String| api.post("/ojs/v1/workers/ack", &json!({ "job_id": job }));
    (0..HELD).for_each(|_| drop(enqueue()));
    let held = fetch(HELD);
    assert_eq!(held.len(), usize::try_from(HELD).expect("a number"));
    let holder = Session::open(scene.server().database()).expect("a session");
    holder.run("begin; select * from active for update").expect("locks");
    thread::scope(|threads| {
        let refused: Vec<_> =
            held.iter().map(|job| threads.spawn(move || acknowledge(job).status)).collect();
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        while began.elapsed() < Duration::from_secs(8) {
            let one = Instant::now();
            let job = enqueue();
            assert_eq!(fetch(1), std::slice::from_ref(&job));
            assert_eq!(acknowledge(&job).status, 200);
            slowest = slowest.max(one.elapsed());
        }
        assert!(slowest < Duration::from_secs(8), "{slowest:?}");
        for status in refused {
            assert_eq!(status.join().expect("an answer"), 503);
        }
    });
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(LEASE));
    drop(holder);
    for job in &held {
        eventually("the job ends", within(LEASE), || {
            (acknowledge(job).status != 503).then_some(())
        });
        assert_eq!(api.ojs_job(job)["state"], "completed");
    }
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.judge();
}

/// Makes jobs of the queue `slow` take longer than any statement may.
const SLOW: &str = "
    create function public.slow() returns trigger language plpgsql as
        $$ begin
            if exists (select 1 from outlast.class c where c.id = new.class and c.queue = 'slow')
            then perform pg_sleep(60); end if;
            return new;
        end $$;
    create trigger slow before insert on outlast.job_row
        for each row execute function public.slow()";
/// Longest that one statement may take.
const STATEMENT: Duration = Duration::from_secs(10);

/// It failed everything in its batch, closed every session, and came back.
#[test]
fn command_that_takes_too_long_is_refused_alone_and_costs_no_other_an_answer() {
    let (scene, beside) = scene();
    let api = scene.api();
    let worker = scene.worker("busy");
    let sessions = "select max(session_seq) from worker";
    let before = beside.number(sessions).expect("sessions");
    drop(api.ojs_enqueue("work", &json!({ "queue": "plain" })));
    beside.run(SLOW).expect("a trigger");
    let enqueue = |queue: &str| {
        let body = json!({ "type": "work", "args": [], "options": { "queue": queue } });
        api.post("/ojs/v1/jobs", &body).status
    };
    let began = Instant::now();
    thread::scope(|threads| {
        // The loop is busy with the first while the others gather.
        let first = threads.spawn(|| enqueue("slow"));
        thread::sleep(Duration::from_millis(300));
        let others: Vec<_> = (0..31).map(|_| threads.spawn(|| enqueue("plain"))).collect();
        let second = threads.spawn(|| enqueue("slow"));
        for other in others {
            assert_eq!(other.join().expect("an answer"), 201);
        }
        let took = began.elapsed();
        assert!(took < within(STATEMENT + Duration::from_secs(1)), "{took:?}");
        for slow in [first, second] {
            assert_eq!(slow.join().expect("an answer"), 503);
        }
    });
    assert_eq!(api.get("/health/ready").status, 200);
    // It comes back, and others hardly notice.
    let began = Instant::now();
    assert_eq!(enqueue("slow"), 503);
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
    assert!(began.elapsed() < STATEMENT / 2, "{:?}", began.elapsed());
    let stored = "select count(*) from job where queue = 'plain'";
    assert_eq!(beside.number(stored).expect("jobs"), 32);
    assert_eq!(beside.number(sessions).expect("sessions"), before, "a session was closed");
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.judge();
}

/// Each of them took its time alone, one after another, and then the whole limit again: half of the
/// others waited for longer than fourteen seconds.
#[test]
fn dozen_producers_that_retry_slow_jobs_leave_most_of_the_time_to_others() {
    const PRODUCERS: usize = 12;
    let (scene, beside) = scene();
    let api = scene.api();
    let worker = scene.worker("busy");
    let before = beside.number("select max(session_seq) from worker").expect("sessions");
    drop(api.ojs_enqueue("work", &json!({ "queue": "plain" })));
    beside.run(SLOW).expect("a trigger");
    let enqueue = |queue: &str| {
        let began = Instant::now();
        let body = json!({ "type": "work", "args": [], "options": { "queue": queue } });
        let status = api.post("/ojs/v1/jobs", &body).status;
        (status, began.elapsed())
    };
    // The first may take the whole limit, with everything in its batch.
    assert_eq!(enqueue("slow").0, 503);
    let end = Instant::now() + STATEMENT * 2;
    let mut others = thread::scope(|threads| {
        for _ in 0..PRODUCERS {
            threads.spawn(|| {
                while Instant::now() < end {
                    let (status, took) = enqueue("slow");
                    assert_eq!(status, 503);
                    assert!(took < within(STATEMENT * 2), "{took:?}");
                }
            });
        }
        let mut others = Vec::new();
        while Instant::now() < end {
            let (status, took) = enqueue("plain");
            assert_eq!(status, 201);
            others.push(took);
        }
        others
    });
    others.sort_unstable();
    assert!(others[others.len() / 2] < within(Duration::from_secs(1)), "{others:?}");
    assert_eq!(api.get("/health/ready").status, 200);
    let job = scene.run(Run::short());
    scene.await_status(&job, "completed", within(LEASE));
    let sessions = beside.number("select max(session_seq) from worker").expect("sessions");
    assert_eq!(sessions, before, "a session was closed");
    scene.await_worker(worker.id(), "running", within(LEASE));
    scene.judge();
}

/// Makes it take longer than any statement may to claim a job whose message is `slow`.
const SLOW_CLAIM: &str = "
    create function public.slow_claim() returns trigger language plpgsql as
        $$ begin
            if exists (select 1 from outlast.job_row j
                where j.seq = new.seq and j.args like '%slow to claim%')
            then perform pg_sleep(60); end if;
            return new;
        end $$;
    create trigger slow_claim before insert on outlast.active
        for each row execute function public.slow_claim()";

/// Its whole queue waited with it, and each was said to wait for its turn.
#[test]
fn job_that_is_slow_to_claim_is_named_and_keeps_no_other_waiting() {
    let (scene, beside) = scene();
    let worker = scene.worker("busy");
    beside.run(SLOW_CLAIM).expect("a trigger");
    let post = |message: &str| {
        let body = json!({ "action_ref": "core.echo", "parameters": { "message": message } });
        let created = scene.api().post("/api/v1/executions", &body).expect(201);
        created["data"]["id"].as_str().expect("an id").to_owned()
    };
    let read = |job: &str| {
        scene.api().get(&format!("/api/v1/executions/{job}")).expect(200)["data"].clone()
    };
    let completes = |job: &str| {
        let bound = within(STATEMENT * 2);
        eventually("a job behind it completes", bound, || {
            (read(job)["status"] == "completed").then_some(())
        });
    };
    let slow = post("slow to claim");
    (0..20).map(|_| post("quick")).collect::<Vec<_>>().iter().for_each(|job| completes(job));
    let reason = eventually("the reason names it", within(STATEMENT * 2), || {
        let waiting = read(&slow)["waiting_reason"].as_str()?.to_owned();
        waiting.contains("claiming it took too long").then_some(waiting)
    });
    assert!(reason.contains("tried again in"), "{reason}");
    // The same for plain clients, who claim from queues.
    let fetched = |queue: &str| {
        let body = json!({ "queues": [queue], "worker_id": "w", "count": 1 });
        let reply = scene.api().post("/ojs/v1/workers/fetch", &body);
        (reply.status == 200).then(|| reply.body["jobs"][0]["args"][0].clone())
    };
    for message in ["slow to claim", "quick"] {
        let options = json!({ "queue": "plain" });
        let body = json!({ "type": "work", "args": [message], "options": options });
        assert_eq!(scene.api().post("/ojs/v1/jobs", &body).status, 201);
    }
    eventually("the job behind it is fetched", within(STATEMENT * 2), || {
        (fetched("plain")? == json!("quick")).then_some(())
    });
    beside.run("drop trigger slow_claim on outlast.active").expect("no trigger");
    eventually("it completes", within(STATEMENT * 6), || {
        (read(&slow)["status"] == "completed").then_some(())
    });
    scene.await_worker(worker.id(), "running", within(LEASE));
}
