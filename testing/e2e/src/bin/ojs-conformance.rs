//! Plays the public Open Job Spec conformance cases against any server that can be reset.
//!
//! ```text
//! ojs-conformance --url http://127.0.0.1:8080 --level 0 --level 1
//! ```
//!
//! Exit code 0 when every case stands as it should, 1 when one does not, 2 on bad usage.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use anyhow::Context as _;
use outlast_e2e::conformance::{Level, Runner, Tally, read_level, suites_dir};

const USAGE: &str = "usage: ojs-conformance --url URL [--level 0|1|2|3|4|FOLDER]... [--case ID]...";

struct Arguments {
    url: String,
    levels: Vec<Level>,
    cases: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("error: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match play(&arguments) {
        Ok(tally) => {
            println!("{tally}");
            ExitCode::from(u8::from(tally.failed() > 0))
        }
        Err(problem) => {
            eprintln!("error: {problem:#}");
            ExitCode::from(1)
        }
    }
}

fn play(arguments: &Arguments) -> anyhow::Result<Tally> {
    let suites = suites_dir()?;
    let runner = Runner::new(&arguments.url)?;
    let mut all = Tally::default();
    for level in &arguments.levels {
        let mut cases = read_level(&suites, level)?;
        if !arguments.cases.is_empty() {
            cases.retain(|case| arguments.cases.contains(&case.test_id));
        }
        let tally = runner
            .play_all(&cases, |report| println!("{report}"))
            .with_context(|| format!("playing {}", level.folder()))?;
        all.reports.extend(tally.reports);
    }
    Ok(all)
}

fn arguments(given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut url = None;
    let mut levels = Vec::new();
    let mut cases = Vec::new();
    let mut given = given;
    while let Some(flag) = given.next() {
        let value = given.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--url" => url = Some(value),
            "--level" => levels.push(Level::new(&value)),
            "--case" => cases.push(value),
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    if levels.is_empty() {
        levels = vec![Level::new("0"), Level::new("1")];
    }
    Ok(Arguments { url: url.ok_or("--url is missing")?, levels, cases })
}
