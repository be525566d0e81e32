//! `outlast workers quiet|resume|drain`: one order for workers that are named, or for the live ones
//! that a pool or a selector chooses.

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{say, text_at};
use outlast_core::labels::{self, POOL};
use outlast_core::selector::Selector;
use serde_json::{Value, json};

use super::{COLUMNS, Target, all, lives, page, resolve};
use crate::command::batch::Batch;
use crate::config::Environment;
use crate::output;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("chosen").required(true).multiple(true))]
pub(crate) struct Order {
    /// Workers, by id, id prefix or name; or all live ones that the flags below choose
    #[arg(value_name = "WORKER", group = "chosen", conflicts_with_all = ["pool", "selector"],
        value_parser = NonEmptyStringValueParser::new())]
    workers: Vec<String>,
    /// Live workers of this pool
    #[arg(long, value_name = "NAME", group = "chosen", value_parser = of_pool)]
    pool: Option<Selector>,
    /// Live workers whose labels match, such as "gpu=true, zone in (a, b), !spot"
    #[arg(long, group = "chosen", value_parser = selector)]
    selector: Option<Selector>,
    /// Only show which workers would get the order
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// Reads the name of a pool: its workers have a label of this value.
fn of_pool(name: &str) -> Result<Selector, String> {
    labels::check_pool(name).map_err(|error| error.to_string())?;
    selector(&format!("{POOL}={name}"))
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
        match (self.pool.clone(), self.selector.clone()) {
            (Some(pool), Some(selector)) => Some(pool.and(selector)),
            (pool, selector) => pool.or(selector),
        }
    }
}

/// Gives the order to every worker, even if others refuse it.
pub(super) async fn run(
    args: &Order,
    environment: &Environment,
    verb: &str,
) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    match (args.selector(), args.workers.as_slice()) {
        (None, [one]) if !args.dry_run => {
            let id = resolve(&client, one).await?;
            output::print_one(args.target.output, &give(&client, &id, verb).await?, page)?;
            Ok(Exit::Ok)
        }
        (None, named) => named_ones(args, &client, verb, named).await,
        (Some(selector), _) => chosen_ones(args, &client, verb, &selector).await,
    }
}

async fn give(client: &Client, id: &str, verb: &str) -> Result<Value, Failure> {
    let answer = client.post(&["api", "v1", "workers", id, verb], &json!({})).await?;
    Ok(output::data(answer))
}

async fn named_ones(
    args: &Order,
    client: &Client,
    verb: &str,
    named: &[String],
) -> Result<Exit, Failure> {
    let mut batch = Batch::default();
    for name in named {
        let answer = match resolve(client, name).await {
            Ok(id) if args.dry_run => {
                let answer = client.get(&["api", "v1", "workers", &id], &[]).await;
                answer.map(output::data)
            }
            Ok(id) => give(client, &id, verb).await,
            Err(failure) => Err(failure),
        };
        if !add(&mut batch, name, answer) {
            break;
        }
    }
    end(args, batch)
}

async fn chosen_ones(
    args: &Order,
    client: &Client,
    verb: &str,
    selector: &Selector,
) -> Result<Exit, Failure> {
    // All are read before the first gets the order, so that no page is moved by it.
    let mut chosen = all(client, &[("selector", Some(selector.to_string()))]).await?;
    chosen.retain(lives);
    if chosen.is_empty() {
        let message = format!("no live worker matches {selector}");
        let hint = "`outlast workers list` shows pools, `outlast workers show` the labels of one";
        return Err(Failure::new(Exit::NotFound, message).with_hint(hint));
    }
    let mut batch = Batch::default();
    for worker in chosen {
        let id = text_at(&worker, "id");
        let answer = if args.dry_run { Ok(worker) } else { give(client, &id, verb).await };
        if !add(&mut batch, &id, answer) {
            break;
        }
    }
    end(args, batch)
}

/// Adds an outcome. False if the server is unreachable, so that the others need not be tried.
fn add(batch: &mut Batch, name: &str, answer: Result<Value, Failure>) -> bool {
    let is_gone = answer.as_ref().is_err_and(|failure| failure.exit == Exit::Unreachable);
    batch.add(name, answer);
    !is_gone
}

fn end(args: &Order, batch: Batch) -> Result<Exit, Failure> {
    batch.print(args.target.output, COLUMNS)?;
    if args.dry_run {
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
    }

    #[test]
    fn what_would_choose_every_worker_by_mistake_is_refused() {
        for (words, why) in [
            (&[][..], "required arguments were not provided"),
            (&["--dry-run"], "required arguments were not provided"),
            (&["one", "--pool", "gpu"], "cannot be used with"),
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
