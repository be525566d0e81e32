//! F32: silent and malformed connections do not affect other clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Run, Scene, ServerOptions};
use serde_json::json;

/// What the server of the flood may open.
const FILES: u32 = 200;
/// How many connections it gets.
const FLOOD: usize = 400;
const BOUND: Duration = Duration::from_secs(30);
/// Longest the server waits for a first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Longest the server waits for a client to take a piece of an answer, and between two checks.
const UNREAD: Duration = Duration::from_secs(40);

fn address(scene: &Scene) -> String {
    scene.api().url().split("://").nth(1).expect("an address").to_owned()
}

fn connect(scene: &Scene) -> TcpStream {
    let stream = TcpStream::connect(address(scene)).expect("a connection");
    stream.set_read_timeout(Some(BOUND)).expect("a timeout");
    stream
}

/// Sends bytes and reads what comes until the server closes.
fn ask(scene: &Scene, bytes: &[u8]) -> String {
    let mut stream = connect(scene);
    stream.write_all(bytes).expect("writing");
    let mut read = Vec::new();
    // A reset after the answer takes nothing of it back.
    let _reset = stream.read_to_end(&mut read);
    String::from_utf8_lossy(&read).into_owned()
}

#[test]
fn a_flood_of_idle_connections_shuts_nobody_out_and_costs_no_worker_its_jobs() {
    let scene = Scene::with(ServerOptions::default().open_files(FILES));
    let log = scene.server().process().log();
    assert!(log.contains(&format!("may open {FILES} files: it keeps 136 connections")), "{log}");
    let worker = scene.worker("steady");
    let job = scene.run(Run::holding(LEASE * 4));
    scene.await_start(&job, 1, within(LEASE));

    let half_a_preface: &[u8] = b"PRI * HTTP/2.0\r\n";
    let half_a_request: &[u8] = b"GET /health/live HTTP/1.1\r\n";
    let mut flood: Vec<TcpStream> = (0..FLOOD).map(|_| connect(&scene)).collect();
    for (stream, said) in flood.iter_mut().zip([b"", half_a_preface, half_a_request].iter().cycle())
    {
        // The server may have closed it by now, to make room.
        let _closed = stream.write_all(said);
    }
    let newcomer = scene.worker("newcomer");
    for _ in 0..5 {
        let answered = scene.api().get("/health/live").status;
        assert_eq!(answered, 200, "{}", scene.server().process().log());
    }
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(BOUND));
    let done = scene.await_status(&job, "completed", within(BOUND));
    assert_eq!((&done["epoch"], &done["worker"]["id"]), (&json!(1), &json!(worker.id())), "{done}");
    for id in [worker.id(), newcomer.id()] {
        scene.await_worker(id, "running", within(LEASE));
    }
    drop(flood);
    scene.judge();
}

