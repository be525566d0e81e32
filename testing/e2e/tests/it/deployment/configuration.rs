//! Sample configurations: accepted, complete, and really started with.

use std::time::Duration;

use outlast_e2e::process::{Process, run_to_end};
use outlast_e2e::wait::{HEARTBEAT, eventually, within};
use rustix::process::Signal;
use serde_json::Value;

use super::{root, settings, text, yaml};

const CONFIGURATIONS: [&str; 2] = ["config/development.yaml", "config/production.yaml"];
const START: Duration = Duration::from_secs(30);

#[test]
fn sample_configurations_are_accepted_and_explain_every_key() {
    let every: Vec<String> = settings(&[], &[]).into_keys().collect();
    for file in CONFIGURATIONS {
        let path = root().join("deploy").join(file);
        settings(&["--config", path.to_str().unwrap()], &[]);
        let content = text(file);
        let Value::Object(sections) = yaml(&content) else { panic!("{file} is a mapping") };
        let mut keys: Vec<String> = sections
            .iter()
            .flat_map(|(section, keys)| {
                keys.as_object().unwrap().iter().flat_map(move |(key, value)| match value {
                    Value::Object(group) if ["tls", "probe", "checks"].contains(&key.as_str()) => {
                        group.keys().map(|it| format!("{section}.{key}.{it}")).collect()
                    }
                    _ => vec![format!("{section}.{key}")],
                })
            })
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, every, "{file} has every key and no other");
        let lines: Vec<&str> = content.lines().collect();
        for pair in lines.windows(2).filter(|pair| is_key(pair[1])) {
            assert!(
                pair[0].trim_start().starts_with("# "),
                "{file}: nothing is said about {}",
                pair[1]
            );
        }
    }
}

fn is_key(line: &str) -> bool {
    line.starts_with("  ") && !line.trim_start().starts_with('#')
}

#[test]
fn settings_of_workers_are_those_of_production_and_no_others() {
    let of = |file: &str| {
        let path = root().join("deploy/config").join(file);
        settings(&["--config", path.to_str().unwrap()], &[])
    };
    let Value::Object(sections) = yaml(&text("config/worker.yaml")) else { panic!("a mapping") };
    assert_eq!(sections.keys().collect::<Vec<_>>(), ["worker"], "nothing of the server's");
    let (workers, production) = (of("worker.yaml"), of("production.yaml"));
    for (key, value) in workers.iter().filter(|(key, _)| key.starts_with("worker.")) {
        assert_eq!(production.get(key), Some(value), "{key}");
    }
    assert!(
        text("config/production.yaml")
            .ends_with(text("config/worker.yaml").split_once("\nworker:\n").unwrap().1),
        "they are explained in the same words"
    );
}

#[test]
fn production_differs_from_the_defaults_only_in_where_the_store_is() {
    let path = root().join("deploy/config/production.yaml");
    let (defaults, production) =
        (settings(&[], &[]), settings(&["--config", path.to_str().unwrap()], &[]));
    let differ = defaults.iter().filter(|(key, value)| production.get(*key) != Some(*value));
    let differ: Vec<&str> = differ.map(|(key, _)| key.as_str()).collect();
    let but_tokens: Vec<&&str> = differ.iter().filter(|key| **key != "server.tokens").collect();
    assert_eq!(but_tokens, [&"server.database"]);
}

#[test]
fn a_server_and_a_worker_start_with_each_and_are_probed_by_exit_codes() {
    for file in CONFIGURATIONS {
        let folder = tempfile::tempdir().unwrap();
        let config = root().join("deploy").join(file).display().to_string();
        let database = format!("sqlite:{}", folder.path().join("outlast.db").display());
        let start = |name: &str, arguments: &[&str]| {
            let all = [&[name, "--config", config.as_str()], arguments].concat();
            let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
            Process::start(name, &all, folder.path())
        };
        // Where this host's own server may be, and its store.
        let mut server =
            start("server", &["--listen", "127.0.0.1:0", "--database", database.as_str()]);
        let line = server.await_line("listening on http://", START);
        let url = line.split("listening on ").nth(1).unwrap().split_whitespace().next().unwrap();
        let probe = |subject: &str| {
            let asked = ["health", subject, "--server", url];
            run_to_end(&asked, START)
        };
        assert_eq!(probe("server").code, Some(0), "{file}");
        assert_eq!(probe("worker").code, Some(1), "{file}: there is none yet");
        let mut worker = start("worker", &["--server", url]);
        let _line = worker.await_line("registered", START);
        assert_eq!(probe("worker").code, Some(0), "{file}");
        let is_ready = || run_to_end(&["health", "worker", "--ready"], START).code == Some(0);
        eventually("it is ready", within(HEARTBEAT), || is_ready().then_some(()));

        worker.signal(Signal::TSTP);
        eventually("a quiet worker says so, and is well", within(HEARTBEAT), || {
            let said = run_to_end(&["health", "worker", "-o", "json"], START);
            let status: Value = serde_json::from_str(&said.stdout).ok()?;
            (said.code == Some(0) && status["stage"] == "quiet").then_some(())
        });
        assert!(!is_ready(), "{file}: it takes no jobs");
        worker.signal(Signal::TERM);
        assert_eq!(worker.await_end(START), Some(0), "{file}");
        assert_eq!(probe("worker").code, Some(1), "{file}: it has ended");
        server.signal(Signal::TERM);
        assert_eq!(server.await_end(START), Some(0), "{file}");
    }
}
