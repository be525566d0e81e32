//! The process environment, read once.
//!
//! `OUTLAST_SECTION__KEY` sets `section.key`. A few older or shorter names stand for one key;
//! the long name wins over them.

use super::{ConfigError, Origin, keys};

/// Other names of keys, the weakest first.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("OJS_SHUTDOWN_GRACE_PERIOD", "worker.shutdown_timeout"),
    ("OJS_GRACE_PERIOD", "worker.shutdown_timeout"),
    ("OJS_URL", "worker.server"),
    ("OUTLAST_SERVER", "worker.server"),
    ("OJS_AUTH_TOKEN", "worker.token"),
    ("OUTLAST_TOKEN", "worker.token"),
];

/// Environment variables by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: Vec<(String, String)>,
}

impl Environment {
    /// Those of this process; what is not Unicode cannot be one of ours.
    pub(crate) fn of_process() -> Self {
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

    /// What to log, if `OUTLAST_LOG` says so.
    pub(crate) fn log_filter(&self) -> Option<&str> {
        self.get("OUTLAST_LOG")
    }

    /// Whether the user asked for output without colours.
    pub(crate) fn no_color(&self) -> bool {
        self.get("NO_COLOR").is_some()
    }

    /// Only what says which server to ask, and how.
    pub(crate) fn for_clients(&self) -> Self {
        let wanted = |name: &str| {
            matches!(name, "OJS_URL" | "OUTLAST_SERVER" | "OJS_AUTH_TOKEN" | "OUTLAST_TOKEN")
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
            let Some((section, key)) = rest.split_once("__") else { continue };
            let name = format!("{}.{}", section.to_lowercase(), key.to_lowercase());
            if keys::find(&name).is_none() {
                return Err(ConfigError::unknown(&name, Origin::Environment(variable.clone())));
            }
            found.push((name, value.clone(), variable.clone()));
        }
        Ok(found)
    }
}
