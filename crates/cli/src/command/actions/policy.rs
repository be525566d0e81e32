//! What happens to the jobs of an action, in words.

use outlast_cli_core::output::{at, text_at};
use serde_json::Value;

/// Whether a limit counts jobs of this action that keep its queue.
pub(super) fn applies(limit: &Value, action: &Value) -> bool {
    let of = limit.get("of").and_then(Value::as_str).unwrap_or_default();
    match limit.get("scope").and_then(Value::as_str) {
        Some("type") => at(action, "ref").and_then(Value::as_str) == Some(of),
        Some("queue") => at(action, "queue").and_then(Value::as_str) == Some(of),
        Some("key") => action.get("keys").is_some_and(|keys| keys.get(of).is_some()),
        Some(_) | None => false,
    }
}

/// The limits among `limits` of the action.
pub(super) fn limits(action: &Value) -> String {
    let all = action.get("limits").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let words: Vec<String> = all.iter().map(limit).collect();
    if words.is_empty() { "none".to_owned() } else { words.join("; ") }
}

fn limit(limit: &Value) -> String {
    let (name, scope, of) = (text_at(limit, "name"), text_at(limit, "scope"), text_at(limit, "of"));
    let running = at(limit, "concurrency").map(|most| format!("{most} at a time"));
    let rate = at(limit, "rate").map(|_| format!("{} started", text_at(limit, "rate")));
    let most: Vec<String> = running.into_iter().chain(rate).collect();
    format!("{name} ({scope} {of}: {})", most.join(", "))
}

pub(super) fn time_limit(action: &Value) -> String {
    seconds(action, "timeout").map_or_else(|| "none".to_owned(), length)
}

/// The retry policy in one line.
pub(super) fn retries(action: &Value) -> String {
    let attempts = at(action, "retry.max_attempts").and_then(Value::as_u64).unwrap_or(1);
    let then = match at(action, "retry.on_exhaustion").and_then(Value::as_str) {
        Some("dead_letter") => "then a dead letter",
        Some(_) | None => "then discarded",
    };
    if attempts <= 1 {
        return format!("none: 1 attempt, {then}");
    }
    let time = |path: &str| length(seconds(action, path).unwrap_or_default());
    let first = time("retry.initial_interval");
    let most = format!("at most {}", time("retry.max_interval"));
    let coefficient = text_at(action, "retry.backoff_coefficient");
    let waits = match at(action, "retry.backoff_strategy").and_then(Value::as_str) {
        Some("constant") => first,
        Some("linear") => format!("{first} × failures, {most}"),
        Some("polynomial") => format!("{first} × failures^{coefficient}, {most}"),
        Some(_) | None => format!("{first}, × {coefficient} each time, {most}"),
    };
    let jitter = match at(action, "retry.jitter").and_then(Value::as_bool) {
        Some(true) => ", with jitter",
        Some(false) | None => "",
    };
    let never = at(action, "retry.non_retryable_errors").and_then(Value::as_array);
    let never = match never {
        Some(never) if !never.is_empty() => {
            format!("; none after {}", text_at(action, "retry.non_retryable_errors"))
        }
        Some(_) | None => String::new(),
    };
    format!("{attempts} attempts, {then}; waits {waits}{jitter}{never}")
}

fn seconds(action: &Value, path: &str) -> Option<f64> {
    at(action, path).and_then(Value::as_f64)
}

/// A length of time as flags take it.
fn length(seconds: f64) -> String {
    for (unit, scale) in [("h", 3600.0), ("m", 60.0)] {
        if seconds >= scale && seconds % scale == 0.0 {
            return format!("{}{unit}", seconds / scale);
        }
    }
    if seconds < 1.0 { format!("{}ms", seconds * 1000.0) } else { format!("{seconds}s") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{applies, length, limits, retries, time_limit};

    #[test]
    fn the_retry_policy_is_one_line() {
        let mut action = json!({"timeout": 90.0, "retry": {"max_attempts": 3,
            "initial_interval": 1.0, "max_interval": 300.0, "backoff_coefficient": 2.0,
            "backoff_strategy": "exponential", "jitter": true, "non_retryable_errors": [],
            "on_exhaustion": "discard"}});
        assert_eq!(
            retries(&action),
            "3 attempts, then discarded; waits 1s, × 2.0 each time, at most 5m, with jitter"
        );
        assert_eq!(time_limit(&action), "90s");
        for (name, value) in [
            ("backoff_strategy", json!("constant")),
            ("jitter", json!(false)),
            ("on_exhaustion", json!("dead_letter")),
            ("non_retryable_errors", json!(["exit_code"])),
        ] {
            action["retry"][name] = value;
        }
        let line = retries(&action);
        assert!(line.starts_with("3 attempts, then a dead letter; waits 1s; none after"), "{line}");
        action["retry"]["max_attempts"] = json!(1);
        assert_eq!(retries(&action), "none: 1 attempt, then a dead letter");
        assert_eq!(time_limit(&json!({"timeout": null})), "none");
    }

    #[test]
    fn limits_are_of_the_type_the_queue_and_the_keys() {
        let mut action = json!({"ref": "a.b", "queue": "q", "keys": {"tenant": "{{t}}"}});
        let limit = |scope: &str, of: &str| json!({"name": "l", "scope": scope, "of": of, "concurrency": 2, "rate": "5/1s"});
        for (scope, of) in [("type", "a.b"), ("queue", "q"), ("key", "tenant")] {
            assert!(applies(&limit(scope, of), &action), "{scope}");
            assert!(!applies(&limit(scope, "other"), &action), "{scope}");
        }
        assert_eq!(limits(&action), "none");
        action["limits"] = json!([limit("queue", "q")]);
        assert_eq!(limits(&action), "l (queue q: 2 at a time, 5/1s started)");
    }

    #[test]
    fn lengths_are_written_as_flags_take_them() {
        for (seconds, text) in [(0.5, "500ms"), (1.5, "1.5s"), (90.0, "90s"), (7200.0, "2h")] {
            assert_eq!(length(seconds), text);
        }
    }
}
