//! `outlast jobs wait`: ends when the job has ended, and as it ended.

use clap::Args;
use outlast_cli_core::exit::{Exit, Failure};

use super::show::summary;
use crate::command::await_end::{Awaited, REQUEST_WAIT};
use crate::command::follow::has_ended;
use crate::command::run::{duration, outcome, still_going};
use crate::command::{Target, job_id};
use crate::config::Environment;
use crate::output::{self, Format};

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
    let path = ["api", "v1", "executions", id.as_str()];
    let awaited = Awaited { client: &client, path: &path, query: &[], look: REQUEST_WAIT };
    let job = awaited.end(limit, |_job| Ok(())).await?;
    if args.target.format() != Format::Table {
        output::print_one(args.target.format(), &job, summary)?;
    }
    if has_ended(&job) { outcome(&id, &job) } else { Err(still_going(&id, &job)) }
}
