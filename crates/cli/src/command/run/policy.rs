//! Retry policies, labels and keys as they are typed.

use outlast_cli_core::exit::Failure;
use serde_json::{Map, Value, json};

const HINT: &str = "write a number of attempts, or a policy such as \
                    max_attempts=5,initial_interval=2s,on_exhaustion=dead_letter";

/// A number of attempts, or names and values with commas, or JSON.
pub(in crate::command) fn read(given: &str) -> Result<Value, Failure> {
    let wrong = |what: String| Failure::usage(what).with_hint(HINT);
    if given.starts_with('{') {
        let read = serde_json::from_str(given);
        return read.map_err(|error| wrong(format!("--retry is not JSON: {error}")));
    }
    if let Ok(attempts) = given.parse::<u64>() {
        return Ok(json!({ "max_attempts": attempts }));
    }
    let mut policy = Map::new();
    for pair in given.split(',') {
        let Some((name, text)) = pair.split_once('=') else {
            return Err(wrong(format!("--retry is `{given}`, which is not a retry policy")));
        };
        let (name, text) = (name.trim(), text.trim());
        let value = match name {
            "max_attempts" | "backoff_coefficient" | "jitter" => serde_json::from_str(text)
                .map_err(|_word| wrong(format!("--retry: {name} is `{text}`")))?,
            "non_retryable_errors" => text.split(';').map(str::trim).collect(),
            _ => json!(text),
        };
        if policy.insert(name.to_owned(), value).is_some() {
            return Err(wrong(format!("--retry: `{name}` is given twice")));
        }
    }
    Ok(Value::Object(policy))
}

/// The same policy with its times as the standard writes them: in milliseconds.
pub(in crate::command) fn of_the_standard(mut policy: Value) -> Value {
    for name in ["initial_interval", "max_interval"] {
        let Some(length) = policy.get(name).cloned() else { continue };
        let (Ok(length), Some(map)) =
            (crate::config::value::duration(&length), policy.as_object_mut())
        else {
            continue;
        };
        map.remove(name);
        let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        map.insert(format!("{name}_ms"), json!(millis));
    }
    policy
}

/// Labels that the worker must carry.
pub(in crate::command) fn labels(given: &[String]) -> Result<Value, Failure> {
    let mut labels = Map::new();
    for given in given {
        let (name, value) = pair("--label", given, "zone=east")?;
        if labels.insert(name.to_owned(), json!(value)).is_some() {
            return Err(Failure::usage(format!("--label `{name}` is given twice")));
        }
    }
    Ok(Value::Object(labels))
}

/// Keys of the job.
pub(in crate::command) fn keys(given: &[String]) -> Result<Value, Failure> {
    let mut keys = Map::new();
    for given in given {
        let (name, value) = pair("--key", given, "tenant=42")?;
        if keys.insert(name.to_owned(), json!(value)).is_some() {
            return Err(Failure::usage(format!("--key `{name}` is given twice")));
        }
    }
    Ok(Value::Object(keys))
}

/// What makes the job the only one of its sort: names and values with commas, or JSON. Several
/// values have semicolons between them.
pub(super) fn unique(given: &str) -> Result<Value, Failure> {
    const HINT: &str = "such as --unique keys=args,on_conflict=ignore or \
                        --unique 'args_keys=user;account,period=1h'";
    let wrong = |what: String| Failure::usage(what).with_hint(HINT);
    if given.starts_with('{') {
        let read = serde_json::from_str(given);
        return read.map_err(|error| wrong(format!("--unique is not JSON: {error}")));
    }
    let mut policy = Map::new();
    for pair in given.split(',') {
        let Some((name, text)) = pair.split_once('=') else {
            return Err(wrong(format!("--unique is `{given}`, which is not a policy")));
        };
        let (name, text) = (name.trim(), text.trim());
        let value = match name {
            "keys" | "args_keys" | "meta_keys" | "states" => {
                text.split(';').map(str::trim).collect()
            }
            _ => json!(text),
        };
        if policy.insert(name.to_owned(), value).is_some() {
            let twice = Failure::usage(format!("--unique: `{name}` is given twice"));
            return Err(twice.with_hint("several values have semicolons: keys=args;queue"));
        }
    }
    // What is named counts.
    if !policy.contains_key("keys") {
        let parts = [("args", "args_keys"), ("meta", "meta_keys")];
        let named = parts.iter().filter(|(_, fields)| policy.contains_key(*fields));
        let keys: Vec<&str> = named.map(|(part, _)| *part).collect();
        policy.insert("keys".to_owned(), json!(keys));
    }
    Ok(Value::Object(policy))
}

