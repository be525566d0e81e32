//! Dockerfile, Compose and Kubernetes.

use std::fs;

use regex::Regex;
use serde_json::Value;

use super::{check_probe, longest_stop, outlast, root, settings, strings, text, yaml};

const RUNTIMES: [&str; 3] = ["shell", "python", "node"];

#[test]
fn images_run_the_binary_itself_and_not_as_root() {
    let content = text("Dockerfile").replace("\\\n", " ");
    let stages: Vec<&str> = content.split("\nFROM ").skip(1).collect();
    let names: Vec<&str> = stages.iter().map(|stage| stage_name(stage)).collect();
    assert_eq!(names, ["build", "server", "worker-shell", "worker-python", "worker-node"]);
    for (name, stage) in names.iter().zip(&stages).skip(1) {
        let value = |key: &str| stage.lines().find_map(|line| line.strip_prefix(key));
        let user = value("USER ").unwrap_or_else(|| panic!("{name} has no USER"));
        assert!(
            user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
            "{name}: {user}"
        );
        // The server makes no connections, and the image of Python has them.
        let has_authorities =
            stage.contains("install --yes --no-install-recommends ca-certificates");
        let needs_them = matches!(*name, "worker-shell" | "worker-node");
        assert_eq!(has_authorities, needs_them, "{name}");
        let entry: Vec<String> = serde_json::from_str(value("ENTRYPOINT ").unwrap()).unwrap();
        assert_eq!(entry, ["/usr/local/bin/outlast"], "{name}");
        let role: Vec<String> = serde_json::from_str(value("CMD ").unwrap()).unwrap();
        assert_eq!([role[0].as_str()], [name.split('-').next().unwrap()], "{name}");
        assert_eq!(value("STOPSIGNAL "), Some("SIGTERM"), "{name}");
        // A worker that is quiet for a while is not to be killed for it.
        let Some(probe) = value("HEALTHCHECK ") else {
            assert!(name.starts_with("worker-"), "{name} has no HEALTHCHECK");
            continue;
        };
        assert_eq!(*name, "server", "a HEALTHCHECK lets Swarm and ECS kill a quiet worker");
        let probe = probe.split_once("CMD ").unwrap().1;
        let probe: Vec<String> = serde_json::from_str(probe).unwrap();
        check_probe(&probe);
        assert_eq!(probe.last(), role.first(), "{name} asks about itself");
    }
}

#[test]
fn what_the_image_is_built_from_is_there_and_not_ignored() {
    let ignored = text("Dockerfile.dockerignore");
    let mut lines = ignored.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), "everything, but:");
    let kept: Vec<&str> = lines.map(|line| line.strip_prefix('!').unwrap()).collect();
    for name in &kept {
        assert!(root().join(name).exists(), "{name}");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = Regex::new(r"members = \[([^\]]*)\]").unwrap().captures(&manifest).unwrap();
    let folders = members[1].split(',').map(|member| member.trim().trim_matches('"'));
    let folders = folders.map(|member| member.split('/').next().unwrap());
    // The built-in pack is compiled in; the lock file is what --locked asks for.
    for needed in folders.chain(["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "packs"]) {
        assert!(kept.contains(&needed), "{needed} is ignored");
    }
    for secret in [".git", "target", ".env", "deploy"] {
        assert!(!kept.contains(&secret), "{secret} gets into the build");
    }
    let content = text("Dockerfile").replace("\\\n", " ");
    let built = Regex::new(r"--profile (\w+) .* target/(\w+)/outlast ").unwrap();
    let built = built.captures(&content).expect("a build with a profile");
    assert_eq!((&built[1], &built[2]), ("dist", "dist"));
    assert!(manifest.contains("[profile.dist]"));
    let made: Vec<&str> =
        content.split_whitespace().filter(|word| word.starts_with("/out/")).collect();
    for copy in content.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let words: Vec<&str> = copy.split(' ').filter(|word| !word.starts_with("--ch")).collect();
        match words[..] {
            [".", "."] => {}
            ["--from=build", source, _] => {
                assert!(made.iter().any(|path| path.starts_with(source)), "{source} is not made");
            }
            _ => panic!("not looked at: COPY {copy}"),
        }
    }
}

fn stage_name(stage: &str) -> &str {
    stage.lines().next().unwrap().rsplit(' ').next().unwrap()
}

#[test]
fn compose_has_a_server_and_a_worker_of_each_runtime_that_may_stop_in_peace() {
    let compose = yaml(&text("compose.yaml"));
    let services = compose["services"].as_object().unwrap();
    let mut expected: Vec<String> = RUNTIMES.iter().map(|name| format!("worker-{name}")).collect();
    expected.push("server".to_owned());
    expected.sort_unstable();
    let mut names: Vec<String> = services.keys().cloned().collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    for (name, service) in services {
        assert_eq!(service["build"]["target"], name.as_str());
        assert_eq!(service["init"], false, "{name}: outlast is process 1");
        let grace = service["stop_grace_period"].as_str().unwrap().trim_end_matches('s');
        assert!(grace.parse::<u64>().unwrap() > longest_stop(), "{name}");
        assert!(service["environment"].is_object(), "{name}");
    }
    let environment = &services["server"]["environment"];
    let required = Regex::new(r"\$\{(\w+):\?[^}]*\}").unwrap();
    let tokens = environment["OUTLAST_SERVER__TOKENS"].as_str().unwrap();
    let mut digit = 0;
    let tokens = required.replace_all(tokens, |_: &regex::Captures<'_>| {
        digit += 1;
        digit.to_string().repeat(64)
    });
    let listen = environment["OUTLAST_SERVER__LISTEN"].as_str().unwrap();
    let pairs = [("OUTLAST_SERVER__TOKENS", &*tokens), ("OUTLAST_SERVER__LISTEN", listen)];
    let shown = settings(&[], &pairs);
    assert_eq!(shown["server.tokens"], "hidden", "they are read and accepted");
}

#[test]
fn kubernetes_runs_one_server_and_waits_longer_than_a_stop_takes() {
    let documents = |file: &str| -> Vec<Value> {
        text(&format!("kubernetes/{file}")).split("\n---\n").map(yaml).collect()
    };
    let mut all = documents("server.yaml");
    all.extend(documents("worker.yaml"));
    let kinds: Vec<&str> = all.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Service", "StatefulSet", "Deployment"]);
    for workload in &all[1..] {
        let pod = &workload["spec"]["template"]["spec"];
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > longest_stop());
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            workload["spec"]["selector"]["matchLabels"],
            workload["spec"]["template"]["metadata"]["labels"]
        );
        let container = &pod["containers"][0];
        let args = strings(&container["args"]);
        assert!(outlast(&[&args[0], "--help"], &[]).status.success());
    }
    assert_eq!(all[1]["spec"]["replicas"], 1, "SQLite belongs to one process");
    let server = &all[1]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(server["readinessProbe"]["httpGet"]["path"], "/health/ready");
    assert_eq!(server["livenessProbe"]["httpGet"]["path"], "/health/live");
    // The image has no shell, and the pause is part of the time to stop.
    let pause = &server["lifecycle"]["preStop"];
    assert!(pause["exec"].is_null(), "{pause}");
    let pause = pause["sleep"]["seconds"].as_u64().unwrap();
    let stop = all[1]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(stop.unwrap() > pause + longest_stop());
    let worker = &all[2]["spec"]["template"]["spec"]["containers"][0];
    check_probe(&strings(&worker["readinessProbe"]["exec"]["command"]));
}
