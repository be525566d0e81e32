//! Heartbeats of plain clients: a client may hold less than it has fetched, for example because the
//! response to a fetch was lost.

use std::time::{Duration, Instant};

use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Scene, ServerOptions};
use serde_json::{Value, json};

/// How long a fetched job stays with its holder without a heartbeat.
const VISIBILITY: Duration = Duration::from_secs(3);

/// Enqueues jobs of the queue `plain` that come back soon.
fn jobs<const N: usize>(api: &Api) -> [String; N] {
    let options = json!({ "queue": "plain", "visibility_timeout_ms": 3000 });
    [(); N].map(|()| api.ojs_enqueue("work", &options))
}

fn beat(api: &Api, holds: &Value) -> Value {
    let mut said = json!({ "worker_id": "w", "state": "running" });
    if !holds.is_null() {
        said["active_jobs"] = holds.clone();
    }
    api.post("/ojs/v1/workers/heartbeat", &said).expect(200)
}

/// Sends heartbeats for some time, in turn to several servers.
fn beats(apis: &[&Api], holds: &Value, length: Duration) {
    let began = Instant::now();
    for api in apis.iter().cycle() {
        if began.elapsed() >= length {
            break;
        }
        beat(api, holds);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Fetches one job.
fn fetch(api: &Api, worker: &str) -> Option<String> {
    let job = api.ojs_fetch("plain", worker, 1).pop()?;
    Some(job["id"].as_str().expect("an id").to_owned())
}

#[test]
fn a_job_of_a_lost_response_runs_elsewhere_while_its_client_counts_the_others() {
    let scene = Scene::start();
    let api = scene.api();
    let [first, lost] = jobs(api);
    assert_eq!(fetch(api, "w"), Some(first.clone()));
    eventually("the first job is extended", within(VISIBILITY), || {
        (beat(api, &json!(1))["jobs_extended"] == json!([first])).then_some(())
    });
    // This response never arrives at the client.
    assert_eq!(fetch(api, "w"), Some(lost.clone()));
    eventually("the job that is not counted is named", within(VISIBILITY), || {
        let reply = beat(api, &json!(1));
        assert!(!reply["jobs_extended"].as_array().expect("a list").contains(&json!(lost)));
        (reply["unconfirmed_jobs"] == json!([lost])).then_some(())
    });
    let elsewhere = eventually("the job runs elsewhere", within(VISIBILITY * 2), || {
        beat(api, &json!(1));
        fetch(api, "other")
    });
    assert_eq!(elsewhere, lost);
    assert_eq!(api.ojs_job(&first)["state"], "active");
    let path = "/api/v1/events?stream=false&type=job.unconfirmed";
    let events = api.get(path).expect(200);
    let about: Vec<_> = events["data"].as_array().expect("events").iter().collect();
    assert_eq!(about.len(), 1, "{events}");
    assert_eq!(about[0]["subject"], lost.as_str(), "{events}");
    let errors = scene.server().process().log();
    assert!(errors.contains("counts fewer jobs than it has fetched"), "{errors}");
}

/// They stayed with the client for as long as it lived.
#[test]
fn heartbeats_at_two_servers_count_as_at_one() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    let (here, there) = (scene.api(), Api::new(&other.url()));
    let [first, lost] = jobs(here);
    assert_eq!(fetch(here, "w"), Some(first.clone()));
    eventually("the first job is extended", within(VISIBILITY), || {
        (beat(&there, &json!(1))["jobs_extended"] == json!([first])).then_some(())
    });
    assert_eq!(fetch(&there, "w"), Some(lost.clone()));
    beats(&[here, &there], &json!(1), VISIBILITY * 2);
    assert_eq!(fetch(here, "other"), Some(lost));
    assert_eq!(there.ojs_job(&first)["state"], "active");
}

#[test]
fn jobs_of_a_client_that_never_counted_them_all_come_back() {
    let scene = Scene::start();
    let api = scene.api();
    let both: [String; 2] = jobs(api);
    assert_eq!(api.ojs_fetch("plain", "w", 2).len(), 2);
    beats(&[api], &json!(1), VISIBILITY * 2);
    let mut again = [(); 2].map(|()| fetch(api, "other").expect("a job"));
    again.sort();
    let mut expected = both;
    expected.sort();
    assert_eq!(again, expected);
}

#[test]
fn a_heartbeat_that_says_nothing_about_jobs_extends_none() {
    let scene = Scene::start();
    let api = scene.api();
    let [job] = jobs(api);
    assert_eq!(fetch(api, "w"), Some(job.clone()));
    assert_eq!(beat(api, &Value::Null)["jobs_extended"], json!([]));
    beats(&[api], &Value::Null, VISIBILITY);
    let again = eventually("the job runs elsewhere", within(VISIBILITY), || fetch(api, "other"));
    assert_eq!(again, job);
}
