//! Log lines: on stderr, text or JSON, filtered by `OUTLAST_LOG`.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::config::Environment;

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// What is logged by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Information, warnings and errors.
    Info,
    /// Warnings and errors.
    Warnings,
}

/// Starts logging for the rest of the process. A parent of the same program reads the address of a
/// server from its log, whatever the user wants to see of it.
pub(crate) fn start(
    format: LogFormat,
    (verbosity, has_parent): (Verbosity, bool),
    environment: &Environment,
) {
    let default = match verbosity {
        // Libraries log nothing at this level that an operator can act on.
        Verbosity::Info => "info,h2=warn,hyper=warn,tonic=warn,tower=warn",
        Verbosity::Warnings => "warn",
    };
    let announced = if has_parent { ",outlast_server::serve=info" } else { "" };
    let filter = environment.log_filter().map(|filter| format!("{filter}{announced}"));
    let filter = filter.and_then(|filter| EnvFilter::try_new(filter).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal() && !environment.no_color();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        // They are printed to stderr too: where that is a closed pipe, printing panics.
        .log_internal_errors(false);
    // Logging is set up once; an error would mean that it is already there.
    match format {
        LogFormat::Text => builder.try_init().unwrap_or_default(),
        LogFormat::Json => builder.json().flatten_event(true).try_init().unwrap_or_default(),
    }
}
