//! Dead letters have handlers: a webhook is sent, or an action runs, whatever happens meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outlast_e2e::process::run_against;
use outlast_e2e::wait::{eventually, stays, within};
use outlast_e2e::{Api, Scene, ServerOptions};
use serde_json::{Value, json};

/// How long a delivery may take: a look each second, and pauses of some seconds between tries.
const DELIVERED: Duration = Duration::from_secs(40);

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A message as it came.
#[derive(Clone, Debug)]
struct Received {
    id: String,
    timestamp: String,
    signature: String,
    body: String,
}

/// A receiver of webhooks.
struct Receiver {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
    answer: Arc<Mutex<&'static str>>,
}

impl Receiver {
    fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (received, answer) = (Arc::default(), Arc::new(Mutex::new(answer)));
        let receiver = Self { port, received: Arc::clone(&received), answer: Arc::clone(&answer) };
        // It ends with the process: nothing waits for it.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(message) = read(&stream) {
                    received.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                    let answer = *answer.lock().unwrap_or_else(PoisonError::into_inner);
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            }
        });
        receiver
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn answers(&self, answer: &'static str) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let found = head.iter().find_map(|line| {
            line.split_once(": ").filter(|(known, _)| known.eq_ignore_ascii_case(name))
        });
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Received {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: String::from_utf8(body).ok()?,
    })
}

const OK: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
const DOWN: &str =
    "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbusy";
const ELSEWHERE: &str = "HTTP/1.1 302 Found\r\nconnection: close\r\ncontent-length: 0\r\n\
    location: http://127.0.0.1:1/\r\n\r\n";

fn options(rules: &Value) -> ServerOptions {
    ServerOptions::default()
        .set("server.dead_letters", rules.clone())
        .set("webhooks.allow_networks", json!("127.0.0.0/8"))
}

/// Makes a dead letter of a job in this queue; returns its id.
pub(crate) fn dead_letter(api: &Api, queue: &str) -> String {
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    let job =
        json!({"type": "fails", "args": ["why"], "options": {"queue": queue, "retry": retry}});
    let stored = api.post("/ojs/v1/jobs", &job).expect(201);
    let id = stored["job"]["id"].as_str().unwrap().to_owned();
    eventually("it is fetched and fails", within(Duration::from_secs(5)), || {
        let fetched = api.ojs_fetch(queue, "failer", 1);
        let job = fetched.first()?;
        let error = json!({"code": "handler_error", "message": "no luck"});
        let nack = json!({"job_id": job["id"], "error": error, "worker_id": "failer"});
        let _ = api.post("/ojs/v1/workers/nack", &nack).expect(200);
        Some(())
    });
    id
}

pub(crate) fn handlers(api: &Api) -> Vec<Value> {
    let listed = api.get("/api/v1/executions?queue=outlast.handlers").expect(200);
    listed["data"].as_array().cloned().unwrap_or_default()
}

#[test]
fn webhook_is_sent_once_signed_with_everything_about_the_dead_letter() {
    let receiver = Receiver::start(OK);
    let rule = json!([{"queues": ["mail"], "webhook": {"url": receiver.url(), "secret": SECRET}}]);
    let scene = Scene::with(options(&rule));
    dead_letter(scene.api(), "web");
    let id = dead_letter(scene.api(), "mail");
    eventually("it is delivered", DELIVERED, || receiver.received().first().cloned());
    let done = eventually("its state is known", within(DELIVERED), || {
        handlers(scene.api()).into_iter().find(|it| it["status"] == "completed")
    });
    let received = receiver.received();
    let [message] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!(done["id"], message.id);
    assert!(message.timestamp.parse::<i64>().unwrap() > 1_700_000_000);
    assert!(message.signature.starts_with("v1,"), "{}", message.signature);
    let body: Value = serde_json::from_str(&message.body).unwrap();
    assert_eq!(
        (&body["type"], &body["data"]["reason"]),
        (&json!("dead_letter"), &json!("exhausted"))
    );
    assert_eq!(
        (&body["data"]["job"]["id"], &body["data"]["job"]["args"]),
        (&json!(id), &json!(["why"]))
    );
    assert_eq!(body["data"]["error"]["message"], "no luck");
    assert_eq!(body["data"]["attempts"][0]["outcome"], "failed", "{body}");
    let path = "/api/v1/events?stream=false&type=job.dead_lettered&limit=10";
    let events = scene.api().get(path).expect(200).to_string();
    assert_eq!(events.matches("\"exhausted\"").count(), 2, "{events}");
}

