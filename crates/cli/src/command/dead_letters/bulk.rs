//! `outlast dead-letters retry|purge`: of those that are named, or of all that match.

use std::io::IsTerminal as _;

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{at, say};
use serde_json::{Map, Value, json};

use super::{COLUMNS, FLAGS, Many, page_of};
use crate::command::batch::{Batch, confirm};
use crate::command::{field_flags, job_id};
use crate::config::Environment;
use crate::output::{self, Format};

/// Dead letters that one request changes: progress is shown after each.
const STEP: u64 = 1_000;

/// Dead letters that a dry run shows, of however many there are.
const EXAMPLES: usize = 10;

/// A change of dead letters, in words.
pub(super) struct Verb {
    name: &'static str,
    /// Afterwards; the name of the count in JSON, too.
    done: &'static str,
}

pub(super) const RETRY: Verb = Verb { name: "retry", done: "retried" };
pub(super) const PURGE: Verb = Verb { name: "purge", done: "removed" };

pub(super) async fn run(
    args: &Many,
    environment: &Environment,
    verb: &Verb,
) -> Result<Exit, Failure> {
    one_way_of_naming(args, verb)?;
    let client = args.target.client(environment)?;
    match (args.ids.is_empty(), args.care.dry_run) {
        (true, true) => preview(args, &client, verb).await,
        (true, false) => all(args, &client, verb).await,
        (false, _) => named(args, &client, verb).await,
    }
}

/// Dead letters are named by id, selected by filters, or all.
fn one_way_of_naming(args: &Many, verb: &Verb) -> Result<(), Failure> {
    let name = verb.name;
    let ways = [!args.ids.is_empty(), !args.filter.is_empty(), args.all];
    match ways.into_iter().filter(|is_used| *is_used).count() {
        1 => Ok(()),
        0 => {
            let hint = format!(
                "`outlast dead-letters {name} ID`, filters such as --queue mail, or --all; --dry-run \
                 shows which it would be"
            );
            Err(Failure::usage(format!("no dead letter is named to {name}")).with_hint(hint))
        }
        _ => {
            let message = "dead letters are named by id, selected by filters, or --all of them";
            Err(Failure::usage(message).with_hint("leave out all but one of these"))
        }
    }
}

/// Changes each that is named, even if that fails for others.
async fn named(args: &Many, client: &Client, verb: &Verb) -> Result<Exit, Failure> {
    let (mut batch, mut shown) = (Batch::default(), Vec::new());
    for given in &args.ids {
        let id = match job_id::whole(client, given).await {
            Ok(id) => id,
            Err(failure) => {
                batch.add(given, Err(failure));
                continue;
            }
        };
        let path = ["ojs", "v1", "dead-letter", &id];
        let answer = match (args.care.dry_run, verb.name) {
            (true, _) => client.get(&path, &[]).await,
            (false, "retry") => {
                client.post(&["ojs", "v1", "dead-letter", &id, "retry"], &json!({})).await
            }
            (false, _) => client.delete(&path).await,
        };
        match answer.map(|answer| answer.get("job").cloned().unwrap_or(answer)) {
            Ok(letter) if args.care.dry_run => shown.push(letter),
            answer => batch.add(given, answer),
        }
    }
    if args.care.dry_run {
        output::print_list(args.target.output, &shown, COLUMNS)?;
        say(&format!("{}; nothing was changed\n", counted(shown.len())));
    } else if verb.name == "retry" {
        batch.print(args.target.output, COLUMNS)?;
    } else {
        print_count(args, verb, batch.count())?;
        say(&format!("{} {}\n", counted(batch.count()), verb.done));
    }
    batch.end()
}

/// Shows some of those that match, and says how many there are.
async fn preview(args: &Many, client: &Client, verb: &Verb) -> Result<Exit, Failure> {
    let (shown, ..) = page_of(client, &args.filter, EXAMPLES, None).await?;
    let matched = count(args, client, verb).await?;
    output::print_list(args.target.output, &shown, COLUMNS)?;
    let some = if matched > shown.len() { ", of which some are shown" } else { "" };
    say(&format!("{}{some}; nothing was changed\n", counted(matched)));
    Ok(Exit::Ok)
}

