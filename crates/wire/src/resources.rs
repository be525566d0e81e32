//! What an attempt may use: `"resources": {"memory": "64MiB", "cpu": 0.5, "processes": 64}`.

use outlast_core::resources::{PROCESSES_MAX, Resources, ResourcesError};
use serde_json::Value;

use crate::fault::Fault;
use crate::json::Object;
use crate::size;

/// The field of a request, the option of an OJS job and the key of an action's file.
pub const FIELD: &str = "resources";

const EXPECTED: &str =
    "must be an object such as `{\"memory\": \"64MiB\", \"cpu\": 0.5, \"processes\": 64}`";

/// Reads limits of an attempt.
///
/// # Errors
/// Returns what is wrong with them.
pub fn read(value: &Value) -> Result<Resources, Fault> {
    limits(value).map_err(|problem| Fault::field(FIELD, problem))
}

/// The same in words that complete "`resources` …", for those who have no field to name.
///
/// # Errors
/// Returns what is wrong with them.
pub fn limits(value: &Value) -> Result<Resources, String> {
    const KNOWN: [&str; 3] = ["memory", "cpu", "processes"];
    let Value::Object(fields) = value else { return Err(EXPECTED.to_owned()) };
    if let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("has a field `{name}`; known are {}", KNOWN.join(", ")));
    }
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let memory = given("memory").map(|value| size::value(value).ok_or(Problem::Memory));
    let cpu = given("cpu").map(|value| millis(value).ok_or(Problem::Cpu));
    let processes = given("processes").map(|value| whole(value).ok_or(Problem::Processes));
    let (memory, cpu, processes) = (memory.transpose(), cpu.transpose(), processes.transpose());
    let words = Problem::words;
    Resources::new(memory.map_err(words)?, cpu.map_err(words)?, processes.map_err(words)?)
        .map_err(|error| words(error.into()))
}

#[derive(Clone, Copy)]
enum Problem {
    Memory,
    Cpu,
    Processes,
}

impl Problem {
    fn words(self) -> String {
        match self {
            Self::Memory => format!("has a memory that is not {}, from 1 MiB", size::EXPECTED),
            Self::Cpu => "has a cpu that is not a number of processors from 0.01 to 1000, such as \
                          0.5 or 2"
                .to_owned(),
            Self::Processes => {
                format!("has processes that are not a whole number from 1 to {PROCESSES_MAX}")
            }
        }
    }
}

impl From<ResourcesError> for Problem {
    fn from(error: ResourcesError) -> Self {
        match error {
            ResourcesError::Memory(_) => Self::Memory,
            ResourcesError::Cpu(_) => Self::Cpu,
            ResourcesError::Processes(_) => Self::Processes,
        }
    }
}

fn millis(value: &Value) -> Option<u32> {
    let cpus = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let millis = (cpus * 1000.0).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be a whole number between 0 and 1e9"
    )]
    let whole = (0.0..=1e9).contains(&millis).then_some(millis as u32);
    whole
}

fn whole(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Writes the limits that are set: bytes, processors, processes.
pub fn write(object: &mut Object<'_>, resources: &Resources) {
    object.object(FIELD, |object| {
        if let Some(memory) = resources.memory() {
            object.number("memory", memory);
        }
        if let Some(millis) = resources.cpu_millis() {
            object.number("cpu", f64::from(millis) / 1000.0);
        }
        if let Some(processes) = resources.processes() {
            object.number("processes", processes);
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_read_as_users_write_them() {
        let all = Resources::new(Some(64 << 20), Some(500), Some(64)).unwrap();
        for value in [
            json!({"memory": "64MiB", "cpu": 0.5, "processes": 64}),
            json!({"memory": 67_108_864, "cpu": "0.5", "processes": "64"}),
        ] {
            assert_eq!(limits(&value), Ok(all));
        }
        assert_eq!(limits(&json!({})), Ok(Resources::NONE));
        assert_eq!(limits(&json!({"cpu": null})), Ok(Resources::NONE));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (value, part) in [
            (json!(5), "must be an object"),
            (json!({"ram": 5}), "`ram`; known are memory, cpu, processes"),
            (json!({"memory": "64 apples"}), "memory that is not a size"),
            (json!({"memory": "1 KiB"}), "from 1 MiB"),
            (json!({"memory": -1}), "memory"),
            (json!({"cpu": 0}), "0.01 to 1000"),
            (json!({"cpu": "NaN"}), "0.01 to 1000"),
            (json!({"cpu": true}), "0.01 to 1000"),
            (json!({"processes": 0}), "whole number from 1"),
            (json!({"processes": 1.5}), "whole number from 1"),
        ] {
            let problem = limits(&value).unwrap_err();
            assert!(problem.contains(part), "{value}: {problem}");
        }
    }
}
