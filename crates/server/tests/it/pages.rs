//! Lists of long jobs: what they leave out, and where their pages end. How long pages of the dashboard are.

use std::sync::Arc;

use outlast_core::budget::Budgets;
use outlast_core::time::Span;
use outlast_store::command::{Batch, BatchId, Command, Sweep};
use outlast_store::store::Store as _;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::Api;

/// Enqueues a job with arguments of this many bytes, about; returns its id.
async fn long(api: &Api, bytes: usize) -> String {
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let job = json!({"type": "t", "args": ["x".repeat(bytes)], "options": {"retry": retry}});
    let reply = api.post("/ojs/v1/jobs", job).await.expect(201);
    reply["job"]["id"].as_str().expect("an id").to_owned()
}

/// Eight pages of sixty jobs of 900 KB once took the server from 33 to 880 MB.
#[tokio::test]
async fn a_list_leaves_out_long_parameters_and_says_how_long_they_are() {
    let api = Api::start();
    let id = long(&api, 900_000).await;
    for _ in 0..9 {
        long(&api, 900_000).await;
    }
    let list = api.get("/api/v1/executions?limit=100").await;
    assert!(list.text.len() < 20_000, "{} bytes", list.text.len());
    let list = list.expect(200);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(10));
    let listed = &list["data"][9];
    assert_eq!((&listed["id"], &listed["parameters"]), (&json!(id), &Value::Null));
    assert_eq!(listed["omitted"], json!({"parameters": 900_004}));
    let shown = &api.get(&format!("/api/v1/executions/{id}")).await.expect(200)["data"];
    assert_eq!(shown["parameters"][0].as_str().map(str::len), Some(900_000));
    assert_eq!(shown.get("omitted"), None);
}

#[tokio::test]
async fn pages_of_long_jobs_are_short_and_lead_to_all_of_them() {
    let api = Api::start();
    for _ in 0..150 {
        long(&api, 16_000).await;
    }
    let (mut pages, mut jobs, mut cursor) = (0, 0, String::new());
    loop {
        let page = api.get(&format!("/api/v1/executions?limit=1000&cursor={cursor}")).await;
        assert!(page.text.len() < 1_300_000, "{} bytes", page.text.len());
        let page = page.expect(200);
        jobs += page["data"].as_array().map_or(0, Vec::len);
        pages += 1;
        let Some(next) = page["pagination"]["next_cursor"].as_str() else { break };
        next.clone_into(&mut cursor);
    }
    assert_eq!((jobs, pages), (150, 3));
}

#[tokio::test]
async fn dead_letters_leave_out_long_arguments_and_a_page_counts_their_errors() {
    let api = Api::start();
    let message = "m".repeat(15_000);
    for _ in 0..60 {
        let id = long(&api, 20_000).await;
        api.fetch("w").await;
        api.nack(json!({"job_id": id, "error": {"code": "c", "message": message}})).await;
    }
    let (mut letters, mut pages, mut cursor) = (0, 0, String::new());
    loop {
        let path = format!("/ojs/v1/dead-letter?limit=1000&cursor={cursor}");
        let page = api.get(&path).await.expect(200);
        let jobs = page["jobs"].as_array().expect("jobs");
        assert!(jobs.iter().all(|job| job["args"] == json!([])));
        assert!(jobs.iter().all(|job| job["omitted"] == json!({"args": 20_004})));
        (letters, pages) = (letters + jobs.len(), pages + 1);
        let Some(next) = page["pagination"]["next_cursor"].as_str() else { break };
        next.clone_into(&mut cursor);
    }
    assert_eq!((letters, pages), (60, 2));
}

/// The page of a hundred queues once had 72 KB, and each update 16.
#[tokio::test]
async fn page_of_a_hundred_queues_and_its_updates_are_small() {
    let api = Api::start();
    for n in 0..100 {
        for _ in 0..(n % 15) {
            api.enqueue(json!({"queue": format!("mail.digest-{n}")})).await;
        }
        let delayed = json!({"queue": format!("mail.digest-{n}"), "delay_until": "+PT1H"});
        api.enqueue(delayed).await;
    }
    // The snapshot is a second old at most.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let page = api.get("/queues").await;
    assert_eq!(page.text.matches("data-testid=\"queue-mail.digest-").count(), 100);
    assert!(page.text.len() <= 60 * 1024, "{} bytes", page.text.len());
    let update = api.get("/live?page=queues").await;
    assert!(update.text.len() <= 4 * 1024, "{} bytes: {}", update.text.len(), update.text);
    let lines = update.expect(200)["cells"]["queues"].as_array().expect("lines").clone();
    assert_eq!(lines.len(), 100);
    assert!(lines.contains(&json!("mail.digest-14|○ open|14|1||||||")), "{lines:?}");
}

/// The page once read what 8 MB of the log had, and said that there may have been more.
#[tokio::test]
async fn losses_are_on_pages_each_with_what_it_was_charged() {
    let api = Api::start();
    for _ in 0..60 {
        api.enqueue(json!({})).await;
    }
    let fetch = json!({"queues": ["default"], "worker_id": "w", "count": 60,
        "visibility_timeout_ms": 1_000});
    let fetched = api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    assert_eq!(fetched["jobs"].as_array().map(Vec::len), Some(60));
    api.clock.advance(2_000);
    // The server itself has not watched for long enough to do it.
    let sweep = Sweep { limit: 100, watched: Span::from_secs(86_400) };
    let id = BatchId { server: Uuid::from_u128(7), n: 1 };
    let commands = vec![Command::Sweep(sweep)];
    let batch = Batch { id, jitter_seed: 0, budgets: Budgets::DEFAULT, commands };
    api.store.apply(Arc::new(batch)).await.expect("it is swept");
    let rows = |page: &str| page.matches("data-testid=\"loss\"").count();
    let page = api.get("/losses").await.text;
    assert_eq!(rows(&page), 50, "{page}");
    assert!(
        page.contains("<td>loss and failure</td>") && page.contains("<td>lease</td>"),
        "{page}"
    );
    let href = page.split("href=\"").find(|rest| rest.contains(">Earlier losses<"));
    let href = href.and_then(|rest| rest.split('"').next()).expect("a link");
    let earlier = api.get(&format!("/{}", href.trim_start_matches("./"))).await.text;
    assert_eq!(rows(&earlier), 10, "{earlier}");
    assert!(!earlier.contains("Earlier losses") && !earlier.contains("data-grow"), "{earlier}");
    // As the API has it.
    let lost = api.get("/api/v1/events?newest=true&type=job.lost&limit=100").await.expect(200);
    let lost = lost["data"].as_array().expect("events");
    assert_eq!(lost.len(), 60);
    let job = lost[0]["subject"].as_str().expect("a job");
    let attempts = api.get(&format!("/api/v1/executions/{job}/attempts")).await.expect(200);
    assert_eq!(attempts["data"][0]["charges"], json!(["loss", "failure"]));
    let nonsense = api.get("/losses?before=nonsense").await;
    assert_eq!(nonsense.status, 400, "{}", nonsense.text);
}
