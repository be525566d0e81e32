//! One action: a program, what it takes and how it is to be run.

mod definition;
mod entry;
mod retry;
mod surroundings;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

pub(crate) use definition::Reading;
pub(crate) use entry::Entry;
pub use entry::{EntryPoint, Program};
pub use retry::{OnExhaustion, RetrySpec};
pub use surroundings::{SecretAs, SecretWish};

use crate::parameters::{Parameters, Strictness, Violation};
use crate::render::{self, Rendered};
use crate::{output, render::deliverable};

/// A program that a job's type names, such as `core.echo`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Action {
    /// The full name: pack, dot, action.
    pub reference: String,
    /// The pack's name.
    pub pack: String,
    /// The name for people.
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
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What the action says about being tried again, where it does.
    pub retry: Option<RetrySpec>,
    /// Whether a drain may end it before the grace period is over.
    pub interruptible: bool,
    /// Whether two attempts of one job may ever run at the same time.
    pub overlap: Overlap,
    /// Labels that a worker must carry to run it.
    pub required_labels: BTreeMap<String, String>,
    /// Variables that it wants in its environment.
    pub environment: BTreeMap<String, String>,
    /// Secrets that it wants of the worker, by the name that the script knows.
    pub secrets: BTreeMap<String, SecretWish>,
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

/// How parameters reach a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// On standard input.
    Stdin,
    /// In a file that an environment variable names.
    File,
    /// Each in an environment variable of its own.
    Env,
}

/// How parameters are written on stdin or in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON document on one line.
    Json,
    /// One YAML document.
    Yaml,
    /// `NAME='value'` lines.
    Dotenv,
}

/// How a script's standard output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// As it is.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// A JSON document a line.
    Jsonl,
}

/// Whether two attempts of one job may ever run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// They may, for a moment, after a worker is lost.
    Allowed,
    /// They never do.
    Forbidden,
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
        let undeliverable = deliverable::check(self, &complete);
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

    /// Writes checked parameters in the way that the script wants them.
    #[must_use]
    pub fn render(&self, parameters: &Value) -> Rendered {
        render::render(self, parameters)
    }

    /// Reads a script's standard output as its `output_format` says.
    ///
    /// # Errors
    /// Why the output is not in that format.
    pub fn parse_output(&self, stdout: &[u8]) -> Result<Value, String> {
        output::parse(self.output_format, stdout)
    }

    /// The result of an execution that printed `stdout`.
    ///
    /// A program that ended well but printed something else than it promised did its work:
    /// the result is then the text, with an `output_error` beside it.
    #[must_use]
    pub fn result(&self, stdout: &[u8]) -> Value {
        output::result(self.output_format, stdout)
    }

    /// The script, in the binary or on disk.
    #[must_use]
    pub fn entry_point(&self) -> EntryPoint {
        self.entry.point()
    }

    /// Where the script and its pack are once built-in packs were written to `built_in`.
    #[must_use]
    pub fn program(&self, built_in: &std::path::Path) -> Program {
        self.entry.program(built_in)
    }

    /// The program to run the script with: `sh`, `bash`, `python3` or `node`.
    ///
    /// A shell script that does not ask for another shell gets `bash`, which such packs are
    /// written for; where there is none, `sh` is worth a try.
    #[must_use]
    pub const fn interpreter(&self) -> &'static str {
        match self.runner {
            Runner::Shell => self.entry.shell(),
            Runner::Python => "python3",
            Runner::Node => "node",
        }
    }
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

impl Delivery {
    /// The name in files and in the script's environment.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdin => "stdin",
            Self::File => "file",
            Self::Env => "env",
        }
    }
}

impl Format {
    /// The name in files and in the script's environment.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Dotenv => "dotenv",
        }
    }
}
