//! TLS of the server and its clients, with real handshakes: trust, roles from certificates,
//! refusals, and renewed certificates.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use outlast_e2e::process::{Finished, run_against, run_to_end};
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{
    Api, Authority, Identity, Run, Scene, ServerOptions, Validity, Worker, WorkerOptions,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const BOUND: Duration = Duration::from_secs(30);
const ADMIN: &str = "an-admin-token-for-tests";
const OTHER: &str = "another-token-for-tests";
const NAMES: &[&str] = &["localhost", "127.0.0.1"];

/// An authority with a certificate for this machine, and a folder for more.
struct Trust {
    folder: TempDir,
    ca: Authority,
    own: Identity,
}

impl Trust {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = Authority::new(folder.path(), "authority");
        let own = ca.sign("server", NAMES, Validity::Now);
        Self { folder, ca, own }
    }

    fn ca_file(&self) -> String {
        self.ca.file().display().to_string()
    }

    fn options(&self, shown: &Identity, more: Value) -> ServerOptions {
        let mut tls = json!({"cert": shown.cert, "key": shown.key});
        if let (Value::Object(tls), Value::Object(more)) = (&mut tls, more) {
            tls.extend(more);
        }
        ServerOptions::default().set("server.tls", tls)
    }

    /// A server that asks clients for certificates of its authority.
    fn mutual(&self) -> ServerOptions {
        let roles = json!({"root": "admin", "fleet": "worker", "board.example": "viewer"});
        self.options(&self.own, json!({"client_ca": self.ca.file(), "roles": roles}))
    }
}

fn cli(scene: &Scene, arguments: &[&str]) -> Finished {
    let mut all = arguments.to_vec();
    all.extend(["--server", scene.api().url()]);
    run_to_end(&all, BOUND)
}

fn shown(identity: &Identity) -> [String; 4] {
    let text = |path: &std::path::Path| path.display().to_string();
    ["--client-cert".into(), text(&identity.cert), "--client-key".into(), text(&identity.key)]
}

/// Asks with the authority trusted and a certificate shown.
fn cli_as(scene: &Scene, trust: &Trust, identity: &Identity, arguments: &[&str]) -> Finished {
    let (ca, shown) = (trust.ca_file(), shown(identity));
    let mut all = arguments.to_vec();
    all.extend(["--ca-file", &ca]);
    all.extend(shown.iter().map(String::as_str));
    cli(scene, &all)
}

#[test]
fn a_worker_runs_jobs_over_tls_and_commands_ask_over_it() {
    let trust = Trust::new();
    let tokens = json!([{"name": "root", "role": "admin", "token": ADMIN}]);
    let options = trust.options(&trust.own, json!({})).set("server.tokens", tokens);
    let options = options.set("worker.token", json!(ADMIN));
    let options = options.set("worker.ca_file", json!(trust.ca.file()));
    let scene = Scene::with(options).acting_as(ADMIN).trusting(trust.ca.client(None));
    assert!(scene.api().url().starts_with("https://"), "{}", scene.api().url());
    let _worker = scene.worker("secure");
    let id = scene.run(Run::short());
    scene.await_status(&id, "completed", within(BOUND));

    let ca = trust.ca_file();
    let waited = cli(
        &scene,
        &["run", "core.echo", "-p", "message=hi", "--wait", "--token", ADMIN, "--ca-file", &ca],
    );
    assert_eq!(waited.code, Some(0), "{}", waited.stderr);
    let benched = cli(
        &scene,
        &[
            "bench",
            "enqueue",
            "--jobs",
            "50",
            "--rounds",
            "1",
            "--ceiling-seconds",
            "0.1",
            "--token",
            ADMIN,
            "--ca-file",
            &ca,
        ],
    );
    assert_eq!(benched.code, Some(0), "{}", benched.stderr);
    let doctor = cli(&scene, &["doctor", "-o", "json", "--token", ADMIN, "--ca-file", &ca]);
    let checks: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let certificate = checks["checks"].as_array().expect("checks").iter();
    let certificate = certificate.clone().find(|check| check["check"] == "certificate");
    let certificate = certificate.expect("a check of the certificate");
    assert_eq!(certificate["verdict"], "ok", "{certificate}");
    assert!(certificate["value"].as_f64().is_some_and(|days| days > 30.0), "{certificate}");
    scene.judge();
}