#[test]
fn a_server_whose_every_connection_is_busy_still_takes_workers() {
    let scene = Scene::with(ServerOptions::default().set("server.connections", json!(16)));
    let streams: Vec<_> = (0..12).map(|_| scene.api().stream("/api/v1/events", "")).collect();
    let refused = eventually("a refusal", BOUND, || {
        let reply = ask(
            &scene,
            b"GET /api/v1/workers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        );
        reply.starts_with("HTTP/1.1 503").then_some(reply)
    });
    assert!(refused.contains("retry-after: 1"), "{refused}");
    assert!(refused.contains("too many connections"), "{refused}");
    let probe =
        ask(&scene, b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(probe.starts_with("HTTP/1.1 200"), "{probe}");
    let _worker = scene.worker("late");
    drop(streams);
    eventually("room again", BOUND, || {
        (scene.api().get("/api/v1/workers").status == 200).then_some(())
    });
}

/// Asks for something over HTTP/2 and takes no byte of the answer, but answers pings.
struct Unreading {
    stream: TcpStream,
    /// What was read of a frame that is not whole.
    read: Vec<u8>,
}

impl Unreading {
    const HEADER: usize = 9;

    /// `None` if the server has no place for it.
    fn connect(scene: &Scene) -> Option<Self> {
        let stream = connect(scene);
        let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS: INITIAL_WINDOW_SIZE is 0.
        said.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
        // HEADERS of stream 1: GET, http, /health/live, localhost.
        let mut fields = vec![0x82, 0x86];
        for (name, value) in [(4_u8, "/health/live"), (1, "localhost")] {
            fields.extend([name, u8::try_from(value.len()).expect("short")]);
            fields.extend(value.as_bytes());
        }
        said.extend(frame(1, 0b101, 1, &fields));
        (&stream).write_all(&said).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Self { stream, read: Vec::new() })
    }

    /// Answers pings; false once the server has closed the connection.
    fn is_open(&mut self) -> bool {
        let mut some = [0; 4096];
        loop {
            match self.stream.read(&mut some) {
                Ok(0) => return false,
                Ok(count) => self.read.extend(&some[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        while let Some(head) = self.read.first_chunk::<{ Self::HEADER }>() {
            let length =
                usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags, end) = (head[3], head[4], Self::HEADER + length);
            let Some(payload) = self.read.get(Self::HEADER..end) else { break };
            let answered = match (kind, flags & 1) {
                (6, 0) => self.stream.write_all(&frame(6, 1, 0, payload)).is_ok(),
                (4, 0) => self.stream.write_all(&frame(4, 1, 0, &[])).is_ok(),
                _ => true,
            };
            if !answered {
                return false;
            }
            self.read.drain(..end);
        }
        true
    }
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("a short frame");
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Such connections were once kept forever, also those on places that are kept for workers.
#[test]
fn clients_that_take_no_byte_of_their_answers_are_closed_and_leave_room_for_workers() {
    let scene = Scene::with(ServerOptions::default().set("server.connections", json!(16)));
    let mut clients: Vec<Unreading> = (0..24).filter_map(|_| Unreading::connect(&scene)).collect();
    // One address does not get all the places that are kept for workers.
    let mut worker = None;
    thread::scope(|threads| {
        let starts = threads.spawn(|| scene.worker("meanwhile"));
        while !starts.is_finished() {
            clients.retain_mut(Unreading::is_open);
            thread::sleep(Duration::from_millis(20));
        }
        worker = Some(starts.join().expect("the worker starts"));
    });
    assert!(clients.len() >= 8, "{} are left", clients.len());
    eventually("they are closed", within(UNREAD), || {
        clients.retain_mut(Unreading::is_open);
        clients.is_empty().then_some(())
    });
    assert_eq!(scene.api().get("/api/v1/workers").status, 200);
    scene.await_worker(worker.expect("a worker").id(), "running", within(LEASE));
}

#[test]
fn what_says_nothing_is_closed_and_half_a_request_is_told_why() {
    let scene = Scene::start();
    let silent = connect(&scene);
    let mut preface = connect(&scene);
    preface.write_all(b"PRI * HTTP/2.0\r\n\r\n").expect("writing");
    let mut slow = connect(&scene);
    slow.write_all(b"GET /health/live HTTP/1.1\r\nhost: loc").expect("writing");
    for (mut stream, expected) in [(silent, ""), (preface, ""), (slow, "HTTP/1.1 408")] {
        stream.set_read_timeout(Some(within(FIRST_REQUEST))).expect("a timeout");
        let mut read = String::new();
        stream.read_to_string(&mut read).expect("an end");
        assert!(read.starts_with(expected) && read.is_empty() == expected.is_empty(), "{read}");
    }
}

#[test]
fn what_is_no_http_is_refused_in_words_after_the_answers_to_what_was() {
    let scene = Scene::start();
    let good = "GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(600_000));
    let hello = "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{4}\u{3}\u{3}xxxxxxxxxxxxxxxxxxxxxxxxxx";
    for (bytes, status, answers) in [
        ("GARBAGE\r\n\r\n", 400, 0),
        (hello, 400, 0),
        ("GET / HTTP/3.7\r\n\r\n", 400, 0),
        ("GET / HTTP/1.1\r\nno header\r\n\r\n", 400, 0),
        (long.as_str(), 431, 0),
        (&format!("{good}{good}GARB\u{1}AGE\r\n\r\n"), 400, 2),
    ] {
        let read = ask(&scene, bytes.as_bytes());
        let shown = bytes.get(..20).unwrap_or(bytes);
        assert_eq!(read.matches("HTTP/1.1 200 OK").count(), answers, "{shown:?}: {read}");
        let refusal = read.split(&format!("HTTP/1.1 {status}")).nth(1);
        let body = refusal.and_then(|rest| rest.split("\r\n\r\n").nth(1)).unwrap_or_default();
        let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        assert_eq!(body["error"]["code"], "invalid_request", "{shown:?}: {read}");
    }
}

#[test]
fn a_web_page_that_calls_this_machine_by_its_own_name_reads_nothing() {
    let hosts = json!(["jobs.example"]);
    let scene = Scene::with(ServerOptions::default().set("server.hosts", hosts));
    for (host, status) in [
        ("evil.example", 403),
        (&format!("evil.example:{}", 8080), 403),
        ("jobs.example", 200),
        ("localhost:1", 200),
        (&address(&scene), 200),
    ] {
        for path in ["/api/v1/executions", "/metrics", "/"] {
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
            let read = ask(&scene, request.as_bytes());
            assert!(read.starts_with(&format!("HTTP/1.1 {status}")), "{host} {path}: {read}");
            assert!(status == 200 || read.contains("server.hosts"), "{read}");
        }
    }
}
