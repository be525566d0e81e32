//! Units: what systemd says of them, and that their times fit.

use std::fs;
use std::path::Path;
use std::process::Command;

use outlast_e2e::skip;

use super::{grace, longest_stop, outlast, text};

const UNITS: [&str; 3] = [
    "systemd/outlast-server.service",
    "systemd/outlast-worker.service",
    "systemd/outlast-worker@.service",
];

#[test]
fn systemd_finds_no_fault_in_the_units() {
    if !skip::has("systemd-analyze", "systemd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let binary = outlast_e2e::binary::outlast().display().to_string();
        let name = Path::new(unit).file_name().unwrap().to_str().unwrap();
        // A template is looked at through one of its instances.
        let path = folder.path().join(name.replace('@', "@mail"));
        fs::write(&path, text(unit).replace("/usr/local/bin/outlast", &binary)).unwrap();
        let said = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
        let faults = String::from_utf8_lossy(&said.stderr);
        let ours: Vec<&str> = faults.lines().filter(|line| line.contains("outlast")).collect();
        assert!(said.status.success() && ours.is_empty(), "{unit}: {faults}");
    }
}

#[test]
fn units_wait_longer_than_a_stop_takes_and_signal_the_guardian_alone() {
    for unit in UNITS {
        let content = text(unit);
        let value = |key: &str| {
            let line = content.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
            line.unwrap_or_else(|| panic!("{unit} has no {key}"))
        };
        let stop: u64 = value("TimeoutStopSec").parse().unwrap();
        assert_eq!(stop, grace() + 10, "{unit}");
        assert!(stop > longest_stop(), "{unit}");
        assert_eq!(value("KillMode"), "mixed", "{unit}");
        assert_eq!(value("Type"), "notify", "{unit}");
        assert!(value("WatchdogSec").parse::<u64>().unwrap() >= 30, "{unit}");
        assert_eq!(value("Restart"), "on-failure", "{unit}");
        assert_ne!(value("User"), "root", "{unit}");
        let (program, command) = value("ExecStart").split_once(' ').unwrap();
        assert_eq!(program, "/usr/local/bin/outlast");
        let role = command.split(' ').next().unwrap();
        let known =
            outlast(&[&command.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat(), &[]);
        assert!(known.status.success(), "{command}");
        // A worker's engine speaks, not its main process.
        let speaker = if role == "worker" { "all" } else { "main" };
        assert_eq!(value("NotifyAccess"), speaker, "{unit}");
        if role == "worker" {
            assert_eq!((value("Delegate"), value("OOMPolicy")), ("yes", "continue"), "{unit}");
            // Each of these would take namespaces, cgroups or /proc from containment.
            for setting in [
                "RestrictNamespaces",
                "ProtectKernelTunables",
                "ProtectControlGroups",
                "ProtectProc",
                "PrivateUsers",
                "SystemCallFilter",
                "PrivatePIDs",
            ] {
                let set = content.lines().any(|line| line.starts_with(&format!("{setting}=")));
                assert!(!set, "{unit} sets {setting}");
            }
        }
    }
}

/// Users are made without a home, so a job's programs need one that the unit makes.
#[test]
fn the_home_of_each_worker_is_a_folder_that_its_unit_makes() {
    for unit in UNITS.iter().filter(|unit| unit.contains("worker")) {
        let content = text(unit);
        let value = |key: &str| content.lines().find_map(|line| line.strip_prefix(key));
        let state = value("StateDirectory=").unwrap_or_else(|| panic!("{unit} has none"));
        let home = match value("Environment=HOME=") {
            Some(home) => home.replace("%S", "/var/lib"),
            None => {
                let made = content.split_once("--home-dir ").expect("a user is made").1;
                made.split(' ').next().expect("a folder").to_owned()
            }
        };
        assert_eq!(home, format!("/var/lib/{state}"), "{unit}");
    }
}

// Jobs are processes of the worker's user: as the server's they could read and delete its store.
#[test]
fn workers_have_a_user_and_settings_of_their_own() {
    let line = |unit: &str, key: &str| {
        let content = text(unit);
        let found = content.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{unit} has no {key}"))
    };
    let [server, workers @ ..] = UNITS;
    let settings = |unit: &str| {
        let command = line(unit, "ExecStart=");
        let after = command.split_once("--config ").unwrap().1.to_owned();
        after.split(' ').next().unwrap().to_owned()
    };
    for unit in workers {
        for key in ["User=", "Group="] {
            assert_ne!(line(unit, key), line(server, key), "{unit}");
            assert_ne!(line(unit, key), "root", "{unit}");
        }
        assert_ne!(settings(unit), settings(server), "{unit}");
        let user = line(unit, "User=");
        let content = text(unit);
        assert!(content.contains(&format!("nologin {user}\n")), "{unit} says how it is made");
        assert!(content.contains("deploy/config/worker.yaml /etc/outlast/worker.yaml"), "{unit}");
    }
    assert!(line(server, "StateDirectoryMode=").starts_with("07"), "its own user's alone");
}
