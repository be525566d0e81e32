//! Completing command lines in a shell: names and ids are asked of the server.
//!
//! ```text
//! shell ──Tab: the words so far──▶ this program ──which queues, jobs …?──▶ server
//!   ◀── what fits, and nothing when no server answers in time ──┘
//! ```
//!
//! The server is the one that the line names, or else the one that a command would ask.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::{ArgMatches, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::CompleteEnv;
use outlast_cli_core::client::{Client, Query};
use outlast_cli_core::output::{at, text_at};
use serde_json::Value;

use crate::cli;
use crate::config::{Environment, Flag, client};

/// Names the shell to this program when it is to complete a line.
pub(crate) const VARIABLE: &str = "_OUTLAST_COMPLETE";

/// How long a shell waits for the server at most.
const ANSWER_MAX: Duration = Duration::from_millis(700);

/// Jobs that are offered: the newest.
const JOBS_MAX: usize = 50;

/// Arguments that name something of the server, and what.
const ASKED: &[(&str, Asked)] = &[
    ("action", Asked::Actions),
    ("queue", Asked::Queues),
    ("queues", Asked::Queues),
    ("worker", Asked::Workers),
    ("workers", Asked::Workers),
    ("id", Asked::Jobs),
    ("ids", Asked::Jobs),
];

/// Flags that say which server to ask and how to be let in, by their names here, as keys, and as
/// they are written.
const TARGET: &[(&str, &str, &str)] = &[
    ("server", "worker.server", "--server"),
    ("token", "worker.token", "--token"),
    ("token_file", "worker.token_file", "--token-file"),
    ("ca_file", "worker.ca_file", "--ca-file"),
    ("client_cert", "worker.client_cert", "--client-cert"),
    ("client_key", "worker.client_key", "--client-key"),
];

/// What the server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Actions,
    Queues,
    Workers,
    Jobs,
    DeadLetters,
    Workflows,
}

/// Answers the shell and ends the process, if it was started to complete a line.
pub(crate) fn answer() {
    CompleteEnv::with_factory(tree).var(VARIABLE).complete();
}

fn tree() -> Command {
    cli::tree().mut_subcommands(|command| {
        let ids = match command.get_name() {
            "dead-letters" => Asked::DeadLetters,
            "workflows" => Asked::Workflows,
            _ => Asked::Jobs,
        };
        let is_local = ["server", "worker", "dev"].contains(&command.get_name());
        if is_local { command } else { with_values(command, ids) }
    })
}

fn with_values(command: Command, ids: Asked) -> Command {
    let adjusted = command.mut_args(|arg| {
        let asked = ASKED.iter().find(|(id, _)| arg.get_id() == id).map(|(_, asked)| *asked);
        let asked = match asked {
            Some(Asked::Jobs) => Some(ids),
            asked => asked,
        };
        match asked {
            Some(asked) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
                candidates(asked, typed.to_str().unwrap_or_default())
            })),
            None => arg,
        }
    });
    adjusted.mut_subcommands(|command| with_values(command, ids))
}

/// Returns names that begin with what was typed; none if the server cannot be asked.
fn candidates(asked: Asked, typed: &str) -> Vec<CompletionCandidate> {
    // The shell's words follow the first `--`.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let Ok(config) = client::load(target(words), &Environment::of_process()) else {
        return Vec::new();
    };
    let Ok(client) = Client::new(config) else { return Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let items = runtime.block_on(async {
        tokio::time::timeout(ANSWER_MAX, items(&client, asked, typed)).await.unwrap_or_default()
    });
    // An address that is still being resolved is not waited for.
    runtime.shutdown_background();
    let all = items.iter().flat_map(|item| named(asked, item, typed));
    let fitting = all.filter(|(name, _)| name.starts_with(typed));
    let candidate = |(name, about): (String, String)| {
        CompletionCandidate::new(name).help(Some(about).filter(|it| it != "-").map(Into::into))
    };
    fitting.map(candidate).collect()
}

/// The flags of a line that is still being written.
fn target(words: impl Iterator<Item = OsString>) -> Vec<Flag> {
    let read = cli::tree().ignore_errors(true).try_get_matches_from(words);
    let Ok(read) = read else { return Vec::new() };
    let mut last: &ArgMatches = &read;
    while let Some((_, below)) = last.subcommand() {
        last = below;
    }
    let value = |id| last.try_get_one::<String>(id).ok().flatten().cloned();
    TARGET.iter().map(|(id, key, flag)| Flag::new(key, flag, value(id))).collect()
}

async fn items(client: &Client, asked: Asked, typed: &str) -> Vec<Value> {
    let limit = Some(JOBS_MAX.to_string());
    let begins = Some(typed.to_owned()).filter(|typed| typed.len() >= 4);
    let (path, query, list): (&[&str], Vec<Query<'_>>, _) = match asked {
        Asked::Actions => (&["api", "v1", "actions"], Vec::new(), "data"),
        Asked::Queues => (&["api", "v1", "queues"], Vec::new(), "data"),
        Asked::Workers => (&["api", "v1", "workers"], Vec::new(), "data"),
        Asked::Jobs => {
            (&["api", "v1", "executions"], vec![("limit", limit), ("id", begins)], "data")
        }
        Asked::DeadLetters => (&["ojs", "v1", "dead-letter"], vec![("limit", limit)], "jobs"),
        Asked::Workflows => (&["api", "v1", "workflows"], vec![("limit", limit)], "data"),
    };
    let answer = client.get(path, &query).await.unwrap_or_default();
    answer.get(list).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// How an item may be named on the command line, each with what helps to choose it.
fn named(asked: Asked, item: &Value, typed: &str) -> Vec<(String, String)> {
    let text = |name: &str| text_at(item, name);
    match asked {
        Asked::Actions => vec![(text("ref"), text("label"))],
        Asked::Queues => vec![(text("name"), format!("{} available", text("available")))],
        // Names are easier; ids are for those that share one.
        Asked::Workers if typed.is_empty() => vec![(text("name"), text("state"))],
        Asked::Workers => {
            vec![(text("name"), text("state")), (text("id"), text("name"))]
        }
        Asked::Jobs => {
            let about = format!("{} {}", text("action_ref"), text("status"));
            vec![(text("id"), about)]
        }
        Asked::Workflows => {
            vec![(text("id"), format!("{} {}", text("name"), text("status")))]
        }
        Asked::DeadLetters => {
            let reason = at(item, "dead_letter_reason")
                .map_or_else(String::new, |_| format!(" {}", text("dead_letter_reason")));
            vec![(text("id"), format!("{}{reason}", text("type")))]
        }
    }
}