#[test]
fn doctor_knows_the_server_of_its_own_host_by_its_certificate() {
    let trust = Trust::new();
    for options in [trust.options(&trust.own, json!({})), trust.mutual()] {
        let scene = Scene::with(options);
        let address = scene.api().url().rsplit('/').next().unwrap_or_default().to_owned();
        let port = address.rsplit(':').next().unwrap_or_default();
        let tls = json!({"cert": trust.own.cert, "key": trust.own.key});
        let text = json!({"server": {"listen": format!("127.0.0.1:{port}"), "tls": tls}});
        let config = trust.folder.path().join("server.yaml");
        std::fs::write(&config, text.to_string()).expect("a configuration");
        let config = config.display().to_string();
        let doctor = cli(&scene, &["doctor", "-o", "json", "--config", &config]);
        let report: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("checks");
        let found = checks.iter().find(|check| check["check"] == "port").expect("a check");
        assert_eq!(found["verdict"], "ok", "{found}");
        assert!(
            found["fact"].as_str().is_some_and(|it| it.contains("an Outlast server")),
            "{found}"
        );
    }
}

/// Doctor said that it was no Outlast server.
#[test]
fn doctor_says_that_a_server_still_uses_the_certificate_before_the_renewed_one() {
    let trust = Trust::new();
    let scene = Scene::with(trust.options(&trust.own, json!({})));
    let port = scene.api().url().rsplit(':').next().unwrap_or_default().to_owned();
    let tls = json!({"cert": trust.own.cert, "key": trust.own.key});
    let text = json!({"server": {"listen": format!("127.0.0.1:{port}"), "tls": tls}});
    let config = trust.folder.path().join("server.yaml");
    std::fs::write(&config, text.to_string()).expect("a configuration");
    let config = config.display().to_string();
    let port_check = || {
        let doctor = cli(&scene, &["doctor", "-o", "json", "--config", &config]);
        let report: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["check"] == "port").expect("a check").clone()
    };
    let _renewed = trust.ca.sign("server", NAMES, Validity::Now);
    let old = port_check();
    assert_eq!(old["verdict"], "warn", "{old}");
    assert!(old["fact"].as_str().is_some_and(|it| it.contains("still uses another")), "{old}");
    assert!(old["fix"].as_str().is_some_and(|it| it.contains("SIGHUP")), "{old}");
    scene.server().process().signal(Signal::HUP);
    eventually("doctor knows the renewed one", within(BOUND), || {
        (port_check()["verdict"] == "ok").then_some(())
    });
    // It was called something else, which should be stopped.
    let _other = trust.ca.sign("server", &["other.example"], Validity::Now);
    let old = port_check();
    assert_eq!(old["verdict"], "warn", "{old}");
    assert!(old["fact"].as_str().is_some_and(|it| it.contains("for other names")), "{old}");
    assert!(old["fix"].as_str().is_some_and(|it| it.contains("SIGHUP")), "{old}");
}

/// It was said not to speak TLS.
#[test]
fn doctor_says_that_something_does_not_answer_over_tls_in_time() {
    let trust = Trust::new();
    let scene = Scene::with(trust.options(&trust.own, json!({})));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let tls = json!({"cert": trust.own.cert, "key": trust.own.key});
    let text = json!({"server": {"listen": address.to_string(), "tls": tls}});
    let config = trust.folder.path().join("server.yaml");
    std::fs::write(&config, text.to_string()).expect("a configuration");
    let config = config.display().to_string();
    let doctor = cli(&scene, &["doctor", "-o", "json", "--config", &config]);
    let told: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let checks = told["checks"].as_array().expect("checks");
    let port = checks.iter().find(|check| check["check"] == "port").expect("a check");
    assert_eq!(port["verdict"], "fail", "{port}");
    let fact = port["fact"].as_str().unwrap_or_default();
    assert!(fact.contains("did not complete a TLS handshake"), "{port}");
}

