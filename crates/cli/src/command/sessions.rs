//! `outlast sessions`: which browsers are signed in, and ending that.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, say, text_at};
use serde_json::Value;

use super::Target;
use super::job_id::{DIGITS, digits, is_beginning};
use super::newest::with_part;
use crate::config::Environment;
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List browsers that are signed in: an administrator's token lists all, another token its own
    List(List),
    /// End a session: its browser has to sign in again
    End(End),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Most sessions to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Continue an earlier list, with the cursor it printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct End {
    /// Session, by id, or by how its id begins or ends
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    #[command(flatten)]
    target: Target,
}

const SESSIONS: [&str; 3] = ["api", "v1", "sessions"];

/// How many sessions are looked through for a part of an id: the latest ones.
const SEARCHED: u32 = 1_000;

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(&args, environment).await,
        Command::End(args) => end(&args, environment).await,
    }
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let (limit, cursor) = (Some(args.limit.to_string()), args.cursor.clone());
    let answer = client.get(&SESSIONS, &[("limit", limit), ("cursor", cursor)]).await?;
    let sessions = rows(&answer);
    output::print_list(args.target.output, sessions, COLUMNS)?;
    output::say_if_empty(args.target.output, sessions, "no browser is signed in");
    if let Some(next) = answer["pagination"]["next_cursor"].as_str() {
        say(&format!("there are more: --cursor {next}\n"));
    }
    Ok(Exit::Ok)
}

async fn end(args: &End, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = whole(&client, &args.id).await?;
    let [api, version, sessions] = SESSIONS;
    let answer = client.delete(&[api, version, sessions, &id]).await?;
    if args.target.format() != Format::Table {
        let answer = output::data(answer);
        output::print_one(args.target.format(), &answer, Value::to_string)?;
    }
    say(&format!("session {id} ended\n"));
    Ok(Exit::Ok)
}

/// The whole id of a session. What cannot be a part of one is left to the server to refuse.
async fn whole(client: &Client, given: &str) -> Result<String, Failure> {
    if !is_beginning(given) || digits(given).len() == DIGITS {
        return Ok(given.to_owned());
    }
    let answer = client.get(&SESSIONS, &[("limit", Some(SEARCHED.to_string()))]).await?;
    match &with_part(rows(&answer), given)[..] {
        [one] => Ok(one.clone()),
        [] => Err(Failure::new(
            Exit::NotFound,
            format!("no session's id begins or ends with {given}"),
        )
        .with_hint("`outlast sessions list` shows those that you may end")),
        several => {
            let message = format!("{} sessions' ids begin or end with {given}", several.len());
            Err(Failure::new(Exit::Conflict, message)
                .with_hint("give more of the id, best its end"))
        }
    }
}

fn rows(answer: &Value) -> &[Value] {
    answer.get("data").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

const COLUMNS: &[Column] = &[
    ("SESSION", |session| text_at(session, "id")),
    ("TOKEN", |session| text_at(session, "token")),
    ("ROLE", |session| text_at(session, "role")),
    ("FROM", |session| text_at(session, "address")),
    ("USED", |session| ago(session, "used_at")),
    ("UNTIL", |session| ago(session, "expires_at")),
];

#[cfg(test)]
mod tests {
    use outlast_cli_core::output::Table;
    use serde_json::json;

    use super::*;

    fn session(id: &str) -> Value {
        json!({"id": id, "token": "operations", "role": "operator", "address": "192.168.100.200",
            "browser": "Mozilla/5.0 (X11; Linux x86_64)", "created_at": "2026-11-22T13:46:21.211Z",
            "used_at": "2026-11-22T13:46:21.211Z", "expires_at": "2026-11-23T01:46:21.211Z"})
    }

    #[test]
    fn table_fits_a_hundred_columns() {
        let shown =
            Table::of(&[session("01a1fcae-2d50-72c9-9c67-56e57a9c8e01")], COLUMNS).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
    }
}
