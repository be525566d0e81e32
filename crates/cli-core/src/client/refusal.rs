//! What a server's refusal means for the exit code, and how it is worded.

use serde_json::Value;

use crate::exit::{Exit, Failure, Refusal};
use crate::output::escape;

const TOKEN_HINT: &str = "give a token with --token or OUTLAST_TOKEN";

const CERTIFICATE_HINT: &str = "--client-cert and --client-key name a certificate and its key";

const FULL_HINT: &str = "free some space on the disk of the server's store; nothing that was \
                         accepted is lost";

/// The reason of a store without room.
const DISK_FULL: &str = "disk_full";

/// The code of a bounded queue that has no room.
const QUEUE_FULL: &str = "QUEUE_FULL";

const QUEUE_HINT: &str = "try again when workers have taken some; `outlast queues set QUEUE \
                          --max-depth N` changes how many may wait";

/// The code of a job that is not stored because another one is.
const DUPLICATE: &str = "duplicate";

const UNIQUE_HINT: &str = "`outlast jobs show` shows the other job; --unique \
                           …,on_conflict=ignore takes it, on_conflict=replace cancels it";

const KEY_HINT: &str = "repeat the first command unchanged, or choose another --idempotency-key";

/// Details that are for programs: the message says the same.
const FOR_PROGRAMS: &[&str] = &["resource", "reason", "accepts"];

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
    let said_for_programs =
        Refusal { code: said("code"), details: error.get("details").cloned().unwrap_or_default() };
    let answer = Answer { status, refusal: said_for_programs, hint: said("hint") };
    for line in details(answer.shown_details()) {
        // A message that names its only detail need not be said twice.
        let is_named = line
            .strip_prefix("field: ")
            .is_some_and(|field| message.contains(&format!("`{field}`")));
        if !is_named && !message.contains(&line) {
            message.push('\n');
            message.push_str(&line);
        }
    }
    let hint = answer.hint();
    // The server was reached, and has decided.
    let is_full = answer.refusal.code.as_deref() == Some(QUEUE_FULL);
    let exit = if is_full { Exit::Failed } else { exit(status) };
    let refusal = Some(Box::new(answer.refusal));
    Failure { hint, refusal, ..Failure::new(exit, message) }
}

/// What a server says when it refuses, but for its message.
struct Answer {
    status: u16,
    refusal: Refusal,
    /// The server's own hint, for those who send requests themselves.
    hint: Option<String>,
}

impl Answer {
    fn detail(&self, name: &str) -> Option<&str> {
        self.refusal.details.get(name).and_then(Value::as_str)
    }

    /// The details that the message leaves out.
    fn shown_details(&self) -> &Value {
        let code = self.refusal.code.as_deref();
        let is_told = code == Some(QUEUE_FULL)
            || (code == Some(DUPLICATE) && self.detail("existing_job_id").is_some());
        if is_told { &Value::Null } else { &self.refusal.details }
    }

    /// What would help, in terms of commands: by the code and the details, never by the words.
    fn hint(&self) -> Option<String> {
        let own = match (self.refusal.code.as_deref(), self.detail("reason")) {
            (Some("not_found"), _) => self.detail("resource").and_then(not_found),
            (Some("unauthenticated"), _) => match self.refusal.details.get("accepts") {
                Some(accepts) => return Some(credentials(accepts)),
                None => None,
            },
            (Some("conflict"), Some("idempotency_key_reused")) => Some(KEY_HINT),
            // The message says what would be allowed.
            (Some("conflict"), _) => return None,
            (Some(DUPLICATE), _) if self.detail("existing_job_id").is_some() => Some(UNIQUE_HINT),
            (Some("unavailable"), Some(DISK_FULL)) => Some(FULL_HINT),
            (Some(QUEUE_FULL), _) => Some(QUEUE_HINT),
            // The message says what would be right.
            (Some("invalid_request" | "validation_error"), _) if self.detail("field").is_some() => {
                return None;
            }
            // The server's hint names a header, which the command line does not show.
            (Some("unavailable"), _) => usual_hint(self.status),
            (Some(_), _) => None,
            (None, _) => usual_hint(self.status),
        };
        let own = own.map(ToOwned::to_owned);
        own.or_else(|| self.hint.clone()).or_else(|| usual_hint(self.status).map(ToOwned::to_owned))
    }
}

/// How to be let in where a server takes these.
fn credentials(accepts: &Value) -> String {
    let takes =
        |kind: &str| accepts.as_array().is_some_and(|all| all.iter().any(|one| one == kind));
    match (takes("token"), takes("certificate")) {
        (true, true) => format!("{TOKEN_HINT}; or {CERTIFICATE_HINT}"),
        (false, true) => CERTIFICATE_HINT.to_owned(),
        _ => TOKEN_HINT.to_owned(),
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
    let is_full = body.get("reason").and_then(Value::as_str) == Some(DISK_FULL);
    Some(if is_full { failure.with_hint(FULL_HINT) } else { failure })
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
        401 => Some(TOKEN_HINT),
        403 => Some("this needs a token of another role"),
        429 | 502..=504 => Some("try again in a moment"),
        _ => None,
    }
}

