//! Whether a shutdown fits into what the host allows before it kills.
//!
//! Only what can be seen without asking anybody: who started us, and that one's usual limit.

use std::path::Path;
use std::time::Duration;

/// Somebody who kills a process that does not end in time.
#[derive(Debug, PartialEq, Eq)]
struct Outer {
    who: &'static str,
    /// What it allows unless told otherwise.
    usual: Duration,
    /// How to allow more.
    setting: &'static str,
}

/// Says what a shutdown may take, and warns if the host probably does not wait that long.
pub(super) fn check(variables: &[(String, String)], needed: Duration) {
    let in_docker = Path::new("/.dockerenv").exists();
    let Some(outer) = outer(variables, in_docker) else { return };
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
