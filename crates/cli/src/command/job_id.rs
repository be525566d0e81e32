//! Jobs by a part of their ids, or by being the last.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, text_at};
use serde_json::Value;

use super::search;
use crate::last_job::{self, Last};

/// Shorter parts are more likely typos than ids.
const DIGITS_MIN: usize = 4;
/// Digits of a whole id.
pub(super) const DIGITS: usize = 32;
/// Jobs that are named when a part is ambiguous.
const NAMED: usize = 5;

/// The digits of an id or of a part.
pub(super) fn digits(given: &str) -> String {
    given.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether this may be an id or a part of one.
pub(super) fn is_beginning(given: &str) -> bool {
    let fits = given.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    fits && (DIGITS_MIN..=DIGITS).contains(&digits(given).len())
}

/// Stands for the job or workflow that this user stored last at the server.
pub(super) const LAST: &str = "@last";

/// The whole id of a job: from its beginning, its end, or [`LAST`]. What cannot be an id is left to the
/// server to refuse.
pub(super) async fn whole(client: &Client, given: &str) -> Result<String, Failure> {
    if given == LAST {
        let server = client.server();
        return last_job::of(Last::Job, &server).ok_or_else(|| {
            let message = format!("no job was enqueued from here at {server}");
            Failure::new(Exit::NotFound, message)
                .with_hint("`outlast run` sets @last; `outlast jobs list` shows the newest jobs")
        });
    }
    if !is_beginning(given) || digits(given).len() == DIGITS {
        return Ok(given.to_owned());
    }
    let begun = found(client, "id", given).await?;
    match begun.ids.as_slice() {
        [] => ended(client, given).await,
        [one] => Ok(one.clone()),
        several => Err(ambiguous(given, "begin", several)),
    }
}

/// The whole id of a job, from its end: ids of jobs that were enqueued together begin alike.
async fn ended(client: &Client, given: &str) -> Result<String, Failure> {
    let found = found(client, "id_suffix", &digits(given)).await?;
    match found.ids.as_slice() {
        [] => {
            let among = if found.is_all { "" } else { " among the newest jobs" };
            let message = format!("no job's id begins or ends with {given}{among}");
            Err(Failure::new(Exit::NotFound, message).with_hint(
                "`outlast jobs list` shows ids; finished jobs are kept for a limited time",
            ))
        }
        [one] => Ok(one.clone()),
        several => Err(ambiguous(given, "end", several)),
    }
}

fn ambiguous(given: &str, how: &str, ids: &[String]) -> Failure {
    let message =
        format!("{given} is ambiguous: the ids of these jobs {how} so\n{}", ids.join("\n"));
    Failure::new(Exit::Conflict, message).with_hint("give more digits, of its end or its beginning")
}

/// Jobs with a part of their ids.
struct Found {
    /// As many as are named.
    ids: Vec<String>,
    /// Whether all jobs were looked at.
    is_all: bool,
}

/// Looks for jobs page by page: those with a suffix may be far apart.
async fn found(client: &Client, name: &str, given: &str) -> Result<Found, Failure> {
    let mut ids: Vec<String> = Vec::new();
    let mut cursor = None;
    for _ in 0..search::EMPTY_MAX {
        let limit = NAMED - ids.len();
        let query = [
            (name, Some(given.to_owned())),
            ("limit", Some(limit.to_string())),
            ("cursor", cursor.take()),
        ];
        let answer = client.get(&["api", "v1", "executions"], &query).await?;
        let jobs = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        ids.extend(jobs.iter().map(|job| text_at(job, "id")));
        let next = at(&answer, "pagination.next_cursor").and_then(Value::as_str);
        cursor = next.map(ToOwned::to_owned);
        if cursor.is_none() || ids.len() >= NAMED {
            return Ok(Found { ids, is_all: cursor.is_none() });
        }
    }
    Ok(Found { ids, is_all: false })
}
