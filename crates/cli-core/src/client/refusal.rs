//! What a server's refusal means for the exit code, and how it is worded.

use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::escape;

const CERTIFICATE_HINT: &str = "--client-cert and --client-key name a certificate and its key";

const FULL_HINT: &str = "free some space on the disk of the server's store; nothing that was \
                         accepted is lost";

/// The code of a bounded queue that has no room.
const QUEUE_FULL: &str = "QUEUE_FULL";

const QUEUE_HINT: &str = "try again when workers have taken some; `outlast queues set QUEUE \
                          --max-depth N` changes how many may wait";

/// The code of a job that is not stored because another one is.
const DUPLICATE: &str = "duplicate";

const UNIQUE_HINT: &str = "`outlast jobs show` shows the other job; --unique \
                           …,on_conflict=ignore takes it, on_conflict=replace cancels it";

/// The failure of an answer that is no success.
pub(super) fn of(status: u16, body: &str) -> Failure {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(failure) = unready(&body) {
        return failure;
    }
    let error = body.get("error").unwrap_or(&Value::Null);
    let said = |name: &str| error.get(name).and_then(Value::as_str).map(escape);
    let mut message = said("message").unwrap_or_else(|| format!("the server answered {status}"));
    // What the API calls an execution is a job to those who use commands.
    if let Some(rest) = message.strip_prefix("execution ") {
        message = format!("job {rest}");
    }
    let is_full = said("code").is_some_and(|code| code == QUEUE_FULL);
    let is_unique = said("code").is_some_and(|code| code == DUPLICATE)
        && error.pointer("/details/existing_job_id").is_some();
    // These messages have all of it.
    let more = error.get("details").filter(|_| !is_full && !is_unique).unwrap_or(&Value::Null);
    for line in details(more) {
        // A message that names its only detail need not be said twice.
        let is_named = line
            .strip_prefix("field: ")
            .is_some_and(|field| message.contains(&format!("`{field}`")));
        if !is_named && !message.contains(&line) {
            message.push('\n');
            message.push_str(&line);
        }
    }
    let hint = match status {
        404 => not_found(&message).map(ToOwned::to_owned).or_else(|| said("hint")),
        401 if message.contains("bearer token or a client certificate") => {
            Some(format!("give a token with --token or OUTLAST_TOKEN; or {CERTIFICATE_HINT}"))
        }
        401 if message.contains("client certificate") => Some(CERTIFICATE_HINT.to_owned()),
        409 if is_unique => Some(UNIQUE_HINT.to_owned()),
        // The server's usual hint says no more than the message.
        409 => said("hint").filter(|hint| !hint.starts_with("look it up")),
        _ if message.contains("disk is full") => Some(FULL_HINT.to_owned()),
        429 if is_full => Some(QUEUE_HINT.to_owned()),
        // The server's hint names a header, which the command line does not show.
        429 | 502..=504 => usual_hint(status).map(ToOwned::to_owned),
        // The message says what would be right; the server's hint adds nothing to it.
        400 | 422 if message.starts_with("field ") => None,
        _ => said("hint").or_else(|| usual_hint(status).map(ToOwned::to_owned)),
    };
    // The server was reached, and has decided.
    let exit = if is_full { Exit::Failed } else { exit(status) };
    let failure = Failure::new(exit, message);
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// What a server says that was asked whether it is ready, and is not. That is an answer: the
/// server was reached.
fn unready(body: &Value) -> Option<Failure> {
    if body.get("ready")?.as_bool()? {
        return None;
    }
    let store = body.get("store").and_then(Value::as_str).unwrap_or("ok");
    let status = body.get("status").and_then(Value::as_str).unwrap_or("unavailable");
    let reason = match (body.get("stopping").and_then(Value::as_bool), store) {
        (Some(true), _) => "it is stopping".to_owned(),
        (_, "ok") => escape(status),
        (_, store) => format!("store: {}", escape(store)),
    };
    let failure = Failure::failed(format!("the server is not ready: {reason}"));
    Some(if store.contains("disk is full") { failure.with_hint(FULL_HINT) } else { failure })
}

fn exit(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::NotAllowed,
        404 | 410 => Exit::NotFound,
        409 => Exit::Conflict,
        // The server, or a proxy before it, says that it cannot serve now.
        429 | 502..=504 => Exit::Unreachable,
        400..=499 => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn usual_hint(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("give a token with --token or OUTLAST_TOKEN"),
        403 => Some("this needs a token of another role"),
        429 | 502..=504 => Some("try again in a moment"),
        _ => None,
    }
}

/// Where to look for what is not there; the server's hint names paths of its API.
fn not_found(message: &str) -> Option<&'static str> {
    match message.split_once(' ')?.0 {
        "job" => Some(
            "`outlast jobs list` shows ids, of which the first 4 digits or more are enough; ended \
             jobs are kept for a limited time",
        ),
        "action" => Some("`outlast actions list` shows all"),
        "pack" => Some("`outlast packs list` shows all"),
        "queue" => Some("`outlast queues list` shows all"),
        "worker" => Some("`outlast workers list` shows all"),
        "limit" => Some("`outlast limits list` shows all"),
        _ => None,
    }
}

