//! Streams of events: order, filters, resumption, and how they end.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use outlast_core::budget::Budgets;
use outlast_store::command::QueueOrder;
use outlast_store::{Batch, BatchId, Command};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::api::Api;

/// A reader of a stream.
struct Reader {
    body: Body,
    unread: String,
    /// Where it began, where no event says so.
    begun: Option<String>,
}

/// One event, with the cursor in its `id:` line.
#[derive(Debug)]
struct StreamedEvent {
    id: String,
    event: Value,
}

impl StreamedEvent {
    fn kind(&self) -> &str {
        self.event["type"].as_str().expect("a type")
    }
}

impl Reader {
    async fn open(api: &Api, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = api.open(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let mut reader = Self { body: response.into_body(), unread: String::new(), begun: None };
        let greeting = reader.block().await.expect("a greeting");
        let rest = greeting.strip_prefix("retry: 1000").expect("how long to wait");
        reader.begun = rest.strip_prefix("\nid: ").map(ToOwned::to_owned);
        reader
    }

    /// Returns the next block of lines; nothing when the stream has ended.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.unread = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(Duration::from_secs(30), self.body.frame());
            let frame = frame.await.expect("a frame or the end within the bound")?;
            let data = frame.expect("a sound frame").into_data().expect("data");
            self.unread.push_str(std::str::from_utf8(&data).expect("text"));
        }
    }

    async fn next(&mut self) -> Option<StreamedEvent> {
        loop {
            let block = self.block().await?;
            if block.starts_with(':') {
                continue;
            }
            let lines: Vec<&str> = block.lines().collect();
            let [id, name, data] = lines[..] else { panic!("not an event: {block}") };
            let id = id.strip_prefix("id: ").expect("an id").to_owned();
            let name = name.strip_prefix("event: ").expect("the event's name");
            let data = data.strip_prefix("data: ").expect("data");
            let event: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!((&event["id"], &event["type"]), (&json!(id), &json!(name)));
            return Some(StreamedEvent { id, event });
        }
    }

    /// Returns the events until the stream ends.
    async fn rest(&mut self) -> Vec<StreamedEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    async fn take(&mut self, count: usize) -> Vec<StreamedEvent> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await.expect("another event"));
        }
        events
    }
}

/// It once took until the next heartbeat of the stream, ten seconds.
#[tokio::test]
async fn a_stream_soon_tells_what_happens_at_another_server() {
    let here = Api::start();
    let there = here.another();
    let mut live = Reader::open(&there, "/api/v1/events?queue=far", &[]).await;
    let id = here.enqueue(json!({"queue": "far"})).await;
    let enqueued = tokio::time::Instant::now();
    let events = live.next().await.expect("an event");
    assert_eq!(events.event["data"]["job_id"], json!(id));
    assert!(enqueued.elapsed() < Duration::from_secs(6), "{:?}", enqueued.elapsed());
}

fn kinds(events: &[StreamedEvent]) -> Vec<&str> {
    events.iter().map(StreamedEvent::kind).collect()
}

