//! Programs that store jobs in their own transactions, by SQL: the job commits with
//! the program's own row or not at all, and a server is notified.

use std::time::Duration;

use outlast_cluster::Cluster;
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Scene, ServerOptions, WorkerOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A program with a database connection of its own.
struct Program {
    runtime: Runtime,
    client: Client,
}

impl Program {
    fn at(database: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (client, connection) =
            runtime.block_on(tokio_postgres::connect(database, NoTls)).unwrap();
        runtime.spawn(connection);
        Self { runtime, client }
    }

    /// Runs statements; returns the first value of the last row, or what PostgreSQL says.
    fn try_run(&self, sql: &str) -> Result<String, (String, String)> {
        let said = self.runtime.block_on(self.client.simple_query(sql)).map_err(|error| {
            let said = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
            (said.code().code().to_owned(), said.message().to_owned())
        })?;
        let mut last = String::new();
        for message in said {
            if let SimpleQueryMessage::Row(row) = message {
                last = row.get(0).unwrap_or_default().to_owned();
            }
        }
        Ok(last)
    }

    #[track_caller]
    fn run(&self, sql: &str) -> String {
        self.try_run(sql).unwrap_or_else(|(code, words)| panic!("{sql}: {code} {words}"))
    }
}

/// No server polls during a test: whatever happens was caused by a notification.
const NEVER: u32 = 3600;

fn scene(look: u32) -> Scene {
    let options = ServerOptions::default().set("executor.timeout_check_interval", json!(look));
    Scene::with(options.postgres())
}

fn program(scene: &Scene) -> Program {
    Program::at(scene.server().database())
}

/// The call that stores a job which leaves a trace.
fn traced(scene: &Scene, more: &str) -> String {
    let args = json!([{ "ledger": scene.ledger().path() }]);
    format!("select outlast.enqueue('ledger.run', '{args}'{more})")
}

#[test]
fn job_runs_if_the_programs_transaction_commits_and_leaves_nothing_if_it_does_not() {
    let scene = scene(NEVER);
    let _worker = scene.worker("w1");
    let program = program(&scene);
    program.run("create table orders (id bigint primary key, job uuid)");
    let call = traced(&scene, "");

    program.run("begin; insert into orders (id) values (1)");
    let gone = program.run(&call);
    program.run("rollback");

    program.run("begin; insert into orders (id) values (2)");
    let kept = program.run(&call);
    program.run("savepoint here");
    let undone = program.run(&call);
    program.run("rollback to here");
    program.run(&format!("update orders set job = '{kept}' where id = 2"));
    assert_eq!(scene.api().get(&format!("/ojs/v1/jobs/{kept}")).status, 404, "not committed");
    program.run("commit");

    scene.accept(&kept);
    scene.await_status(&kept, "completed", within(LEASE));
    for id in [&gone, &undone] {
        assert_eq!(scene.api().get(&format!("/ojs/v1/jobs/{id}")).status, 404);
    }
    assert_eq!(program.run("select string_agg(id::text, ',') from orders"), "2");
    assert_eq!(scene.api().outcomes(&kept), ["completed"]);
    scene.judge();
}

/// No server polls, and one whose connection for notifications was cut looks after it reconnects.
#[test]
fn job_runs_although_the_servers_line_was_cut_when_it_was_committed() {
    let scene = scene(NEVER);
    let _worker = scene.worker("w1");
    let program = program(&scene);
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
               where application_name = 'outlast notify' and datname = current_database()";
    for _ in 0..3 {
        eventually("the server listens", within(LEASE), || (program.run(cut) == "1").then_some(()));
        let id = program.run(&traced(&scene, ""));
        scene.accept(&id);
        eventually("the job has run", within(LEASE * 5), || {
            let status = program
                .run(&format!("select coalesce((select state from job where id = '{id}'), '')"));
            (status == "completed").then_some(())
        });
    }
    scene.judge();
}

