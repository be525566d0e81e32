//! Orders that hold for workers that start later: given, and `outlast workers orders`.

use std::collections::BTreeSet;

use clap::Args;
use outlast_cli_core::client::Client;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, ago, text_at};
use outlast_core::selector::Selector;
use serde_json::{Value, json};

use super::Target;
use super::wait::Verb;
use crate::config::Environment;
use crate::output;

const PATH: &[&str] = &["api", "v1", "workers", "orders"];

const COLUMNS: &[Column] = &[
    ("ORDER", |order| text_at(order, "order")),
    ("WORKERS WITH", |order| text_at(order, "selector")),
    ("LIVE", |order| text_at(order, "workers")),
    ("BY", |order| text_at(order, "set_by")),
    ("SINCE", |order| ago(order, "set_at")),
];

#[derive(Debug, Args)]
pub(crate) struct Orders {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn list(args: &Orders, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let orders = fetch(&client).await?;
    output::print_list(args.target.output, &orders, COLUMNS)?;
    let none = "no order holds for workers that start later";
    output::say_if_empty(args.target.output, &orders, none);
    Ok(Exit::Ok)
}

pub(super) async fn fetch(client: &Client) -> Result<Vec<Value>, Failure> {
    let answer = client.get(PATH, &[]).await?;
    Ok(answer["data"].as_array().cloned().unwrap_or_default())
}

/// The server's response to an order to several workers.
pub(super) struct Ordered(Value);

/// Gives an order to all workers that `to` chooses.
pub(super) async fn give(client: &Client, verb: Verb, mut to: Value) -> Result<Ordered, Failure> {
    to["order"] = json!(verb.as_str());
    Ok(Ordered(output::data(client.post(PATH, &to).await?)))
}

/// Says which standing order would be set or lifted by an order.
pub(super) async fn would(
    client: &Client,
    verb: Verb,
    selector: &Selector,
) -> Result<Vec<String>, Failure> {
    if verb != Verb::Resume {
        let stands = (!selector.is_empty())
            .then(|| "the order would also hold for workers that start later".to_owned());
        return Ok(stands.into_iter().collect());
    }
    let wanted = selector.to_string();
    let orders = fetch(client).await?;
    let lifted =
        orders.iter().filter(|it| selector.is_empty() || text_at(it, "selector") == wanted);
    let lifted = lifted.map(|it| {
        format!("the {} order to {} would be lifted", text_at(it, "order"), text_at(it, "selector"))
    });
    Ok(lifted.collect())
}

impl Ordered {
    /// Whether it holds for workers that start later.
    pub(super) fn stands(&self) -> bool {
        text_at(&self.0, "standing_order") == "set"
    }

    /// Whether one that held for them is lifted.
    pub(super) fn was_lifted(&self) -> bool {
        text_at(&self.0, "standing_order") == "lifted"
    }

    fn kept(&self) -> &[Value] {
        self.0["kept"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The ids of the workers that the order was for.
    pub(super) fn reached(&self) -> BTreeSet<String> {
        let reached = self.0["reached"].as_array().map_or(&[][..], Vec::as_slice);
        reached.iter().map(|one| text_at(one, "id")).collect()
    }

    /// Whether another order keeps workers from resuming.
    pub(super) fn keeps_some(&self) -> bool {
        !self.kept().is_empty()
    }

    /// Says which standing order was set or lifted, and which other one keeps workers quiet.
    pub(super) fn words(&self, selector: &Selector) -> Vec<String> {
        let mut words = Vec::new();
        if self.stands() {
            words.push(format!(
                "the order also holds for workers that start later, until \
                 `outlast workers resume --selector \"{selector}\"`"
            ));
        }
        if self.was_lifted() {
            words.push("workers that start from now on take work".to_owned());
        }
        if let Some(first) = self.kept().first() {
            let others = text_at(first, "by_selector");
            words.push(format!(
                "{} stay quiet, since another order stands: resume \"{others}\" too",
                self.kept().len()
            ));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_from_now_on_is_said() {
        let selector = "pool=gpu".parse().unwrap();
        let words = |answer: Value| Ordered(answer).words(&selector).join("; ");
        let set = words(json!({"standing_order": "set", "kept": []}));
        assert!(set.contains("until `outlast workers resume --selector \"pool=gpu\"`"), "{set}");
        let kept = json!([{"id": "one", "by_selector": "!spot"}]);
        let lifted = json!({"standing_order": "lifted", "kept": kept});
        assert!(
            Ordered(lifted.clone()).keeps_some() && Ordered(lifted.clone()).reached().is_empty()
        );
        let lifted = words(lifted);
        assert!(lifted.starts_with("workers that start from now on take work; 1 stay"), "{lifted}");
        assert!(lifted.ends_with("resume \"!spot\" too"), "{lifted}");
        assert_eq!(words(json!({"standing_order": "unchanged", "kept": []})), "");
    }
}
