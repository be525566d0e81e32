//! The files under `deploy/`: as far as can be told without Docker, Kubernetes or root.
//!
//! Their numbers are compared with those of the binary and of the source, their commands are
//! given to the binary, the units to systemd itself, the configurations to a server and a worker.

mod configuration;
mod containers;
mod monitoring;
mod service_manager;
mod systemd;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::Regex;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(file: &str) -> String {
    fs::read_to_string(root().join("deploy").join(file)).expect(file)
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn outlast(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(outlast_e2e::binary::outlast());
    command.args(arguments).env_clear().envs(environment.iter().copied());
    command.output().expect("outlast starts")
}

/// What is in force with these arguments and this environment, by key.
fn settings(arguments: &[&str], environment: &[(&str, &str)]) -> BTreeMap<String, String> {
    let shown = outlast(&[&["config", "show", "-o", "json"], arguments].concat(), environment);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Vec<Value> = serde_json::from_slice(&shown.stdout).unwrap();
    let pair = |row: &Value| {
        let value = match &row["value"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            Value::Object(pairs) if pairs.is_empty() => String::new(),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        (row["key"].as_str().unwrap().to_owned(), value)
    };
    shown.iter().map(pair).collect()
}

/// A constant of the worker, from its source: this crate does not link the product.
fn seconds_in(file: &str, constant: &str) -> u64 {
    let source = fs::read_to_string(root().join("crates/worker/src").join(file)).unwrap();
    let pattern = format!(r"const {constant}: Duration = Duration::from_secs\((\d+)\)");
    let found = Regex::new(&pattern).unwrap().captures(&source).expect(constant);
    found[1].parse().unwrap()
}

/// The longer of the two `shutdown_timeout`s by default.
fn grace() -> u64 {
    let defaults = settings(&[], &[]);
    let grace = |key: &str| defaults[key].parse::<u64>().unwrap();
    grace("worker.shutdown_timeout").max(grace("server.shutdown_timeout"))
}

/// How long a stop may take with default settings, for a worker and for a server.
fn longest_stop() -> u64 {
    grace() + seconds_in("attempt.rs", "KILL_AFTER") + seconds_in("daemon.rs", "RELEASE")
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// A probe's command exists in the binary: without a server, or a worker on this host, it reports that.
fn check_probe(command: &[String]) {
    let (program, arguments) = command.split_first().unwrap();
    assert_eq!(program, "/usr/local/bin/outlast");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let environment =
        [("OUTLAST_SERVER", "http://127.0.0.1:1"), ("OUTLAST_WORKER__NAME", "runs-nowhere")];
    let said = outlast(&arguments, &environment);
    let error = String::from_utf8_lossy(&said.stderr);
    let (code, says) = match arguments.contains(&"worker") {
        true => (1, "no worker runs-nowhere runs on this host"),
        false => (6, "cannot be reached"),
    };
    assert!(said.status.code() == Some(code) && error.contains(says), "{command:?}: {error}");
}
