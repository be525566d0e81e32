//! Streams of events over real connections: missed events are replayed, and a client that does
//! not read holds nothing up.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use outlast_e2e::scene::await_ready;
use outlast_e2e::{Scene, ServerOptions};
use reqwest::blocking::Response;
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(30);

struct Reader(BufReader<Response>);

impl Reader {
    fn open(scene: &Scene, last_event_id: &str) -> Self {
        Self(BufReader::new(scene.api().stream("/api/v1/events", last_event_id)))
    }

    /// Returns the next event and its cursor; nothing when the stream has ended.
    fn next(&mut self) -> Option<(String, Value)> {
        let mut id = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(cursor) = line.strip_prefix("id: ") {
                id = cursor.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((id, serde_json::from_str(data).expect("JSON")));
            }
        }
    }
}

fn enqueue(scene: &Scene, jobs: usize) {
    let all = vec![json!({"type": "t", "args": []}); jobs];
    let _ = scene.api().post("/ojs/v1/jobs/batch", &json!({"jobs": all})).expect(201);
}

#[test]
fn a_reader_makes_up_for_what_a_killed_server_could_not_tell_it() {
    let mut scene = Scene::start();
    let mut reader = Reader::open(&scene, "");
    let mut seen = Vec::new();
    enqueue(&scene, 5);
    for _ in 0..3 {
        seen.push(reader.next().expect("an event"));
    }
    scene.server_mut().kill();
    while let Some(event) = reader.next() {
        seen.push(event);
    }
    scene.server_mut().start_again();
    await_ready(scene.api(), BOUND);
    let last = seen.last().expect("an event").0.clone();
    enqueue(&scene, 4);
    let mut reader = Reader::open(&scene, &last);
    while seen.len() < 9 {
        seen.push(reader.next().expect("an event"));
    }
    let page = scene.api().get("/ojs/v1/events?limit=100").expect(200);
    let all: Vec<Value> = page["events"].as_array().cloned().expect("a list");
    assert_eq!(seen.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), all);
}

/// One reader waits for more, the other has stopped reading in the middle of a long answer.
#[test]
fn readers_do_not_hold_up_a_shutdown() {
    let patient = ServerOptions::default().set("server.shutdown_timeout", json!(300));
    let mut scene = Scene::with(patient);
    for _ in 0..5 {
        enqueue(&scene, 10_000);
    }
    let first = scene.api().get("/ojs/v1/events?limit=1").expect(200);
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let address = scene.api().url().trim_start_matches("http://").to_owned();
    let mut deaf = TcpStream::connect(&address).expect("a connection");
    let request = format!("GET /api/v1/events?cursor={cursor} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    deaf.write_all(request.as_bytes()).expect("sending a request");
    let mut head = [0; 12];
    deaf.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut waiting = Reader::open(&scene, "");
    enqueue(&scene, 1);
    assert!(waiting.next().is_some());
    assert_eq!(scene.server_mut().stop(), Some(0));
    while waiting.next().is_some() {}
}