/// Violations as `path: message`, anything else as it is.
fn details(details: &Value) -> Vec<String> {
    match details {
        Value::Null => Vec::new(),
        Value::Array(items) => items.iter().map(detail).collect(),
        Value::Object(map) => match map.get("violations") {
            Some(Value::Array(items)) => items.iter().map(detail).collect(),
            _ => map
                .iter()
                .map(|(name, value)| escape(&format!("{name}: {}", plain(value))))
                .collect(),
        },
        Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![escape(&plain(details))],
    }
}

fn detail(item: &Value) -> String {
    let part = |name: &str| item.get(name).and_then(Value::as_str);
    match (part("path"), part("message")) {
        (Some(path), Some(message)) if !path.is_empty() => escape(&format!("{path}: {message}")),
        (_, Some(message)) => escape(message),
        (_, None) => escape(&plain(item)),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::of;
    use crate::exit::Exit;

    #[test]
    fn every_kind_of_refusal_has_its_exit_code() {
        let cases = [
            (400, Exit::Usage),
            (401, Exit::NotAllowed),
            (403, Exit::NotAllowed),
            (404, Exit::NotFound),
            (409, Exit::Conflict),
            (413, Exit::Usage),
            (422, Exit::Usage),
            (500, Exit::Failed),
            (503, Exit::Unreachable),
        ];
        for (status, exit) in cases {
            assert_eq!(of(status, "").exit, exit, "status {status}");
        }
    }

    #[test]
    fn full_queue_is_an_answer_and_says_how_many_wait() {
        let body = r#"{"error":{"code":"QUEUE_FULL","hint":"after `Retry-After`","message":
            "queue mail is full: 2 jobs wait in it, at most 2 may",
            "details":{"queue":"mail","depth":2,"max_depth":2}}}"#;
        let failure = of(429, body);
        assert_eq!(failure.exit, Exit::Failed);
        assert_eq!(failure.message, "queue mail is full: 2 jobs wait in it, at most 2 may");
        assert!(failure.hint.unwrap().contains("--max-depth N"));
        assert_eq!(of(429, "").exit, Exit::Unreachable, "of a proxy");
    }

    #[test]
    fn a_server_that_is_not_ready_says_why_and_was_reached() {
        let said = |body: &str| {
            let failure = of(503, body);
            (failure.exit, failure.message, failure.hint.is_some())
        };
        let full =
            r#"{"status":"unavailable","ready":false,"store":"disk is full","stopping":false}"#;
        let message = "the server is not ready: store: disk is full".to_owned();
        assert_eq!(said(full), (Exit::Failed, message, true));
        let dead = r#"{"status":"the engine loop has panicked: x","ready":false,"store":"ok"}"#;
        let message = "the server is not ready: the engine loop has panicked: x".to_owned();
        assert_eq!(said(dead), (Exit::Failed, message, false));
    }

    #[test]
    fn a_full_disk_is_no_reason_to_try_again_in_a_moment() {
        let body = |message: &str| {
            format!(r#"{{"error":{{"message":"{message}","hint":"after `Retry-After`"}}}}"#)
        };
        let full = of(503, &body("the store takes no jobs at the moment: disk is full"));
        assert!(full.hint.unwrap().starts_with("free some space"));
        let away = of(503, &body("server is stopping"));
        assert_eq!(away.hint.unwrap(), "try again in a moment");
    }

    #[test]
    fn a_field_is_named_once_and_what_is_missing_is_found_by_a_command() {
        let body = r#"{"error":{"code":"invalid_request","message":"field `queue` is missing",
            "hint":"correct the field","details":{"field":"queue"}}}"#;
        let failure = of(400, body);
        assert_eq!((failure.message.as_str(), failure.hint), ("field `queue` is missing", None));
        let body = r#"{"error":{"message":"worker x is not known","hint":"GET /api"}}"#;
        assert_eq!(of(404, body).hint.as_deref(), Some("`outlast workers list` shows all"));
    }

    #[test]
    fn a_conflict_is_about_a_job_and_has_a_hint_only_if_it_says_more() {
        let body =
            r#"{"error":{"message":"execution 7 is failed; only x","hint":"look it up: …"}}"#;
        let failure = of(409, body);
        assert_eq!((failure.message.as_str(), failure.hint), ("job 7 is failed; only x", None));
        let body = r#"{"error":{"message":"key k was used","hint":"choose another key"}}"#;
        assert_eq!(of(409, body).hint.as_deref(), Some("choose another key"));
    }

    #[test]
    fn job_that_is_in_the_way_is_named_once_and_the_hint_has_flags() {
        let body = r#"{"error":{"code":"duplicate","hint":"send `on_conflict`","message":
            "execution 7, which is scheduled, has the same unique key",
            "details":{"existing_job_id":"7","existing_job_status":"scheduled"}}}"#;
        let failure = of(409, body);
        assert_eq!(failure.message, "job 7, which is scheduled, has the same unique key");
        assert!(failure.hint.unwrap().contains("--unique …,on_conflict=ignore"));
    }

    #[test]
    fn a_missing_certificate_is_not_answered_with_a_token() {
        let body = r#"{"error":{"message":"this requires a client certificate","hint":"TOKEN"}}"#;
        let hint = of(401, body).hint.unwrap_or_default();
        assert!(hint.contains("--client-cert and --client-key"), "{hint}");
    }

    #[test]
    fn violations_are_listed_below_the_message() {
        let body = r#"{"error":{"code":"invalid","message":"bad parameters",
            "details":[{"path":"/duration","message":"\"x\" is not a number"}]}}"#;
        assert_eq!(of(422, body).message, "bad parameters\n/duration: \"x\" is not a number");
    }
}
