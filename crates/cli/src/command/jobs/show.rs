//! `outlast jobs show`: everything about one job in one page.

use std::fmt::Write;

use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{Column, Table, ago, at, escape, fields, text_at, when};
use serde_json::Value;

use super::One;
use crate::command::job_id;
use crate::command::resources::resources;
use crate::config::Environment;
use crate::output;

const ATTEMPTS: &[Column] = &[
    ("ATTEMPT", |attempt| text_at(attempt, "attempt")),
    ("WORKER", |attempt| text_at(attempt, "worker.name")),
    ("CLAIMED", |attempt| ago(attempt, "claimed")),
    ("FINISHED", |attempt| ago(attempt, "finished")),
    ("OUTCOME", |attempt| text_at(attempt, "outcome")),
    ("EXIT", |attempt| text_at(attempt, "exit_code")),
    ("MEMORY", memory),
    ("CPU", cpu),
    ("PACK", |attempt| text_at(attempt, "pack_digest").chars().take(12).collect()),
    ("EVIDENCE", evidence),
];

/// The most memory that it had, in mebibytes.
fn memory(attempt: &Value) -> String {
    match attempt.get("peak_memory_bytes").and_then(Value::as_u64) {
        Some(bytes) => format!("{} MiB", bytes.div_ceil(1 << 20)),
        None => "-".to_owned(),
    }
}

/// The time that it spent on processors.
fn cpu(attempt: &Value) -> String {
    match attempt.get("cpu_seconds").and_then(Value::as_f64) {
        Some(seconds) => format!("{seconds:.2} s"),
        None => "-".to_owned(),
    }
}

/// The word, where there is one: the sentence stands below the table.
fn evidence(attempt: &Value) -> String {
    match attempt.get("evidence_code").and_then(Value::as_str) {
        Some(code) => code.to_owned(),
        None => text_at(attempt, "evidence"),
    }
}

/// What is too long for the table, one line each.
fn details(attempts: &[Value]) -> String {
    let mut lines = String::new();
    for attempt in attempts {
        // Without a code the table has the text.
        let code = attempt.get("evidence_code").and_then(Value::as_str);
        let evidence = code.map(|_| text_at(attempt, "evidence"));
        for (name, text) in [("evidence", evidence), ("error", Some(error(attempt)))] {
            if let Some(text) = text.filter(|text| text != "-") {
                let number = text_at(attempt, "attempt");
                // Writing to a String cannot fail.
                writeln!(lines, "attempt {number}, {name}: {text}").unwrap_or_default();
            }
        }
    }
    lines
}

