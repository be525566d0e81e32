//! Jobs by the beginning of their ids.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::text_at;
use serde_json::Value;

/// Shorter prefixes are more likely typos than ids.
const DIGITS_MIN: usize = 4;
/// Digits of a whole id.
const DIGITS: usize = 32;
/// Jobs that are named when a prefix is ambiguous.
const NAMED: usize = 5;

/// The digits of an id or of a prefix.
pub(super) fn digits(given: &str) -> String {
    given.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// Whether this may be an id or a prefix of one.
pub(super) fn is_beginning(given: &str) -> bool {
    let fits = given.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    fits && (DIGITS_MIN..=DIGITS).contains(&digits(given).len())
}

/// The whole id of a job, from a prefix. What cannot be an id is left to the server to refuse.
pub(super) async fn whole(client: &Client, given: &str) -> Result<String, Failure> {
    if !is_beginning(given) || digits(given).len() == DIGITS {
        return Ok(given.to_owned());
    }
    let query = [("id", Some(given.to_owned())), ("limit", Some(NAMED.to_string()))];
    let answer = client.get(&["api", "v1", "executions"], &query).await?;
    let found = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match found {
        [] => Err(Failure::new(Exit::NotFound, format!("no job's id begins with {given}"))
            .with_hint("`outlast jobs list` shows ids; finished jobs are kept for a limited time")),
        [one] => Ok(text_at(one, "id")),
        several => {
            let ids: Vec<String> = several.iter().map(|job| text_at(job, "id")).collect();
            let message =
                format!("{given} is ambiguous: it is a prefix of these ids\n{}", ids.join("\n"));
            Err(Failure::new(Exit::Conflict, message).with_hint("use a longer prefix"))
        }
    }
}
