//! The keys that a file may have: those that are acted on here, and those that other systems act
//! on.
//!
//! A key that only another system knows is noted and has no effect here. A key that no system
//! knows is most likely a typo and is refused. Keys that begin with `x-` are free to use.

/// Which system acts on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// This system acts on it, or it is for people to read.
    Here,
    /// Another system acts on it.
    Elsewhere,
    /// No known system does.
    Nowhere,
}

/// The keys of one kind of file.
#[derive(Debug)]
pub(crate) struct Keys {
    here: &'static [&'static str],
    elsewhere: &'static [&'static str],
}

/// Keys of `pack.yaml`.
pub(crate) const PACK: Keys = Keys {
    here: &[
        "ref",
        "label",
        "description",
        "version",
        "enabled",
        "tags",
        "name",
        "author",
        "email",
        "license",
        "homepage",
        "repository",
        "keywords",
        "python",
        "node",
        "warm",
        "meta",
        "system",
        "is_standard",
        "runtime_deps",
    ],
    elsewhere: &[
        "conf_schema",
        "config",
        "config_schema",
        "testing",
        "dependencies",
        "runtime_dependencies",
        "runtimes",
        "contributors",
        "documentation",
        "changelog",
        "category",
        "icon",
        "attune_version",
        "min_attune_version",
        "max_attune_version",
        "python_versions",
        "installation",
        "permission_set_refs",
    ],
};

/// Keys of `actions/*.yaml`.
pub(crate) const ACTION: Keys = Keys {
    here: &[
        "ref",
        "name",
        "label",
        "description",
        "enabled",
        "runner_type",
        "entry_point",
        "parameters",
        "parameter_delivery",
        "parameter_format",
        "output_format",
        "timeout",
        "timeout_seconds",
        "tags",
        "retry",
        "queue",
        "priority",
        "interruptible",
        "resources",
        "on_drain",
        "overlap",
        "packs",
        "required_labels",
        "requires",
        "prefers",
        "keys",
        "env",
        "secrets",
        "python",
        "node",
        "warm",
        "output_schema",
        "output",
        "examples",
        "meta",
        "notes",
    ],
    elsewhere: &[
        "worker_selector",
        "worker_tolerations",
        "worker_affinity",
        "log_retention_policy",
        "log_retention_limit",
        "artifact_retention_policy",
        "artifact_retention_limit",
        "runtime",
        "runtime_version",
        "required_worker_runtimes",
        "default_execution_permission_set_refs",
        "permission_set_refs",
        "permission_set_ref",
        "accesses_mcp",
        "execution_config",
        "workflow_file",
        "version",
        "pack",
        "pack_ref",
        "config",
        "category",
        "icon",
        "author",
        "is_adhoc",
        "system",
        "policies",
    ],
};

/// Keys of an action's `retry`.
pub(crate) const RETRY: Keys = Keys {
    here: &[
        "max_attempts",
        "initial_interval",
        "max_interval",
        "backoff_coefficient",
        "backoff_strategy",
        "jitter",
        "non_retryable_errors",
        "on_exhaustion",
    ],
    elsewhere: &[],
};

/// Keys of one of an action's `secrets`.
pub(crate) const SECRET: Keys = Keys { here: &["as", "from"], elsewhere: &[] };

/// Keys of `warm`, in an action or a pack.
pub(crate) const WARM: Keys = Keys { here: &["preload", "idle"], elsewhere: &[] };

impl Keys {
    /// Returns what is done with a key.
    pub(crate) fn known(&self, key: &str) -> Known {
        if self.here.contains(&key) || key.starts_with("x-") {
            Known::Here
        } else if self.elsewhere.contains(&key) {
            Known::Elsewhere
        } else {
            Known::Nowhere
        }
    }

    /// Says what would be right in place of an unknown key.
    pub(crate) fn remedy(&self, key: &str) -> String {
        let all = self.here.iter().chain(self.elsewhere).copied();
        match nearest(key, all) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known keys are {}", self.here.join(", ")),
        }
    }
}

/// The name that was most likely meant, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    outlast_wire::nearest::nearest(name, known, 0.8)
}

#[cfg(test)]
mod tests {
    use super::{ACTION, Known, PACK};

    #[test]
    fn slips_are_told_from_keys_of_other_systems() {
        assert_eq!(ACTION.known("timeout"), Known::Here);
        assert_eq!(ACTION.known("worker_selector"), Known::Elsewhere);
        assert_eq!(ACTION.known("timout"), Known::Nowhere);
        assert_eq!(ACTION.known("x-owner"), Known::Here);
        assert_eq!(ACTION.remedy("timout"), "did you mean `timeout`?");
        assert_eq!(PACK.remedy("lable"), "did you mean `label`?");
        assert!(PACK.remedy("qqq").starts_with("known keys are ref,"));
    }
}
