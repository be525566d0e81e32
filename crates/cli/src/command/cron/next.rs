//! `outlast cron next`: when a schedule or an expression fires. It is computed here; a server is only
//! asked for a schedule by its name.

use clap::{ArgGroup, Args, value_parser};
use outlast_cli_core::clock;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, at, say, text_at};
use outlast_core::time::Timestamp;
use outlast_schedule::progress::whole_second;
use outlast_schedule::{Expression, Timetable, Zone};
use outlast_wire::time::{Rfc3339, When};
use serde_json::{Value, json};

use super::{in_flags, path};
use crate::command::Target;
use crate::config::Environment;
use crate::output;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true))]
pub(crate) struct Next {
    /// Name of the schedule
    #[arg(group = "what")]
    name: Option<String>,
    /// An expression instead of a schedule, such as "30 2 * * *"
    #[arg(long, value_name = "EXPRESSION", group = "what", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Time zone of the expression, such as Europe/Vienna [default: UTC]
    #[arg(long, value_name = "PLACE", requires = "expression", conflicts_with = "name")]
    time_zone: Option<String>,
    /// How many fires to show
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 5,
          value_parser = value_parser!(u16).range(1..=1000))]
    number: u16,
    /// Show fires after this time instead of now, such as 2026-03-28T00:00:00Z
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: &Next, environment: &Environment) -> Result<Exit, Failure> {
    let now = Timestamp(clock::now().as_millisecond());
    let after = match args.after.as_deref().map(|text| (text, When::parse(text))) {
        None => now,
        Some((_, Some(when))) => when.resolve(now),
        Some((text, None)) => {
            let message = format!("--after is `{text}`, which is not a time with a time zone");
            return Err(Failure::usage(message).with_hint("write it as 2026-03-28T00:00:00Z"));
        }
    };
    let (timetable, until) = match (&args.expression, &args.name) {
        (Some(expression), _) => {
            (timetable(expression, args.time_zone.as_deref(), whole_second(now))?, None)
        }
        (None, name) => stored(args, name.as_deref().unwrap_or_default(), environment).await?,
    };
    let fires = timetable.upcoming(after, usize::from(args.number));
    let fires: Vec<Value> = fires
        .into_iter()
        .filter(|fire| until.is_none_or(|until| fire.time <= until))
        .map(|fire| {
            json!({
                "at": Rfc3339(fire.time).to_string(),
                "local": fire.local,
                "note": fire.note.map(|note| note.to_string()),
            })
        })
        .collect();
    output::print_list(args.target.output, &fires, COLUMNS)?;
    output::say_if_empty(args.target.output, &fires, "it does not fire any more");
    Ok(Exit::Ok)
}

fn timetable(
    expression: &str,
    zone: Option<&str>,
    anchor: Timestamp,
) -> Result<Timetable, Failure> {
    let expression = Expression::parse(expression)
        .map_err(|error| Failure::usage(format!("--expression cannot be read: {error}")))?;
    let zone = zone.map_or_else(|| Ok(Zone::utc()), Zone::named);
    let zone =
        zone.map_err(|error| Failure::usage(format!("--time-zone cannot be used: {error}")))?;
    Ok(Timetable { expression, zone, anchor })
}

/// Reads the timetable of a schedule, and when it ends.
async fn stored(
    args: &Next,
    name: &str,
    environment: &Environment,
) -> Result<(Timetable, Option<Timestamp>), Failure> {
    let client = args.target.client(environment)?;
    let found = output::data(client.get(&path(name), &[]).await.map_err(in_flags)?);
    let time = |path: &str| match at(&found, path).and_then(Value::as_str).and_then(When::parse) {
        Some(When::At(time)) => Some(time),
        _ => None,
    };
    let anchor = time("anchor").unwrap_or_default();
    let zone = text_at(&found, "time_zone");
    let timetable = timetable(&text_at(&found, "cron"), Some(&zone), anchor);
    let timetable = timetable.map_err(|failure| {
        let message = format!("this build cannot read schedule {name}: {}", failure.message);
        Failure::failed(message)
    })?;
    if text_at(&found, "status") == "paused" {
        say(&format!("schedule {name} is paused: it fires at these times once it is resumed\n"));
    }
    Ok((timetable, time("until")))
}

const COLUMNS: &[Column] = &[
    ("UTC", |fire| text_at(fire, "at")),
    ("LOCAL", |fire| text_at(fire, "local")),
    ("NOTE", |fire| at(fire, "note").and_then(Value::as_str).unwrap_or_default().to_owned()),
];
