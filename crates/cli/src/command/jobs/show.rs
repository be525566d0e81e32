//! `outlast jobs show`: everything about one job in one page.

use std::fmt::Write;

use serde_json::Value;

use super::One;
use crate::config::Environment;
use crate::exit::{Exit, Failure};
use crate::output::{self, Column, Table, fields, text_at, when};

const ATTEMPTS: &[Column] = &[
    ("EPOCH", |attempt| text_at(attempt, "epoch")),
    ("WORKER", |attempt| text_at(attempt, "worker.name")),
    ("CLAIMED", |attempt| when(attempt, "claimed")),
    ("FINISHED", |attempt| when(attempt, "finished")),
    ("OUTCOME", |attempt| text_at(attempt, "outcome")),
    ("EXIT", |attempt| text_at(attempt, "exit_code")),
    ("EVIDENCE", |attempt| text_at(attempt, "evidence")),
];

pub(super) async fn run(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let path = ["api", "v1", "executions", args.id.as_str()];
    let answer = client.get(&path, &[]).await?;
    let mut job = answer.get("data").cloned().unwrap_or(answer);
    let path = ["api", "v1", "executions", args.id.as_str(), "attempts"];
    let attempts = client.get(&path, &[]).await?;
    job["attempts"] = attempts.get("data").cloned().unwrap_or(attempts);
    output::print_one(args.target.output, &job, page)?;
    Ok(Exit::Ok)
}

/// The whole page for people.
fn page(job: &Value) -> String {
    let mut page = summary(job);
    let attempts = job.get("attempts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !attempts.is_empty() {
        // Writing to a String cannot fail.
        write!(page, "\n{}", Table::of(attempts, ATTEMPTS)).unwrap_or_default();
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
        ("queue", text("queue")),
        ("priority", text("priority")),
        ("attempt", text("attempt")),
        ("epoch", text("epoch")),
        ("spent", if spent.is_empty() { "-".to_owned() } else { spent }),
        ("worker", text("worker.name")),
        ("worker id", text("worker.id")),
        ("created", when(job, "created")),
        ("scheduled", when(job, "scheduled")),
        ("started", when(job, "started")),
        ("finished", when(job, "finished")),
        ("parameters", text("parameters")),
        ("result", text("result")),
        ("error", text("error")),
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
