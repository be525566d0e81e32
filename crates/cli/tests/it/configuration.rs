//! What is refused before anything starts, and `outlast config show`.

use serde_json::Value;

use crate::stub::Stub;
use crate::{outlast, outlast_with};

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.yaml");
    std::fs::write(&path, text).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (folder, name)
}

#[test]
fn unknown_key_stops_server_and_worker_with_2_and_names_the_nearest() {
    let (_folder, path) = file("worker:\n  concurency: 5\n");
    for command in ["server", "worker", "dev"] {
        let said = outlast(&[command, "--config", &path]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
        assert!(said.err.contains("unknown setting `worker.concurency`"), "{}", said.err);
        assert!(said.err.contains("did you mean `worker.concurrency`?"), "{}", said.err);
    }
}

#[test]
fn variable_with_one_underscore_is_refused_and_a_stranger_is_warned_of() {
    let said = outlast_with(&["worker"], &[("OUTLAST_WORKER_CONCURRENCY", "3")]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("OUTLAST_WORKER_CONCURRENCY in the environment has no effect"));
    assert!(said.err.contains("did you mean OUTLAST_WORKER__CONCURRENCY"), "{}", said.err);
    let variables = [("OUTLAST_LISTEN_ADDR", "x"), ("OUTLAST_SERVER_SERVICE_HOST", "10.0.0.1")];
    let said = outlast_with(&["server", "--packs", "/nowhere"], &variables);
    assert!(said.err.contains("OUTLAST_LISTEN_ADDR has no effect"), "{}", said.err);
    assert!(!said.err.contains("SERVICE_HOST"), "{}", said.err);
}

#[test]
fn password_of_a_store_is_shown_nowhere() {
    let address = "postgres://me:sesame@127.0.0.1:1/o";
    let variables = [("OUTLAST_SERVER__DATABASE", address)];
    let said = outlast_with(&["config", "show", "--origin"], &variables);
    assert!(said.out.contains("postgres://me:***@127.0.0.1:1/o"), "{}", said.out);
    let (_folder, path) = file("server:\n  databse: postgres://me:sesame@127.0.0.1:1/o\n");
    let (_folder, bad) = file("server:\n  database: postgress://me:sesame@127.0.0.1:1/o\n");
    let (_folder, broken) = file("server:\n  database: postgres://me:sesame@h/o\n  [\n");
    for args in [
        &["config", "show", "-o", "json"][..],
        &["config", "show", "--config", &path],
        &["config", "show", "--config", &bad],
        &["config", "show", "--config", &broken],
        &["migrate"],
        &["migrate", "--check"],
        &["doctor"],
        &["server"],
    ] {
        let said = outlast_with(args, &variables);
        let all = said.out + &said.err;
        assert!(!all.contains("sesame"), "{args:?}: {all}");
    }
}

// 1 means that a job has failed, and a script that waits for one went by it.
#[test]
fn files_that_a_command_needs_and_that_are_not_there_are_wrong_use() {
    let empty = file("");
    for flags in [
        &["--token-file", "/nonexistent/token"][..],
        &["--token-file", &empty.1],
        &["--server", "https://127.0.0.1:1", "--ca-file", "/nonexistent/ca.pem"],
        &["--client-cert", "/nonexistent/cert.pem"],
    ] {
        for command in [&["jobs", "list"][..], &["run", "core.noop", "--wait"], &["events"]] {
            let said = outlast(&[command, flags].concat());
            assert_eq!(said.code, 2, "{command:?} {flags:?}: {}", said.err);
        }
    }
}

// It was sent to any server that was named.
#[test]
fn a_token_in_the_clients_file_goes_to_no_server_that_the_file_does_not_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = Stub::always(200, r#"{"data": []}"#);
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".config/outlast/client.yaml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let ask = |text: &str, variables: &[(&str, &str)]| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let home = [("HOME", home.path().to_str().unwrap())];
        let said =
            outlast_with(&["jobs", "list", "--server", &server.url], &[&home, variables].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        (server.asked().pop().unwrap().token, said.err)
    };
    let (sent, said) = ask("token: for-the-default-server\n", &[]);
    assert_eq!(sent, None);
    assert!(said.contains("client.yaml names no server") && said.contains("`server:`"), "{said}");
    assert!(!said.contains("for-the-default-server"), "{said}");
    let named = [("OUTLAST_TOKEN", "of-the-environment")];
    let (sent, said) = ask("token: for-the-default-server\n", &named);
    assert_eq!(sent.as_deref(), Some("Bearer of-the-environment"));
    assert!(!said.contains("client.yaml"), "{said}");
    let (sent, said) = ask(&format!("server: {}\ntoken: for-this-one\n", server.url), &[]);
    assert_eq!(sent.as_deref(), Some("Bearer for-this-one"));
    assert!(!said.contains("client.yaml"), "{said}");
}

#[test]
fn wrong_flag_value_names_the_flag() {
    let said = outlast(&["worker", "--concurrency", "0"]);
    assert_eq!(said.code, 2);
    let expected = "error: `worker.concurrency` is `0` (flag --concurrency), which is not \
                    a whole number from 1 to 10000\n";
    assert!(said.err.starts_with(expected), "{}", said.err);
}

#[test]
fn unknown_flag_is_usage() {
    assert_eq!(outlast(&["server", "--nonsense"]).code, 2);
    assert_eq!(outlast(&["nonsense"]).code, 2);
    assert_eq!(outlast(&[]).code, 2);
}

#[test]
fn server_open_to_others_refuses_to_start() {
    let said = outlast(&["server", "--listen", "0.0.0.0:0"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("`server.tokens` is not set"), "{}", said.err);
    assert!(said.err.contains("--insecure"), "{}", said.err);
}

#[test]
fn missing_pack_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("o.db").display());
    let args = ["server", "--database", &database, "--packs", "/nowhere/packs"];
    let said = outlast(&args);
    // It may appear by itself: a service manager tries again.
    assert_eq!(said.code, 1);
    assert!(said.err.contains("/nowhere/packs"), "{}", said.err);
    assert!(!folder.path().join("o.db").exists(), "nothing is half done");
}

