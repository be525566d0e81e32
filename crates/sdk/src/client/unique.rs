//! Jobs of which there is one at a time.

use std::time::Duration;

use outlast_core::job::State;
use serde_json::{Map, Value, json};

/// Which jobs are the same, and what becomes of a new one while another one is stored. Its type
/// and tenant always count; options that are not set are the server's defaults.
///
/// ```
/// # use outlast_sdk::{NewJob, Unique};
/// // One report for each customer at a time: another request gets the job that is there.
/// let job = NewJob::new("report.make", serde_json::json!({"customer": 42, "pages": 3}))
///     .unique(Unique::by_args_keys(["customer"]).ignore());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Unique(Map<String, Value>);

impl Unique {
    /// Jobs of the same type are the same, whatever their arguments.
    pub fn by_type() -> Self {
        Self(Map::new()).with("keys", json!(["type"]))
    }

    /// Jobs of the same type with the same arguments are the same.
    pub fn by_args() -> Self {
        Self(Map::new()).with("keys", json!(["type", "args"]))
    }

    /// Jobs of the same type are the same if these fields of their arguments are: of the first
    /// argument that is an object.
    pub fn by_args_keys<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Self::by_args().with("args_keys", json!(names))
    }

    /// Jobs of other queues are other jobs. Default: they are not.
    pub fn and_queue(self) -> Self {
        self.and("queue")
    }

    /// These fields of the metadata count too.
    pub fn and_meta_keys<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.and("meta").with("meta_keys", json!(names))
    }

    /// A job is in the way of others for this long after it was stored, and not longer. Default:
    /// as long as it is in one of the states.
    pub fn period(self, period: Duration) -> Self {
        let span = crate::clock::span(period);
        self.with("period", json!(outlast_wire::duration::to_iso(span)))
    }

    /// A job is in the way of others in these states. Default: until it has ended.
    pub fn states(self, states: impl IntoIterator<Item = State>) -> Self {
        let states: Vec<&str> = states.into_iter().map(State::as_str).collect();
        self.with("states", json!(states))
    }

    /// A new job is not stored; its producer gets the other one. Default: it is refused.
    pub fn ignore(self) -> Self {
        self.with("on_conflict", json!("ignore"))
    }

    /// A new job is stored, and the other one is cancelled. Default: it is refused.
    pub fn replace(self) -> Self {
        self.with("on_conflict", json!("replace"))
    }

    /// As [`Self::replace`]; but the new one runs when the other one was scheduled to run.
    pub fn replace_except_schedule(self) -> Self {
        self.with("on_conflict", json!("replace_except_schedule"))
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    fn and(mut self, part: &str) -> Self {
        if let Some(Value::Array(keys)) = self.0.get_mut("keys") {
            keys.push(json!(part));
        }
        self
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }
}

/// Whether another job may be the answer to a request for this one.
pub(super) fn may_be_ignored(envelope: &Value) -> bool {
    let policy = &envelope["options"]["unique"];
    policy["on_conflict"] == "ignore"
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outlast_core::job::State;
    use serde_json::json;

    use super::Unique;

    #[test]
    fn every_part_has_its_name_on_the_wire() {
        let policy = Unique::by_args_keys(["customer"])
            .and_queue()
            .and_meta_keys(["region"])
            .period(Duration::from_secs(90))
            .states([State::Available, State::Completed])
            .ignore();
        let sent = json!({
            "keys": ["type", "args", "queue", "meta"], "args_keys": ["customer"],
            "meta_keys": ["region"], "period": "PT1M30S", "states": ["available", "completed"],
            "on_conflict": "ignore",
        });
        assert_eq!(policy.into_value(), sent);
    }
}
