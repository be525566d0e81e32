//! What the client does when the server does not answer as it should.

use std::time::Duration;

use outlast_sdk::{Client, ClientError, EventFilter, JobId, JobState, NewJob, Worker};

use crate::scripted_http::{Answer, ScriptedHttp};
use crate::support::within;

const JOB: &str = r#"{"job":{"specversion":"1.0","id":"01890a5d-ac96-774b-bcce-b302099a8057",
    "type":"t","state":"available","queue":"default","args":[1],"priority":0,"attempt":0,
    "max_attempts":3,"created_at":"2026-01-02T03:04:05.678Z","unknown":{"to":"us"}}}"#;
const ENDED: &str = r#"{"job":{"id":"01890a5d-ac96-774b-bcce-b302099a8057","type":"t",
    "state":"completed","queue":"default","args":[1],"priority":0,"attempt":1,"max_attempts":3,
    "created_at":"2026-01-02T03:04:05Z","result":7}}"#;
const BUSY: &str = r#"{"error":{"code":"unavailable","message":"store is busy"}}"#;

fn created() -> Answer {
    Answer::Says(201, JOB, &[])
}

fn id() -> JobId {
    "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
}

fn event(n: u32, kind: &str, state: &str) -> String {
    format!(
        "id: c{n}\ndata: {{\"id\":\"c{n}\",\"type\":\"{kind}\",\"time\":\"2026-01-02T03:04:05Z\",\
         \"data\":{{\"job_id\":\"{}\",\"state\":\"{state}\"}}}}\n\n",
        id()
    )
}

#[tokio::test]
async fn an_enqueue_is_repeated_under_the_same_key_until_it_is_answered() {
    let server = ScriptedHttp::start([
        Answer::HangsUp,
        Answer::Says(503, BUSY, &[("retry-after", "0")]),
        created(),
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let job = within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    assert_eq!((job.id, job.state), (id(), JobState::Available));
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    let keys: Vec<_> = asked.iter().map(|asked| asked.header("idempotency-key")).collect();
    assert!(keys[0].is_some_and(|key| !key.is_empty()), "{keys:?}");
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(asked.iter().all(|asked| asked.body == r#"{"type":"t","args":[1]}"#));
}

/// Each client begins with one of them at random.
#[tokio::test]
async fn a_client_of_several_servers_asks_another_one_at_once_when_one_is_away() {
    let away = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let server = ScriptedHttp::start(std::iter::repeat_n(created(), 16)).await;
    for _ in 0..8 {
        let urls = format!("{away}, {}", server.url);
        let client = Client::builder(urls).retry_for(Duration::ZERO).build().unwrap();
        let both = within(tokio::time::timeout(Duration::from_secs(5), async {
            tokio::join!(client.enqueue(NewJob::new("t", 1)), client.enqueue(NewJob::new("t", 1)))
        }));
        let (one, two) = both.await.unwrap();
        assert_eq!((one.unwrap().id, two.unwrap().id), (id(), id()));
    }
    let urls = format!("{away},{away}");
    let client = Client::builder(urls).retry_for(Duration::ZERO).build().unwrap();
    let error = within(client.get(id())).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("server {away}/,{away}/ cannot")), "{error}");
    assert!(Client::new("http://a:1,b").is_err());
}

/// Both are busy at first: it asks one, the other, and the first one again.
#[tokio::test]
async fn a_request_that_one_server_does_not_answer_is_repeated_at_another_one() {
    let busy = || [Answer::Says(503, BUSY, &[("retry-after", "0")]), created()];
    let (one, two) = (ScriptedHttp::start(busy()).await, ScriptedHttp::start(busy()).await);
    let client = Client::new(format!("{},{}", one.url, two.url)).unwrap();
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    let asked: Vec<_> = one.asked().into_iter().chain(two.asked()).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(!one.asked().is_empty() && !two.asked().is_empty(), "{asked:?}");
    let key = asked[0].header("idempotency-key");
    assert!(key.is_some() && asked.iter().all(|it| it.header("idempotency-key") == key));
}

#[tokio::test]
async fn a_full_queue_is_its_producers_to_wait_for() {
    let full = r#"{"error":{"code":"QUEUE_FULL","message":"queue q is full",
        "details":{"queue":"q","depth":5,"max_depth":5}}}"#;
    let server =
        ScriptedHttp::start([Answer::Says(429, full, &[("retry-after", "7")]), created()]).await;
    let client = Client::new(&server.url).unwrap();
    let error = within(client.enqueue(NewJob::new("t", 1))).await.unwrap_err();
    let full = error.queue_full().unwrap();
    assert_eq!((full.queue.as_str(), full.depth, full.max_depth), ("q", 5, 5));
    assert_eq!(full.retry_after, Duration::from_secs(7));
    assert_eq!((error.status(), error.code()), (Some(429), Some("QUEUE_FULL")));
    assert_eq!(server.asked().len(), 1, "it is not repeated");
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
}

