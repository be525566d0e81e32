//! Limits that the configuration lists.

use std::borrow::Cow;

use outlast_core::limit::{LIMITS_MAX, Limit};
use outlast_wire::limit;
use serde_json::Value;

pub(crate) const EXPECTED: &str = "a list of limits such as {name: tenant, key: tenant, concurrency: 5}: each \
                        with a name, one of queue, type and key, and concurrency or rate or both";

/// A YAML list; in the environment the same as YAML text. `None` if nothing is given: only a list
/// decides, if only an empty one.
pub(crate) fn limits(value: &Value) -> Result<Option<Vec<Limit>>, Cow<'static, str>> {
    let Some(items) = super::items(value, EXPECTED)? else { return Ok(None) };
    if items.len() > LIMITS_MAX {
        return Err("right: there are at most 1000 limits".into());
    }
    let mut limits: Vec<Limit> = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let limit = read(place, item)?;
        if limits.iter().any(|other| other.name == limit.name) {
            return Err(format!("right: two limits have the name `{}`", limit.name).into());
        }
        limits.push(limit);
    }
    Ok(Some(limits))
}

fn read(place: usize, item: &Value) -> Result<Limit, Cow<'static, str>> {
    let Value::Object(fields) = item else { return Err(EXPECTED.into()) };
    let which = match fields.get("name").and_then(Value::as_str) {
        Some(name) => format!("limit `{name}`"),
        None => format!("limit {} of the list", place + 1),
    };
    limit::listed(fields).map_err(|fault| format!("right: {which}: {fault}").into())
}

#[cfg(test)]
mod tests {
    use outlast_core::limit::Scope;
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_a_list_or_yaml_text() {
        let list = json!([{"name": "tenant", "key": "tenant", "concurrency": 5, "rate": "100/1m"},
            {"name": "mail", "queue": "mail", "concurrency": 0},
            {"name": "stripe", "type": "payments.charge", "rate": "5/1s"}]);
        let read = limits(&list).unwrap().unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[0].scope, Scope::Key("tenant".into()));
        assert_eq!(limits(&json!(list.to_string())), Ok(Some(read)));
    }

    #[test]
    fn only_a_list_decides_and_an_empty_one_does() {
        assert_eq!(limits(&json!([])), Ok(Some(Vec::new())));
        assert_eq!(limits(&json!("[]")), Ok(Some(Vec::new())));
        assert_eq!(limits(&json!("")), Ok(None));
        assert_eq!(limits(&Value::Null), Ok(None));
    }

    #[test]
    fn limits_may_be_written_as_in_the_api() {
        let list = json!([{"name": "a", "scope": "type", "of": "a.b", "concurrency": 1}]);
        assert_eq!(limits(&list).unwrap().unwrap()[0].scope, Scope::Type("a.b".into()));
    }

    #[test]
    fn limits_that_are_wrong_are_refused_with_what_would_be_right() {
        let b = |more: Value| {
            let mut limit = json!({"name": "b"});
            limit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            limit
        };
        for (one, said) in [
            (json!("tenant"), EXPECTED),
            (b(json!({"key": "b"})), "limit `b`: field `concurrency` or `rate` is missing"),
            (b(json!({"concurrency": 1})), "limit `b`: field `key` is missing; a limit is on one"),
            (
                b(json!({"key": "b", "queue": "c", "concurrency": 1})),
                "limit `b`: field `queue` and `key` are both given",
            ),
            (
                b(json!({"key": "b", "scope": "queue", "of": "c", "concurrency": 1})),
                "limit `b`: field `key` and `scope` are both given",
            ),
            (
                b(json!({"key": "b", "concurency": 1})),
                "limit `b`: field `concurency` is not known; did you mean `concurrency`?",
            ),
            (b(json!({"key": "b", "concurrency": "1"})), "limit `b`: field `concurrency` must be"),
            (b(json!({"key": "B", "concurrency": 1})), "limit `b`: field `key` must have 1 to 64"),
            (b(json!({"key": "b", "rate": "5 per 1m"})), "limit `b`: field `rate` must be starts"),
            (json!({"name": "A"}), "limit `A`: field `name` must have 1 to 64"),
            (json!({"key": "b"}), "limit 1 of the list: field `name` is missing"),
        ] {
            let problem = limits(&json!([one])).unwrap_err();
            assert!(problem.contains(said), "{one}: {problem}");
        }
        assert_eq!(limits(&json!({"b": {"concurrency": 1}})), Err(EXPECTED.into()));
        let one = json!({"name": "a", "key": "b", "concurrency": 1});
        let twice = Err("right: two limits have the name `a`".into());
        assert_eq!(limits(&json!([one, one])), twice);
        let many: Vec<Value> = (0..=LIMITS_MAX)
            .map(|n| json!({"name": format!("l{n}"), "key": "b", "concurrency": 1}))
            .collect();
        assert_eq!(limits(&json!(many)), Err("right: there are at most 1000 limits".into()));
    }
}
