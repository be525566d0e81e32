//! The process environment, read once.
//!
//! `OUTLAST_SECTION__KEY` sets `section.key`. A few older or shorter names stand for one key;
//! the long name wins over them. A name that is a key but for its underscores is refused: it
//! would be ignored otherwise.

use outlast_worker::handover;

use super::{ConfigError, Origin, keys};

/// Other names of keys, the weakest first.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("OJS_SHUTDOWN_GRACE_PERIOD", "worker.shutdown_timeout"),
    ("OJS_GRACE_PERIOD", "worker.shutdown_timeout"),
    ("OUTLAST_CA_FILE", "worker.ca_file"),
    ("OUTLAST_CLIENT_CERT", "worker.client_cert"),
    ("OUTLAST_CLIENT_KEY", "worker.client_key"),
    ("OJS_URL", "worker.server"),
    ("OUTLAST_SERVER", "worker.server"),
    ("OJS_AUTH_TOKEN", "worker.token"),
    ("OUTLAST_TOKEN", "worker.token"),
    ("OUTLAST_TOKEN_FILE", "worker.token_file"),
    ("OUTLAST_LOG_FORMAT", "log.format"),
];

/// Variables with our prefix that set no key: ours, and what a job finds in its environment.
const OTHERS: &[&str] = &[
    "OUTLAST_LOG",
    "OUTLAST_JOB_ID",
    "OUTLAST_ATTEMPT",
    "OUTLAST_EPOCH",
    "OUTLAST_IDEMPOTENCY_KEY",
    "OUTLAST_CHECKPOINT",
    "OUTLAST_SECRETS",
];

/// Variables that other processes may see: what jobs are given anyway, and what the loader and
/// libraries read by themselves.
const HARMLESS: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "USER",
    "LOGNAME",
    "SHELL",
    "NOTIFY_SOCKET",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
const HARMLESS_PREFIXES: &[&str] = &["LC_", "LD_", "RUST_", "MIMALLOC_", "TOKIO_"];