#[tokio::test]
async fn two_enqueues_have_two_keys_unless_their_caller_gives_one() {
    let server = ScriptedHttp::start([created(), created(), created()]).await;
    let client = Client::new(&server.url).unwrap();
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    within(client.enqueue(NewJob::new("t", 1).idempotency_key("mine"))).await.unwrap();
    let asked = server.asked();
    assert_ne!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
    assert_eq!(asked[2].header("idempotency-key"), Some("mine"));
}

#[tokio::test]
async fn what_could_be_done_twice_is_sent_once() {
    let server = ScriptedHttp::start([Answer::HangsUp, Answer::HangsUp, Answer::HangsUp]).await;
    let once = Client::builder(&server.url).retry_for(Duration::ZERO).build().unwrap();
    let error = within(once.enqueue(NewJob::new("t", 1))).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { tries: 1, .. }), "{error:?}");
    assert_eq!(server.asked()[0].header("idempotency-key"), None, "no caller asked for one");

    let patient = Client::new(&server.url).unwrap();
    let error = within(patient.retry(id())).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { tries: 1, .. }), "{error:?}");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_server_that_nobody_runs_is_named_when_patience_is_over() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let client = Client::builder(format!("http://{address}"))
        .retry_for(Duration::from_millis(200))
        .build()
        .unwrap();
    let error = within(client.get(id())).await.unwrap_err();
    let ClientError::Unreachable { server, tries, .. } = &error else { panic!("{error:?}") };
    assert!(server.contains(&address.to_string()));
    assert!(*tries > 1, "{error}");
}

#[tokio::test]
async fn a_refusal_is_told_once_and_in_the_words_of_the_server() {
    let body = r#"{"error":{"code":"permission_denied","message":"role viewer may not enqueue",
        "hint":"use a token of a producer"}}"#;
    let server = ScriptedHttp::start([Answer::Says(403, body, &[])]).await;
    let client = Client::builder(&server.url).token("my-token").build().unwrap();
    let error = within(client.enqueue(NewJob::new("t", 1))).await.unwrap_err();
    assert!(error.is_not_allowed());
    assert_eq!((error.status(), error.code()), (Some(403), Some("permission_denied")));
    assert_eq!(error.hint(), Some("use a token of a producer"));
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), Some("Bearer my-token"));
    let builders = (
        Client::builder(&server.url).token("hidden"),
        Worker::builder(&server.url).token(Some("hidden".to_owned())),
    );
    assert!(!format!("{client:?}").contains("my-token"), "{client:?}");
    assert!(!format!("{builders:?}").contains("hidden"), "{builders:?}");
}

