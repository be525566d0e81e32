//! The environment a job sees: an allow-list of the host's, what the action delivers, and
//! who the job is. Never a secret of the worker.
//!
//! The host's environment is an argument: this module reads none.

use std::path::PathBuf;

/// Names taken over from the worker's own environment; `LC_*` besides.
const ALLOWED: [&str; 8] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL"];

/// Used where the worker itself was started without a PATH, as under a bare supervisor.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The prefix under which only the product sets names.
const OURS: &str = "OUTLAST_";

/// The worker's environment as far as jobs may see it.
#[derive(Debug, Clone)]
pub struct HostEnvironment {
    kept: Vec<(String, String)>,
}

impl HostEnvironment {
    /// Keeps the allowed part of `variables`.
    #[must_use]
    pub fn allowed_of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut kept: Vec<_> = variables.into_iter().filter(|(name, _)| is_allowed(name)).collect();
        if !kept.iter().any(|(name, _)| name == "PATH") {
            kept.push(("PATH".to_owned(), PATH_DEFAULT.to_owned()));
        }
        Self { kept }
    }

    /// Keeps those of `variables` as well that the operator lets through: by name, or by the
    /// beginning of a name with `*` behind it.
    #[must_use]
    pub fn also(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        let_through: &[String],
    ) -> Self {
        let wanted = |name: &str| {
            let_through.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => name == pattern,
            })
        };
        let more = variables.into_iter().filter(|(name, _)| !is_allowed(name) && wanted(name));
        // Whatever was let through: the worker's own token never is.
        self.kept.extend(more.filter(|(name, _)| !is_ours(name)));
        self
    }

    /// Returns the PATH that jobs get.
    #[must_use]
    pub fn path(&self) -> &str {
        self.kept.iter().find(|(name, _)| name == "PATH").map_or(PATH_DEFAULT, |(_, value)| value)
    }

    /// Returns what every job gets of the worker's environment.
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        self.kept.clone()
    }

    /// Builds one job's whole environment.
    ///
    /// # Errors
    /// When a delivered name would replace one of the host's or ours, would make the system
    /// load foreign code, or is no name at all.
    pub fn for_job(
        &self,
        identity: &JobIdentity,
        delivered: &[(String, String)],
    ) -> Result<Vec<(String, String)>, RefusedName> {
        let mut variables = self.kept.clone();
        for (name, value) in delivered {
            check(name, value)?;
            if self.kept.iter().any(|(kept, _)| kept == name) {
                return Err(RefusedName::Reserved(name.clone()));
            }
            variables.push((name.clone(), value.clone()));
        }
        variables.extend(identity.variables());
        Ok(variables)
    }
}

/// A job's identity, for its environment.
#[derive(Debug, Clone)]
pub struct JobIdentity {
    /// The job's id.
    pub job_id: String,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// The epoch of the claim, for fencing effects outside.
    pub epoch: u64,
    /// The same for every attempt of the job: lets an outside service drop a repetition.
    pub idempotency_key: String,
    /// Where the last checkpoint is and the next one goes.
    pub checkpoint: PathBuf,
}

impl JobIdentity {
    fn variables(&self) -> [(String, String); 6] {
        let checkpoint = self.checkpoint.to_string_lossy().into_owned();
        [
            ("OUTLAST_JOB_ID".to_owned(), self.job_id.clone()),
            ("OUTLAST_ATTEMPT".to_owned(), self.attempt.to_string()),
            ("OUTLAST_EPOCH".to_owned(), self.epoch.to_string()),
            ("OUTLAST_IDEMPOTENCY_KEY".to_owned(), self.idempotency_key.clone()),
            ("OUTLAST_CHECKPOINT".to_owned(), checkpoint),
            // The name under which packs written for Attune ask for the same thing.
            ("ATTUNE_EXEC_ID".to_owned(), self.job_id.clone()),
        ]
    }
}

/// A parameter that cannot be delivered as an environment variable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedName {
    /// It would replace a variable of the host's or the product's.
    #[error("parameter may not be delivered as {0}: the name is reserved")]
    Reserved(String),
    /// The dynamic loader would obey it.
    #[error("parameter may not be delivered as {0}: the dynamic loader would act on it")]
    Loader(String),
    /// Empty, or with `=` or a zero byte in name or value.
    #[error("parameter {0:?} cannot be an environment variable")]
    Malformed(String),
}

fn check(name: &str, value: &str) -> Result<(), RefusedName> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        Err(RefusedName::Malformed(name.to_owned()))
    } else if is_allowed(name) || name.starts_with(OURS) {
        Err(RefusedName::Reserved(name.to_owned()))
    } else if name.starts_with("LD_") {
        Err(RefusedName::Loader(name.to_owned()))
    } else {
        Ok(())
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(OURS) || name.starts_with("OJS_")
}

fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with("LC_")
}

#[cfg(test)]
mod tests;