#[test]
fn postgres_that_is_not_there_is_named_without_its_password() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("postgres://me:secret@127.0.0.1:{port}/o");
    let said = outlast(&["migrate", "--database", &address]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains(&format!("PostgreSQL at 127.0.0.1:{port}")), "{}", said.err);
    assert!(!said.err.contains("secret"), "{}", said.err);
    let said =
        outlast(&["migrate", "--database", "postgres://me:secret@127.0.0.1/o?sslmode=allow"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("sslmode=allow is not known"), "{}", said.err);
    assert!(!said.err.contains("secret"), "{}", said.err);
}

#[test]
fn every_key_is_shown_with_its_origin() {
    let (_folder, path) = file("ojs:\n  lease: 20s\n");
    let args = ["config", "show", "--origin", "-o", "json", "--config", &path];
    let said = outlast_with(&args, &[("OUTLAST_WORKER__NAME", "w9")]);
    assert_eq!(said.code, 0, "{}", said.err);
    let shown: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let origin = |key: &str| {
        let found = shown.iter().find(|item| item["key"] == key).unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(origin("ojs.lease"), ("20s".to_owned(), format!("{path}:2")));
    let name = ("w9".to_owned(), "environment OUTLAST_WORKER__NAME".to_owned());
    assert_eq!(origin("worker.name"), name);
    let listen = ("127.0.0.1:8080".to_owned(), "default".to_owned());
    assert_eq!(origin("server.listen"), listen);
}

#[test]
fn secrets_are_not_shown() {
    let variables = [
        ("OUTLAST_TOKEN", "sesame-sesame-sesame"),
        ("OUTLAST_SERVER__TOKENS", "[{token: mustard-mustard-mustard, role: viewer}]"),
    ];
    let said = outlast_with(&["config", "show", "--origin", "-o", "json"], &variables);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("environment OUTLAST_TOKEN"), "{}", said.out);
    assert!(!said.out.contains("sesame") && !said.out.contains("mustard"), "{}", said.out);
}
