//! Workflows by a part of their ids, or by being the last.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::text_at;
use serde_json::Value;

use super::WORKFLOWS;
use crate::command::job_id::{DIGITS, LAST, digits, is_beginning};
use crate::last_job::{self, Last};

/// Workflows that are looked through for a part of an id: the newest.
const LOOKED_AT: u32 = 500;

/// The whole id of a workflow: from its beginning, its end, or `@last`. What cannot be an id is left
/// to the server to refuse.
pub(super) async fn whole(client: &Client, given: &str) -> Result<String, Failure> {
    if given == LAST {
        let server = client.server();
        return last_job::of(Last::Workflow, &server).ok_or_else(|| {
            let message = format!("no workflow was started from here at {server}");
            Failure::new(Exit::NotFound, message).with_hint(
                "`outlast workflows run` sets @last; `outlast workflows list` shows the newest",
            )
        });
    }
    let part = digits(given);
    if !is_beginning(given) || part.len() == DIGITS {
        return Ok(given.to_owned());
    }
    let query = [("limit", Some(LOOKED_AT.to_string()))];
    let answer = client.get(&WORKFLOWS, &query).await?;
    let listed = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    one_of(given, &part, listed.iter().map(|it| text_at(it, "id")).collect())
}

fn one_of(given: &str, part: &str, ids: Vec<String>) -> Result<String, Failure> {
    let fits = |id: &String| digits(id).starts_with(part) || digits(id).ends_with(part);
    let found: Vec<String> = ids.into_iter().filter(fits).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message = format!(
                "no workflow's id begins or ends with {given} among the newest {LOOKED_AT}"
            );
            Err(Failure::new(Exit::NotFound, message)
                .with_hint("`outlast workflows list` shows ids"))
        }
        several => {
            let message = format!(
                "{given} is ambiguous: the ids of these workflows begin or end so\n{}",
                several.join("\n")
            );
            Err(Failure::new(Exit::Conflict, message)
                .with_hint("give more digits, of its end or its beginning"))
        }
    }
}