#[test]
fn webhook_whose_receiver_is_down_is_tried_again_with_the_same_id_on_the_embedded_store() {
    tried_again(false);
}

/// The server that planned it is gone for good: another one sends it.
#[test]
fn webhook_whose_receiver_is_down_is_sent_by_another_server() {
    tried_again(true);
}

/// The server is killed between two tries; on PostgreSQL another one goes on.
fn tried_again(on_postgres: bool) {
    let receiver = Receiver::start(DOWN);
    let options = options(&json!([{"webhook": {"url": receiver.url()}}]));
    let mut scene =
        Scene::with(if on_postgres { options.clone().postgres() } else { options.clone() });
    let other = on_postgres.then(|| scene.another_server_with("other", options));
    dead_letter(scene.api(), "mail");
    eventually("it is tried, and that is known", DELIVERED, || {
        let handlers = handlers(scene.api());
        let handler = handlers.first()?["id"].as_str()?;
        scene.api().outcomes(handler).contains(&"failed".to_owned()).then_some(())
    });
    scene.server_mut().kill();
    if !on_postgres {
        scene.server_mut().start_again();
    }
    eventually("it is tried again", DELIVERED, || (receiver.received().len() >= 2).then_some(()));
    receiver.answers(OK);
    let api =
        other.as_ref().map_or_else(|| Api::new(&scene.server().url()), |it| Api::new(&it.url()));
    let done = eventually("it is delivered", DELIVERED, || {
        handlers(&api).into_iter().find(|it| it["status"] == "completed")
    });
    let received = receiver.received();
    assert!(received.iter().all(|it| done["id"] == it.id.as_str()), "{received:?}");
    assert!(received.iter().all(|it| it.body == received[0].body), "{received:?}");
    let tries = api.attempts(done["id"].as_str().unwrap());
    let says = |it: &Value| it["error"]["message"] == "answered 503 Service Unavailable: busy";
    assert!(tries.iter().any(says), "{tries:?}");
    assert_eq!(handlers(&api).len(), 1);
}

#[test]
fn redirects_are_not_followed_and_addresses_that_are_not_public_are_refused() {
    let receiver = Receiver::start(ELSEWHERE);
    let rules = json!([{"queues": ["here"], "webhook": {"url": receiver.url()}},
        {"queues": ["inside"], "webhook": {"url": "http://[::1]:9/"}},
        {"queues": ["named"], "webhook": {"url": "http://localhost:9/"}}]);
    let scene = Scene::with(options(&rules).set("webhooks.allow_networks", json!("127.0.0.1/32")));
    for (queue, why) in [
        ("here", "answered 302 Found, and redirects are not followed"),
        ("inside", "::1 is not public, and not in `webhooks.allow_networks`"),
    ] {
        dead_letter(scene.api(), queue);
        eventually(why, DELIVERED, || {
            handlers(scene.api())
                .iter()
                .any(|it| it["error"].to_string().contains(why))
                .then_some(())
        });
    }
}

#[test]
fn action_runs_with_the_dead_letter_once_and_its_own_dead_letter_starts_no_other() {
    let rules = json!([{"action": "ledger.letter"}]);
    let scene = Scene::with(options(&rules));
    let _worker = scene.worker("one");
    let id = dead_letter(scene.api(), "mail");
    let ran = eventually("the action has run", DELIVERED, || {
        let listed = scene.api().get("/api/v1/executions?action_ref=ledger.letter").expect(200);
        let ran = listed["data"].as_array()?.first()?["id"].as_str()?.to_owned();
        let ran = scene.api().execution(&ran);
        (ran["status"] == "completed").then_some(ran)
    });
    assert_eq!(ran["result"]["dead_letter"]["job"]["id"], json!(id), "{ran}");
    assert_eq!(ran["result"]["dead_letter"]["reason"], "exhausted");
    stays("it ran once", Duration::from_secs(3), || {
        let listed = scene.api().get("/api/v1/executions?action_ref=ledger.letter").expect(200);
        (listed["data"].as_array().map(Vec::len) != Some(1)).then(|| listed.to_string())
    });
    // What was done is shown, and can be done again.
    let handler = handlers(scene.api())[0]["id"].as_str().unwrap().to_owned();
    let shown = run_against(&scene.server().url(), &["jobs", "show", &handler]).stdout;
    assert!(shown.contains("outlast.dead_letter") && shown.contains("completed"), "{shown}");
}

