//! One job: why it is where it is, and what became of its attempts.

use outlast_core::budget::Budgets;
use outlast_core::job::{Outcome, State};
use outlast_core::time::{Span, Timestamp};
use outlast_dashboard::atoms::Lasting;
use outlast_dashboard::pages::{AttemptRow, Fact, JobPage, OutputLine, Text, html};
use outlast_dashboard::{Flash, Frame, Place};
use outlast_store::query::LogQuery;
use outlast_store::record::{AttemptRecord, JobRecord};
use outlast_wire::execution::status::Status;
use outlast_wire::json;
use uuid::Uuid;

use super::frame;
use super::jobs::short;
use super::orders::may_press;
use crate::hidden::HiddenKeys;
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::http::{executions, job_view, orders};
use crate::schedules;

/// How many attempts are shown, the latest ones.
const ATTEMPTS_MAX: usize = 50;
/// How many pieces of output are shown, the latest ones, and how long they are together.
const OUTPUT_MAX: u32 = 500;
const OUTPUT_BYTES_MAX: usize = 4_000;
/// Longest text of a cell, in characters.
const CELL_MAX: usize = 300;

pub(super) async fn page(
    req: &ApiRequest,
    id: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let app = &req.app;
    let id = Uuid::try_parse(id).map_err(|_not| ApiError::no_job(id))?;
    let record = orders::job(app, outlast_core::id::JobId(id), None).await?;
    let attempts = app.engine.store().attempts(record.job.id).await?;
    let reason = app.engine.waiting_reasons(std::slice::from_ref(&record)).await;
    let reason = reason.into_iter().flatten().next();
    let title = format!("Job of {}", record.job.key.job_type);
    let mut frame = frame::of(req, Place::Jobs, title, format!("outlast jobs show {id}")).await;
    frame.flash = said;
    let now = frame.now;
    let budgets = app.engine.settings().budgets;
    let packs = app.engine.settings().packs.current();
    let hidden = &app.engine.settings().hidden;
    let mut parameters = job_view::parameters(&record.job, &packs);
    hidden.mask(&mut parameters);
    let parameters = serde_json::to_string_pretty(&parameters).unwrap_or_default();
    let status = executions::status(&record);
    let orders = orders_of(&record, status, &frame);
    Ok(html(&JobPage {
        frame,
        id: record.job.id.to_string(),
        status: status.as_str(),
        why: why(&record, &attempts, reason.as_deref(), hidden, now),
        attempts: rows(&record, &attempts, hidden, now),
        budgets: budgets_left(&record, &budgets),
        facts: facts(&record, hidden),
        parameters: Text::of(&parameters),
        result: record.result.as_deref().map(|result| Text::of(&hidden.masked(result))),
        error: record.error.as_deref().map(|error| Text::of(&error_text(error, hidden))),
        output: if req.is_update { Vec::new() } else { output(req, &record).await? },
        orders,
    }))
}

/// Which orders make sense and are allowed.
fn orders_of(record: &JobRecord, status: Status, frame: &Frame) -> Vec<&'static str> {
    let ended = record.state.is_terminal();
    let waits = matches!(record.state, State::Scheduled | State::Retryable);
    let failed = matches!(status, Status::Failed | Status::Timeout | Status::Abandoned);
    let all = [("cancel", !ended), ("retry", failed), ("run-now", waits), ("rerun", ended)];
    let may = |order: &str| may_press(frame, &format!("{}/{order}", record.job.id));
    all.into_iter().filter(|(order, fits)| *fits && may(order)).map(|(order, _)| order).collect()
}

