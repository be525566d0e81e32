//! Schedules over HTTP: setting, what is refused, who may change them, firing by hand.

use http::Method;
use outlast_wire::schedule::{NamedSchedule, listed};
use serde_json::{Value, json};

use crate::api::{Api, Reply};

async fn set(api: &Api, name: &str, schedule: Value) -> Reply {
    api.ask(Method::PUT, &format!("/api/v1/schedules/{name}"), Some(&schedule)).await
}

async fn show(api: &Api, name: &str) -> Value {
    api.get(&format!("/api/v1/schedules/{name}")).await.expect(200)["data"].clone()
}

async fn order(api: &Api, name: &str, order: &str) -> Reply {
    api.ask(Method::POST, &format!("/api/v1/schedules/{name}/{order}"), None).await
}

fn daily() -> Value {
    json!({"cron": "0 9 * * *", "time_zone": "Europe/Vienna", "type": "t", "args": [1]})
}

fn of_configuration(fields: Value) -> NamedSchedule {
    listed(fields.as_object().expect("an object")).expect("a schedule")
}

#[tokio::test]
async fn schedule_is_set_shown_changed_and_removed() {
    let api = Api::start();
    let created = set(&api, "report", daily()).await.expect(201)["data"].clone();
    assert_eq!(created, show(&api, "report").await);
    // 2027-01-15 at 8:00 UTC is now; Vienna's clock shows 9:00.
    assert_eq!(created["next_fire"], "2027-01-16T08:00:00Z");
    assert_eq!((&created["status"], &created["overlap"]), (&json!("active"), &json!("skip")));
    assert_eq!((&created["catch_up"], &created["configured"]), (&json!("one"), &json!(false)));
    assert_eq!((&created["type"], &created["job"]["args"]), (&json!("t"), &json!([1])));
    // The same again changes nothing.
    let again = set(&api, "report", daily()).await.expect(200)["data"].clone();
    assert_eq!(again, created);
    let mut other = daily();
    other["cron"] = json!("0 10 * * *");
    let changed = set(&api, "report", other).await.expect(200)["data"].clone();
    assert_eq!(changed["next_fire"], "2027-01-15T09:00:00Z");
    assert_eq!(changed["created"], created["created"]);
    let gone = api.delete("/api/v1/schedules/report").await.expect(200);
    assert_eq!(gone, json!({"data": {"name": "report", "removed": true}}));
    let error = api.get("/api/v1/schedules/report").await.refused(404, "not_found");
    assert_eq!(error["message"], "schedule report is not known");
    assert_eq!(error["hint"], "GET /api/v1/schedules lists all schedules");
}

#[tokio::test]
async fn what_is_wrong_is_named_with_what_would_be_right_and_nothing_is_stored() {
    let api = Api::start();
    let cases = [
        (json!({"cron": "0 25 * * *"}), "validation_error", "hour `25`"),
        (json!({"cron": "0 0 31 2 *"}), "validation_error", "never"),
        (
            json!({"cron": "* 2 8-14 3 +SUN", "time_zone": "America/New_York"}),
            "validation_error",
            "never fires",
        ),
        (json!({"time_zone": "CET"}), "validation_error", "name a place"),
        (json!({"time_zone": "Europe/Viena"}), "validation_error", "Europe/Vienna"),
        (json!({"overlap": "wait"}), "invalid_request", "skip, queue, replace or allow"),
        (json!({"catch_up": "some"}), "invalid_request", "none, one or all"),
        (json!({"until": "2020-01-01T00:00:00Z"}), "validation_error", "before the schedule fires"),
        (json!({"unique": {"keys": ["type"]}}), "invalid_request", "`unique` is not known"),
        (json!({"type": "Not A Type"}), "invalid_request", "type"),
    ];
    for (change, code, expected) in cases {
        let mut schedule = daily();
        for (name, value) in change.as_object().expect("fields") {
            schedule[name] = value.clone();
        }
        let status = if code == "validation_error" { 422 } else { 400 };
        let error = set(&api, "report", schedule).await.refused(status, code);
        assert!(error["message"].as_str().is_some_and(|it| it.contains(expected)), "{error}");
    }
    let action = json!({"cron": "@daily", "action_ref": "core.nothing"});
    let error = set(&api, "report", action).await.refused(404, "not_found");
    assert!(error["message"].as_str().is_some_and(|it| it.contains("core.nothing")), "{error}");
    let list = api.get("/api/v1/schedules").await.expect(200);
    assert_eq!(list["data"], json!([]));
}

