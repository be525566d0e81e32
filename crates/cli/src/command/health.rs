//! `outlast health`: one question and an exit code, for the probes of Docker and Kubernetes.
//!
//! An image without a shell or curl can run it. It asks the server in both cases: a worker
//! listens nowhere, and whether it takes work is what the server knows about it.
//!
//! ```text
//! server ── ready: the store answers, no stop under way ──▶ 0, else 1: its answer says why
//! worker ── one of its name is registered and running ────▶ 0, else 1: quiet, draining, unknown
//! ```

use clap::{Args as ClapArgs, ValueEnum};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::text_at;
use serde_json::Value;

use super::{Target, workers};
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Settings};
use crate::output::{self, Format};

const AFTER_HELP: &str = "\
Exit codes: 0 ready, or a running worker; 1 not ready, or no such worker that takes jobs; 6 the server
cannot be reached. A failure says why on stderr.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to check: the server, or the worker named in this configuration
    #[arg(value_enum, default_value_t = Subject::Server, hide_possible_values = true)]
    subject: Subject,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    Server,
    Worker,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = match args.subject {
        Subject::Server => client.get(&["health", "ready"], &[]).await?,
        Subject::Worker => worker(&client, environment).await?,
    };
    match args.target.format() {
        Format::Table => {}
        format @ (Format::Json | Format::Jsonl) => {
            output::print_one(format, &answer, Value::to_string)?;
        }
    }
    Ok(Exit::Ok)
}

/// The worker that was started with this environment, if it takes jobs.
async fn worker(client: &Client, environment: &Environment) -> Result<Value, Failure> {
    let settings = Settings::load(None, environment, Vec::new())?;
    let name = WorkerConfig::new(&settings)?.name;
    let filters = [("status", Some("active".to_owned()))];
    let found = workers::all(client, &filters).await?;
    let own = found.into_iter().filter(|worker| text_at(worker, "name") == name);
    let (running, others): (Vec<Value>, Vec<Value>) =
        own.partition(|worker| text_at(worker, "state") == "running");
    match (running.into_iter().next(), others.first()) {
        (Some(worker), _) => Ok(worker),
        (None, Some(other)) => {
            Err(Failure::failed(format!("worker {name} is {}", text_at(other, "state"))))
        }
        (None, None) => Err(Failure::failed(match leaving(client, &name).await? {
            Some(state) => format!("worker {name} is {state}"),
            None => format!("no worker {name} is active"),
        })),
    }
}

/// The state of a worker of that name that is on its way out or takes nothing, if there is one.
async fn leaving(client: &Client, name: &str) -> Result<Option<String>, Failure> {
    let all = workers::all(client, &[]).await?;
    let mut states = all.iter().filter(|worker| text_at(worker, "name") == name);
    let found = states.find_map(|worker| {
        let state = text_at(worker, "state");
        matches!(state.as_str(), "draining" | "quiet" | "suspect").then_some(state)
    });
    Ok(found)
}
