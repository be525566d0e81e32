//! Whether a shutdown fits into what the host allows before it kills.
//!
//! Only what can be seen without asking anybody: who started us, and that one's usual limit.

use std::path::Path;
use std::time::Duration;

use super::RELEASE;
use crate::attempt::KILL_AFTER;

/// Somebody who kills a process that does not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outer {
    /// Its name.
    pub who: &'static str,
    /// What it allows unless told otherwise.
    pub usual: Duration,
    /// How to allow more.
    pub setting: &'static str,
}

impl Outer {
    /// Finds who started us, as far as that can be seen.
    #[must_use]
    pub fn of(variables: &[(String, String)]) -> Option<Self> {
        outer(variables, Path::new("/.dockerenv").exists())
    }
}

/// Returns what a shutdown may take with this grace for running jobs: SIGTERM, SIGKILL, and
/// telling the server come on top.
#[must_use]
pub fn needed_to_stop(grace: Duration) -> Duration {
    grace + KILL_AFTER + RELEASE
}

/// Says what a shutdown may take, and warns if the host probably does not wait that long.
pub(super) fn check(variables: &[(String, String)], needed: Duration) {
    let Some(outer) = Outer::of(variables) else { return };
    let Outer { who, usual, setting } = outer;
    if needed > usual {
        tracing::warn!(
            ?needed,
            ?usual,
            "a shutdown may take longer than {who} usually waits before it kills: {setting}"
        );
    } else {
        tracing::info!(?needed, ?usual, "a shutdown fits into what {who} usually waits");
    }
}

fn outer(variables: &[(String, String)], in_docker: bool) -> Option<Outer> {
    let has = |name: &str| variables.iter().any(|(known, _)| known == name);
    if has("KUBERNETES_SERVICE_HOST") {
        Some(Outer {
            who: "Kubernetes",
            usual: Duration::from_secs(30),
            setting: "raise terminationGracePeriodSeconds, or lower worker.shutdown_timeout",
        })
    } else if in_docker {
        Some(Outer {
            who: "Docker",
            usual: Duration::from_secs(10),
            setting: "raise --stop-timeout or stop_grace_period, or lower worker.shutdown_timeout",
        })
    } else if has("INVOCATION_ID") || has("NOTIFY_SOCKET") {
        Some(Outer {
            who: "systemd",
            usual: Duration::from_secs(90),
            setting: "raise TimeoutStopSec, or lower worker.shutdown_timeout",
        })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::outer;

    #[test]
    fn the_innermost_killer_counts() {
        let with = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
        };
        let who = |names: &[&str], docker| outer(&with(names), docker).map(|outer| outer.who);
        assert_eq!(who(&[], false), None);
        assert_eq!(who(&["INVOCATION_ID"], false), Some("systemd"));
        assert_eq!(who(&["INVOCATION_ID"], true), Some("Docker"));
        assert_eq!(who(&["KUBERNETES_SERVICE_HOST"], true), Some("Kubernetes"));
    }
}
