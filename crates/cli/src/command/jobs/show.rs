//! `outlast jobs show`: everything about one job in one page.

use std::fmt::Write;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, ago, at, fields, text_at, when};
use serde_json::Value;

use super::One;
use crate::command::job_id;
use crate::config::Environment;
use crate::output;

/// The version of the pack; not shown for jobs that are none of a pack.
const PACK: &str = "PACK";

const ATTEMPTS: &[Column] = &[
    ("ATTEMPT", |attempt| text_at(attempt, "attempt")),
    ("WORKER", |attempt| text_at(attempt, "worker.name")),
    ("CLAIMED", |attempt| ago(attempt, "claimed")),
    ("FINISHED", |attempt| ago(attempt, "finished")),
    ("OUTCOME", |attempt| text_at(attempt, "outcome")),
    ("EXIT", |attempt| text_at(attempt, "exit_code")),
    (PACK, |attempt| text_at(attempt, "pack_digest").chars().take(12).collect()),
    ("EVIDENCE", evidence),
    ("ERROR", |attempt| error(attempt)),
];

/// The word first, where there is one.
fn evidence(attempt: &Value) -> String {
    let text = text_at(attempt, "evidence");
    match attempt.get("evidence_code").and_then(Value::as_str) {
        Some(code) => format!("{code}: {text}"),
        None => text,
    }
}

pub(super) async fn run(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = job_id::whole(&client, &args.id).await?;
    let path = ["api", "v1", "executions", id.as_str()];
    let answer = client.get(&path, &[]).await?;
    let mut job = answer.get("data").cloned().unwrap_or(answer);
    let path = ["api", "v1", "executions", id.as_str(), "attempts"];
    let attempts = client.get(&path, &[]).await?;
    job["attempts"] = attempts.get("data").cloned().unwrap_or(attempts);
    if text_at(&job, "status") == "cancelled" {
        // Beside what is asked for: a job whose events are gone is shown all the same.
        let path = ["api", "v1", "executions", id.as_str(), "events"];
        let query = [("type", Some("job.cancelled".to_owned())), ("limit", Some("1".to_owned()))];
        let events = client.get(&path, &query).await.unwrap_or_default();
        if let Some(by) = events.pointer("/data/0/data/by") {
            job["cancelled_by"] = by.clone();
        }
    }
    output::print_one(args.target.output, &job, page)?;
    Ok(Exit::Ok)
}

/// What went wrong, in one line.
fn error(item: &Value) -> String {
    match (at(item, "error.message"), at(item, "error.type")) {
        (Some(_), Some(_)) => {
            format!("{}: {}", text_at(item, "error.type"), text_at(item, "error.message"))
        }
        (Some(_), None) => text_at(item, "error.message"),
        (None, _) => text_at(item, "error"),
    }
}

/// That a job is a dead letter, and why.
fn dead_letter(job: &Value) -> String {
    match text_at(job, "dead_letter").as_str() {
        "-" => "-".to_owned(),
        reason => format!("{}; `outlast jobs retry` gives it a new life", reason_in_words(reason)),
    }
}

/// Why a job is a dead letter.
pub(crate) fn reason_in_words(reason: &str) -> &str {
    match reason {
        "exhausted" => "its attempts are used up",
        "poison_suspect" => "the worker died under it while it ran alone there",
        "at_most_once" => "it may start once, had started, and its worker died or stopped",
        other => other,
    }
}

/// Which attempt it is, of how many. Losses and interruptions are no failures, so they leave as
/// many as there were.
pub(super) fn attempt(job: &Value) -> String {
    let number = |name: &str| job.get(name).and_then(Value::as_u64);
    let Some(made) = number("attempt") else { return "-".to_owned() };
    // Attempts are counted over all lives, what is allowed is for each.
    let Some(most) = number("max_attempts").filter(|_| number("life").unwrap_or(1) == 1) else {
        return made.to_string();
    };
    let free = number("losses").unwrap_or(0) + number("interruptions").unwrap_or(0);
    format!("{made} of {}", most.saturating_add(free))
}

/// The whole page for people.
fn page(job: &Value) -> String {
    let mut page = summary(job);
    let attempts = job.get("attempts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !attempts.is_empty() {
        let of_pack = attempts.iter().any(|attempt| attempt["pack_digest"].is_string());
        let columns: Vec<Column> =
            ATTEMPTS.iter().copied().filter(|(name, _)| of_pack || *name != PACK).collect();
        // Writing to a String cannot fail.
        write!(page, "\n{}", Table::of(attempts, &columns)).unwrap_or_default();
    }
    page
}

/// The job itself, one field a line; fields without a value are left out.
pub(crate) fn summary(job: &Value) -> String {
    let text = |path: &str| text_at(job, path);
    let spent = ["failures", "losses", "interruptions"]
        .iter()
        .filter(|name| job.get(**name).and_then(Value::as_u64).unwrap_or(0) > 0)
        .map(|name| format!("{} {name}", text(name)))
        .collect::<Vec<_>>()
        .join(", ");
    fields(&[
        ("id", text("id")),
        ("action", text("action_ref")),
        ("status", text("status")),
        ("waiting", text("waiting_reason")),
        ("due", when(job, "due")),
        ("dead letter", dead_letter(job)),
        ("cancelled by", text("cancelled_by")),
        ("queue", text("queue")),
        ("priority", text("priority")),
        ("attempt", attempt(job)),
        ("epoch", text("epoch")),
        ("spent", if spent.is_empty() { "-".to_owned() } else { spent }),
        ("worker", text("worker.name")),
        ("worker id", text("worker.id")),
        ("enqueued by", text("enqueued_by")),
        ("created", when(job, "created")),
        ("claimed", when(job, "scheduled")),
        ("started", when(job, "started")),
        ("finished", when(job, "finished")),
        ("parameters", text("parameters")),
        ("result", text("result")),
        ("error", error(job)),
    ])
}

#[cfg(test)]
mod tests {
    use super::page;
    use serde_json::json;

    #[test]
    fn page_says_why_a_job_waits_and_hides_what_is_not_there() {
        let job = json!({"id": "j1", "status": "requested", "result": null, "losses": 2,
            "waiting_reason": "no eligible worker: \u{1b}[31mnone", "attempts": []});
        let page = page(&job);
        assert!(page.contains("no eligible worker: \\u{1b}[31mnone"), "{page}");
        assert!(page.contains("2 losses"), "{page}");
        assert!(!page.contains("result"), "{page}");
    }
}