/// Says in one sentence why a job is where it is.
fn why(
    record: &JobRecord,
    attempts: &[AttemptRecord],
    waits: Option<&str>,
    hidden: &HiddenKeys,
    now: Timestamp,
) -> String {
    let holder = record.last_holder.as_ref().and_then(|holder| holder.name.as_deref());
    let on = holder.map(|name| format!(" on {name}")).unwrap_or_default();
    let lost = last_loss(record, attempts);
    match record.state {
        State::Active => {
            let began = record.started.or(record.claimed).unwrap_or(now);
            let verb = if record.started.is_some() { "runs" } else { "is starting" };
            let since = Lasting(now.since(began));
            match lost {
                Some((lost, attempt)) => {
                    let after = attempt.finished.zip(record.claimed);
                    let after =
                        after.map(|(lost, again)| format!(" after {}", Lasting(again.since(lost))));
                    format!("{lost}; {verb} again{on}{}, for {since}", after.unwrap_or_default())
                }
                None => format!("{verb}{on} for {since}"),
            }
        }
        State::Completed => {
            let took = record.started.zip(record.finished);
            let took = took.map(|(from, to)| format!(" in {}", Lasting(to.since(from))));
            let took = took.unwrap_or_default();
            match record.epoch.0 {
                0 | 1 => format!("completed{on}{took}, at the first attempt"),
                _ => format!("completed{on}{took}, at attempt {}", record.epoch),
            }
        }
        State::Cancelled => format!("cancelled{}", by(record)),
        State::Discarded => {
            let message = message(record.error.as_deref(), hidden).unwrap_or_default();
            let message = short(&message, CELL_MAX);
            let colon = if message.is_empty() { "" } else { ": " };
            match record.dead_letter {
                Some(reason) => format!("dead letter ({}){colon}{message}", reason.as_str()),
                None => format!("failed{}{colon}{message}", by(record)),
            }
        }
        State::Scheduled | State::Available | State::Pending | State::Retryable => {
            let waits = waits.unwrap_or("waits for its turn");
            match lost {
                Some((lost, _)) => format!("{lost}; now: {waits}"),
                None => waits.to_owned(),
            }
        }
    }
}

/// The attempt before the latest claim, if it was lost: in words, and as it was.
fn last_loss<'a>(
    record: &JobRecord,
    attempts: &'a [AttemptRecord],
) -> Option<(String, &'a AttemptRecord)> {
    let ended = attempts.iter().filter(|it| it.outcome.is_some() && it.life == record.life);
    let last = ended.max_by_key(|it| it.epoch)?;
    if last.outcome != Some(Outcome::Lost) {
        return None;
    }
    let on = last.worker_name.as_deref().map(|name| format!(" on {name}")).unwrap_or_default();
    let code = last.evidence.word().map(|word| format!(" ({word})")).unwrap_or_default();
    Some((format!("lost{on}{code}"), last))
}

fn by(record: &JobRecord) -> String {
    match record.ended_by.as_str() {
        "" | "cancelled" => String::new(),
        how => format!(" ({how})"),
    }
}

fn rows(
    record: &JobRecord,
    attempts: &[AttemptRecord],
    hidden: &HiddenKeys,
    now: Timestamp,
) -> Vec<AttemptRow> {
    let mut latest: Vec<&AttemptRecord> = attempts.iter().collect();
    latest.sort_unstable_by_key(|it| std::cmp::Reverse(it.epoch));
    let before = |attempt: &AttemptRecord| {
        let ended =
            attempts.iter().filter(|it| it.epoch < attempt.epoch).filter_map(|it| it.finished);
        ended.max().unwrap_or_else(|| record.job.scheduled_for.unwrap_or(record.job.created))
    };
    let shown = latest.into_iter().take(ATTEMPTS_MAX);
    shown
        .map(|it| AttemptRow {
            epoch: it.epoch.0,
            worker: it.worker_name.clone().or_else(|| it.worker.map(|id| id.to_string())),
            worker_id: it.worker.map(|id| id.to_string()),
            claimed: it.claimed,
            waited: Some(it.claimed.since(before(it))),
            ran: it.started.map(|started| it.finished.unwrap_or(now).since(started)),
            outcome: it.outcome.map_or("running", Outcome::as_str),
            charged: charge(it),
            evidence: short(&it.evidence.to_string(), CELL_MAX),
            error: short(&message(it.error.as_deref(), hidden).unwrap_or_default(), CELL_MAX),
        })
        .collect()
}

/// What an attempt was charged as, in words; nothing where there is nothing to charge.
pub(super) fn charge(attempt: &AttemptRecord) -> String {
    let is_no_matter =
        matches!(attempt.outcome, None | Some(Outcome::Completed | Outcome::Cancelled));
    let words = attempt.charge.map(|charge| charge.words().collect::<Vec<_>>().join(" and "));
    match words {
        Some(words) if !words.is_empty() => words,
        _ if is_no_matter => String::new(),
        Some(_) => "nothing".to_owned(),
        None => "not known".to_owned(),
    }
}

fn budgets_left(record: &JobRecord, budgets: &Budgets) -> String {
    let spent = &record.spent;
    format!(
        "Charged in this life: {} of {} attempts, {} of {} losses, {} of {} free interruptions.",
        spent.failures,
        record.job.rules.retry.max_attempts,
        spent.losses,
        budgets.losses,
        spent.interruptions.min(budgets.interruptions),
        budgets.interruptions
    )
}

