//! `outlast workers quiet|resume|drain`: one order for workers that are named, or for all that a
//! pool, a version or a selector chooses, those that start later included.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{say, text_at};
use outlast_core::labels::{self, POOL, VERSION};
use outlast_core::selector::Selector;
use serde_json::{Value, json};

use super::standing;
use super::wait::{self, Awaited, Verb};
use super::{COLUMNS, Target, all, lives, page, resolve};
use crate::command::batch::{Batch, confirm};
use crate::command::run::duration;
use crate::config::Environment;
use crate::output;

const AFTER_HELP: &str = "\
An order to workers that are named ends with those processes, and one to --all reaches those that live.
One by pool, version or selector also holds for workers that start later: they take no work and stay up,
until the same workers, or all, are resumed. `outlast workers orders` lists such orders.

Exit codes of --wait: 0 when all have done it; 124 when the time is over, or after Ctrl-C: the order
holds, and the same command waits again; 1 when a worker was killed or lapsed instead.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("chosen").required(true).multiple(true))]
pub(crate) struct Order {
    /// Workers, by id, id prefix or name; or all that the flags below choose
    #[arg(value_name = "WORKER", group = "chosen",
        conflicts_with_all = ["pool", "selector", "version", "all"],
        value_parser = NonEmptyStringValueParser::new())]
    workers: Vec<String>,
    /// Workers of this pool
    #[arg(long, value_name = "NAME", group = "chosen", value_parser = of_pool)]
    pool: Option<Selector>,
    /// Workers whose labels match, such as "gpu=true, zone in (a, b), !spot"
    #[arg(long, group = "chosen", value_parser = selector)]
    selector: Option<Selector>,
    /// Workers whose label `version` is this; a worker that sets none has the version of its build
    #[arg(long, value_name = "VERSION", group = "chosen", value_parser = of_version)]
    version: Option<Selector>,
    /// All live workers
    #[arg(long, group = "chosen", conflicts_with_all = ["pool", "selector", "version"])]
    all: bool,
    #[command(flatten)]
    care: Care,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    target: Target,
}

/// What happens before the order is given.
#[derive(Debug, Args)]
struct Care {
    /// Do not ask before all live workers get the order
    #[arg(long)]
    yes: bool,
    /// Only show which workers would get the order
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
}

/// What happens after it.
#[derive(Debug, Args)]
struct Waiting {
    /// Wait until they have done it, and show what is left
    #[arg(long)]
    wait: bool,
    /// How long to wait; then exit with 124
    #[arg(long, value_name = "DURATION", requires = "wait")]
    timeout: Option<String>,
}

/// Reads the name of a pool: its workers have a label of this value.
fn of_pool(name: &str) -> Result<Selector, String> {
    labels::check_pool(name).map_err(|error| error.to_string())?;
    selector(&format!("{POOL}={name}"))
}

/// Reads a version: workers have it as a label.
fn of_version(version: &str) -> Result<Selector, String> {
    let label = BTreeMap::from([(VERSION.to_owned(), version.to_owned())]);
    labels::check(&label).map_err(|error| error.to_string())?;
    if version.is_empty() {
        return Err("it is empty; a version looks like 1.4.2 or 2026-11-26".to_owned());
    }
    selector(&format!("{VERSION}={version}"))
}

/// Reads a selector. One that asks for nothing would choose every worker.
fn selector(text: &str) -> Result<Selector, String> {
    let selector: Selector = text.parse().map_err(|error| format!("{error}"))?;
    if selector.is_empty() {
        return Err("it asks for nothing; a selector looks like \"gpu=true, !spot\"".to_owned());
    }
    Ok(selector)
}

impl Order {
    /// What the flags ask for together; `None` if the workers are named.
    fn selector(&self) -> Option<Selector> {
        let parts = [&self.pool, &self.selector, &self.version].into_iter().flatten().cloned();
        parts.reduce(Selector::and).or_else(|| self.all.then(Selector::default))
    }

    /// Asks, if the order is for all workers.
    fn confirm(&self, verb: Verb) -> Result<(), Failure> {
        if !self.all || self.care.yes || self.care.dry_run {
            return Ok(());
        }
        let verb = verb.as_str();
        if !std::io::stdin().is_terminal() {
            return Err(Failure::usage(format!("{verb} is an order to all workers here"))
                .with_hint("--yes gives it; --dry-run shows who would get it"));
        }
        confirm(&format!("{verb} all live workers?"))
    }
}