#[test]
fn a_server_whose_certificate_is_not_good_is_not_asked_and_the_reason_is_said() {
    let trust = Trust::new();
    let stranger = Authority::new(trust.folder.path(), "stranger");
    let expired = trust.ca.sign("expired", NAMES, Validity::Expired);
    let elsewhere = trust.ca.sign("elsewhere", &["other.example"], Validity::Now);
    let (good, wrong) = (trust.ca_file(), stranger.file().display().to_string());
    for (identity, ca, sign, hint) in [
        (&trust.own, &wrong, "UnknownIssuer", "--ca-file"),
        (&expired, &good, "expired", "has expired"),
        (&elsewhere, &good, "not valid for name", "another name"),
    ] {
        let scene = Scene::with(trust.options(identity, json!({})));
        let refused = cli(&scene, &["jobs", "list", "--ca-file", ca]);
        assert_eq!(refused.code, Some(6), "{}", refused.stderr);
        assert!(refused.stderr.contains(sign), "{}", refused.stderr);
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
        let doctor = cli(&scene, &["doctor", "-o", "json", "--ca-file", ca]);
        assert_eq!(doctor.code, Some(1), "{}", doctor.stderr);
        assert!(
            doctor.stdout.contains("\"check\":\"certificate\",\"verdict\":\"fail\"")
                || doctor.stdout.contains(sign),
            "{}",
            doctor.stdout
        );
    }
}

/// Clients said `CaUsedAsEndEntity`, and nothing else.
#[test]
fn the_certificate_of_an_authority_is_said_to_be_none_of_a_server() {
    let trust = Trust::new();
    let scene = Scene::with(trust.options(&trust.ca.itself(), json!({})));
    let said = cli(&scene, &["jobs", "list"]);
    assert_eq!(said.code, Some(6));
    assert!(said.stderr.contains("certificate of an authority: sign another"), "{}", said.stderr);
}

#[test]
fn plain_http_at_a_tls_port_and_the_reverse_are_answered_in_words() {
    let trust = Trust::new();
    let scene = Scene::with(trust.options(&trust.own, json!({})));
    let address = scene.api().url().trim_start_matches("https://").to_owned();
    let mut stream = TcpStream::connect(&address).expect("a connection");
    stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("writing");
    let mut read = String::new();
    stream.read_to_string(&mut read).expect("an answer");
    assert!(read.starts_with("HTTP/1.1 400"), "{read}");
    assert!(read.contains("use https://"), "{read}");
    let plain = run_to_end(&["jobs", "list", "--server", &format!("http://{address}")], BOUND);
    assert_eq!(plain.code, Some(2), "{}", plain.stderr);
    assert!(plain.stderr.contains("https://"), "{}", plain.stderr);

    let scene = Scene::start();
    let secure = scene.api().url().replace("http://", "https://");
    let refused =
        run_to_end(&["jobs", "list", "--server", &secure, "--ca-file", &trust.ca_file()], BOUND);
    assert_eq!(refused.code, Some(6), "{}", refused.stderr);
    assert!(refused.stderr.contains("ask for http://"), "{}", refused.stderr);
}

