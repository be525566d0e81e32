//! One action: a program, its parameters and how it runs.

mod definition;
mod entry;
mod environment;
mod job_keys;
mod retry;
pub(crate) mod warm;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::keys::Keys;
use outlast_core::resources::Resources;
use outlast_core::selector::Placement;
use serde_json::Value;

pub(crate) use definition::{InLanguage, PackFile, Reading};
pub(crate) use entry::Entry;
pub use entry::{EntryPoint, Program};
pub use environment::{SecretAs, SecretSpec};
pub(crate) use job_keys::JobKeys;
pub use retry::{OnExhaustion, RetrySpec};
pub use warm::WarmSpec;

use crate::environment::PackEnvironment;
use crate::output::{self, OutputFormat};
use crate::parameters::{Parameters, Strictness, Violation};
use crate::render::{self, Delivery, Format, Rendered, deliverable};

/// A program that a job's type names, such as `core.echo`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Action {
    /// The full name: pack, dot, action.
    pub reference: String,
    /// The pack's name.
    pub pack: String,
    /// Its display name.
    pub label: String,
    /// What it does.
    pub description: String,
    /// What runs the script.
    pub runner: Runner,
    /// How parameters reach the script.
    pub delivery: Delivery,
    /// How parameters are written on stdin or in the file.
    pub format: Format,
    /// How the script's standard output is read.
    pub output_format: OutputFormat,
    /// The time limit of one attempt, where the action sets one.
    pub timeout: Option<Duration>,
    /// Whether it may run: neither the action nor its pack is switched off.
    pub enabled: bool,
    /// Tags to search by.
    pub tags: Vec<String>,
    /// Its retry policy, if it has one.
    pub retry: Option<RetrySpec>,
    /// The queue of its jobs, unless they name another.
    pub queue: Option<String>,
    /// The priority of its jobs, from -100 to 100, unless they have one.
    pub priority: Option<i8>,
    /// Whether a drain may ask it to stop before the grace period is over.
    pub interruptible: bool,
    /// What a drain does with it at once.
    pub on_drain: OnDrain,
    /// What an attempt may use, unless its job says otherwise.
    pub resources: Resources,
    /// Whether two attempts of one job may ever run at the same time.
    pub overlap: Overlap,
    /// With which files of its pack its jobs run.
    pub packs: PackPolicy,
    /// Labels that a worker must carry to run it.
    pub required_labels: BTreeMap<String, String>,
    /// Which workers its jobs want besides.
    pub placement: Placement,
    /// Environment variables that it sets.
    pub environment: BTreeMap<String, String>,
    /// Secrets that it asks the worker for, by the name that the script uses.
    pub secrets: BTreeMap<String, SecretSpec>,
    /// The program that runs the script in place of the worker's own: a path, from the pack's folder
    /// unless it is absolute, or the name of a program.
    pub own_interpreter: Option<String>,
    /// The environment of its pack that it runs in, if the pack has one for its runner.
    pub environment_of_pack: Option<Arc<PackEnvironment>>,
    /// How interpreters are kept warm for it, if they are.
    pub warm: Option<WarmSpec>,
    keys: JobKeys,
    parameters: Parameters,
    entry: Entry,
}

/// What runs an action's script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runner {
    /// A shell.
    Shell,
    /// Python 3.
    Python,
    /// Node.js.
    Node,
}

/// Whether two attempts of one job may ever run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// They may, for a moment, after a worker is lost.
    Allowed,
    /// They never do.
    Forbidden,
}

/// A program that an action or its pack names to run scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnInterpreter {
    /// At a path. Virtual environments go by this path, so links in it are not followed.
    At(PathBuf),
    /// By its name, to be looked up in the PATH that jobs get.
    InPath(String),
}

/// With which files of its pack a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackPolicy {
    /// Those that the worker has.
    Any,
    /// Only those that its parameters were validated with.
    Pinned,
}

/// What a drain does with a running attempt before the grace period is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDrain {
    /// It lets it run to its end.
    Finish,
    /// It sends SIGTERM: the program stores where it is and exits, to be run again elsewhere.
    Stop,
}

impl Action {
    /// Checks parameters and returns them with the defaults filled in.
    ///
    /// `null` counts as no parameters. Messages never repeat a parameter's value.
    ///
    /// # Errors
    /// Everything that is wrong with them, up to [`crate::limits::VIOLATIONS_MAX`].
    pub fn check(&self, parameters: &Value) -> Result<Value, Vec<Violation>> {
        self.checked(parameters, Strictness::NamedOnly)
    }

