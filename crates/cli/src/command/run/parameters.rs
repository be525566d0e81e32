//! Parameters as they are typed: `name=value` or `name:=json`.

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::at;
use outlast_wire::json::{Changed, changed_number};
use serde_json::{Map, Value};

/// How they are written.
pub(super) const HINT: &str = "write name=value, or name:=json as in duration:=20";

/// Reads them all; `name=value` is text for now.
pub(super) fn read(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut parameters = Map::new();
    for given in given {
        let (name, value) = one(given)?;
        if parameters.insert(name.clone(), value).is_some() {
            return Err(Failure::usage(format!("parameter `{name}` is given twice")));
        }
    }
    Ok(parameters)
}

fn one(given: &str) -> Result<(String, Value), Failure> {
    if given.is_empty() {
        return Err(Failure::usage("a parameter is empty").with_hint(HINT));
    }
    let (name, text) = given.split_once('=').ok_or_else(|| {
        Failure::usage(format!("parameter `{given}` has no value"))
            .with_hint(format!("write {given}=VALUE, or {given}:=JSON for what is not text"))
    })?;
    let (name, value) = match name.strip_suffix(':') {
        None => (name, Value::String(text.to_owned())),
        Some(name) => {
            let value = serde_json::from_str(text).map_err(|error| {
                let message = format!("parameter `{name}` is not JSON: {error}");
                Failure::usage(message).with_hint(HINT)
            })?;
            if let Some(changed) = changed_number(text) {
                return Err(loses_digits(name, &changed));
            }
            (name, value)
        }
    };
    if name.is_empty() {
        return Err(Failure::usage(format!("parameter `{given}` has no name")).with_hint(HINT));
    }
    Ok((name.to_owned(), value))
}

/// Numbers are sent as they are read, so one that would change is not sent.
fn loses_digits(name: &str, Changed { given, becomes }: &Changed) -> Failure {
    let message = format!("parameter `{name}` holds {given}, which would become {becomes}");
    Failure::usage(message).with_hint(format!("write {name}=VALUE to send it as text"))
}

/// Turns text into what the schema wants in its place, where it can be read as that. Whether
/// anything was turned.
pub(super) fn fit(parameters: &mut Value, schema: &Value) -> bool {
    let Some(parameters) = parameters.as_object_mut() else { return false };
    let mut turned = false;
    for (name, value) in parameters {
        let wanted = at(schema, "properties").and_then(|all| all.get(name)?.get("type"));
        let (Some(Value::String(wanted)), Value::String(text)) = (wanted, &*value) else {
            continue;
        };
        let Ok(read) = serde_json::from_str::<Value>(text) else { continue };
        let fits = match wanted.as_str() {
            "number" | "integer" => read.is_number(),
            "boolean" => read.is_boolean(),
            "array" => read.is_array(),
            "object" => read.is_object(),
            _ => false,
        };
        // The server says what is wrong with a text in its place.
        if fits && changed_number(text).is_none() {
            *value = read;
            turned = true;
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::{fit, one};
    use serde_json::json;

    #[test]
    fn parameters_are_text_unless_marked_as_json() {
        assert_eq!(one("a=1=2").unwrap(), ("a".to_owned(), json!("1=2")));
        assert_eq!(one("a:=[1]").unwrap(), ("a".to_owned(), json!([1])));
        assert_eq!(one("a=").unwrap(), ("a".to_owned(), json!("")));
    }

    #[test]
    fn malformed_parameters_are_refused() {
        for (given, message, hint) in [
            ("", "a parameter is empty", "write name=value"),
            ("a", "parameter `a` has no value", "write a=VALUE"),
            ("=x", "parameter `=x` has no name", "write name=value"),
            (":=1", "parameter `:=1` has no name", "write name=value"),
            ("a:={", "parameter `a` is not JSON", "write name=value"),
        ] {
            let failure = one(given).unwrap_err();
            assert!(failure.message.starts_with(message), "{failure}");
            assert!(failure.hint.is_some_and(|it| it.starts_with(hint)), "{given}");
        }
    }

    #[test]
    fn text_becomes_a_number_only_where_a_number_is_wanted() {
        let types = [("n", "number"), ("b", "boolean"), ("t", "string"), ("bad", "integer")];
        let schema = types.map(|(name, kind)| (name.to_owned(), json!({"type": kind})));
        let schema = json!({"properties": schema.into_iter().collect::<serde_json::Map<_, _>>()});
        let mut given = json!({"n": "1.5", "b": "true", "t": "7", "bad": "x", "other": "1"});
        assert!(fit(&mut given, &schema));
        assert_eq!(given, json!({"n": 1.5, "b": true, "t": "7", "bad": "x", "other": "1"}));
        assert!(!fit(&mut given, &schema), "nothing is left to turn");
    }
}