#[test]
fn a_client_certificate_is_a_role_and_nothing_else_gets_in() {
    let trust = Trust::new();
    let stranger = Authority::new(trust.folder.path(), "stranger");
    let sign = |name, names: &[&str]| trust.ca.sign(name, names, Validity::Now);
    let (root, fleet) = (sign("root", &[]), sign("fleet", &[]));
    let (board, nameless) = (sign("someone", &["board.example"]), sign("nameless", &[]));
    let expired = trust.ca.sign("late", &["board.example"], Validity::Expired);
    let foreign = stranger.sign("board", &["board.example"], Validity::Now);
    let options = trust.mutual().set("worker.ca_file", json!(trust.ca.file()));
    let options = options.set("worker.client_cert", json!(fleet.cert));
    let options = options.set("worker.client_key", json!(fleet.key));
    let scene = Scene::with(options).trusting(trust.ca.client(Some(&root)));
    let _worker = scene.worker("secure");
    let id = scene.run(Run::short());
    scene.await_status(&id, "completed", within(BOUND));
    // Who it was is the name in the certificate: on the job, of its events, and of orders.
    let queued = scene.run(Run::short().with("queue", json!("nobody")));
    assert_eq!(scene.api().execution(&queued)["enqueued_by"], "root");
    assert_eq!(scene.cancel(&queued).status, 200);
    let events = scene.api().get(&format!("/api/v1/executions/{queued}/events")).expect(200);
    let by: Vec<&str> = events["data"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["data"]["by"].as_str())
        .collect();
    assert_eq!(by.first(), Some(&"root"), "{events}");
    assert!(by.iter().any(|by| by.starts_with("certificate: root")), "{events}");
    let without = Api::new(scene.api().url()).trusting(trust.ca.client(None));
    assert_eq!(without.get("/health/ready").status, 200);

    let list = |identity| cli_as(&scene, &trust, identity, &["jobs", "list"]);
    assert_eq!(list(&board).code, Some(0), "{}", list(&board).stderr);
    let plain = scene.api().url().replace("https://", "http://");
    let refused = run_against(&plain, &["jobs", "list"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("requires TLS"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("field"), "{}", refused.stderr);
    let ca = trust.ca_file();
    for (refused, code, words) in [
        (cli(&scene, &["jobs", "list", "--ca-file", &ca]), 5, "requires a client certificate"),
        (list(&nameless), 5, "server.tls.roles"),
        (cli_as(&scene, &trust, &board, &["run", "core.noop"]), 5, "certificate \"board.example\""),
        (list(&foreign), 6, "does not trust the authority"),
        (list(&expired), 6, "has expired"),
    ] {
        assert_eq!(refused.code, Some(code), "{words}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    scene.judge();
}

/// With TLS 1.3 a client's certificate is refused after the handshake, and a worker once said
/// `transport error` again and again.
#[test]
fn a_client_whose_certificate_is_refused_says_which_and_why() {
    let trust = Trust::new();
    let stranger = Authority::new(trust.folder.path(), "stranger");
    let scene = Scene::with(trust.mutual()).trusting(trust.ca.client(None));
    let packs = scene.folder().join("packs");
    for (identity, why, remedy) in [
        (
            stranger.sign("foreign", &[], Validity::Now),
            "it does not trust the authority that signed it (TLS alert UnknownCA)",
            "server.tls.client_ca",
        ),
        (
            trust.ca.sign("late", &[], Validity::Expired),
            "it has expired or is not valid yet (TLS alert CertificateExpired)",
            "renew it",
        ),
    ] {
        let [cert_flag, cert, key_flag, key] = shown(&identity);
        let refused = format!("the server refused the client certificate {cert}: {why}");
        let options = WorkerOptions::named("refused")
            .flag("--ca-file", &trust.ca_file())
            .flag(&cert_flag, &cert)
            .flag(&key_flag, &key);
        let mut worker =
            Worker::start_unregistered(&options, &scene.server().url(), &packs, scene.folder());
        for _ in 0..3 {
            let line = worker.guardian_mut().await_line("cannot attach", BOUND);
            assert!(line.contains(&refused) && line.contains(remedy), "{line}");
        }
        drop(worker);
        for command in [&["jobs", "list"][..], &["run", "core.noop"], &["bench", "enqueue"]] {
            let asked = cli_as(&scene, &trust, &identity, command);
            assert_eq!(asked.code, Some(6), "{command:?}: {}", asked.stderr);
            let stderr = asked.stderr;
            assert!(stderr.contains(&refused) && stderr.contains(remedy), "{command:?}: {stderr}");
            if command[0] != "bench" {
                assert!(stderr.contains("--client-cert and --client-key"), "{command:?}: {stderr}");
            }
        }
    }
}

#[test]
fn sighup_renews_certificate_and_tokens_for_new_connections_or_changes_nothing() {
    let trust = Trust::new();
    let tokens = |token: &str| json!([{"name": "root", "role": "admin", "token": token}]);
    let options = trust.options(&trust.own, json!({}));
    let scene = Scene::with(options.clone().set("server.tokens", tokens(ADMIN)));
    let successor = Authority::new(trust.folder.path(), "successor");
    let ask = |ca: &Authority, token| {
        let api = Api::new(scene.api().url()).trusting(ca.client(None)).with_token(token);
        api.try_get("/api/v1/workers").map(|reply| reply.status).ok()
    };
    assert_eq!((ask(&trust.ca, ADMIN), ask(&successor, ADMIN)), (Some(200), None));
    let config = scene.folder().join("outlast.yaml");
    let hang_up = |sign: &str| {
        scene.server().process().signal(Signal::HUP);
        eventually("the server's word", BOUND, || {
            scene.server().process().log().contains(sign).then_some(())
        });
    };

    // A key that does not belong to the certificate: all stays as it was.
    let lone = successor.sign("lone", NAMES, Validity::Now);
    std::fs::copy(&lone.key, &trust.own.key).expect("a copy");
    options.clone().set("server.tokens", tokens(OTHER)).write(&config);
    hang_up("configuration not reloaded");
    assert_eq!((ask(&trust.ca, ADMIN), ask(&trust.ca, OTHER)), (Some(200), Some(401)));

    std::fs::copy(&lone.cert, &trust.own.cert).expect("a copy");
    hang_up("certificates reloaded");
    assert_eq!((ask(&successor, OTHER), ask(&trust.ca, OTHER)), (Some(200), None));
    assert_eq!(ask(&successor, ADMIN), Some(401));

    // A good certificate beside settings that cannot be used.
    let third = Authority::new(trust.folder.path(), "third");
    let next = third.sign("next", NAMES, Validity::Now);
    std::fs::copy(&next.cert, &trust.own.cert).expect("a copy");
    std::fs::copy(&next.key, &trust.own.key).expect("a copy");
    options.write(&config);
    hang_up("authentication cannot be turned on or off");
    assert_eq!((ask(&successor, OTHER), ask(&third, OTHER)), (Some(200), None));
}

/// The server runs on: a client without verification, or an operator on the same host, may still
/// need it.
#[test]
fn a_certificate_that_is_not_valid_now_is_warned_of_at_start_and_on_sighup() {
    let trust = Trust::new();
    let expired = trust.ca.sign("old", NAMES, Validity::Expired);
    let early = trust.ca.sign("early", NAMES, Validity::Later);
    let scene = Scene::with(trust.options(&expired, json!({})));
    let warned = |sign: &str| {
        eventually("a warning", BOUND, || {
            let log = scene.server().process().log();
            log.lines().any(|line| line.contains("WARN") && line.contains(sign)).then_some(())
        });
    };
    warned("old.crt expired on 2021-01-01");
    std::fs::copy(&early.cert, &expired.cert).expect("a copy");
    std::fs::copy(&early.key, &expired.key).expect("a copy");
    scene.server().process().signal(Signal::HUP);
    warned("old.crt is not valid before 2100-01-01");
    let config = scene.folder().join("outlast.yaml").display().to_string();
    let doctor = run_to_end(&["doctor", "-o", "json", "--config", &config], BOUND);
    assert!(doctor.stdout.contains("is not valid before 2100-01-01"), "{}", doctor.stdout);
}