#[tokio::test]
async fn fire_by_hand_counts_jobs_that_wait_and_says_why_it_was_refused() {
    let api = Api::start();
    set(&api, "report", daily()).await.expect(201);
    let fired = order(&api, "report", "trigger").await.expect(201)["data"].clone();
    let id = fired["job_id"].as_str().expect("an id");
    let job = api.job(id).await;
    assert_eq!(job["schedule"]["name"], "report");
    assert_eq!(job["schedule"]["fire_time"], fired["fire_time"]);
    assert_eq!(job["meta"]["cron_name"], "report");
    assert_eq!(job["enqueued_by"], "schedule report");
    // It is claimable, and has not run yet.
    let error = order(&api, "report", "trigger").await.refused(409, "conflict");
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(id) && message.contains("overlap is skip"), "{message}");
    let claimed = api.fetch("w").await;
    assert_eq!(claimed["id"], json!(id));
    order(&api, "report", "trigger").await.refused(409, "conflict");
    api.ack(json!({"job_id": id, "worker_id": "w", "result": {}})).await.expect(200);
    order(&api, "report", "trigger").await.expect(201);
    let shown = show(&api, "report").await;
    assert_eq!(
        (&shown["fired"], &shown["open_jobs"][0]),
        (&json!(2), &shown["last_fire"]["job_id"])
    );
    // What is removed leaves its jobs.
    api.delete("/api/v1/schedules/report").await.expect(200);
    assert_eq!(api.job(id).await["state"], "completed");
}

#[tokio::test]
async fn overlap_may_replace_or_queue() {
    let api = Api::start();
    let with = |overlap: &str| {
        let mut schedule = daily();
        schedule["overlap"] = json!(overlap);
        schedule
    };
    set(&api, "replacing", with("replace")).await.expect(201);
    let first = order(&api, "replacing", "trigger").await.expect(201)["data"]["job_id"].clone();
    let second = order(&api, "replacing", "trigger").await.expect(201)["data"]["job_id"].clone();
    let state = async |id: &Value| api.job(id.as_str().expect("an id")).await["state"].clone();
    assert_eq!(
        (state(&first).await, state(&second).await),
        (json!("cancelled"), json!("available"))
    );
    set(&api, "queueing", with("queue")).await.expect(201);
    let first = order(&api, "queueing", "trigger").await.expect(201)["data"].clone();
    let second = order(&api, "queueing", "trigger").await.expect(201)["data"].clone();
    assert_eq!((&first["waits"], &second["waits"]), (&json!(false), &json!(true)));
    assert_eq!(state(&second["job_id"]).await, "pending");
}

#[tokio::test]
async fn pause_keeps_its_reason_until_it_is_resumed() {
    let api = Api::start();
    set(&api, "report", daily()).await.expect(201);
    let path = "/api/v1/schedules/report/pause";
    let paused = api.post(path, json!({"reason": "audit"})).await.expect(200)["data"].clone();
    assert_eq!((&paused["status"], &paused["next_fire"]), (&json!("paused"), &Value::Null));
    assert_eq!(paused["paused"]["reason"], "audit");
    // Setting other times does not resume it.
    let mut other = daily();
    other["cron"] = json!("0 10 * * *");
    let changed = set(&api, "report", other).await.expect(200)["data"].clone();
    assert_eq!(changed["status"], "paused");
    let resumed = order(&api, "report", "resume").await.expect(200)["data"].clone();
    assert_eq!(resumed["next_fire"], "2027-01-15T09:00:00Z");
    let events = api.get("/api/v1/events?stream=false&type=cron.*").await.expect(200);
    let kinds: Vec<_> =
        events["data"].as_array().expect("events").iter().map(|it| it["type"].clone()).collect();
    assert_eq!(kinds, ["cron.set", "cron.paused", "cron.set", "cron.resumed"]);
}

