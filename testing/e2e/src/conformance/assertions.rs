//! What a step asserts about its reply, or about the replies before it.

use serde_json::{Map, Value};

use super::context::{Context, Response};
use super::json_path::resolve;
use super::matcher::{self, same, shortened};

/// Checks everything that a step asserts about its reply; returns what does not hold.
pub(super) fn failures(
    assertions: &Map<String, Value>,
    response: &Response,
    context: &Context,
) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, wanted) in assertions {
        if let Err(found) = one(name, wanted, response, context) {
            failures.extend(found.into_iter().map(|failure| format!("{name}: {failure}")));
        }
    }
    failures
}

/// Checks what an `ASSERT` step says about the replies before it.
pub(super) fn failures_across(assertions: &Map<String, Value>, context: &Context) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, wanted) in assertions {
        let checked = match name.as_str() {
            "equality" => equality(wanted, context),
            "exclusive_claim" => exclusive_claim(wanted, context),
            _ => Err(format!("the runner does not know the comparison {name:?}")),
        };
        failures.extend(checked.err().map(|failure| format!("{name}: {failure}")));
    }
    failures
}

fn one(
    name: &str,
    wanted: &Value,
    response: &Response,
    context: &Context,
) -> Result<(), Vec<String>> {
    let single = |result: Result<(), String>| result.map_err(|failure| vec![failure]);
    match name {
        "status" => single(status(wanted, response)),
        "status_in" | "status_one_of" => single(status_among(wanted, response)),
        "body" => body(wanted, response, context),
        "body_absent" => each(wanted, |path| {
            let found = resolve(path, response.body.as_ref().unwrap_or(&Value::Null))?;
            let found = found.filter(|value| !value.is_null());
            found.map_or(Ok(()), |value| Err(format!("{path} is there: {value}")))
        }),
        "body_contains" => each(wanted, |part| {
            let there = response.text.contains(part);
            if there {
                Ok(())
            } else {
                Err(format!("no {part:?} in {}", shortened(&response.text)))
            }
        }),
        "headers" => headers(wanted, response, context),
        "timing_ms" => single(timing(wanted, response)),
        _ if name.ends_with("_comment") => Ok(()),
        _ => Err(vec!["the runner does not know this assertion".to_owned()]),
    }
}

fn status(wanted: &Value, response: &Response) -> Result<(), String> {
    if wanted.is_array() {
        return status_among(wanted, response);
    }
    matcher::check(wanted, Some(&Value::from(response.status)))
        .map_err(|failure| format!("{failure}; body {}", shortened(&response.text)))
}

fn status_among(wanted: &Value, response: &Response) -> Result<(), String> {
    let choices = wanted.as_array().ok_or("not a list of statuses")?;
    if choices.iter().any(|choice| same(choice, &Value::from(response.status))) {
        return Ok(());
    }
    let text = shortened(&response.text);
    Err(format!("expected one of {wanted}, got {}; body {text}", response.status))
}

