//! Whether a shutdown fits into the time that the host allows before it kills.
//!
//! Only what can be seen without asking: which supervisor started us, and its usual limit.

use std::path::Path;
use std::time::Duration;

use super::RELEASE;
use crate::attempt::KILL_AFTER;

/// A supervisor that kills a process that does not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Supervisor {
    /// Its name.
    pub name: &'static str,
    /// What it allows unless told otherwise.
    pub stop_timeout: Duration,
    /// How to allow more.
    pub setting: &'static str,
}

impl Supervisor {
    /// Finds who started us, as far as that can be seen.
    #[must_use]
    pub fn of(variables: &[(String, String)]) -> Option<Self> {
        supervisor(variables, Path::new("/.dockerenv").exists())
    }
}

/// Returns what a shutdown may take with this grace for running jobs: SIGTERM, SIGKILL, and
/// telling the server come on top.
#[must_use]
pub fn needed_to_stop(grace: Duration) -> Duration {
    grace + KILL_AFTER + RELEASE
}

/// Says what a shutdown may take, and whether the host usually waits that long. How long it really
/// waits cannot be seen, so this is no warning.
pub(super) fn check(variables: &[(String, String)], needed: Duration) {
    let Some(supervisor) = Supervisor::of(variables) else { return };
    let Supervisor { name, stop_timeout, setting } = supervisor;
    if needed > stop_timeout {
        tracing::info!(
            ?needed,
            ?stop_timeout,
            "a shutdown may take longer than {name} waits before it kills unless you {setting}"
        );
    } else {
        tracing::info!(
            ?needed,
            ?stop_timeout,
            "a shutdown fits into the time that {name} usually waits"
        );
    }
}

fn supervisor(variables: &[(String, String)], in_docker: bool) -> Option<Supervisor> {
    let has = |name: &str| variables.iter().any(|(known, _)| known == name);
    if has("KUBERNETES_SERVICE_HOST") {
        Some(Supervisor {
            name: "Kubernetes",
            stop_timeout: Duration::from_secs(30),
            setting: "raise terminationGracePeriodSeconds, or lower worker.shutdown_timeout",
        })
    } else if in_docker {
        Some(Supervisor {
            name: "Docker",
            stop_timeout: Duration::from_secs(10),
            setting: "raise --stop-timeout or stop_grace_period, or lower worker.shutdown_timeout",
        })
    } else if has("INVOCATION_ID") && !has("NOTIFY_SOCKET") {
        // A unit of another type than `notify`: it cannot be asked for more time.
        Some(Supervisor {
            name: "systemd",
            stop_timeout: Duration::from_secs(90),
            setting: "raise TimeoutStopSec, or lower worker.shutdown_timeout",
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::supervisor;

    #[test]
    fn the_innermost_killer_counts() {
        let with = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
        };
        let found =
            |names: &[&str], docker| supervisor(&with(names), docker).map(|found| found.name);
        assert_eq!(found(&[], false), None);
        assert_eq!(found(&["INVOCATION_ID"], false), Some("systemd"));
        assert_eq!(found(&["INVOCATION_ID"], true), Some("Docker"));
        // It is asked for the time that a stop takes.
        assert_eq!(found(&["INVOCATION_ID", "NOTIFY_SOCKET"], false), None);
        assert_eq!(found(&["KUBERNETES_SERVICE_HOST"], true), Some("Kubernetes"));
    }
}
