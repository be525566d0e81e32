//! `outlast jobs wait`: ends when the job has ended, and as it ended.

use std::time::Duration;

use clap::Args;
use outlast_cli_core::client::Client;
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{escape, say};
use serde_json::Value;

use super::show::summary;
use crate::command::follow::{AWAY_MAX, PAUSE_MAX, has_ended};
use crate::command::run::{duration, outcome, still_going};
use crate::command::{Target, job_id};
use crate::config::Environment;
use crate::output::{self, Format};

/// Longest that one request waits; below the limit of a request, and of most proxies.
const REQUEST_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Job, by id or id prefix
    id: String,
    /// How long to wait; then exit with 124 while the job continues
    #[arg(long, alias = "wait-timeout", value_name = "DURATION")]
    timeout: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Wait, environment: &Environment) -> Result<Exit, Failure> {
    let limit = duration("--timeout", args.timeout.as_deref())?;
    let client = args.target.client(environment)?;
    let id = job_id::whole(&client, &args.id).await?;
    let job = until_it_ends(&client, &id, limit).await?;
    if args.target.format() != Format::Table {
        output::print_one(args.target.format(), &job, summary)?;
    }
    if has_ended(&job) { outcome(&id, &job) } else { Err(still_going(&id, &job)) }
}

/// Returns the job once it has ended, or as it is when the time is over. A server that is away for
/// a moment is waited for, but for the first answer.
async fn until_it_ends(
    client: &Client,
    id: &str,
    limit: Option<Duration>,
) -> Result<Value, Failure> {
    let begun = clock::moment();
    let left = || limit.map(|limit| limit.saturating_sub(clock::moment().since(begun)));
    let mut last = None;
    let mut away: Option<Moment> = None;
    loop {
        let asked = clock::moment();
        // The first answer comes at once, and says whether there is such a job.
        let longest = if last.is_some() { REQUEST_WAIT } else { Duration::ZERO };
        let wait = left().unwrap_or(longest).min(longest);
        let query = [("wait", Some(format!("{}ms", wait.as_millis())))];
        match client.get(&["api", "v1", "executions", id], &query).await {
            Ok(answer) => {
                away = None;
                let job = last.insert(output::data(answer));
                if has_ended(job) {
                    return Ok(last.unwrap_or_default());
                }
            }
            Err(failure) if failure.exit == Exit::Unreachable && last.is_some() => {
                let now = clock::moment();
                if away.is_none() {
                    say(&format!("{}; waiting for the server\n", escape(&failure.message)));
                }
                if now.since(*away.get_or_insert(now)) > AWAY_MAX {
                    return Err(failure);
                }
            }
            Err(failure) => return Err(failure),
        }
        if left() == Some(Duration::ZERO) {
            return Ok(last.unwrap_or_default());
        }
        // A server that stops answers early.
        if clock::moment().since(asked) < wait {
            tokio::time::sleep(left().unwrap_or(PAUSE_MAX).min(PAUSE_MAX)).await;
        }
    }
}