#[tokio::test]
async fn a_cancel_whose_answer_was_lost_is_no_conflict() {
    let cancelled = r#"{"job":{"id":"01890a5d-ac96-774b-bcce-b302099a8057","type":"t",
        "state":"cancelled","queue":"default","args":[],"priority":0,"attempt":0,
        "max_attempts":3,"created_at":"2026-01-02T03:04:05Z"}}"#;
    let conflict = r#"{"error":{"code":"conflict","message":"job is already cancelled"}}"#;
    let server = ScriptedHttp::start([
        Answer::HangsUp,
        Answer::Says(409, conflict, &[]),
        Answer::Says(200, cancelled, &[]),
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let job = within(client.cancel(id())).await.unwrap();
    assert_eq!(job.state, JobState::Cancelled);

    let server =
        ScriptedHttp::start([Answer::Says(409, conflict, &[]), Answer::Says(200, ENDED, &[])])
            .await;
    let client = Client::new(&server.url).unwrap();
    assert!(within(client.cancel(id())).await.unwrap_err().is_conflict(), "it has completed");
}

#[tokio::test]
async fn events_go_on_after_the_last_one_when_the_connection_is_lost() {
    let half = "id: c3\ndata: {\"id\":\"c3\"";
    let server = ScriptedHttp::start([
        Answer::Streams(format!("retry: 1000\nid: c0\n\n{half}")),
        Answer::Streams(event(1, "job.enqueued", "available") + &event(2, "job.new", "odd") + half),
        Answer::Says(503, BUSY, &[("retry-after", "0")]),
        Answer::Streams(event(3, "job.completed", "completed")),
        Answer::Says(400, r#"{"error":{"code":"invalid_request","message":"bad"}}"#, &[]),
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let filter = EventFilter::default().types(["job.*"]).queues(["a", "b"]);
    let mut events = client.events(filter);
    let first = within(events.next()).await.unwrap();
    assert_eq!((first.event_type.as_str(), first.data.job), ("job.enqueued", Some(id())));
    assert_eq!(events.cursor(), Some("c1"), "the second one was read, but not handed over");
    let second = within(events.next()).await.unwrap();
    assert_eq!((second.event_type.as_str(), second.data.state), ("job.new", None));
    let third = within(events.next()).await.unwrap();
    assert_eq!(third.data.state, Some(JobState::Completed));
    assert_eq!(within(events.next()).await.unwrap_err().status(), Some(400), "that is for good");
    let asked: Vec<_> = server.asked().into_iter().map(|asked| asked.line).collect();
    let path = "GET /api/v1/events?stream=true&types=job.*&queues=a%2Cb";
    assert_eq!(
        asked,
        [
            path.to_owned(),
            format!("{path}&cursor=c0"),
            format!("{path}&cursor=c2"),
            format!("{path}&cursor=c2"),
            format!("{path}&cursor=c3"),
        ]
    );
}

#[tokio::test]
async fn events_of_a_job_end_after_its_last_one() {
    let last = event(1, "job.completed", "completed").replacen('\n', "\nevent: job.completed\n", 1);
    let server = ScriptedHttp::start([Answer::Streams(last), Answer::Says(204, "", &[])]).await;
    let mut events = Client::new(&server.url).unwrap().events(EventFilter::default().job(id()));
    assert_eq!(within(events.next()).await.unwrap().event_type, "job.completed");
    let ended = within(events.next()).await.unwrap_err();
    assert!(matches!(ended, ClientError::JobEnded), "{ended:?}");
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    assert!(asked[1].line.ends_with("/events?stream=true&cursor=c1"), "{}", asked[1].line);
}

#[tokio::test]
async fn where_there_are_no_events_a_wait_asks_again_and_again() {
    let none = Answer::Says(404, r#"{"error":{"code":"not_found","message":"no path"}}"#, &[]);
    let seen = Answer::Says(200, JOB, &[]);
    let server = ScriptedHttp::start([
        seen.clone(),
        none,
        seen.clone(),
        seen,
        Answer::Says(200, ENDED, &[]),
    ])
    .await;
    let client = Client::new(&server.url).unwrap();
    let job = within(client.wait(id(), Duration::from_secs(60))).await.unwrap();
    assert_eq!(job.result_as::<u32>().unwrap(), 7);
    let streams = server.asked().iter().filter(|asked| asked.line.contains("events")).count();
    assert_eq!(streams, 1, "it does not ask for what it cannot have");
}

#[tokio::test]
async fn a_wait_ends_with_its_patience_and_tells_what_was_seen() {
    let stream = Answer::Streams(event(1, "job.enqueued", "available"));
    let server = ScriptedHttp::start([Answer::Says(200, JOB, &[]), stream]).await;
    let client = Client::new(&server.url).unwrap();
    let error = within(client.wait(id(), Duration::from_millis(300))).await.unwrap_err();
    let ClientError::WaitTimedOut { job: Some(job), .. } = &error else { panic!("{error:?}") };
    assert_eq!(job.state, JobState::Available);
    assert_eq!(error.to_string(), "job had not ended after 300ms; it is available");
}

#[tokio::test]
async fn a_result_of_another_shape_is_an_error_that_names_the_job() {
    let server = ScriptedHttp::start([Answer::Says(200, ENDED, &[])]).await;
    let job = within(Client::new(&server.url).unwrap().get(id())).await.unwrap();
    let error = job.result_as::<String>().unwrap_err();
    assert!(error.to_string().contains(&id().to_string()), "{error}");
    let error = Client::new("ftp://example.org").unwrap_err();
    assert!(error.to_string().contains("http://"), "{error}");
}

// The token was read once: a stream that was opened again, or any later request, was refused for
// good after the token had been replaced.
#[tokio::test]
async fn a_token_that_was_replaced_is_read_again_when_the_old_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let unknown = || {
        let body = r#"{"error":{"code":"unauthenticated","message":"unknown token"}}"#;
        Answer::Says(401, body, &[])
    };
    let streams = |n, kind: &str| Answer::Streams(event(n, kind, "active"));
    let server = ScriptedHttp::start([
        created(),
        unknown(),
        created(),
        streams(1, "job.started"),
        unknown(),
        streams(2, "job.completed"),
        unknown(),
    ])
    .await;
    std::fs::write(&file, "first-token\n").unwrap();
    let client = Client::builder(&server.url).token_file(&file).build().unwrap();
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    std::fs::write(&file, "second-token\n").unwrap();
    within(client.enqueue(NewJob::new("t", 1))).await.unwrap();
    let mut events = client.events(EventFilter::default());
    assert_eq!(within(events.next()).await.unwrap().cursor, "c1");
    std::fs::write(&file, "third-token\n").unwrap();
    assert_eq!(within(events.next()).await.unwrap().cursor, "c2");
    let refused = within(client.get(id())).await.unwrap_err();
    assert!(refused.is_not_allowed(), "the file holds no other one: {refused}");
    let asked = server.asked();
    let shown: Vec<_> = asked.iter().filter_map(|asked| asked.header("authorization")).collect();
    let [first, second, third] =
        ["Bearer first-token", "Bearer second-token", "Bearer third-token"];
    assert_eq!(shown, [first, first, second, second, second, third, third]);
}
