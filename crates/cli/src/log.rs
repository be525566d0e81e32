//! Log lines: on stderr, text or JSON, filtered by `OUTLAST_LOG`.

mod writer;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::Path;

use clap::ValueEnum;
use outlast_cli_core::exit::Failure;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

use crate::config::{ConfigError, Environment, Settings, value};

/// How the names begin under which this program and its libraries log.
const TARGETS: &[&str] = &[
    "outlast", "h2", "hyper", "jiff", "log", "reqwest", "rustls", "tokio", "tonic", "tower",
    "tracing",
];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

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

/// The format that the settings ask for.
pub(crate) fn format_of(settings: &Settings) -> Result<LogFormat, ConfigError> {
    settings.get("log.format", value::log_format)
}

/// The format for a command of the client, which reads no file.
pub(crate) fn format_of_client(environment: &Environment) -> Result<LogFormat, ConfigError> {
    format_of(&Settings::load(None, &environment.for_logs(), Vec::new())?)
}

/// The format for a server or a worker. What is wrong with their settings they say themselves.
pub(crate) fn format_of_daemon(file: Option<&Path>, environment: &Environment) -> LogFormat {
    let settings = Settings::load(file, environment, Vec::new());
    settings.and_then(|settings| format_of(&settings)).unwrap_or(LogFormat::Text)
}

/// What is logged by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Information, warnings and errors.
    Info,
    /// Warnings and errors.
    Warnings,
}

/// From here on no thread of this process but one waits for what reads stderr: a server or worker
/// goes on when its log is not read. Lines that do not fit are dropped and counted.
pub(crate) fn never_wait() {
    // Without a thread for it, lines are written as by any other command.
    writer::start().unwrap_or_default();
}

/// Writes what is queued, before another program takes this one's place.
pub(crate) fn write_queued() {
    writer::write_queued();
}

/// Writes a line that is no log line, behind those that are queued.
pub(crate) fn say(line: impl fmt::Display) {
    // A closed stderr cannot be helped.
    writer::lines().write_all(format!("{line}\n").as_bytes()).unwrap_or_default();
}

/// Starts logging for the rest of the process. A parent of the same program reads the address of a
/// server from its log, whatever the user wants to see of it.
pub(crate) fn start(
    format: LogFormat,
    verbosity: Verbosity,
    has_parent: bool,
    environment: &Environment,
) -> Result<(), Failure> {
    let default = match verbosity {
        // Libraries log nothing at this level that an operator can act on.
        Verbosity::Info => "info,h2=warn,hyper=warn,tonic=warn,tower=warn",
        Verbosity::Warnings => "warn",
    };
    let announced = if has_parent { ",outlast_server::serve=info" } else { "" };
    let filter = match environment.log_filter() {
        Some(wanted) => {
            let wanted = checked(wanted)?;
            EnvFilter::new(format!("{wanted}{announced}"))
        }
        None => EnvFilter::new(default),
    };
    let colours = std::io::stderr().is_terminal() && !environment.no_color();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer::lines)
        .with_ansi(colours)
        // They are printed to stderr too: where that is a closed pipe, printing panics.
        .log_internal_errors(false);
    // Logging is set up once; an error would mean that it is already there.
    match format {
        LogFormat::Text => builder.try_init().unwrap_or_default(),
        LogFormat::Json => builder.json().flatten_event(true).try_init().unwrap_or_default(),
    }
    Ok(())
}

/// Returns the filter without blanks. Refuses what would be ignored, and names under which nothing
/// is logged: a misspelt level is read as such a name, and switches all else off.
fn checked(wanted: &str) -> Result<String, Failure> {
    let parts = wanted.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    for part in parts.iter().copied() {
        if part.parse::<Directive>().is_err() {
            return Err(wrong(part, "which is not a log filter"));
        }
        // What begins with a bracket is about spans of any part.
        let target = part.split(['=', '[']).next().unwrap_or_default();
        let is_level = target == part && part.parse::<LevelFilter>().is_ok();
        let is_known = target.is_empty() || TARGETS.iter().any(|known| target.starts_with(known));
        if !is_level && !is_known {
            return Err(wrong(part, "but nothing is logged under that name"));
        }
    }
    Ok(parts.join(","))
}

fn wrong(part: &str, problem: &str) -> Failure {
    let word = part.rsplit('=').next().unwrap_or_default().to_lowercase();
    let likeness = |level: &&&str| (strsim::jaro_winkler(level, &word) * 1e3).round();
    let near = LEVELS.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let near = near.filter(|level| likeness(level) >= 800.0);
    let near = near.map_or_else(String::new, |level| format!("did you mean `{level}`? "));
    let hint = format!(
        "{near}levels are {}; OUTLAST_LOG=outlast_server=debug,info sets one for a part",
        LEVELS.join(", ")
    );
    Failure::usage(format!("OUTLAST_LOG holds `{part}`, {problem}")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn a_log_filter_that_would_be_passed_over_is_refused_by_its_bad_part() {
        for fit in [
            "off",
            "INFO",
            "debug, outlast_server::http=trace",
            "warn,h2=off,",
            "[request{path=a}]=debug",
            "outlast",
        ] {
            assert!(checked(fit).is_ok(), "{fit}");
        }
        for (given, part, near) in [
            ("inof", "`inof`, but nothing", "`info`"),
            ("info,outlast_server=debgu", "`outlast_server=debgu`, which is not", "`debug`"),
            ("outlsat_server=debug", "`outlsat_server=debug`, but nothing", "levels are"),
            ("warn,a b=c", "`a b=c`", "levels are"),
        ] {
            let failure = checked(given).unwrap_err().to_string();
            assert!(failure.contains(part) && failure.contains(near), "{failure}");
        }
    }
}