/// Gives the order to every worker, even if others refuse it.
pub(super) async fn run(
    args: &Order,
    environment: &Environment,
    verb: Verb,
) -> Result<Exit, Failure> {
    let limit = duration("--timeout", args.waiting.timeout.as_deref())?;
    args.confirm(verb)?;
    let client = args.target.client(environment)?;
    let given = match (args.selector(), args.workers.as_slice()) {
        (None, [one]) if !args.care.dry_run && !args.waiting.wait => {
            let id = resolve(&client, one).await?;
            output::print_one(args.target.output, &give(&client, &id, verb).await?, page)?;
            return Ok(Exit::Ok);
        }
        (None, named) => named_ones(args, &client, verb, named).await?,
        (Some(selector), _) => chosen_ones(args, &client, verb, &selector).await?,
    };
    let Given { batch, ids, words, vanished, some_are_kept } = given;
    let ended = end(args, batch);
    words.iter().for_each(|words| say(&format!("{words}\n")));
    let ended = if args.waiting.wait && ended.is_ok() {
        wait::until_done(&client, verb, Awaited { ids, vanished }, limit).await
    } else {
        ended
    };
    ended.map(|exit| if some_are_kept && exit == Exit::Ok { Exit::Conflict } else { exit })
}

/// What became of an order, and who has it.
#[derive(Default)]
struct Given {
    batch: Batch,
    ids: Vec<String>,
    /// Sentences for the operator, printed below the table.
    words: Vec<String>,
    /// Workers that were killed under the same order before, in words.
    vanished: Vec<String>,
    /// Whether another order keeps some from what this one says.
    some_are_kept: bool,
}

async fn give(client: &Client, id: &str, verb: Verb) -> Result<Value, Failure> {
    let answer = client.post(&["api", "v1", "workers", id, verb.as_str()], &json!({})).await?;
    Ok(output::data(answer))
}

async fn named_ones(
    args: &Order,
    client: &Client,
    verb: Verb,
    named: &[String],
) -> Result<Given, Failure> {
    let mut given = Given::default();
    for name in named {
        let answer = match resolve(client, name).await {
            Ok(id) if args.care.dry_run => show(client, &id).await,
            Ok(id) => {
                let ordered = give_unless_drained(args, client, &id, verb).await;
                // Another one may have followed it, and have the order.
                given.ids.push(ordered.as_ref().map_or(id, |worker| text_at(worker, "id")));
                ordered
            }
            Err(failure) => Err(failure),
        };
        if !add(&mut given.batch, name, answer) {
            break;
        }
    }
    Ok(given)
}

/// Gives the order. One that has drained in the meantime needs none if it is to be waited for.
async fn give_unless_drained(
    args: &Order,
    client: &Client,
    id: &str,
    verb: Verb,
) -> Result<Value, Failure> {
    match give(client, id, verb).await {
        Err(refused) if args.waiting.wait && refused.exit == Exit::Conflict => {
            let worker = show(client, id).await?;
            if has_drained(&worker) { Ok(worker) } else { Err(refused) }
        }
        answer => answer,
    }
}

pub(super) async fn show(client: &Client, id: &str) -> Result<Value, Failure> {
    client.get(&["api", "v1", "workers", id], &[]).await.map(output::data)
}

fn has_drained(worker: &Value) -> bool {
    text_at(worker, "ended") == "drained"
}