fn body(wanted: &Value, response: &Response, context: &Context) -> Result<(), Vec<String>> {
    let wanted = wanted.as_object().ok_or_else(|| vec!["not an object of paths".to_owned()])?;
    let mut failures = Vec::new();
    for (path, matcher) in wanted {
        let checked = if path == "$or" {
            alternatives(matcher, response, context)
        } else {
            field(path, matcher, response, context)
        };
        failures.extend(checked.err());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

fn alternatives(matcher: &Value, response: &Response, context: &Context) -> Result<(), String> {
    let alternatives = matcher.as_array().ok_or("$or is not a list")?;
    if alternatives.iter().any(|alternative| body(alternative, response, context).is_ok()) {
        return Ok(());
    }
    Err(format!("none of {matcher} holds for {}", shortened(&response.text)))
}

fn field(
    path: &str,
    matcher: &Value,
    response: &Response,
    context: &Context,
) -> Result<(), String> {
    // A body that is empty or is not JSON has no fields, and only matchers that accept
    // nothing hold for it.
    let found = match &response.body {
        Some(body) => resolve(&context.fill(path)?, body)?,
        None => None,
    };
    matcher::check(&context.fill_matcher(matcher)?, found.as_ref())
        .map_err(|failure| format!("{path}: {failure}"))
}

fn headers(wanted: &Value, response: &Response, context: &Context) -> Result<(), Vec<String>> {
    let wanted = wanted.as_object().ok_or_else(|| vec!["not an object of headers".to_owned()])?;
    let mut failures = Vec::new();
    for (name, matcher) in wanted {
        let actual = response.headers.get(&name.to_ascii_lowercase());
        let actual = actual.map(|value| Value::from(value.as_str()));
        let checked = context
            .fill_matcher(matcher)
            .and_then(|matcher| matcher::check(&matcher, actual.as_ref()));
        failures.extend(checked.err().map(|failure| format!("{name}: {failure}")));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

fn timing(wanted: &Value, response: &Response) -> Result<(), String> {
    let wanted = wanted.as_object().ok_or("not an object")?;
    let took = Value::from(response.took_ms);
    for (bound, ms) in wanted {
        let matcher = match bound.as_str() {
            "less_than" => serde_json::json!({"$lt": ms}),
            "greater_than" => serde_json::json!({"$gt": ms}),
            "approximate" => Value::from(format!("~{ms}")),
            _ => return Err(format!("the runner does not know the bound {bound:?}")),
        };
        matcher::check(&matcher, Some(&took))?;
    }
    Ok(())
}

fn each(wanted: &Value, holds: impl Fn(&str) -> Result<(), String>) -> Result<(), Vec<String>> {
    let items = wanted.as_array().ok_or_else(|| vec!["not a list".to_owned()])?;
    let check = |item: &Value| match item.as_str() {
        Some(text) => holds(text),
        None => Err(format!("{item} is not a string")),
    };
    let failures: Vec<String> = items.iter().filter_map(|item| check(item).err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

fn equality(wanted: &Value, context: &Context) -> Result<(), String> {
    for (path, other) in wanted.as_object().ok_or("not an object of paths")? {
        let left = context.find(path)?.ok_or_else(|| format!("{path} names nothing"))?;
        let right = context.fill_matcher(other)?;
        if !same(&left, &right) {
            return Err(format!("{path} is {left}, {other} is {right}"));
        }
    }
    Ok(())
}

fn exclusive_claim(wanted: &Value, context: &Context) -> Result<(), String> {
    let filled = context.fill_matcher(wanted)?;
    let fetches = filled["fetches"].as_array().ok_or("no list of fetches")?;
    let has_job = |jobs: &&Value| {
        jobs.as_array().is_some_and(|jobs| jobs.iter().any(|job| job["id"] == filled["job_id"]))
    };
    let holders = fetches.iter().filter(has_job).count();
    let empty = fetches.iter().filter(|jobs| jobs.as_array().is_some_and(Vec::is_empty)).count();
    for (rule, verdict) in filled.as_object().ok_or("not an object")? {
        let holds = match rule.as_str() {
            "job_id" | "fetches" => continue,
            "exactly_one_has_job" => holders == 1,
            "exactly_one_empty" => empty == 1,
            _ => return Err(format!("the runner does not know the rule {rule:?}")),
        };
        if Some(holds) != verdict.as_bool() {
            return Err(format!("{rule}: {holders} fetches have the job, {empty} are empty"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn reply(status: u16, body: &Value) -> Response {
        let headers = BTreeMap::from([("content-type".to_owned(), "text/x".to_owned())]);
        let text = body.to_string();
        Response { status, headers, text, body: Some(body.clone()), took_ms: 10 }
    }

    fn check(assertions: Value, expected_failures: usize) {
        let response = reply(201, &json!({"job": {"id": "a", "state": "active"}, "jobs": []}));
        let Value::Object(assertions) = assertions else { panic!("not an object") };
        let found = failures(&assertions, &response, &Context::default());
        assert_eq!(found.len(), expected_failures, "{assertions:?}: {found:?}");
    }

    #[test]
    fn every_kind_of_assertion_can_hold_and_can_fail() {
        check(json!({"status": 201}), 0);
        check(json!({"status": 200}), 1);
        check(json!({"status": {"$in": [200, 201]}}), 0);
        check(json!({"status": "number:range(400,422)"}), 1);
        check(json!({"status_in": [200, 201], "status_one_of": [201]}), 0);
        check(json!({"status_in": [200]}), 1);
        check(json!({"body": {"$.job.id": "a", "$.job.state": "active"}}), 0);
        check(json!({"body": {"$.job.id": "b", "$.job.state": "done"}}), 2);
        check(json!({"body": {"$or": [{"$.job.id": "b"}, {"$.jobs": "array:empty"}]}}), 0);
        check(json!({"body": {"$or": [{"$.job.id": "b"}]}}), 1);
        check(json!({"body_absent": ["$.job.error"]}), 0);
        check(json!({"body_absent": ["$.job.id"]}), 1);
        check(json!({"body_contains": ["active"]}), 0);
        check(json!({"body_contains": ["actor"]}), 1);
        check(json!({"headers": {"Content-Type": "text/x"}}), 0);
        check(json!({"headers": {"Content-Type": "text/y", "X-None": {"$exists": true}}}), 2);
        check(json!({"timing_ms": {"less_than": 11, "greater_than": 9}}), 0);
        check(json!({"timing_ms": {"less_than": 10}}), 1);
        check(json!({"body_comment": "anything"}), 0);
    }

    #[test]
    fn an_assertion_the_runner_does_not_know_fails() {
        check(json!({"body_sorted": true}), 1);
        check(json!({"timing_ms": {"about": 1}}), 1);
    }

    #[test]
    fn a_reply_without_json_fails_what_is_asserted_about_its_body() {
        let mut response = reply(200, &Value::Null);
        response.body = None;
        let Value::Object(wanted) = json!({"body": {"$.job.id": "any"}}) else { panic!() };
        assert_eq!(failures(&wanted, &response, &Context::default()).len(), 1);
    }

    #[test]
    fn exclusive_claims_are_judged_over_all_fetches() {
        let rule = |one: &Value, two: &Value| {
            let wanted = json!({"exclusive_claim": {
                "job_id": "a", "fetches": [one, two],
                "exactly_one_has_job": true, "exactly_one_empty": true,
            }});
            let Value::Object(wanted) = wanted else { panic!() };
            failures_across(&wanted, &Context::default())
        };
        let (held, none) = (json!([{"id": "a"}]), json!([]));
        assert!(rule(&held, &none).is_empty());
        assert_eq!(rule(&held, &held).len(), 1);
        assert_eq!(rule(&none, &none).len(), 1);
    }
}
