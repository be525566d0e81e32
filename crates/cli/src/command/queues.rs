//! `outlast queues`: list, show, set, pause, resume, stats.

use clap::{ArgGroup, Args, Subcommand};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, at, escape, fields, text_at, when};
use outlast_wire::nearest::nearest;
use serde_json::{Value, json};

use super::{Target, field_flags};
use crate::config::Environment;
use crate::output;

/// Most queues that are named in place of one that does not exist.
const NAMED_MAX: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List queues
    List(List),
    /// Show a queue and its settings
    Show(One),
    /// Change settings of a queue; what is not named stays as it is
    Set(Set),
    /// Pause a queue: it accepts jobs, but none are started
    Pause(Pause),
    /// Resume a queue
    Resume(One),
    /// Count the jobs of a queue by state
    Stats(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Queue
    queue: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    one: One,
    /// Even if the queue has never had a job
    #[arg(long)]
    create: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct Set {
    /// Queue; it need not have had a job yet
    queue: String,
    /// Share the slots fairly between the values of this key; `none` takes the oldest job first
    #[arg(long, value_name = "KEY", group = "setting")]
    fair_by: Option<String>,
    /// Weight of a value's share, 1 to 1000, such as tenant:42=3; 1 is that of all others
    #[arg(long = "weight", value_name = "KEY:VALUE=N", group = "setting", value_parser = weight)]
    weights: Vec<(String, u32)>,
    /// Refuse jobs while this many wait, 1 to 1000000000; `none` takes any number
    #[arg(long, value_name = "N", group = "setting", value_parser = max_depth)]
    max_depth: Option<MaxDepth>,
    /// Labels that a worker must match to run any of its jobs, such as "gpu=true, !spot"; "" for none
    #[arg(long, value_name = "SELECTOR", group = "setting")]
    requires: Option<String>,
    /// Labels that its jobs prefer, after what they prefer themselves; "" for none
    #[arg(long, value_name = "SELECTOR", group = "setting")]
    prefers: Option<String>,
    /// Run this action when a job of the queue becomes a dead letter
    #[arg(long, value_name = "ACTION", group = "setting")]
    dead_letter_action: Option<String>,
    /// Send a webhook to this address when a job of the queue becomes a dead letter
    #[arg(long, value_name = "URL", group = "setting")]
    dead_letter_webhook: Option<String>,
    /// Only for this reason: exhausted, poison_suspect or at_most_once; may be given several times
    #[arg(long, value_name = "REASON")]
    dead_letter_reason: Vec<String>,
    /// Do nothing about dead letters any more, beside what the configuration says
    #[arg(long, group = "setting", conflicts_with_all = ["dead_letter_action", "dead_letter_webhook"])]
    no_dead_letters: bool,
    #[command(flatten)]
    target: Target,
}

impl Set {
    /// What happens to dead letters from now on; `None` if that stays.
    fn dead_letters(&self) -> Result<Option<Value>, Failure> {
        if self.no_dead_letters {
            return Ok(Some(Value::Null));
        }
        let (action, webhook) = (&self.dead_letter_action, &self.dead_letter_webhook);
        if action.is_none() && webhook.is_none() {
            if self.dead_letter_reason.is_empty() {
                return Ok(None);
            }
            let message = "--dead-letter-reason goes with --dead-letter-action or \
                           --dead-letter-webhook";
            return Err(Failure::usage(message));
        }
        let reasons = &self.dead_letter_reason;
        Ok(Some(json!([{"action": action, "webhook": webhook, "reasons": reasons}])))
    }
}

/// How many jobs may wait; `None` for any number.
#[derive(Clone, Copy, Debug)]
struct MaxDepth(Option<u32>);

/// Checks a bound.
fn max_depth(text: &str) -> Result<MaxDepth, String> {
    outlast_wire::queue::max_depth(text).map(MaxDepth)
}

/// Longest value in one line of a page: the names before it need some room, too.
const LINE_MAX: usize = 85;

/// Removes a setting.
const NONE: &str = "none";

/// Where the settings are given.
const FLAGS: &[(&str, &str)] = &[
    ("queue", "QUEUE"),
    ("name", "QUEUE"),
    ("fair_by", "--fair-by"),
    ("weights", "--weight"),
    ("max_depth", "--max-depth"),
    ("requires", "--requires"),
    ("prefers", "--prefers"),
    ("dead_letters", "--dead-letter-action, --dead-letter-webhook or --dead-letter-reason"),
];

/// Checks a weight.
fn weight(text: &str) -> Result<(String, u32), String> {
    outlast_wire::queue::weight(text)
}

const COLUMNS: &[Column] = &[
    ("QUEUE", |queue| text_at(queue, "name")),
    ("STATUS", |queue| {
        let paused = queue.get("paused").and_then(Value::as_bool).unwrap_or(false);
        if paused { "paused" } else { "active" }.to_owned()
    }),
    ("AVAILABLE", |queue| text_at(queue, "available")),
    ("DELAYED", |queue| text_at(queue, "scheduled")),
    ("RETRYING", |queue| text_at(queue, "retryable")),
    ("ACTIVE", |queue| text_at(queue, "active")),
    ("COMPLETED", |queue| text_at(queue, "completed")),
    ("DISCARDED", |queue| text_at(queue, "discarded")),
];

/// What the list has beside the counts.
const SETTINGS: Column = ("SETTINGS", |queue| match settings(queue).as_slice() {
    [] => "-".to_owned(),
    some => some.join(", "),
});

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<Exit, Failure> {
    let (target, answer) = match &command {
        Command::List(args) => return list(args, environment).await,
        Command::Show(args) => return show(args, environment).await,
        Command::Set(args) => return set(args, environment).await,
        Command::Pause(Pause { one, create }) => {
            if !create {
                check_known(one, environment).await?;
            }
            (&one.target, order(one, environment, "pause").await?)
        }
        Command::Resume(args) => (&args.target, order(args, environment, "resume").await?),
        Command::Stats(args) => {
            let client = args.target.client(environment)?;
            let path = ["ojs", "v1", "queues", &args.queue, "stats"];
            (&args.target, client.get(&path, &[]).await?)
        }
    };
    let queue = answer.get("queue").cloned().unwrap_or(answer);
    output::print_one(target.output, &queue, |queue| {
        Table::of(std::slice::from_ref(queue), COLUMNS).to_string()
    })?;
    Ok(Exit::Ok)
}

fn path(queue: &str) -> [&str; 4] {
    ["api", "v1", "queues", queue]
}

async fn list(args: &List, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.get(&["api", "v1", "queues"], &[]).await?;
    let queues = answer.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    output::print_list(args.target.output, queues, &[COLUMNS, &[SETTINGS]].concat())?;
    output::say_if_empty(args.target.output, queues, "there are no queues yet");
    Ok(Exit::Ok)
}

async fn show(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let answer = client.get(&path(&args.queue), &[]).await;
    let answer = answer.map_err(|failure| field_flags::in_flags(failure, FLAGS))?;
    print(&args.target, answer)
}

async fn set(args: &Set, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let mut body = json!({});
    if let Some(key) = &args.fair_by {
        body["fair_by"] = if key == NONE { Value::Null } else { key.as_str().into() };
    }
    if let Some(MaxDepth(max)) = args.max_depth {
        body["max_depth"] = max.into();
    }
    for (name, selector) in [("requires", &args.requires), ("prefers", &args.prefers)] {
        if let Some(selector) = selector {
            body[name] = selector.as_str().into();
        }
    }
    if let Some(rules) = args.dead_letters()? {
        body["dead_letters"] = rules;
    }
    for (of, weight) in &args.weights {
        if body["weights"].get(of).is_some() {
            return Err(Failure::usage(format!("--weight `{of}` is given twice")));
        }
        body["weights"][of] = (*weight).into();
    }
    let answer = client.put(&path(&args.queue), &body).await;
    print(&args.target, answer.map_err(in_flags)?)
}

/// A refusal in the words of the command line.
fn in_flags(failure: Failure) -> Failure {
    let mut failure = field_flags::in_flags(failure, FLAGS);
    for (field, flag) in [
        ("; set `fair_by` to `", "; add `--fair-by "),
        ("`fair_by` is null", "`--fair-by` is `none`"),
        ("; or null for none", "; or `none`"),
    ] {
        failure.message = failure.message.replace(field, flag);
    }
    failure
}

fn print(target: &Target, answer: Value) -> Result<Exit, Failure> {
    let queue = output::data(answer);
    output::print_one(target.output, &queue, page)?;
    Ok(Exit::Ok)
}

/// What is set for a queue, each in a few words.
fn settings(queue: &Value) -> Vec<String> {
    let fair = at(queue, "fair_by").map(|_| format!("fair by {}", text_at(queue, "fair_by")));
    let bound = at(queue, "max_depth").map(|_| format!("max {}", text_at(queue, "max_depth")));
    let selector = |name: &str| at(queue, name).map(|_| format!("{name} {}", text_at(queue, name)));
    let asked = ["requires", "prefers"].into_iter().filter_map(selector);
    fair.into_iter().chain(bound).chain(asked).collect()
}

/// What happens when its jobs become dead letters, in a few words.
fn dead_letters(queue: &Value) -> String {
    let rules = queue.get("dead_letters").and_then(Value::as_array);
    let rule = |rule: &Value| {
        let of =
            |name: &str| rule.get(name).and_then(Value::as_str).map(|it| format!("{name} {it}"));
        let what: Vec<String> = ["action", "webhook"].into_iter().filter_map(of).collect();
        let reasons = text_at(rule, "reasons");
        let when = if reasons == "-" { String::new() } else { format!(" if {reasons}") };
        format!("{}{when}", what.join(" and "))
    };
    let rules: Vec<String> = rules.into_iter().flatten().map(rule).collect();
    if rules.is_empty() { "-".to_owned() } else { rules.join(", ") }
}

fn page(queue: &Value) -> String {
    let weights = queue.get("weights").and_then(Value::as_object);
    let weights: Vec<String> = weights
        .into_iter()
        .flatten()
        .map(|(of, weight)| format!("{}={weight}", escape(of)))
        .collect();
    let weights = if weights.is_empty() { "-".to_owned() } else { weights.join(", ") };
    let pairs = [
        ("queue", text_at(queue, "name")),
        ("fair by", text_at(queue, "fair_by")),
        ("weights", weights),
        ("max depth", text_at(queue, "max_depth")),
        ("depth", text_at(queue, "depth")),
        ("requires", text_at(queue, "requires")),
        ("prefers", text_at(queue, "prefers")),
        ("dead letters", dead_letters(queue)),
        ("set", when(queue, "set_at")),
        ("by", text_at(queue, "set_by")),
    ];
    let lines: Vec<(&str, String)> = pairs
        .iter()
        .flat_map(|(name, value)| {
            let names = std::iter::once(*name).chain(std::iter::repeat(""));
            names.zip(folded(value, LINE_MAX))
        })
        .collect();
    let mut page = fields(&lines);
    page.push('\n');
    page.push_str(&Table::of(std::slice::from_ref(queue), COLUMNS).to_string());
    page
}

/// Breaks a long text into lines, after commas where there are some.
fn folded(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), text);
    while let Some((end, _)) = rest.char_indices().nth(width) {
        let (front, _) = rest.split_at(end);
        let comma = front.rfind(',').map_or(end, |at| at + 1);
        let (line, after) = rest.split_at(comma);
        lines.push(line.to_owned());
        rest = after.trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

/// A queue of which only the name is known, in the form of the others.
fn named(queue: &Value) -> Value {
    if queue.is_string() { json!({"name": queue}) } else { queue.clone() }
}

/// Refuses a queue that the server does not know: it is most likely misspelled.
async fn check_known(args: &One, environment: &Environment) -> Result<(), Failure> {
    let client = args.target.client(environment)?;
    let Some(Unknown { message, near }) = unknown(&client, &args.queue).await? else {
        return Ok(());
    };
    let joint = if near.ends_with('?') { "" } else { ";" };
    let hint = format!("{near}{joint} --create pauses it all the same");
    Err(Failure::new(Exit::NotFound, message).with_hint(hint))
}

/// A queue that the server does not know.
pub(super) struct Unknown {
    /// What is wrong with its name, for a reader.
    pub(super) message: String,
    /// Which queue may be meant.
    pub(super) near: String,
}

/// Looks a queue up; `None` if the server knows it.
pub(super) async fn unknown(client: &Client, wanted: &str) -> Result<Option<Unknown>, Failure> {
    let answer = client.get(&["ojs", "v1", "queues"], &[]).await?;
    let queues = answer.get("queues").and_then(Value::as_array).cloned().unwrap_or_default();
    let names: Vec<String> = queues.iter().map(|queue| text_at(&named(queue), "name")).collect();
    if names.iter().any(|name| name == wanted) {
        return Ok(None);
    }
    let near = match nearest(wanted, &names, 0.7) {
        Some(name) => format!("did you mean `{name}`?"),
        None if names.is_empty() => "there are no queues yet".to_owned(),
        None if names.len() > NAMED_MAX => "`outlast queues list` shows all".to_owned(),
        None => format!("known queues are {}", names.join(", ")),
    };
    Ok(Some(Unknown { message: format!("there is no queue `{}`", escape(wanted)), near }))
}

async fn order(args: &One, environment: &Environment, verb: &str) -> Result<Value, Failure> {
    let client = args.target.client(environment)?;
    client.post(&["ojs", "v1", "queues", &args.queue, verb], &json!({})).await
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    #[test]
    fn set_needs_a_setting() {
        let set = |words: &[&str]| Line::try_parse_from([&["queues", "set", "q"], words].concat());
        let refused = set(&[]).expect_err("a refusal").to_string();
        assert!(refused.contains("--fair-by <KEY>"), "{refused}");
        let refused = set(&["--weight", "42=3"]).expect_err("a refusal").to_string();
        assert!(refused.contains("not KEY:VALUE=N, such as tenant:42=3"), "{refused}");
        set(&["--fair-by", "tenant", "--weight", "tenant:42=3", "--weight", "tenant:7=2"]).unwrap();
        set(&["--weight", "tenant:42=1"]).unwrap();
        for wrong in ["0", "-1", "1000000001", "many", "1.5"] {
            let refused =
                set(&[&format!("--max-depth={wrong}")]).expect_err("a refusal").to_string();
            assert!(
                refused.contains("a whole number from 1 to 1000000000; or `none`"),
                "{refused}"
            );
        }
        set(&["--max-depth", "1"]).unwrap();
        set(&["--max-depth", "none", "--fair-by", "tenant"]).unwrap();
        set(&["--requires", "gpu=true, !spot", "--prefers", ""]).unwrap();
    }

    #[test]
    fn tables_fit_a_hundred_columns_and_say_what_is_set() {
        let queue = json!({"name": "mail", "status": "active", "paused": false, "available": 1000000,
            "active": 1000, "scheduled": 1000, "pending": 0, "retryable": 1000,
            "completed": 1000000, "cancelled": 0, "discarded": 1000, "fair_by": "tenant",
            "weights": {"tenant:42": 3, "tenant:7": 2}, "max_depth": 1000, "depth": 1002000,
            "set_by": "api: anonymous (outlast-cli/0.1.0)", "set_at": "2026-11-22T13:46:21.211Z"});
        let columns = [COLUMNS, &[SETTINGS]].concat();
        let queues = std::slice::from_ref(&queue);
        let table = Table::of(queues, &columns).fit(Some(100)).to_string();
        let page = page(&queue);
        for shown in [&table, &page] {
            assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        }
        assert!(table.contains("fair by tenant, max 1000"), "{table}");
        assert!(page.contains("tenant:42=3, tenant:7=2"), "{page}");
        assert!(page.contains("1000\n") && page.contains("1002000\n"), "{page}");
    }

    #[test]
    fn long_selectors_are_folded_in_a_page_and_on_a_terminal() {
        let values: Vec<String> = (0..15).map(|n| format!("zone-{n:02}")).collect();
        let requires =
            format!("gpu=true,{}/x=y,zone in ({})", "long.".repeat(40), values.join(","));
        let queue = json!({"name": "mail", "paused": false, "available": 0, "active": 0,
            "scheduled": 0, "retryable": 0, "completed": 0, "discarded": 0, "requires": requires,
            "prefers": "!spot", "set_by": "operator", "set_at": "2026-11-22T13:46:21.211Z"});
        let columns = [COLUMNS, &[SETTINGS]].concat();
        let queues = std::slice::from_ref(&queue);
        let table = Table::of(queues, &columns).fit(Some(100)).to_string();
        let page = page(&queue);
        for shown in [&table, &page] {
            assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        }
        assert!(table.contains("requires") && table.contains("gpu=true,"), "{table}");
        assert!(Table::for_pipe(queues, &columns).to_string().contains(&requires), "whole");
        let whole: String = page.chars().filter(|c| !c.is_whitespace()).collect();
        let wanted: String = requires.chars().filter(|c| !c.is_whitespace()).collect();
        assert!(whole.contains(&wanted), "{page}");
        assert!(page.contains("prefers   !spot\n"), "{page}");
    }
}