#[tokio::test]
async fn schedule_of_the_configuration_is_refused_to_commands() {
    let api = Api::start();
    set(&api, "free", daily()).await.expect(201);
    set(&api, "mine", daily()).await.expect(201);
    let mine = json!({"name": "mine", "cron": "@hourly", "type": "t"});
    let other = json!({"name": "other", "cron": "@hourly", "type": "t", "paused": true});
    let both = [of_configuration(mine.clone()), of_configuration(other)];
    api.engine.configure_schedules(&both).await.expect("in force");
    let shown = show(&api, "mine").await;
    assert_eq!((&shown["configured"], &shown["cron"]), (&json!(true), &json!("@hourly")));
    assert_eq!(show(&api, "other").await["status"], "paused");
    for reply in [set(&api, "mine", daily()).await, api.delete("/api/v1/schedules/mine").await] {
        let error = reply.refused(409, "conflict");
        let message = error["message"].as_str().expect("a message");
        assert!(message.starts_with("schedule mine belongs to the configuration"), "{message}");
    }
    // To pause one is no change of what the configuration says, and a reload leaves it.
    order(&api, "mine", "pause").await.expect(200);
    let before = show(&api, "mine").await;
    let other = json!({"name": "other", "cron": "@hourly", "type": "t"});
    let both = [of_configuration(mine.clone()), of_configuration(other)];
    api.engine.configure_schedules(&both).await.expect("in force");
    assert_eq!(show(&api, "mine").await, before);
    // The configuration had paused `other`; without `paused` the schedule is active again.
    assert_eq!(show(&api, "other").await["status"], "active");
    api.engine.configure_schedules(&[of_configuration(mine)]).await.expect("in force");
    let list = api.get("/api/v1/schedules").await.expect(200);
    let names: Vec<_> =
        list["data"].as_array().expect("a list").iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["free", "mine"]);
}

#[tokio::test]
async fn schedules_come_page_by_page() {
    let api = Api::start();
    for name in ["c", "a", "b"] {
        set(&api, name, daily()).await.expect(201);
    }
    let first = api.get("/api/v1/schedules?limit=2").await.expect(200);
    assert_eq!(first["pagination"]["next_cursor"], "b");
    let second = api.get("/api/v1/schedules?limit=2&cursor=b").await.expect(200);
    assert_eq!(
        (&second["data"][0]["name"], &second["pagination"]["next_cursor"]),
        (&json!("c"), &Value::Null)
    );
}

#[tokio::test]
async fn tenants_see_their_own_cron_jobs_only() {
    let api = Api::start();
    let ask = async |method: Method, path: &str, tenant: &str, body: Option<Value>| {
        let body = body.map_or_else(axum::body::Body::empty, |it| it.to_string().into());
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("x-ojs-tenant", tenant).body(body).expect("a request");
        api.send(request).await
    };
    let cron = json!({"name": "theirs", "cron": "@daily", "type": "t", "args": []});
    ask(Method::POST, "/ojs/v1/cron", "acme", Some(cron.clone())).await.expect(201);
    let all = async |tenant: &str| {
        ask(Method::GET, "/ojs/v1/cron", tenant, None).await.expect(200)["count"].clone()
    };
    assert_eq!((all("acme").await, all("other").await), (json!(1), json!(0)));
    ask(Method::GET, "/ojs/v1/cron/theirs", "other", None).await.refused(404, "not_found");
    ask(Method::DELETE, "/ojs/v1/cron/theirs", "other", None).await.refused(404, "not_found");
    ask(Method::POST, "/ojs/v1/cron", "other", Some(cron)).await.refused(404, "not_found");
    let fired = order(&api, "theirs", "trigger").await.expect(201)["data"]["job_id"].clone();
    let job = api.job(fired.as_str().expect("an id")).await;
    assert_eq!(job["meta"]["tenant_id"], "acme");
}