#[test]
fn job_is_found_and_cancelled_from_its_commit_on_though_nobody_was_told() {
    let scene = scene(NEVER);
    let program = program(&scene);
    let found = program.run("select outlast.enqueue('email.send', wake => false)");
    assert_eq!(program.run("select count(*) from outlast.arrival"), "1");
    assert_eq!(scene.api().ojs_job(&found)["state"], "available");
    assert_eq!(program.run("select count(*) from outlast.arrival"), "0");
    let cancelled = program.run("select outlast.enqueue('email.send', wake => false)");
    let reply = scene.api().delete(&format!("/ojs/v1/jobs/{cancelled}"));
    assert_eq!(reply.expect(200)["job"]["state"], "cancelled");
    let path = format!("/api/v1/executions/{cancelled}");
    assert_eq!(scene.api().get(&path).expect(200)["data"]["status"], "cancelled");
}

#[test]
fn job_that_nobody_told_of_is_found_by_the_next_look() {
    let scene = scene(1);
    let _worker = scene.worker("w1");
    let id = program(&scene).run(&traced(&scene, ", wake => false"));
    scene.accept(&id);
    scene.judge();
    assert_eq!(scene.api().outcomes(&id), ["completed"]);
}

#[test]
fn jobs_of_many_programs_at_two_servers_run_once_each() {
    const PROGRAMS: usize = 6;
    const JOBS: usize = 25;
    let scene = scene(2);
    let other = scene.another_server("other");
    let _near = scene.worker("near");
    let _far = scene.worker_with(&WorkerOptions::named("far").through(&other.url()));
    let call = traced(&scene, "");
    let (database, call) = (scene.server().database(), call.as_str());
    let ids: Vec<String> = std::thread::scope(|threads| {
        let running: Vec<_> = (0..PROGRAMS)
            .map(|_| {
                threads.spawn(move || {
                    let program = Program::at(database);
                    (0..JOBS).map(|_| program.run(call)).collect::<Vec<_>>()
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), PROGRAMS * JOBS);
    ids.iter().for_each(|id| scene.accept(id));
    eventually("all have run", within(LEASE * 30), || {
        let left = "select count(*) from job where state <> 'completed'";
        let done = "select count(*) from job where state = 'completed'";
        let program = Program::at(database);
        (program.run(left) == "0" && program.run(done) == ids.len().to_string()).then_some(())
    });
    scene.judge();
}

/// In a cluster of its own: it makes a role.
#[test]
fn sql_in_the_documentation_is_true() {
    let page = include_str!("../../../../docs/use/transactional-enqueue.md");
    let cluster = Cluster::start(&[]).unwrap();
    let database = cluster.create_database().unwrap();
    let scene = Scene::with(ServerOptions::default().database(&database));
    let program = program(&scene);
    let blocks: Vec<&str> =
        page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        program.run(block);
    }
    eventually("all are taken in", within(LEASE), || {
        (program.run("select count(*) from job where state in ('available', 'scheduled')") == "4")
            .then_some(())
    });
    // What was granted is enough.
    program.run("set role shop");
    program.run("select outlast.enqueue('order.confirm')");
}

/// What only the server knows: parameters of actions.
#[test]
fn job_that_an_action_does_not_take_is_discarded_with_the_reason() {
    let scene = scene(NEVER);
    let id = program(&scene).run("select outlast.enqueue('core.sleep', '[{\"duration\":\"x\"}]')");
    let job = scene.api().ojs_job(&id);
    assert_eq!(job["state"], "discarded");
    let words = job["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("core.sleep") && words.contains("duration"), "{job}");
}

fn values(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn with_options(options: &Value) -> Value {
    json!({"type": "email.send", "args": [1], "options": options})
}

/// Jobs that ask for these values in each of these options.
fn asking(fields: &[&str], values: &[Value]) -> Vec<Value> {
    let each = values.iter().flat_map(|value| fields.iter().map(move |field| (field, value)));
    each.map(|(field, value)| with_options(&json!({ *field: value }))).collect()
}

/// What is `null`, unknown or managed by the server is as good as missing.
fn odd_envelopes() -> Vec<Value> {
    let mut nested = json!(0);
    for _ in 0..62 {
        nested = json!([nested]);
    }
    let mut all = values(
        r#"[{"args": []}, {"type": "a"}, {"type": "a", "args": null}, {"type": null, "args": []},
            {"type": 7, "args": []}, {"type": "a", "args": {}}]"#,
    );
    all.push(json!({"type": "a", "args": nested}));
    all.push(json!({"type": "a", "args": [nested]}));
    for root in values(
        r#"[{"meta": {"tenant_id": "acme", "note": null}}, {"meta": []}, {"meta": null},
            {"state": "completed"}, {"specversion": "1.0"}, {"unknown": {"kept": true}},
            {"id": "0190f3a4-1111-4000-8000-000000000001"},
            {"id": "0190F3A4-1111-7000-8000-000000000001"},
            {"id": "0190f3a4111170008000000000000001"}, {"id": 7}, {"id": null},
            {"queue": "at-the-root"}, {"options": null}, {"options": []},
            {"options": {"surprise": {"a": null}, "tags": ["a", "b"]}}]"#,
    ) {
        let mut job = json!({"type": "email.send", "args": [1]});
        for (name, value) in root.as_object().unwrap() {
            job[name] = value.clone();
        }
        all.push(job);
    }
    all
}

fn names() -> Vec<Value> {
    let mut names = values(
        r#"["a", "A", "a.b-c_d.e", "a..b", ".a", "a.", "1a", "a.1", "a.-b", "ä", "a b", "", 7,
            null]"#,
    );
    names.extend([255, 256].map(|length| json!("a".repeat(length))));
    let types = names.iter().map(|name| json!({"type": name, "args": []}));
    types.chain(asking(&["queue"], &names)).collect()
}

fn numbers_and_lengths() -> Vec<Value> {
    let lengths = values(
        r#"["PT30S", "PT0S", "P1DT2H", "P1Y", "PT", "P", "PT1.5S", "PT1,5S", "PT1.S", "PT1S1M",
            "P1W2D", "P5000W", "P5300W", "P36600D", "P36601D", "PT878400H0.001S", "30s", "878400h",
            "878401h", "3162240001", "3162240000000ms", "3162240000001ms", 3162240000, 3162240001, "1.5h", "50000ms", "1.5ms", "5x", "s", "-5s", "", 30, 1.5, 0, -1,
            true]"#,
    );
    let millis = values(
        r#"[60000, 0, -1, 1.5, "1", null, 3162240000000, 3162240000001, 9223372036854775807,
            9223372036854775808]"#,
    );
    let waits = lengths.iter().flat_map(|length| {
        [
            json!({ "initial_interval": length }),
            json!({ "initial_interval": length, "initial_interval_ms": 5 }),
        ]
    });
    let mut all = asking(&["retry"], &waits.collect::<Vec<_>>());
    all.extend(asking(&["timeout", "visibility_timeout", "delay"], &lengths));
    all.extend(asking(&["timeout_ms", "visibility_timeout_ms", "delay_ms"], &millis));
    all.extend(asking(&["priority"], &values(r#"[-100, 100, 101, -101, 1.5, "1", null]"#)));
    all.extend(asking(&["overlap"], &values(r#"["allowed", "forbidden", "maybe", true]"#)));
    all
}

fn times() -> Vec<Value> {
    let times = values(
        r#"["2100-01-31T12:00:00Z", "2100-01-31T12:00:00.123456Z", "2100-01-31T12:00:00+02:00",
            "2100-13-31T12:00:00Z", "2100-02-30T12:00:00Z", "2100-01-31", "tomorrow", "now",
            "2100-01-31T12:00:00", "+PT5M", "+5s", "+P1Y", "+", 4102444800, "infinity", "",
            "2001-01-01T00:00:00Z"]"#,
    );
    asking(&["scheduled_at", "delay_until", "expires_at"], &times)
}

fn policies() -> Vec<Value> {
    let mut policies = values(
        r#"[[], null, {}, {"surprise": 1}, {"max_attempts": 0}, {"max_attempts": 10000},
            {"max_attempts": 10001}, {"max_attempts": -1}, {"max_attempts": 1.5},
            {"max_attempts": "3"}, {"max_interval_ms": 0}, {"max_interval_ms": -1},
            {"max_interval": "PT5M"}, {"backoff_coefficient": 1}, {"backoff_coefficient": 0.9},
            {"backoff_coefficient": 1000}, {"backoff_coefficient": 1000.1},
            {"backoff_coefficient": "2"}, {"backoff_strategy": "none"},
            {"backoff_strategy": "linear"}, {"backoff_strategy": "random"},
            {"backoff_type": "constant"}, {"backoff_type": 1}, {"jitter": true},
            {"jitter": "yes"}, {"jitter": null}, {"non_retryable_errors": ["a", "b"]},
            {"non_retryable_errors": ["a", 1]}, {"non_retryable_errors": "a"},
            {"on_exhaustion": "dead_letter"}, {"on_exhaustion": "panic"}]"#,
    );
    policies.push(json!({ "non_retryable_errors": vec!["e"; 101] }));
    let mut all = asking(&["retry"], &policies);
    all.extend(asking(&["pending"], &values(r#"[true, false, null, "yes", 1]"#)));
    all.extend(asking(&["rate_limit"], &values(r#"[null, {"key": "k"}, 1]"#)));
    all.push(with_options(&json!({"pending": true, "delay_ms": 5})));
    all
}

fn keys() -> Vec<Value> {
    let mut keys = values(
        r#"[null, {}, [], "tenant=42", 42, {"tenant": "42"}, {"tenant": 42, "beta": true},
            {"tenant": ""}, {"tenant": null}, {"tenant": ["42"]}, {"tenant": {}}, {"": "1"},
            {"Tenant": "42"}, {"a b": "1"}, {"\u00e4": "1"}, {"a.b_c-1": "\u00e4"},
            {"a": "1", "b": "1", "c": "1", "d": "1"},
            {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"}]"#,
    );
    keys.extend([64, 65].map(|length| json!({ "n".repeat(length): "1" })));
    keys.extend([256, 257].map(|length| json!({ "tenant": "v".repeat(length) })));
    let mut all = asking(&["keys"], &keys);
    all.push(json!({"type": "a", "args": [], "keys": {"tenant": "42"}}));
    all
}

fn selectors() -> Vec<Value> {
    let mut selectors = values(
        r#"[null, "", " ", "gpu", "gpu=true, zone in (a, b), !spot", "gpu==true,disk!=slow",
            "zone notin(a)", "zone in ()", "zone in (a,)", "zone= a", "gpu=", "x.io/tier=1",
            "in in (in)", "a=b\n,\tc", "gpu true", "gpu,", ",gpu", "=x", "zone in a", "zone in (a",
            "zone in (a b)", "-x", "x-", "a=b c", "ä=1", "a=-", "!", "!!a", "a/b/c", "/a",
            "a>1", "(a)", 1, true, [], {"gpu": true}]"#,
    );
    selectors.extend([63, 64].map(|length| json!(format!("a={}", "v".repeat(length)))));
    selectors.extend([512, 513].map(|count| json!(vec!["a"; count].join(","))));
    asking(&["requires", "prefers"], &selectors)
}

/// Times and the id are of the moment.
fn lasting(mut job: Value) -> Value {
    // Who enqueued it differs with the door.
    if let Some(job) = job.as_object_mut() {
        job.remove("enqueued_by");
    }
    for field in ["id", "created_at", "enqueued_at", "scheduled_at", "expires_at"] {
        if let Some(field) = job.get_mut(field) {
            *field = json!("some");
        }
    }
    job
}

#[test]
fn both_doors_take_the_same_jobs_make_the_same_of_them_and_refuse_the_rest_in_the_same_words() {
    let scene = scene(NEVER);
    let program = program(&scene);
    let mut wrong = Vec::new();
    let (mut taken, mut refused) = (0, 0);
    let jobs =
        [odd_envelopes(), names(), numbers_and_lengths(), times(), policies(), keys(), selectors()];
    for job in jobs.into_iter().flatten() {
        let by_http = scene.api().post("/ojs/v1/jobs", &job);
        let literal = job.to_string().replace('\'', "''");
        let by_sql = program.try_run(&format!("select outlast.enqueue_all('[{literal}]')"));
        let short: String = job.to_string().chars().take(120).collect();
        match (by_http.status, by_sql) {
            (201, Ok(id)) => {
                taken += 1;
                let http_id = by_http.body["job"]["id"].as_str().unwrap_or_default();
                let (ours, theirs) = (scene.api().ojs_job(&id), scene.api().ojs_job(http_id));
                if lasting(ours.clone()) != lasting(theirs.clone()) {
                    wrong.push(format!("{short}: {theirs} by HTTP is by SQL {ours}"));
                }
            }
            (400 | 422, Err((code, words))) if code == "OL002" => {
                refused += 1;
                let theirs = by_http.body["error"]["message"].as_str().unwrap_or_default();
                let ours = words.strip_prefix("jobs[0]: ").unwrap_or(&words);
                // The place of a slip is said by HTTP only.
                let field = |words: &str| {
                    words.split_once(" is no selector").map(|(field, _)| field.to_owned())
                };
                let same = theirs == ours
                    || (field(theirs).is_some() && field(theirs) == field(ours))
                    || !theirs.starts_with("field");
                if !same && !theirs.contains("already expired") {
                    wrong.push(format!("{short}: {theirs:?} by HTTP is by SQL {ours:?}"));
                }
            }
            (status, by_sql) => wrong.push(format!("{short}: {status} by HTTP, by SQL {by_sql:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(taken > 60 && refused > 100, "{taken} were taken and {refused} refused");
}

#[test]
fn expiry_and_schedule_given_in_sql_are_kept() {
    let scene = scene(NEVER);
    let program = program(&scene);
    let id = program.run(
        "select outlast.enqueue('email.send', '[1]', queue => 'mail', priority => 7,
             scheduled_at => '2100-01-31 12:00:00.5+00', expires_at => '2100-02-01 00:00Z',
             timeout => '90 seconds', retry => '{\"max_attempts\": 9}', tags => '{a,b}',
             meta => '{\"note\": null}', tenant => 'acme', overlap => 'forbidden',
             keys => '{\"tenant\": 42}', requires => 'gpu=true', prefers => '!spot')",
    );
    let job = scene.api().ojs_job(&id);
    let seen = json!({
        "queue": job["queue"], "priority": job["priority"], "state": job["state"],
        "scheduled_at": job["scheduled_at"], "expires_at": job["expires_at"],
        "timeout_ms": job["timeout_ms"], "max_attempts": job["max_attempts"],
        "tags": job["tags"], "note": job["meta"].get("note"), "tenant": job["meta"]["tenant_id"],
        "keys": job["keys"], "options": [job["options"]["requires"], job["options"]["prefers"]],
    });
    assert_eq!(
        seen,
        json!({
            "queue": "mail", "priority": 7, "state": "scheduled",
            "scheduled_at": "2100-01-31T12:00:00.5Z", "expires_at": "2100-02-01T00:00:00Z",
            "timeout_ms": 90_000, "max_attempts": 9, "tags": ["a", "b"], "note": null,
            "tenant": "acme", "keys": {"tenant": "42"}, "options": ["gpu=true", "!spot"],
        })
    );
    let soon = program.run(
        "select outlast.enqueue('email.send', scheduled_at => clock_timestamp() + interval '1 s')",
    );
    eventually("it is due", within(LEASE + Duration::from_secs(1)), || {
        (scene.api().ojs_job(&soon)["state"] == "available").then_some(())
    });
}
