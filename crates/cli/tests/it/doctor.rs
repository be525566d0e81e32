//! `outlast doctor` on this host, without a server or with one whose responses are scripted.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::stub::Stub;
use crate::{Said, outlast, outlast_with};

/// No process listens there.
const NOWHERE: &str = "http://127.0.0.1:9";
/// A port that the port check may use without meeting a neighbour.
const FREE: (&str, &str) = ("OUTLAST_SERVER__LISTEN", "127.0.0.1:0");

fn checks(said: &Said) -> Vec<Value> {
    let all: Value = serde_json::from_str(&said.out).unwrap();
    all["checks"].as_array().unwrap().clone()
}

#[track_caller]
fn check(said: &Said, name: &str) -> (String, String) {
    let checks = checks(said);
    let found = checks.iter().find(|check| check["check"] == name).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("verdict"), text("fact"))
}

fn doctor(more: &[&str], variables: &[(&str, &str)]) -> Said {
    let path = std::env::vars().find(|(name, _)| name == "PATH").unwrap_or_default().1;
    let mut all = vec![FREE, ("PATH", path.as_str())];
    all.extend_from_slice(variables);
    outlast_with(&[&["doctor", "-o", "json"], more].concat(), &all)
}

#[test]
fn without_a_server_reach_fails_and_the_rest_is_still_looked_at() {
    let said = doctor(&["--server", NOWHERE], &[]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(check(&said, "reach").0, "fail");
    assert_eq!(check(&said, "workers").0, "skipped");
    for name in ["configuration", "packs", "runtime shell", "port"] {
        assert_eq!(check(&said, name).0, "ok", "{name}");
    }
    // Whether process 1 passes signals on is the machine's to say; in a container a shell
    // may be process 1.
    assert!(check(&said, "reaping").1.contains("process 1 is"));
    assert!(!check(&said, "containment").1.is_empty());
    for found in checks(&said) {
        let is_bad = matches!(found["verdict"].as_str(), Some("warn" | "fail"));
        assert_eq!(found["fix"].is_string(), is_bad, "{found}");
    }
}

// A file of the client's that could not be read once threw away all that had been found.
#[test]
fn files_that_cannot_be_read_fail_a_check_and_the_rest_is_still_looked_at() {
    for flags in [
        &["--token-file", "/nonexistent/token"][..],
        &["--ca-file", "/nonexistent/ca.pem"],
        &["--server", "no address"],
    ] {
        let said = doctor(flags, &[]);
        assert_eq!(said.code, 1, "{flags:?}: {}", said.err);
        let (verdict, fact) = check(&said, "reach");
        assert_eq!(verdict, "fail", "{flags:?}: {fact}");
        assert_eq!(check(&said, "workers").0, "skipped", "{flags:?}");
        assert!(!check(&said, "containment").1.is_empty());
        assert_eq!(check(&said, "runtime shell").0, "ok");
        // What can be read of the settings is kept, such as the port to look at.
        assert_eq!(check(&said, "port"), ("ok".into(), "127.0.0.1:0 is free for a server".into()));
    }
}

// The worker warned, and doctor said nothing.
#[test]
fn a_token_file_that_jobs_can_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-of-a-worker-0123456789\n").unwrap();
    let file = file.to_str().unwrap();
    let open = [("OUTLAST_WORKER__CONTAINMENT", "subreaper")];
    let said = doctor(&["--server", NOWHERE, "--token-file", file], &open);
    let (verdict, fact) = check(&said, "secret files");
    assert_eq!(verdict, "warn", "{fact}");
    assert!(fact.contains(&format!("jobs can read {file}")), "{fact}");
}

// The worker raises the soft limit by itself; the hard one is what it cannot pass.
#[test]
fn open_files_are_judged_by_the_hard_limit_and_the_numbers_of_the_worker() {
    let of = |limits: &str| {
        let script = format!("{limits}; exec \"$0\" doctor -o json --server {NOWHERE}");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_outlast")])
            .env(FREE.0, FREE.1)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = all["checks"].as_array().unwrap();
        let found = all.iter().find(|check| check["check"] == "open files").unwrap().clone();
        (found["verdict"].clone(), found["fact"].as_str().unwrap().to_owned())
    };
    let (verdict, fact) = of("ulimit -Hn 4096; ulimit -Sn 128");
    assert_eq!(verdict, "ok", "{fact}");
    assert!(fact.contains("10 jobs at the same time need up to 338"), "{fact}");
    let (verdict, fact) = of("ulimit -n 200");
    assert_eq!(verdict, "fail", "{fact}");
}

#[test]
fn an_unknown_key_fails_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("o.yaml");
    std::fs::write(&file, "worker:\n  concurency: 5\n").unwrap();
    let said = doctor(&["--server", NOWHERE, "--config", file.to_str().unwrap()], &[]);
    let (verdict, fact) = check(&said, "configuration");
    assert_eq!(verdict, "fail");
    assert!(fact.contains("worker.concurency"), "{fact}");
    assert_eq!(check(&said, "packs").0, "ok", "the rest is looked at");
}

