//! Parameters on their way into a script: standard input, a file, or the environment.
//!
//! Values are written as data in a quoted format. Nothing here ends up in a command line,
//! and no value can become a name.

pub(crate) mod deliverable;
mod dotenv;
mod environment;

use serde_json::{Map, Value};

/// The variable that names the parameter file; set by the writer of the file.
pub const PARAMETER_FILE_VARIABLE: &str = "ATTUNE_PARAMETER_FILE";

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

/// Parameters, ready to be handed to a script.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Rendered {
    /// What to write to standard input; nothing means an empty one.
    pub stdin: Option<Vec<u8>>,
    /// The content of the file that [`PARAMETER_FILE_VARIABLE`] is to name, readable by its
    /// owner only.
    pub file: Option<Vec<u8>>,
    /// Variables to add to the script's environment.
    pub env: Vec<(String, String)>,
}

/// Shows how much there is, never what: parameters may be secret.
impl std::fmt::Debug for Rendered {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Rendered")
            .field("stdin_bytes", &self.stdin.as_ref().map(Vec::len))
            .field("file_bytes", &self.file.as_ref().map(Vec::len))
            .field("variables", &self.env.len())
            .finish()
    }
}

pub(crate) fn render(delivery: Delivery, format: Format, parameters: &Value) -> Rendered {
    let none = Map::new();
    let parameters = parameters.as_object().unwrap_or(&none);
    let mut rendered = Rendered::default();
    match delivery {
        Delivery::Stdin => rendered.stdin = Some(document(format, parameters)),
        Delivery::File => rendered.file = Some(document(format, parameters)),
        Delivery::Env => rendered.env.extend(environment::variables(parameters)),
    }
    rendered
}

fn document(format: Format, parameters: &Map<String, Value>) -> Vec<u8> {
    let mut text = match format {
        Format::Json => json(parameters),
        // A JSON document is a YAML document as well.
        Format::Yaml => yaml(parameters).unwrap_or_else(|_| json(parameters)),
        Format::Dotenv => dotenv::lines(parameters),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.into_bytes()
}

fn json(parameters: &Map<String, Value>) -> String {
    serde_json::to_string(parameters).unwrap_or_else(|_| "{}".to_owned())
}

fn yaml(parameters: &Map<String, Value>) -> Result<String, serde_saphyr::SerializeError> {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.prefer_block_scalars = false;
    serde_saphyr::to_string_with_options(parameters, options)
}

/// A value where only text will do: texts as they are, the rest as JSON.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
