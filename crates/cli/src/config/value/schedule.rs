//! Schedules that the configuration lists.

use std::borrow::Cow;
use std::collections::HashSet;

use outlast_core::schedule::SCHEDULES_MAX;
use outlast_wire::schedule::{self, NamedSchedule};
use serde_json::Value;

pub(crate) const EXPECTED: &str = "a list of schedules such as {name: night, cron: 0 2 * * *, \
                        time_zone: Europe/Vienna, action_ref: ops.clean}: each with a name, cron, \
                        and action_ref or type";

/// A YAML list; in the environment the same as YAML text. `None` if nothing is given: only a list
/// decides, if only an empty one.
pub(crate) fn schedules(value: &Value) -> Result<Option<Vec<NamedSchedule>>, Cow<'static, str>> {
    let Some(items) = super::items(value, EXPECTED)? else { return Ok(None) };
    if items.len() > SCHEDULES_MAX {
        return Err(format!("right: there are at most {SCHEDULES_MAX} schedules").into());
    }
    let (mut schedules, mut names) = (Vec::with_capacity(items.len()), HashSet::new());
    for (place, item) in items.iter().enumerate() {
        let schedule = read(place, item)?;
        if !names.insert(schedule.name.clone()) {
            return Err(format!("right: two schedules have the name `{}`", schedule.name).into());
        }
        schedules.push(schedule);
    }
    Ok(Some(schedules))
}

fn read(place: usize, item: &Value) -> Result<NamedSchedule, Cow<'static, str>> {
    let Value::Object(fields) = item else { return Err(EXPECTED.into()) };
    let which = match fields.get("name").and_then(Value::as_str) {
        Some(name) => format!("schedule `{name}`"),
        None => format!("schedule {} of the list", place + 1),
    };
    let read = schedule::listed(fields).and_then(|schedule| {
        outlast_server::schedules::check(&schedule.request)?;
        Ok(schedule)
    });
    read.map_err(|fault| format!("right: {which}: {fault}").into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schedules_are_a_list_or_yaml_text() {
        let list = json!([
            {"name": "night", "cron": "0 2 * * *", "time_zone": "Europe/Vienna",
             "action_ref": "ops.clean", "parameters": {"days": 7}, "overlap": "queue"},
            {"name": "tick", "cron": "@every 90s", "type": "metrics.tick", "args": [1]},
        ]);
        let read = schedules(&list).unwrap().unwrap();
        let names: Vec<&str> = read.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["night", "tick"]);
        assert_eq!(schedules(&json!(list.to_string())), Ok(Some(read)));
        assert_eq!(schedules(&json!([])), Ok(Some(Vec::new())));
        assert_eq!(schedules(&Value::Null), Ok(None));
    }

    #[test]
    fn schedules_that_are_wrong_are_refused_with_what_would_be_right() {
        let with = |more: Value| {
            let mut schedule = json!({"name": "b", "cron": "@daily", "type": "t"});
            schedule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!([{"name": "a", "cron": "@daily", "type": "t"}, schedule])
        };
        for (more, expected) in [
            (json!({"name": "a"}), "two schedules have the name `a`"),
            (json!({"cron": "0 25 * * *"}), "schedule `b`: field `cron` cannot be read: hour `25`"),
            (json!({"time_zone": "CET"}), "schedule `b`: field `time_zone` is no time zone here"),
            (json!({"overlap": "no"}), "schedule `b`: field `overlap` is wrong"),
            (json!({"cronn": "@daily"}), "did you mean `cron`?"),
            (json!({"name": null}), "schedule 2 of the list: field `name` is missing"),
        ] {
            let error = schedules(&with(more)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(schedules(&json!(["night"])), Err(EXPECTED.into()));
    }
}