#[test]
fn keys_of_a_pack_without_effect_are_named_and_a_broken_pack_fails() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("mine");
    std::fs::create_dir_all(pack.join("actions")).unwrap();
    std::fs::write(pack.join("pack.yaml"), "ref: mine\nconf_schema: {}\n").unwrap();
    let packs = folder.path().to_str().unwrap();
    let said = doctor(&["--server", NOWHERE, "--packs", packs], &[]);
    let (verdict, fact) = check(&said, "pack keys");
    assert_eq!(verdict, "warn");
    assert!(fact.contains("`conf_schema`"), "{fact}");
    for (broken, part) in [("ref: [\n", "pack.yaml"), ("ref: mine\nlable: x\n", "`label`?")] {
        std::fs::write(pack.join("pack.yaml"), broken).unwrap();
        let said = doctor(&["--server", NOWHERE, "--packs", packs], &[]);
        let (verdict, fact) = check(&said, "pack files");
        assert_eq!(verdict, "fail");
        assert!(fact.contains(part), "{fact}");
        assert_eq!(check(&said, "packs").0, "ok", "the others are read");
    }
}

#[test]
fn a_runtime_that_was_asked_for_and_is_missing_fails() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let asked = [("PATH", empty), ("OUTLAST_WORKER__RUNTIMES", "node"), FREE];
    let said = outlast_with(&["doctor", "-o", "json", "--server", NOWHERE], &asked);
    assert_eq!(check(&said, "runtime node").0, "fail");
    assert_eq!(check(&said, "runtime python").0, "warn", "the built-in pack has python actions");
}

#[test]
fn a_port_that_somebody_else_has_fails() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Connections are closed, as by something that is not an HTTP server.
    std::thread::spawn(move || {
        for stream in taken.incoming() {
            drop(stream);
        }
    });
    let said = doctor(&["--server", NOWHERE], &[("OUTLAST_SERVER__LISTEN", &address)]);
    let (verdict, fact) = check(&said, "port");
    assert_eq!(verdict, "fail");
    assert!(fact.contains(&address), "{fact}");
}

#[test]
fn too_few_open_files_fail() {
    #[expect(clippy::disallowed_methods, reason = "a shell lowers the limit")]
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 100; exec \"$0\" doctor -o json --server http://127.0.0.1:9"])
        .arg(env!("CARGO_BIN_EXE_outlast"))
        .env_clear()
        .env(FREE.0, FREE.1)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let said = Said { code: output.status.code().unwrap(), out, err: String::new() };
    let (verdict, fact) = check(&said, "open files");
    assert_eq!(verdict, "fail");
    assert!(fact.contains("limit 100"), "{fact}");
}

#[test]
fn a_store_on_this_host_is_looked_at_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("o.db");
    let database = format!("sqlite:{}", file.display());
    let local = |database: &str| doctor(&["--server", NOWHERE, "--database", database], &[]);
    let said = local(&database);
    assert_eq!(check(&said, "local store").0, "ok");
    // How quick and how full this disk is, is the machine's to say.
    for (name, unit) in [("local fsync", "ms"), ("local disk", "free")] {
        let (verdict, fact) = check(&said, name);
        assert_ne!(verdict, "skipped", "{fact}");
        assert!(fact.contains(unit), "{fact}");
    }
    assert_eq!(outlast(&["migrate", "--database", &database]).code, 0);
    assert!(check(&local(&database), "local store").1.contains("a write-ahead log"));
    std::fs::write(&file, "something else entirely").unwrap();
    assert_eq!(check(&local(&database), "local store").0, "fail");
    assert_eq!(check(&local("sqlite:/nowhere/o.db"), "local store").0, "fail");
}

#[test]
fn a_server_of_another_version_with_another_clock_fails() {
    let stub = Stub::routes(&[
        ("GET /health/ready", r#"{"ready":true}"#),
        (
            "GET /api/v1/doctor",
            r#"{"data":{"version":"0.9.0","wall_time":"2001-01-01T00:00:00Z",
                "store_time":"2001-01-01T00:00:00Z","store":{"kind":"sqlite",
                "durability":"synchronous=off","durable":false}}}"#,
        ),
    ]);
    let said = doctor(&["--server", &stub.url], &[]);
    assert_eq!(said.code, 1);
    for name in ["version skew", "clock skew", "store durability"] {
        assert_eq!(check(&said, name).0, "fail", "{name}");
    }
    assert_eq!(check(&said, "reach").0, "ok");
}

#[test]
fn a_server_that_wants_a_token_is_said_to() {
    let stub = Stub::start(|asked, _| match asked.line.as_str() {
        "GET /health/ready" => (200, r#"{"ready":true}"#.to_owned()),
        _ => (401, r#"{"error":{"code":"unauthorized","message":"no token"}}"#.to_owned()),
    });
    let said = doctor(&["--server", &stub.url], &[]);
    assert_eq!(said.code, 1);
    let failed: Vec<Value> =
        checks(&said).into_iter().filter(|check| check["verdict"] == "fail").collect();
    let fix = failed.first().and_then(|check| check["fix"].as_str()).unwrap_or_default();
    assert!(fix.contains("OUTLAST_TOKEN"), "{failed:?}");
}

#[test]
fn the_table_shows_each_fix_and_a_line_a_check_is_a_document() {
    let table = outlast_with(&["doctor", "--server", NOWHERE], &[FREE]);
    assert!(table.out.contains("fix: is it running?"), "{}", table.out);
    assert!(table.err.contains(" fail, "), "{}", table.err);
    let lines = outlast_with(&["doctor", "-o", "jsonl", "--server", NOWHERE], &[FREE]);
    for line in lines.out.lines() {
        let check: Value = serde_json::from_str(line).unwrap();
        assert!(check["check"].is_string() && check["verdict"].is_string(), "{check}");
    }
}