pub(super) async fn run(args: &One, environment: &Environment) -> Result<Exit, Failure> {
    let client = args.target.client(environment)?;
    let id = job_id::whole(&client, &args.id).await?;
    let path = ["api", "v1", "executions", id.as_str()];
    let answer = client.get(&path, &[]).await?;
    let mut job = output::data(answer);
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
pub(super) fn error(item: &Value) -> String {
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

/// The schedule that stored a job, and which of its fires it is.
fn fire(job: &Value) -> String {
    if at(job, "schedule.name").is_none() {
        return "-".to_owned();
    }
    format!(
        "{}, {}, {} s late",
        text_at(job, "schedule.name"),
        text_at(job, "schedule.fire_time"),
        text_at(job, "schedule.late_seconds")
    )
}

/// The workflow that a job is of, and what it does there.
fn workflow(job: &Value) -> String {
    if at(job, "workflow.id").is_none() {
        return "-".to_owned();
    }
    let name = match text_at(job, "workflow.name").as_str() {
        "-" => String::new(),
        name => format!("{name} "),
    };
    format!(
        "{name}{}, step {}, item {}",
        text_at(job, "workflow.id"),
        text_at(job, "workflow.step"),
        text_at(job, "workflow.item")
    )
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

/// Which attempt it is, of how many: those that used up something, and the one that is held or
/// was the last. A job that was handed back has not been tried. Losses and interruptions are no
/// failures, so they leave as many as there were.
pub(super) fn attempt(job: &Value) -> String {
    let number = |name: &str| job.get(name).and_then(Value::as_u64);
    let Some(made) = number("attempt") else { return "-".to_owned() };
    // Attempts are counted over all lives, what is allowed is for each.
    let Some(most) = number("max_attempts").filter(|_| number("life").unwrap_or(1) == 1) else {
        return made.to_string();
    };
    let free = number("losses").unwrap_or(0) + number("interruptions").unwrap_or(0);
    let charged = number("failures").unwrap_or(0) + free;
    let status = text_at(job, "status");
    let is = |words: &[&str]| u64::from(words.contains(&status.as_str()));
    let uncharged = is(&["scheduled", "running", "completed"]);
    let count = made.min(charged + uncharged + is(&["cancelled"]));
    // Some attempts are charged twice, such as the loss of a plain Open Job Spec worker: as a
    // failure, too. They leave one fewer.
    let twice = (charged + uncharged).saturating_sub(made);
    let most = match most {
        // A job that may start once is not tried again whatever ended it.
        0 | 1 => most,
        _ => most.saturating_add(free.saturating_sub(twice)),
    };
    format!("{count} of {most}")
}

/// The whole page as text.
fn page(job: &Value) -> String {
    let mut page = summary(job);
    let attempts = job.get("attempts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if !attempts.is_empty() {
        // Writing to a String cannot fail.
        write!(page, "\n{}", Table::of(attempts, ATTEMPTS)).unwrap_or_default();
        let details = details(attempts);
        if !details.is_empty() {
            write!(page, "\n{details}").unwrap_or_default();
        }
    }
    page
}

/// Its keys as they are typed.
fn keys(job: &Value) -> String {
    let keys = job.get("keys").and_then(Value::as_object).into_iter().flatten();
    let pair = |(name, value): (&String, &Value)| {
        escape(&format!("{name}={}", value.as_str().unwrap_or_default()))
    };
    let pairs: Vec<String> = keys.map(pair).collect();
    if pairs.is_empty() { "-".to_owned() } else { pairs.join(", ") }
}

/// A count with its word, in the singular for one.
fn counted(job: &Value, name: &str) -> String {
    let count = job.get(name).and_then(Value::as_u64).unwrap_or(0);
    let one = match name {
        "losses" => "loss",
        other => other.trim_end_matches('s'),
    };
    format!("{count} {}", if count == 1 { one } else { name })
}

/// The job itself, one field a line; fields without a value are left out.
pub(crate) fn summary(job: &Value) -> String {
    let text = |path: &str| text_at(job, path);
    let spent = ["failures", "losses", "interruptions"]
        .iter()
        .filter(|name| job.get(**name).and_then(Value::as_u64).unwrap_or(0) > 0)
        .map(|name| counted(job, name))
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
        ("schedule", fire(job)),
        ("workflow", workflow(job)),
        ("queue", text("queue")),
        ("priority", text("priority")),
        ("keys", keys(job)),
        ("requires", text("requires")),
        ("prefers", text("prefers")),
        ("resources", resources(job)),
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
    use outlast_cli_core::output::Table;

    use super::{ATTEMPTS, attempt, page};
    use serde_json::json;

    #[test]
    fn page_says_why_a_job_waits_and_hides_what_is_not_there() {
        let job = json!({"id": "j1", "status": "requested", "result": null, "losses": 2,
            "waiting_reason": "no eligible worker: \u{1b}[31mnone", "attempts": [],
            "keys": {"a.b": "x y", "tenant": "4\u{1b}2"}});
        let page = page(&job);
        assert!(page.contains("a.b=x y, tenant=4\\u{1b}2"), "{page}");
        assert!(page.contains("no eligible worker: \\u{1b}[31mnone"), "{page}");
        assert!(page.contains("2 losses"), "{page}");
        let spent = json!({"failures": 1, "losses": 1, "interruptions": 3});
        assert!(super::page(&spent).contains("1 failure, 1 loss, 3 interruptions"), "{spent}");
        assert!(!page.contains("result"), "{page}");
    }

    #[test]
    fn a_job_that_was_handed_back_has_not_been_tried() {
        let mut job = json!({"status": "requested", "attempt": 7, "max_attempts": 3, "life": 1,
            "failures": 0, "losses": 0, "interruptions": 0});
        assert_eq!(attempt(&job), "0 of 3");
        job["status"] = json!("running");
        assert_eq!(attempt(&job), "1 of 3");
        (job["failures"], job["losses"]) = (json!(1), json!(2));
        assert_eq!(attempt(&job), "4 of 5");
        job["status"] = json!("requested");
        assert_eq!(attempt(&job), "3 of 5");
    }

    #[test]
    fn a_job_that_may_start_once_has_one_attempt_whatever_ended_it() {
        for (losses, interruptions) in [(1, 0), (0, 1)] {
            let job = json!({"status": "abandoned", "attempt": 1, "max_attempts": 1, "life": 1,
                "failures": 0, "losses": losses, "interruptions": interruptions});
            assert_eq!(attempt(&job), "1 of 1");
        }
    }

    #[test]
    fn an_attempt_that_is_charged_twice_leaves_one_fewer() {
        let job = |status: &str, attempt: u32| {
            json!({"status": status, "attempt": attempt, "max_attempts": 3, "life": 1,
                "failures": 1, "losses": 1, "interruptions": 0})
        };
        assert_eq!(attempt(&job("requested", 1)), "1 of 3");
        assert_eq!(attempt(&job("running", 2)), "2 of 3");
        assert_eq!(attempt(&job("completed", 2)), "2 of 3");
        // A failure and a loss one after the other.
        assert_eq!(attempt(&job("running", 3)), "3 of 4");
    }

    #[test]
    fn attempts_fit_a_hundred_columns_and_their_errors_stand_below() {
        let attempt = |number: u32, outcome: &str, code: Option<&str>, error: Option<&str>| {
            json!({"attempt": number, "worker": {"name": "worker-1"}, "outcome": outcome,
                "claimed": "2026-11-22T13:46:21.211Z", "finished": "2026-11-22T13:46:21.283Z",
                "exit_code": error.map(|_| 1), "evidence_code": code,
                "evidence": "connection lost and no heartbeat since then for a whole lease",
                "pack_digest": "12a60748f371737618c1db57ec48c0029b4bddf9b6e6a5530e5d5fe32a92d911",
                "error": error.map(|text| json!({"type": "exit_code", "message": text}))})
        };
        let long = "the message of a program that has much to say about what went wrong with it";
        let attempts = [
            attempt(1, "lost", Some("worker_killed"), None),
            attempt(2, "failed", Some("exit"), Some(long)),
        ];
        let shown = Table::of(&attempts, ATTEMPTS).fit(None).to_string();
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        let job = json!({"id": "j1", "attempts": attempts});
        let page = page(&job);
        assert!(page.contains(&format!("attempt 2, error: exit_code: {long}\n")), "{page}");
        assert!(page.contains("attempt 1, evidence: connection lost and no"), "{page}");
        let plain = json!({"id": "j1", "attempts": [attempt(1, "completed", None, None)]});
        assert!(!super::page(&plain).contains("attempt 1, evidence"), "{plain}");
    }
}