fn pair<'a>(flag: &str, given: &'a str, example: &str) -> Result<(&'a str, &'a str), Failure> {
    given.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        let message = format!("{flag} is `{given}`, which is not NAME=VALUE");
        Failure::usage(message).with_hint(format!("such as {flag} {example}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{keys, labels, of_the_standard, read, unique};
    use serde_json::json;

    #[test]
    fn policies_are_numbers_pairs_or_json() {
        assert_eq!(read("5").unwrap(), json!({"max_attempts": 5}));
        let pairs = "max_attempts=2,initial_interval=2s,jitter=false,on_exhaustion=dead_letter";
        let policy = json!({"max_attempts": 2, "initial_interval": "2s", "jitter": false,
                            "on_exhaustion": "dead_letter"});
        assert_eq!(read(pairs).unwrap(), policy);
        assert_eq!(read(&policy.to_string()).unwrap(), policy);
        assert_eq!(of_the_standard(policy)["initial_interval_ms"], json!(2000));
        assert_eq!(read("0").unwrap(), json!({"max_attempts": 0}), "what it means, HTTP says");
        assert!(read("often").is_err() && read("max_attempts=many").is_err());
    }

    #[test]
    fn unique_policies_are_names_and_values() {
        let policy = unique("args_keys=user;account,period=1h,on_conflict=ignore").unwrap();
        let expected = json!({
            "keys": ["args"], "args_keys": ["user", "account"], "period": "1h",
            "on_conflict": "ignore",
        });
        assert_eq!(policy, expected);
        assert_eq!(unique("keys=args;queue").unwrap(), json!({"keys": ["args", "queue"]}));
        assert_eq!(unique("on_conflict=replace").unwrap()["keys"], json!([]));
        assert!(unique("args").unwrap_err().message.contains("--unique"));
        let twice = unique("keys=args,keys=queue").unwrap_err();
        assert_eq!(twice.message, "--unique: `keys` is given twice");
        assert!(twice.hint.unwrap().contains("keys=args;queue"));
    }

    #[test]
    fn labels_and_keys_are_pairs() {
        let given = ["zone=east".to_owned(), "disk=".to_owned()];
        assert_eq!(labels(&given).unwrap(), json!({"zone": "east", "disk": ""}));
        assert!(labels(&["zone".to_owned()]).is_err());
        let given = ["tenant=42".to_owned(), "account=a=b".to_owned()];
        assert_eq!(keys(&given).unwrap(), json!({"tenant": "42", "account": "a=b"}));
        let refused = keys(&["tenant".to_owned()]).unwrap_err();
        assert_eq!(refused.message, "--key is `tenant`, which is not NAME=VALUE");
        let twice = keys(&["a=1".to_owned(), "a=2".to_owned()]).unwrap_err();
        assert_eq!(twice.message, "--key `a` is given twice");
        let twice = labels(&["a=1".to_owned(), "a=2".to_owned()]).unwrap_err();
        assert_eq!(twice.message, "--label `a` is given twice");
        assert_eq!(
            read("jitter=true,jitter=false").unwrap_err().message,
            "--retry: `jitter` is given twice"
        );
    }
}