/// Gives one order to all that are chosen: it reaches them together, and holds for those that start
/// later.
async fn chosen_ones(
    args: &Order,
    client: &Client,
    verb: Verb,
    selector: &Selector,
) -> Result<Given, Failure> {
    let text = (!selector.is_empty()).then(|| selector.to_string());
    let live = [("selector", text.clone()), ("live", Some("true".to_owned()))];
    let mut before = all(client, &live).await?;
    before.retain(lives);
    let mut given = Given::default();
    if args.care.dry_run {
        if before.is_empty() && (selector.is_empty() || verb == Verb::Resume) {
            return Err(none_lives(selector));
        }
        before.into_iter().for_each(|worker| given.batch.add("", Ok(worker)));
        given.words = standing::would(client, verb, selector).await?;
        return Ok(given);
    }
    let to = text.as_ref().map_or_else(|| json!({"all": true}), |text| json!({"selector": text}));
    let ordered = standing::give(client, verb, to).await?;
    let reached = ordered.reached();
    // The same command attaches again, also when all is done.
    let nothing_left = before.is_empty() && reached.is_empty();
    let ended = if args.waiting.wait && verb == Verb::Drain {
        all(client, &[("selector", text)]).await?
    } else {
        Vec::new()
    };
    let drained = ended.iter().filter(|worker| has_drained(worker)).count();
    given.vanished = wait::vanished_lately(&ended);
    if nothing_left && !given.vanished.is_empty() {
        return Err(wait::have_vanished(given.vanished.len() + drained, &given.vanished));
    }
    if nothing_left && drained > 0 {
        say(&format!("no live worker is left; {drained} drained\n"));
    } else if nothing_left && !ordered.stands() && !ordered.was_lifted() {
        return Err(none_lives(selector));
    } else if nothing_left {
        let none = format!("no live worker matches {selector}");
        let none = if selector.is_empty() { "no worker lives" } else { &none };
        say(&format!("{none}\n"));
    }
    // A worker that was started in the meantime is not one that the order was for.
    let known: BTreeSet<String> = before.iter().map(|worker| text_at(worker, "id")).collect();
    let after = all(client, &live).await?.into_iter().map(|it| (text_at(&it, "id"), it));
    let mut after: BTreeMap<String, Value> = after.collect();
    for id in known.union(&reached) {
        let worker = match after.remove(id) {
            Some(worker) => Ok(worker),
            // It has ended since.
            None => show(client, id).await,
        };
        if add(&mut given.batch, id, worker) && reached.contains(id) {
            given.ids.push(id.clone());
        }
    }
    given.words = ordered.words(selector);
    given.some_are_kept = ordered.keeps_some();
    Ok(given)
}

fn none_lives(selector: &Selector) -> Failure {
    let message = match selector.is_empty() {
        true => "no worker lives".to_owned(),
        false => format!("no live worker matches {selector}"),
    };
    let hint = "`outlast workers list` shows pools, `outlast workers show` the labels of one";
    Failure::new(Exit::NotFound, message).with_hint(hint)
}

/// Adds an outcome. False if the server is unreachable, so that the others need not be tried.
fn add(batch: &mut Batch, name: &str, answer: Result<Value, Failure>) -> bool {
    let is_gone = answer.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable);
    batch.add(name, answer);
    !is_gone
}

fn end(args: &Order, batch: Batch) -> Result<Exit, Failure> {
    batch.print(args.target.output, COLUMNS)?;
    if args.care.dry_run {
        let workers = if batch.count() == 1 { "worker" } else { "workers" };
        say(&format!("{} {workers}; nothing was changed\n", batch.count()));
    }
    batch.end()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        order: Order,
    }

    fn order(words: &[&str]) -> Result<Order, String> {
        let line = Line::try_parse_from([&["drain"], words].concat());
        line.map(|line| line.order).map_err(|error| error.to_string())
    }

    #[test]
    fn workers_are_named_or_chosen_and_what_chooses_adds_up() {
        let chosen = |words: &[&str]| order(words).unwrap().selector().map(|it| it.to_string());
        assert_eq!(chosen(&["one", "other"]), None);
        assert_eq!(chosen(&["--pool", "gpu"]).as_deref(), Some("pool=gpu"));
        assert_eq!(chosen(&["--selector", "!spot, zone=a"]).as_deref(), Some("!spot,zone=a"));
        let both = ["--selector", "zone=a", "--pool", "gpu"];
        assert_eq!(chosen(&both).as_deref(), Some("pool=gpu,zone=a"));
        assert_eq!(chosen(&["--version", "1.2"]).as_deref(), Some("version=1.2"));
        assert_eq!(chosen(&["--all", "--yes"]).as_deref(), Some(""));
    }

    #[test]
    fn what_would_choose_every_worker_by_mistake_is_refused() {
        for (words, why) in [
            (&[][..], "required arguments were not provided"),
            (&["--dry-run"], "required arguments were not provided"),
            (&["one", "--pool", "gpu"], "cannot be used with"),
            (&["one", "--all"], "cannot be used with"),
            (&["--all", "--version", "2"], "cannot be used with"),
            (&["--version", ""], "it is empty"),
            (&["--version", "1,!spot"], "selectors cannot ask for"),
            (&["one", "--timeout", "10m"], "--wait"),
            (&["one", "--wait", "--dry-run"], "cannot be used with"),
            (&["--selector", "zone=a", "one"], "cannot be used with"),
            (&["--selector", " "], "it asks for nothing"),
            (&["--selector", "gpu true"], "expected =, !=, in, notin or a comma at character 5"),
            (&["--pool", ""], "no usable name"),
            (&["--pool", "gpu,!spot"], "no usable name"),
        ] {
            let refused = order(words).unwrap_err();
            assert!(refused.contains(why), "{words:?}: {refused}");
        }
    }
}
