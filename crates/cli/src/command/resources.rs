//! What an attempt may use, in words.

use outlast_wire::size;
use serde_json::Value;

/// Returns the limits of a job or an action, such as `64 MiB of memory, 0.5 cpu, 8 processes`; `-`
/// without any.
pub(super) fn resources(of: &Value) -> String {
    let limit = |name: &str| of.get("resources").and_then(|limits| limits.get(name));
    let memory = limit("memory").and_then(Value::as_u64);
    let limits = [
        memory.map(|bytes| format!("{} of memory", size::text(bytes))),
        limit("cpu").map(|cpu| format!("{cpu} cpu")),
        limit("processes").map(|most| format!("{most} processes")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "-".to_owned() } else { limits.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resources;

    #[test]
    fn limits_are_said_with_their_units() {
        let some = json!({"resources": {"memory": 67_108_864, "cpu": 0.5, "processes": 8}});
        assert_eq!(resources(&some), "64 MiB of memory, 0.5 cpu, 8 processes");
        assert_eq!(resources(&json!({"resources": {"cpu": 2.0}})), "2.0 cpu");
        assert_eq!(resources(&json!({"resources": {}})), "-");
    }
}