#[tokio::test]
async fn a_stream_tells_what_happens_from_now_on_and_of_what_before_with_a_cursor() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let mut live = Reader::open(&api, "/api/v1/events", &[]).await;
    let id = api.enqueue(json!({"queue": "q"})).await;
    let events = live.next().await.expect("an event");
    assert_eq!((events.kind(), &events.event["data"]["job_id"]), ("job.enqueued", &json!(id)));
    assert_eq!(events.event["data"]["queue"], "q");
    let next = api.enqueue(json!({})).await;
    for (path, headers) in [
        (format!("/api/v1/events?cursor={}", events.id), vec![]),
        ("/api/v1/events".to_owned(), vec![("last-event-id", &*events.id)]),
    ] {
        let mut resumed = Reader::open(&api, &path, &headers).await;
        let events = resumed.next().await.expect("an event");
        assert_eq!(events.event["data"]["job_id"], json!(next), "{path}");
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice() {
    let api = Api::start();
    let mut reader = Reader::open(&api, "/api/v1/events", &[]).await;
    let mut seen = Vec::new();
    for round in 0..5 {
        for _ in 0..7 {
            api.enqueue(json!({})).await;
        }
        for events in reader.take(3 + round % 2).await {
            seen.push(events);
        }
        let last = seen.last().expect("an event").id.clone();
        reader = Reader::open(&api, "/api/v1/events", &[("last-event-id", &last)]).await;
    }
    seen.extend(reader.take(35 - seen.len()).await);
    let page = api.get("/ojs/v1/events?limit=100").await.expect(200);
    let all: Vec<&Value> = page["events"].as_array().expect("a list").iter().collect();
    assert_eq!(seen.iter().map(|events| &events.event).collect::<Vec<_>>(), all);
}

#[tokio::test]
async fn a_stream_is_narrowed_by_execution_queue_type_and_worker() {
    let api = Api::start();
    let id = api.enqueue(json!({"queue": "q"})).await;
    let open = async |filter: &str| {
        let begin = api.get("/ojs/v1/events?limit=1&type=queue.paused").await.expect(200);
        assert_eq!(begin["events"], json!([]));
        Reader::open(&api, &format!("/api/v1/events?{filter}"), &[]).await
    };
    let mut of_job = open(&format!("execution={id}")).await;
    let mut of_queue = open("queue=q,other").await;
    let mut of_type = open("type=job.completed,job.failed").await;
    let mut of_nobody = open("worker=01890a5d-ac96-774b-bcce-b302099a8057").await;
    api.enqueue(json!({})).await;
    let fetch = json!({"queues": ["q"], "worker_id": "w"});
    api.post("/ojs/v1/workers/fetch", fetch).await.expect(200);
    api.ack(json!({"job_id": id})).await.expect(200);
    for reader in [&mut of_job, &mut of_queue] {
        let events = reader.take(2).await;
        assert!(
            events.iter().all(|events| events.event["data"]["job_id"] == json!(id)),
            "{events:?}"
        );
        assert_eq!(events[0].kind(), "job.claimed");
    }
    assert_eq!(of_type.next().await.expect("an event").kind(), "job.completed");
    api.stop();
    assert!(of_nobody.next().await.is_none());
}

#[tokio::test]
async fn the_stream_of_an_execution_begins_with_its_first_event() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let id = api.enqueue(json!({})).await;
    let path = format!("/api/v1/executions/{id}/events");
    let asked = format!("{path}?stream=true");
    let by_header = [("accept", "text/event-stream")];
    for (path, headers) in [(&asked, &[][..]), (&path, &by_header)] {
        let mut reader = Reader::open(&api, path, headers).await;
        let events = reader.take(1).await;
        assert_eq!(
            (kinds(&events), &events[0].event["data"]["job_id"]),
            (vec!["job.enqueued"], &json!(id))
        );
    }
    let page = api.get(&path).await.expect(200);
    assert_eq!(page["data"][0]["type"], "job.enqueued");
    let mut reader = Reader::open(&api, &asked, &[]).await;
    api.delete(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    assert_eq!(kinds(&reader.rest().await), ["job.enqueued", "job.cancelled"]);
    api.get("/api/v1/executions/01890a5d-ac96-774b-bcce-b302099a8057/events?stream=true")
        .await
        .refused(404, "not_found");
}

/// It once went on forever, so that every reader had to know which event was the last one.
#[tokio::test]
async fn the_stream_of_an_execution_ends_with_it_and_who_comes_back_is_sent_nothing() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let path = format!("/api/v1/executions/{id}/events?stream=true");
    let by_filter = format!("/api/v1/events?execution={id}");
    let mut under_way = Reader::open(&api, &path, &[]).await;
    let mut filtered = Reader::open(&api, &by_filter, &[]).await;
    assert_eq!(api.fetch("w").await["id"], json!(id));
    api.ack(json!({"job_id": id})).await.expect(200);
    let story = ["job.enqueued", "job.claimed", "job.started", "job.completed"];
    let events = under_way.rest().await;
    assert_eq!(kinds(&events), story);
    assert_eq!(kinds(&filtered.rest().await), &story[1..]);
    let mut late = Reader::open(&api, &path, &[]).await;
    assert_eq!(kinds(&late.rest().await), story);
    let last = [("last-event-id", &*events[3].id)];
    for path in [&path, &by_filter] {
        let request = Request::get(path).header(last[0].0, last[0].1);
        let reply = api.send(request.body(Body::empty()).expect("a request")).await;
        assert_eq!((reply.status.as_u16(), &*reply.text), (204, ""), "{path}");
    }
}