/// Environment variables by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Those of this process, or those that it was handed when it was started again; what is
    /// not Unicode cannot be an Outlast setting.
    pub(crate) fn of_process() -> Self {
        if let Some(variables) = handover::received() {
            return Self { variables };
        }
        let pairs = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self { variables: pairs.collect() }
    }

    /// These and no others.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { variables: pairs.iter().map(own).collect() }
    }

    /// All of them.
    pub(crate) fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether a variable may stay where other processes can read it.
    pub(crate) fn is_harmless(name: &str) -> bool {
        HARMLESS.contains(&name) || HARMLESS_PREFIXES.iter().any(|start| name.starts_with(start))
    }

    /// The same with one variable set to `value`.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without what it says about a key under any name.
    pub(crate) fn without(mut self, key: &str) -> Self {
        let is_alias = |name: &str| ALIASES.iter().any(|(alias, of)| *alias == name && *of == key);
        self.variables.retain(|(name, _)| *name != keys::variable(key) && !is_alias(name));
        self
    }

    /// What to log, if `OUTLAST_LOG` says so.
    pub(crate) fn log_filter(&self) -> Option<&str> {
        self.get("OUTLAST_LOG")
    }

    /// Whether the user asked for output without colours, or has a terminal that knows none.
    pub(crate) fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some() || self.get("TERM") == Some("dumb")
    }

    /// Only what says how log lines are written.
    pub(crate) fn for_logs(&self) -> Self {
        let wanted = ["OUTLAST_LOG_FORMAT", "OUTLAST_LOG__FORMAT"];
        let kept = self.variables.iter().filter(|(name, _)| wanted.contains(&name.as_str()));
        Self { variables: kept.cloned().collect() }
    }

    /// Only what says which server to ask, and how.
    pub(crate) fn for_clients(&self) -> Self {
        let wanted = |name: &str| {
            matches!(
                name,
                "OJS_URL"
                    | "OUTLAST_SERVER"
                    | "OJS_AUTH_TOKEN"
                    | "OUTLAST_TOKEN"
                    | "OUTLAST_TOKEN_FILE"
                    | "OUTLAST_CA_FILE"
                    | "OUTLAST_CLIENT_CERT"
                    | "OUTLAST_CLIENT_KEY"
            )
        };
        let kept = self.variables.iter().filter(|(name, _)| wanted(name));
        Self { variables: kept.cloned().collect() }
    }

    /// Keys that are set here, weakest first: key, value, variable.
    pub(super) fn settings(&self) -> Result<Vec<(String, String, String)>, ConfigError> {
        let mut found = Vec::new();
        for (variable, key) in ALIASES {
            if let Some(value) = self.get(variable) {
                found.push(((*key).to_owned(), value.to_owned(), (*variable).to_owned()));
            }
        }
        for (variable, value) in &self.variables {
            let Some(rest) = variable.strip_prefix("OUTLAST_") else { continue };
            let Some((section, key)) = rest.split_once("__") else {
                if let Some(key) = meant(variable) {
                    return Err(ConfigError::underscores(variable, key));
                }
                continue;
            };
            let name = format!("{section}.{}", key.replace("__", ".")).to_lowercase();
            if keys::find(&name).is_none() {
                return Err(ConfigError::unknown(&name, Origin::Environment(variable.clone())));
            }
            found.push((name, value.clone(), variable.clone()));
        }
        Ok(found)
    }

    /// Warns of variables with our prefix that have no effect, each with the nearest that has.
    pub(crate) fn warn_of_strangers(&self) {
        for variable in self.strangers() {
            let nearest = keys::variable(keys::nearest(&as_key(variable)));
            tracing::warn!("{variable} has no effect; did you mean {nearest}?");
        }
    }

    fn strangers(&self) -> impl Iterator<Item = &str> {
        let names = self.variables.iter().map(|(name, _)| name.as_str());
        names.filter(|name| {
            name.starts_with("OUTLAST_")
                && !name.contains("__")
                && !OTHERS.contains(name)
                && !ALIASES.iter().any(|(alias, _)| alias == name)
                && !is_of_kubernetes(name)
        })
    }
}

/// The key that a variable would set if its underscores were right.
fn meant(variable: &str) -> Option<&'static str> {
    let plain = |text: &str| text.replace(['_', '.'], "").to_lowercase();
    let rest = plain(variable.strip_prefix("OUTLAST_")?);
    let known =
        |name: &str| OTHERS.contains(&name) || ALIASES.iter().any(|(alias, _)| *alias == name);
    let found = keys::ALL.iter().find(|key| plain(key.name) == rest);
    found.map(|key| key.name).filter(|_| !known(variable))
}

/// `OUTLAST_WORKER_NAME` as `worker.name`.
fn as_key(variable: &str) -> String {
    variable.trim_start_matches("OUTLAST_").replacen('_', ".", 1).to_lowercase()
}

/// What Kubernetes sets in every container for a service whose name begins with `outlast`.
fn is_of_kubernetes(variable: &str) -> bool {
    let ends = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];
    ends.iter().any(|end| variable.ends_with(end))
        || variable.contains("_SERVICE_PORT_")
        || variable.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use super::Environment;

    #[test]
    fn variables_without_effect_are_named_but_for_those_of_others() {
        let names = [
            "OUTLAST_LOG",
            "OUTLAST_TOKEN",
            "OUTLAST_JOB_ID",
            "OUTLAST_WORKER__NAME",
            "OUTLAST_SERVER_SERVICE_HOST",
            "OUTLAST_SERVER_PORT_8080_TCP",
            "OUTLAST_CONCURENCY",
        ];
        let environment = Environment::of(&names.map(|name| (name, "x")));
        assert_eq!(environment.strangers().collect::<Vec<_>>(), ["OUTLAST_CONCURENCY"]);
    }
}
