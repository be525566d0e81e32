//! `outlast health`: one question and an exit code, for the probes of Docker and Kubernetes.
//!
//! An image without a shell or curl can run it. The server is asked over HTTP, a worker on this host
//! on a socket in its work folder: that answers also while the worker is quiet, drains or is cut off.
//!
//! ```text
//! server ── ready: the store answers, no stop under way ──▶ 0, else 1: its answer says why
//! worker ── the loop of the one of its name turns ────────▶ 0, else 1: stuck, or none there
//! ```

use std::path::Path;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{fields, span, text_at};
use outlast_worker::daemon::{Asked, WorkerStatus, ask_workers};
use serde_json::{Value, json};

use super::Target;
use crate::config::worker::WorkerConfig;
use crate::config::{Environment, Settings};
use crate::output::{self, Format};

/// A worker whose loop has not turned for so long is stuck: it turns several times a second.
const LOOP_AGE_MAX: f64 = 10.0;

/// The stage of a worker that takes jobs.
const RUNNING: &str = "running";

const AFTER_HELP: &str = "\
Exit codes: 0 ready, or a worker whose loop turns, whatever its stage; 1 not ready, or no such worker on
this host, or a stuck one; 6 the server cannot be reached. A failure says why on stderr.";

#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to check: the server, or a worker on this host
    #[arg(value_enum, default_value_t = Subject::Server, hide_possible_values = true)]
    subject: Subject,
    /// Name of the worker [default: that of this configuration]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only 0 while the worker takes jobs: registered, and neither quiet nor draining
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    Server,
    Worker,
}

pub(crate) async fn run(args: Args, environment: &Environment) -> Result<Exit, Failure> {
    let format = args.target.format();
    match args.subject {
        Subject::Server => {
            let client = args.target.client(environment)?;
            let answer = client.get(&["health", "ready"], &[]).await?;
            if format != Format::Table {
                output::print_one(format, &answer, Value::to_string)?;
            }
        }
        Subject::Worker => {
            let settings = Settings::load(None, environment, Vec::new())?;
            let config = WorkerConfig::new(&settings)?;
            let name = args.name.filter(|name| !name.is_empty()).unwrap_or(config.name);
            let status = worker(config.work_dir.as_deref(), &name).await?;
            if args.ready && status.stage == RUNNING && status.lease_left_seconds.is_none() {
                let message = format!("worker {name} is cut off: its lease is over");
                return Err(Failure::failed(message).with_hint("it attaches when a server answers"));
            }
            if args.ready && status.stage != RUNNING {
                let why = status.unhealthy.map_or(String::new(), |why| format!(": {why}"));
                return Err(Failure::failed(format!("worker {name} is {}{why}", status.stage)));
            }
            output::print_one(format, &json!(status), page)?;
        }
    }
    Ok(Exit::Ok)
}

/// The worker of this name; of several, the one that is stuck for longest.
async fn worker(folder: Option<&Path>, name: &str) -> Result<WorkerStatus, Failure> {
    let Asked { workers: found, silent } = ask_workers(folder).await;
    if silent.iter().any(|silent| silent == name) {
        return Err(Failure::failed(format!("worker {name} does not answer: it is stuck")));
    }
    let others: Vec<String> = found.iter().map(|worker| worker.name.clone()).collect();
    let own = found.into_iter().filter(|worker| worker.name == name);
    let Some(oldest) = own.max_by(|a, b| a.loop_age_seconds.total_cmp(&b.loop_age_seconds)) else {
        let failure = Failure::failed(format!("no worker {name} runs on this host"));
        return Err(match others.as_slice() {
            [] => failure.with_hint("it is found by its work folder: same user, same `work_dir`"),
            names => failure.with_hint(format!("--name names one of: {}", names.join(", "))),
        });
    };
    if oldest.loop_age_seconds > LOOP_AGE_MAX {
        let age = span(Duration::from_secs_f64(oldest.loop_age_seconds));
        return Err(Failure::failed(format!("worker {name}: its loop has not turned for {age}")));
    }
    Ok(oldest)
}

fn page(status: &Value) -> String {
    let text = |path: &str| text_at(status, path);
    let seconds = |path: &str| {
        let found = status.get(path).and_then(Value::as_f64);
        found.map_or_else(|| text(path), |seconds| format!("{seconds:.1} s"))
    };
    fields(&[
        ("name", text("name")),
        ("id", text("id")),
        ("process", text("pid")),
        ("stage", text("stage")),
        ("loop age", seconds("loop_age_seconds")),
        ("lease left", seconds("lease_left_seconds")),
        ("in flight", text("in_flight")),
        ("unhealthy", text("unhealthy")),
    ])
}