#[tokio::test]
async fn the_filtered_stream_of_an_execution_ends_too_and_says_where() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let path = format!("/api/v1/executions/{id}/events?stream=true&type=job.claimed");
    let mut reader = Reader::open(&api, &path, &[]).await;
    assert_eq!(api.fetch("w").await["id"], json!(id));
    api.ack(json!({"job_id": id})).await.expect(200);
    assert_eq!(reader.next().await.expect("an event").kind(), "job.claimed");
    let last = reader.block().await.expect("the cursor at the end");
    assert_eq!(reader.block().await, None);
    let cursor = last.strip_prefix("id: ").expect("a cursor");
    let again = api.get(&format!("{path}&cursor={cursor}")).await;
    assert_eq!(again.status, 204);
}

#[tokio::test]
async fn the_stream_of_a_retried_execution_goes_on_in_its_next_life() {
    let api = Api::start();
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let id = api.enqueue(json!({"retry": retry})).await;
    assert_eq!(api.fetch("w").await["id"], json!(id));
    let error = json!({"type": "E", "message": "m"});
    api.nack(json!({"job_id": id, "error": error})).await.expect(200);
    let path = format!("/api/v1/executions/{id}/events?stream=true");
    let first = Reader::open(&api, &path, &[]).await.rest().await;
    let last = first.last().expect("events");
    api.post(&format!("/api/v1/executions/{id}/retry"), json!({})).await.expect(200);
    let mut second = Reader::open(&api, &path, &[("last-event-id", &last.id)]).await;
    assert_eq!(second.next().await.expect("an event").kind(), "job.replayed");
    assert_eq!(api.fetch("w").await["id"], json!(id));
    api.ack(json!({"job_id": id})).await.expect(200);
    assert_eq!(kinds(&second.rest().await), ["job.claimed", "job.started", "job.completed"]);
}

/// A batch that logs one event.
fn pausing(n: u64) -> Batch {
    let pause = QueueOrder { queue: "q".into(), paused: true, by: "test".into() };
    Batch {
        id: BatchId { server: Uuid::nil(), n },
        jitter_seed: 0,
        budgets: Budgets::DEFAULT,
        commands: vec![Command::Queue(pause)],
    }
}

/// The log never stands still on a busy server: the stream ends all the same.
#[tokio::test]
async fn the_stream_of_an_execution_ends_while_others_go_on() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let mut reader =
        Reader::open(&api, &format!("/api/v1/executions/{id}/events?stream=true"), &[]).await;
    let store = Arc::clone(api.engine.store());
    let busy = tokio::spawn(async move {
        for n in 1.. {
            store.apply(pausing(n).into()).await.expect("a batch");
            tokio::task::yield_now().await;
        }
    });
    api.delete(&format!("/ojs/v1/jobs/{id}")).await.expect(200);
    assert_eq!(kinds(&reader.rest().await), ["job.enqueued", "job.cancelled"]);
    busy.abort();
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_by_a_comment() {
    let api = Api::start();
    api.enqueue(json!({})).await;
    let mut reader = Reader::open(&api, "/api/v1/events", &[]).await;
    let here = format!(": still here\nid: {}", reader.begun.clone().expect("a cursor"));
    assert_eq!(reader.block().await, Some(here.clone()));
    assert_eq!(reader.block().await, Some(here));
    api.enqueue(json!({})).await;
    assert_eq!(reader.next().await.expect("an event").kind(), "job.enqueued");
}