/// A queue says by itself what happens to its dead letters, at a server whose configuration says nothing.
#[test]
fn queue_has_rules_of_its_own_from_the_moment_that_they_are_set() {
    let receiver = Receiver::start(OK);
    let options = || {
        ServerOptions::default()
            .set("webhooks.allow_networks", json!("127.0.0.0/8"))
            .set("webhooks.secret", json!(SECRET))
    };
    let scene = Scene::with(options().postgres());
    let other = scene.another_server_with("other", options());
    let url = scene.server().url();
    let set = |more: &[&str]| run_against(&url, &[&["queues", "set", "mail"], more].concat());
    for (wrong, why) in [
        (vec!["--dead-letter-webhook", "ftp://x"], "no http:// or https:// address"),
        (vec!["--dead-letter-webhook", "http://u:p@x/"], "without a password"),
        (vec!["--dead-letter-action", "x", "--dead-letter-reason", "y"], "none of exhausted"),
        (vec!["--dead-letter-action", "report"], "such as `ops.report`"),
        (vec!["--dead-letter-reason", "exhausted"], "--dead-letter-action <ACTION>"),
    ] {
        let refused = set(&wrong);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
    let hook = receiver.url();
    let said = set(&["--dead-letter-webhook", &hook, "--dead-letter-reason", "exhausted"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    // The path of an address may let others in.
    assert!(said.stdout.contains("webhook http://127.0.0.1:"), "{}", said.stdout);
    assert!(!said.stdout.contains("/hook"), "{}", said.stdout);
    dead_letter(scene.api(), "web");
    let id = dead_letter(&Api::new(&other.url()), "mail");
    let message = eventually("it is delivered", DELIVERED, || receiver.received().first().cloned());
    assert!(message.body.contains(&id) && message.signature.starts_with("v1,"), "{message:?}");
    let said = set(&["--no-dead-letters"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let shown = scene.api().get("/api/v1/queues/mail").expect(200);
    assert_eq!(shown["data"]["dead_letters"], json!([]));
    assert_eq!(receiver.received().len(), 1);
}

/// The server begins with no rule, and with a receiver's network not allowed.
#[test]
fn sighup_renews_the_rules_of_the_configuration_and_where_webhooks_may_go() {
    let receiver = Receiver::start(OK);
    let scene = Scene::with(ServerOptions::default());
    let reload = |options: ServerOptions| {
        options.write(&scene.folder().join("outlast.yaml"));
        scene.server().process().signal(rustix::process::Signal::HUP);
    };
    let rule = json!([{"queues": ["mail"], "webhook": {"url": receiver.url()}}]);
    reload(options(&rule).set("webhooks.allow_networks", json!("10.0.0.0/8")));
    let id = dead_letter(scene.api(), "mail");
    eventually("it is refused", DELIVERED, || {
        let handlers = handlers(scene.api());
        handlers.iter().any(|it| it["error"].to_string().contains("is not public")).then_some(())
    });
    reload(options(&rule));
    let message = eventually("it is delivered", DELIVERED, || receiver.received().first().cloned());
    assert!(message.body.contains(&id), "{message:?}");
    reload(options(&json!([])));
    let log = || scene.server().process().log();
    eventually("it is reloaded", within(DELIVERED), || {
        (log().matches("SIGHUP: tokens").count() == 3).then_some(())
    });
    dead_letter(scene.api(), "mail");
    stays("nothing handles it", Duration::from_secs(3), || {
        (handlers(scene.api()).len() != 1).then(|| format!("{:?}", handlers(scene.api())))
    });
}
