//! What a server's refusal means for the exit code, and how it is worded.

use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::escape;

/// The failure of an answer that is no success.
pub(super) fn of(status: u16, body: &str) -> Failure {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let error = body.get("error").unwrap_or(&Value::Null);
    let said = |name: &str| error.get(name).and_then(Value::as_str).map(escape);
    let mut message = said("message").unwrap_or_else(|| format!("the server answered {status}"));
    for line in details(error.get("details").unwrap_or(&Value::Null)) {
        // A message that names its only detail need not be said twice.
        if !message.contains(&line) {
            message.push('\n');
            message.push_str(&line);
        }
    }
    let failure = Failure::new(exit(status), message);
    match said("hint").or_else(|| hint(status).map(ToOwned::to_owned)) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

fn exit(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::NotAllowed,
        404 | 410 => Exit::NotFound,
        409 => Exit::Conflict,
        // The server is there but says that it cannot serve now.
        429 | 502..=504 => Exit::Unreachable,
        400..=499 => Exit::Usage,
        _ => Exit::Failed,
    }
}

fn hint(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("give a token with --token or OUTLAST_TOKEN"),
        403 => Some("this needs a token of another role"),
        429 | 502..=504 => Some("try again in a moment"),
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
    fn violations_are_listed_below_the_message() {
        let body = r#"{"error":{"code":"invalid","message":"bad parameters",
            "details":[{"path":"/duration","message":"\"x\" is not a number"}]}}"#;
        assert_eq!(of(422, body).message, "bad parameters\n/duration: \"x\" is not a number");
    }
}