/// Returns the message of an error. Of one without a message, all is shown that may be.
pub(super) fn message(error: Option<&str>, hidden: &HiddenKeys) -> Option<String> {
    error.map(|error| words_of(error).unwrap_or_else(|| hidden.masked(error)))
}

/// Returns what an error says in words, if it does.
fn words_of(error: &str) -> Option<String> {
    let words = json::field(error, "message").or_else(|| json::field(error, "error"))?;
    serde_json::from_str(words.get()).ok()
}

/// An error as a page shows it: its message first.
fn error_text(error: &str, hidden: &HiddenKeys) -> String {
    let mut value: serde_json::Value = serde_json::from_str(error).unwrap_or_default();
    hidden.mask(&mut value);
    let pretty = serde_json::to_string_pretty(&value).unwrap_or_else(|_| error.to_owned());
    match words_of(error) {
        Some(words) => format!("{words}\n\n{pretty}"),
        None => pretty,
    }
}

fn facts(record: &JobRecord, hidden: &HiddenKeys) -> Vec<Fact> {
    let job = &record.job;
    let text = |name, text: String| Fact { name, text, at: None, href: None };
    let at = |name, at: Option<Timestamp>| {
        at.map(|at| Fact { name, text: String::new(), at: Some(at), href: None })
    };
    let mut facts = vec![
        Fact {
            name: "Queue",
            text: job.key.queue.clone(),
            at: None,
            href: Some(format!("queues/{}", super::jobs::encoded(&job.key.queue))),
        },
        text("Type", job.key.job_type.clone()),
        text("Priority", job.priority.to_string()),
    ];
    facts.extend(at("Made", Some(job.created)));
    facts.extend(at("Due", record.due));
    facts.extend(at("Started", record.started));
    facts.extend(at("Ended", record.finished));
    if let Some(limit) = job.timeout {
        facts.push(text("Time limit of an attempt", Lasting(limit).to_string()));
    }
    for (name, value) in &job.keys {
        facts.push(text("Key", format!("{name}={}", hidden.value(name, value))));
    }
    for (name, selector) in
        [("Requires", &job.key.placement.requires), ("Prefers", &job.key.placement.prefers)]
    {
        if !selector.is_empty() {
            facts.push(text(name, selector.to_string()));
        }
    }
    if let Some(fire) = schedules::fire_of(&job.payload.extra) {
        let words = format!("{}, {} late", fire.fire_time, late(fire.late_seconds));
        facts.push(Fact {
            name: "Schedule",
            text: format!("{}: {words}", fire.name),
            at: None,
            href: Some(format!("schedules/{}", super::jobs::encoded(&fire.name))),
        });
    }
    if let Some(item) = &job.rules.workflow {
        facts.push(Fact {
            name: "Workflow",
            text: item.workflow.to_string(),
            at: None,
            href: Some(format!("workflows/{}", item.workflow)),
        });
    }
    facts
}

fn late(seconds: f64) -> Lasting {
    let ms = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis();
    Lasting(Span(u64::try_from(ms).unwrap_or(u64::MAX)))
}

/// Reads the end of a job's output.
async fn output(req: &ApiRequest, record: &JobRecord) -> Result<Vec<OutputLine>, ApiError> {
    let store = req.app.engine.store();
    let mut tail: Vec<OutputLine> = Vec::new();
    let mut after = 0;
    // There are 10 MiB of it at most; pages are bounded in bytes.
    for _ in 0..64 {
        let query = LogQuery { job: record.job.id, after, limit: OUTPUT_MAX };
        let page = store.logs(query).await?;
        let Some(last) = page.lines.last() else { break };
        after = last.id;
        tail.extend(page.lines.iter().map(|line| OutputLine {
            stream: line.stream.as_str(),
            text: String::from_utf8_lossy(&line.bytes).into_owned(),
        }));
        let mut bytes = 0;
        let kept = tail.iter().rev().take_while(|line| {
            bytes += line.text.len();
            bytes <= OUTPUT_BYTES_MAX
        });
        let kept = kept.count();
        tail.drain(..tail.len().saturating_sub(kept.max(1)));
    }
    for line in &mut tail {
        // One piece may be longer than what is shown.
        let from = line.text.len().saturating_sub(OUTPUT_BYTES_MAX);
        let from = (from..=line.text.len()).find(|at| line.text.is_char_boundary(*at));
        line.text.drain(..from.unwrap_or(0));
    }
    Ok(tail)
}