    /// Checks parameters that were accepted before, perhaps by an earlier version of the pack:
    /// those that the action does not name pass.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_again(&self, parameters: &Value) -> Result<Value, Vec<Violation>> {
        self.checked(parameters, Strictness::AsSchema)
    }

    fn checked(&self, given: &Value, strictness: Strictness) -> Result<Value, Vec<Violation>> {
        let complete = self.parameters.check(given, strictness)?;
        let undeliverable =
            deliverable::check(self.delivery, self.format, self.schema(), &complete);
        if undeliverable.is_empty() { Ok(complete) } else { Err(undeliverable) }
    }

    /// Replaces the values of secret parameters by `***`, for showing them.
    #[must_use]
    pub fn mask(&self, parameters: &Value) -> Value {
        self.parameters.mask(parameters)
    }

    /// The texts of secret parameters, for hiding them in what the script prints.
    #[must_use]
    pub fn secret_values(&self, parameters: &Value) -> Vec<String> {
        self.parameters.secret_values(parameters)
    }

    /// The parameters as JSON Schema, whatever style the action's file uses.
    #[must_use]
    pub const fn schema(&self) -> &Value {
        self.parameters.schema()
    }

    /// The keys of a job with these checked parameters. Those that are `given` with the job
    /// replace the action's.
    ///
    /// # Errors
    /// Parameters that no key can be made of.
    pub fn keys(
        &self,
        parameters: &Value,
        given: &Keys,
    ) -> Result<BTreeMap<String, String>, Vec<Violation>> {
        let is_given = |name: &str| given.get(name).is_some();
        let mut keys = self.keys.fill(parameters, || self.mask(parameters), is_given)?;
        keys.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(keys)
    }

    /// Names and templates of its jobs' keys, sorted by name.
    pub fn key_templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.sources()
    }

    /// Renders checked parameters for delivery to the script.
    #[must_use]
    pub fn render(&self, parameters: &Value) -> Rendered {
        let mut rendered = render::render(self.delivery, self.format, parameters);
        rendered.env.splice(..0, self.about());
        rendered
    }

    /// Variables that describe the call, with the names that such packs use.
    fn about(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let pairs = [
            ("ATTUNE_ACTION", self.reference.clone()),
            ("ATTUNE_PACK_REF", self.pack.clone()),
            ("ATTUNE_PARAMETER_DELIVERY", self.delivery.as_str().to_owned()),
            ("ATTUNE_PARAMETER_FORMAT", self.format.as_str().to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value))
    }

    /// Reads a script's standard output as its `output_format` says.
    ///
    /// # Errors
    /// Why the output is not in that format.
    pub fn parse_output(&self, stdout: &[u8]) -> Result<Value, String> {
        output::parse(self.output_format, stdout)
    }

    /// The result of an execution that printed `stdout`, as JSON. Numbers stay as they were printed.
    ///
    /// If a successful program printed something other than its `output_format`, the result is the
    /// text with an `output_error` next to it.
    #[must_use]
    pub fn result(&self, stdout: &[u8]) -> String {
        output::result(self.output_format, stdout)
    }

    /// The script, in the binary or on disk.
    #[must_use]
    pub fn entry_point(&self) -> EntryPoint {
        self.entry.point()
    }

    /// Where the script and its pack are once built-in packs were written to `built_in`.
    #[must_use]
    pub fn program(&self, built_in: &Path) -> Program {
        self.entry.program(built_in)
    }

    /// The program that runs the script in place of the worker's own, if the action names one.
    #[must_use]
    pub fn own_interpreter(&self, built_in: &Path) -> Option<OwnInterpreter> {
        let named = self.own_interpreter.as_ref()?;
        Some(if named.contains('/') {
            OwnInterpreter::At(self.program(built_in).folder.join(named))
        } else {
            OwnInterpreter::InPath(named.clone())
        })
    }

    /// The program to run the script with: `sh`, `bash`, `python3` or `node`.
    ///
    /// A shell script gets `bash` unless its first line names another shell: such packs are written
    /// for it.
    #[must_use]
    pub const fn interpreter(&self) -> &'static str {
        match self.runner {
            Runner::Shell => self.entry.shell(),
            Runner::Python => "python3",
            Runner::Node => "node",
        }
    }
}

/// Whether a text can be one part of a reference, such as `core` and `echo` of `core.echo`.
pub(crate) fn is_name(text: &str) -> bool {
    let fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    !text.is_empty() && text.chars().all(fit)
}

impl Runner {
    /// The name in files, labels and requests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    /// The runner of a name; `nodejs` and other usual spellings are understood.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "shell" | "sh" | "bash" => Some(Self::Shell),
            "python" | "python3" => Some(Self::Python),
            "node" | "nodejs" | "node.js" => Some(Self::Node),
            _ => None,
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