/// Where to look for what is not there; the server's hint names paths of its API.
fn not_found(resource: &str) -> Option<&'static str> {
    match resource {
        "job" => Some(
            "`outlast jobs list` shows ids, of which the first 4 digits or more are enough; ended \
             jobs are kept for a limited time",
        ),
        "action" => Some("`outlast actions list` shows all"),
        "schedule" => Some("`outlast cron list` shows all"),
        "workflow" => Some("`outlast workflows list` shows all"),
        "pack" => Some("`outlast packs list` shows all"),
        "queue" => Some("`outlast queues list` shows all"),
        "worker" => Some("`outlast workers list` shows all"),
        "limit" => Some("`outlast limits list` shows all"),
        "dead_letter" => Some("`outlast dead-letters list` shows all"),
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
                .filter(|(name, _)| !FOR_PROGRAMS.contains(&name.as_str()))
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
        let full = r#"{"status":"unavailable","ready":false,"store":"disk is full",
            "reason":"disk_full","stopping":false}"#;
        let message = "the server is not ready: store: disk is full".to_owned();
        assert_eq!(said(full), (Exit::Failed, message, true));
        let dead = r#"{"status":"the engine loop has panicked: x","ready":false,"store":"ok"}"#;
        let message = "the server is not ready: the engine loop has panicked: x".to_owned();
        assert_eq!(said(dead), (Exit::Failed, message, false));
    }

    #[test]
    fn a_full_disk_is_no_reason_to_try_again_in_a_moment() {
        let body = |details: &str| {
            format!(r#"{{"error":{{"code":"unavailable","message":"m","hint":"h"{details}}}}}"#)
        };
        let full = of(503, &body(r#","details":{"reason":"disk_full"}"#));
        assert!(full.hint.unwrap().starts_with("free some space"));
        assert_eq!(full.message, "m");
        let away = of(503, &body(""));
        assert_eq!(away.hint.unwrap(), "try again in a moment");
    }

    #[test]
    fn a_field_is_named_once_and_what_is_missing_is_found_by_a_command() {
        let body = r#"{"error":{"code":"invalid_request","message":"field `queue` is missing",
            "hint":"correct the field","details":{"field":"queue"}}}"#;
        let failure = of(400, body);
        assert_eq!((failure.message.as_str(), failure.hint), ("field `queue` is missing", None));
        let body = r#"{"error":{"code":"not_found","message":"there is no x","hint":"GET /api",
            "details":{"resource":"worker"}}}"#;
        let failure = of(404, body);
        assert_eq!(failure.hint.as_deref(), Some("`outlast workers list` shows all"));
        assert_eq!(failure.message, "there is no x");
    }

    /// Hints once went by the words of messages, and a reused key was answered with how to write
    /// parameters.
    #[test]
    fn a_conflict_is_about_a_job_and_has_a_hint_only_if_it_says_more() {
        let body = r#"{"error":{"code":"conflict","message":"execution 7 is failed; only x",
            "hint":"look it up: …"}}"#;
        let failure = of(409, body);
        assert_eq!((failure.message.as_str(), failure.hint), ("job 7 is failed; only x", None));
        let body = r#"{"error":{"code":"conflict","message":"key k was used","hint":"h",
            "details":{"reason":"idempotency_key_reused"}}}"#;
        let failure = of(409, body);
        assert!(failure.hint.unwrap().contains("--idempotency-key"));
        assert_eq!(failure.message, "key k was used");
    }

    #[test]
    fn a_port_with_tls_is_no_wrong_field() {
        let body = r#"{"error":{"code":"invalid_request","message":"this port requires TLS",
            "hint":"use an https:// address","details":{"reason":"tls_required"}}}"#;
        let failure = of(400, body);
        assert_eq!(failure.hint.as_deref(), Some("use an https:// address"));
        assert_eq!(failure.message, "this port requires TLS");
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
    fn what_is_accepted_is_what_the_hint_asks_for() {
        let hint = |accepts: &str| {
            let body = format!(
                r#"{{"error":{{"code":"unauthenticated","message":"m","hint":"h",
                    "details":{{"accepts":{accepts}}}}}}}"#
            );
            of(401, &body).hint.unwrap()
        };
        assert!(!hint(r#"["certificate"]"#).contains("--token"));
        assert!(!hint(r#"["token"]"#).contains("--client-cert"));
        let both = hint(r#"["token","certificate"]"#);
        assert!(both.contains("--token") && both.contains("--client-cert"), "{both}");
    }

    #[test]
    fn violations_are_listed_below_the_message() {
        let body = r#"{"error":{"code":"validation_error","message":"bad parameters",
            "details":[{"path":"/duration","message":"\"x\" is not a number"}]}}"#;
        assert_eq!(of(422, body).message, "bad parameters\n/duration: \"x\" is not a number");
    }
}