async fn count(args: &Many, client: &Client, verb: &Verb) -> Result<usize, Failure> {
    let mut pass = Pass::of(args);
    let mut matched = 0;
    while let Some(step) = pass.next(client, verb, true).await? {
        matched += step.matched;
    }
    Ok(matched)
}

/// Changes all that match, in steps. What has been done by a failure is said with it.
async fn all(args: &Many, client: &Client, verb: &Verb) -> Result<Exit, Failure> {
    let is_watched = std::io::stderr().is_terminal();
    let total = if is_watched { Some(count(args, client, verb).await?) } else { None };
    if let Some(total) = total.filter(|total| *total > 0 && !args.care.yes) {
        confirm(&format!("{} {}?", verb.name, counted(total)))?;
    }
    let mut pass = Pass::of(args);
    let (mut matched, mut changed) = (0, 0);
    loop {
        match pass.next(client, verb, false).await {
            Ok(None) => break,
            Ok(Some(step)) => {
                matched += step.matched;
                changed += step.changed;
            }
            Err(failure) => {
                say(&format!("{} {} by then\n", counted(changed), verb.done));
                return Err(failure);
            }
        }
        if let Some(total) = total {
            say(&format!("\r\x1b[K{matched} of {}", total.max(matched)));
        }
    }
    if total.is_some() {
        say("\r\x1b[K");
    }
    print_count(args, verb, changed)?;
    let left = match matched - changed {
        0 => String::new(),
        left => format!("; {left} had changed meanwhile, and stay as they are"),
    };
    say(&format!("{} {}{left}\n", counted(changed), verb.done));
    Ok(Exit::Ok)
}

fn print_count(args: &Many, verb: &Verb, count: usize) -> Result<(), Failure> {
    if args.target.format() == Format::Table {
        return Ok(());
    }
    output::print_one(args.target.format(), &json!({ verb.done: count }), Value::to_string)
}

fn counted(count: usize) -> String {
    format!("{count} dead letter{}", if count == 1 { "" } else { "s" })
}

/// Requests that go on where the one before ended, about the dead letters that there were at the
/// first one.
struct Pass {
    body: Map<String, Value>,
    is_over: bool,
}

/// The counts of one request.
struct Step {
    matched: usize,
    changed: usize,
}

impl Pass {
    fn of(args: &Many) -> Self {
        let filters = args.filter.set().map(|(name, value)| (name.to_owned(), json!(value)));
        let mut body: Map<String, Value> = filters.collect();
        if args.all {
            body.insert("all".to_owned(), json!(true));
        }
        Self { body, is_over: false }
    }

    async fn next(
        &mut self,
        client: &Client,
        verb: &Verb,
        dry_run: bool,
    ) -> Result<Option<Step>, Failure> {
        if self.is_over {
            return Ok(None);
        }
        self.body.insert("dry_run".to_owned(), json!(dry_run));
        if !dry_run {
            self.body.insert("limit".to_owned(), json!(STEP));
        }
        let body = Value::Object(self.body.clone());
        let answer = client.post(&["api", "v1", "dead-letters", verb.name], &body).await;
        let answer = answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?;
        let data = output::data(answer);
        let number = |name: &str| {
            at(&data, name).and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok())
        };
        let step = Step {
            matched: number("matched").unwrap_or_default(),
            changed: number("changed").unwrap_or_default(),
        };
        // The next one is about the same: by then, an age is another time, and `all` is a filter.
        self.body.remove("all");
        for time in ["since", "until"] {
            self.body.insert(time.to_owned(), data[time].clone());
        }
        self.is_over = data["next_cursor"].is_null();
        self.body.insert("cursor".to_owned(), data["next_cursor"].clone());
        Ok(Some(step))
    }
}