/// A reader of something rare on a busy server was once told nothing, not even how far the
/// log was read: it came back to the same place forever.
#[tokio::test(start_paused = true)]
async fn a_stream_that_passes_much_over_says_how_far_it_is() {
    let api = Api::start();
    let mut reader = Reader::open(&api, "/api/v1/events?type=worker.lapsed", &[]).await;
    let begun = reader.begun.clone();
    let (store, (under_way, begins)) = (Arc::clone(api.engine.store()), oneshot::channel());
    let busy = tokio::spawn(async move {
        let mut under_way = Some(under_way);
        for n in 1.. {
            store.apply(pausing(n).into()).await.expect("a batch");
            under_way.take().map(|under_way| under_way.send(()));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    });
    begins.await.expect("a first batch");
    let block = reader.block().await.expect("a sign of life");
    busy.abort();
    let here = block.strip_prefix(": still here\nid: ").expect("a cursor");
    assert_ne!(Some(here), begun.as_deref());
}

#[tokio::test]
async fn a_reader_who_has_seen_no_event_resumes_where_it_began() {
    let api = Api::start();
    api.enqueue(json!({"queue": "before"})).await;
    let reader = Reader::open(&api, "/api/v1/events", &[]).await;
    let begun = reader.begun.clone().expect("a cursor");
    drop(reader);
    api.enqueue(json!({"queue": "meanwhile"})).await;
    let mut reader = Reader::open(&api, "/api/v1/events", &[("last-event-id", &begun)]).await;
    assert_eq!(reader.take(1).await[0].event["data"]["queue"], "meanwhile");
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let api = Api::start();
    let mut reader = Reader::open(&api, "/api/v1/events", &[]).await;
    api.stop();
    assert!(reader.block().await.is_none());
}

#[tokio::test]
async fn wrong_cursors_and_filters_are_refused_before_anything_is_streamed() {
    let api = Api::start();
    for (query, named) in [
        ("cursor=nonsense", "cursor"),
        ("type=job.nonsense", "job.nonsense"),
        ("execution=x", "execution"),
        ("stream=perhaps", "stream"),
    ] {
        for path in ["/api/v1/events", "/ojs/v1/events"] {
            if path.starts_with("/ojs") && query.starts_with("stream") {
                continue;
            }
            let error = api.get(&format!("{path}?{query}")).await.refused(400, "invalid_request");
            let message = error["message"].as_str().expect("text");
            assert!(message.contains(named), "{path} {query}: {message}");
        }
    }
    api.get("/api/v1/events?worker=nobody").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_page_is_given_to_who_asks_for_json() {
    let api = Api::start();
    let id = api.enqueue(json!({})).await;
    let page = api.get("/api/v1/events?stream=false").await.expect(200);
    assert_eq!(page["data"][0]["data"]["job_id"], json!(id));
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    let rest = api.get(&format!("/api/v1/events?stream=false&cursor={cursor}")).await.expect(200);
    assert_eq!(rest["data"], json!([]));
}

#[tokio::test]
async fn newest_events_are_given_with_the_names_of_workers_and_a_way_back() {
    let api = Api::start();
    let ids = [api.enqueue(json!({})).await, api.enqueue(json!({})).await];
    api.beat(json!({"worker_id": "w1", "state": "running", "active_jobs": []})).await;
    let path = "/api/v1/events?newest=true";
    let page = api.get(&format!("{path}&limit=1&type=job.*")).await.expect(200);
    assert_eq!(page["data"][0]["data"]["job_id"], ids[1].as_str(), "{page}");
    let back = page["previous_cursor"].as_str().expect("there is an earlier one");
    let before = api.get(&format!("{path}&before={back}")).await.expect(200);
    assert_eq!(before["data"][0]["data"]["job_id"], ids[0].as_str(), "{before}");
    assert_eq!(before["previous_cursor"], Value::Null, "{before}");
    let next = page["next_cursor"].as_str().expect("a cursor");
    let after = api.get(&format!("/api/v1/events?stream=false&cursor={next}")).await.expect(200);
    assert_eq!(after["data"][0]["data"]["worker_name"], "w1", "{after}");
    let all = api.get(&format!("{path}&since=1h")).await.expect(200);
    let listed = api.get("/api/v1/events?stream=false&since=1h").await.expect(200);
    let kinds = |page: &Value| {
        let events = page["data"].as_array().expect("events").clone();
        events.into_iter().map(|event| event["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((kinds(&all), kinds(&all).len()), (kinds(&listed), 3));
    let none = api.get(&format!("{path}&until=1h")).await.expect(200);
    assert_eq!(none["data"], json!([]));
    for wrong in [
        "/api/v1/events?newest=maybe",
        "/api/v1/events?newest=true&cursor=a",
        "/api/v1/events?newest=true&before=a",
        "/api/v1/events?stream=false&until=1h",
        "/api/v1/events?newest=true&since=soon",
    ] {
        api.get(wrong).await.refused(400, "invalid_request");
    }
}

/// The log of a failover says where to look: at `store.*`.
#[tokio::test]
async fn every_family_of_events_can_be_asked_for() {
    let api = Api::start();
    for family in ["job", "execution", "queue", "limit", "cron", "worker", "store"] {
        api.get(&format!("/api/v1/events?stream=false&type={family}.*")).await.expect(200);
    }
    let path = "/api/v1/events?stream=false&type=jobs.*";
    api.get(path).await.refused(400, "invalid_request");
}
