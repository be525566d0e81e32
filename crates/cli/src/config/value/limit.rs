//! Limits that the configuration lists.

use outlast_core::keys::NAME_BYTES_MAX;
use outlast_core::limit::{LIMITS_MAX, Limit, LimitName, Scope};
use outlast_wire::limit;
use serde::Deserialize;
use serde_json::Value;

const EXPECTED: &str = "a list of limits such as {name: tenant, key: tenant, concurrency: 5}: each \
                        with a name, one of queue, type and key, and concurrency or rate or both";
const NAME: &str = "right: a limit's name has 1 to 64 characters out of a-z, 0-9, `_`, `.` and \
                    `-`, and is neither `.` nor `..`";
const _: () = assert!(NAME_BYTES_MAX == 64, "the text above");
const OF: &str = "right: a limit is on a queue, a type or a key that jobs can have; their names \
                  have lower-case letters, digits, `_`, `.` and `-`";
const RATE: &str = "right: a rate is starts per period, such as 100/1m: 1 to 1000000000 starts, a \
                    period of 1 ms to 24 h";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    queue: Option<String>,
    #[serde(rename = "type")]
    job_type: Option<String>,
    key: Option<String>,
    concurrency: Option<u32>,
    rate: Option<String>,
}

/// A YAML list; in the environment the same as YAML text.
pub(crate) fn limits(value: &Value) -> Result<Vec<Limit>, &'static str> {
    let items: Vec<Written> = match value {
        Value::Null => Vec::new(),
        Value::String(text) if text.trim().is_empty() => Vec::new(),
        Value::String(text) => serde_saphyr::from_str(text).map_err(|_yaml| EXPECTED)?,
        other => serde_json::from_value(other.clone()).map_err(|_json| EXPECTED)?,
    };
    if items.len() > LIMITS_MAX {
        return Err("right: there are at most 1000 limits");
    }
    let limits = items.into_iter().map(limit).collect::<Result<Vec<_>, _>>()?;
    let twice = |(place, limit): (usize, &Limit)| {
        limits.iter().take(place).any(|other| other.name == limit.name)
    };
    if limits.iter().enumerate().any(twice) {
        return Err("right: two limits have the same name");
    }
    Ok(limits)
}

fn limit(written: Written) -> Result<Limit, &'static str> {
    let name = LimitName::new(&written.name).map_err(|_not| NAME)?;
    let scope = match (written.queue, written.job_type, written.key) {
        (Some(of), None, None) => Scope::Queue(of),
        (None, Some(of), None) => Scope::Type(of),
        (None, None, Some(of)) => Scope::Key(of),
        _ => return Err(EXPECTED),
    };
    let scope = limit::checked(scope).map_err(|_problem| OF)?;
    let rate = written.rate.map(|text| limit::rate(&text).ok_or(RATE)).transpose()?;
    if written.concurrency.is_none() && rate.is_none() {
        return Err(EXPECTED);
    }
    Ok(Limit { name, scope, concurrency: written.concurrency, rate })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_a_list_or_yaml_text() {
        let list = json!([{"name": "tenant", "key": "tenant", "concurrency": 5, "rate": "100/1m"},
            {"name": "mail", "queue": "mail", "concurrency": 0},
            {"name": "stripe", "type": "payments.charge", "rate": "5/1s"}]);
        let read = limits(&list).unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].scope, Scope::Key("tenant".into()));
        assert_eq!(limits(&json!(list.to_string())), Ok(read));
        assert_eq!(limits(&json!("")), Ok(Vec::new()));
        assert_eq!(limits(&Value::Null), Ok(Vec::new()));
    }

    #[test]
    fn limits_that_are_wrong_are_refused_with_what_would_be_right() {
        for (one, expected) in [
            (json!("tenant"), EXPECTED),
            (json!({"name": "a", "key": "b"}), EXPECTED),
            (json!({"name": "a", "concurrency": 1}), EXPECTED),
            (json!({"name": "a", "key": "b", "queue": "c", "concurrency": 1}), EXPECTED),
            (json!({"name": "a", "key": "b", "concurency": 1}), EXPECTED),
            (json!({"name": "A", "key": "b", "concurrency": 1}), NAME),
            (json!({"name": "a", "key": "B", "concurrency": 1}), OF),
            (json!({"name": "a", "key": "b", "rate": "5 per 1m"}), RATE),
        ] {
            assert_eq!(limits(&json!([one])), Err(expected), "{one}");
        }
        let one = json!({"name": "a", "key": "b", "concurrency": 1});
        assert_eq!(limits(&json!([one, one])), Err("right: two limits have the same name"));
        let many: Vec<Value> = (0..=LIMITS_MAX)
            .map(|n| json!({"name": format!("l{n}"), "key": "b", "concurrency": 1}))
            .collect();
        assert_eq!(limits(&json!(many)), Err("right: there are at most 1000 limits"));
    }
}
