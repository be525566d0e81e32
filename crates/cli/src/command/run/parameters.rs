//! Parameters as they are typed: `name=value`, `name:=json`, `name=@file`; or all of them in a file.
//!
//! What is in a file is neither in the list of processes nor in the history of a shell.

use std::io::Read;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::at;
use outlast_wire::json::{Changed, changed_number};
use serde_json::{Map, Value};

/// How they are written.
pub(in crate::command) const HINT: &str =
    "write name=value, name:=json as in duration:=20, or name=@file for the text of a file";

/// Longest file: the server takes no request that long.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Stands for standard input.
const STDIN: &str = "-";

/// Reads them all; `name=value` is text for now. Those of `file` are replaced one by one.
pub(in crate::command) fn read(
    given: &[String],
    file: Option<&str>,
) -> Result<Map<String, Value>, Failure> {
    let mut parameters = file.map(whole).transpose()?.unwrap_or_default();
    let mut typed = Map::new();
    let mut stdin = file.filter(|file| *file == STDIN);
    for given in given {
        let Parameter { name, value, file } = one(given)?;
        if file == Some(STDIN) && stdin.replace(STDIN).is_some() {
            return Err(Failure::usage("standard input is named twice, and can be read once"));
        }
        let value = match file {
            Some(file) => in_file(&name, file, &value)?,
            None => value,
        };
        if typed.insert(name.clone(), value).is_some() {
            return Err(Failure::usage(format!("parameter `{name}` is given twice")));
        }
    }
    parameters.extend(typed);
    Ok(parameters)
}

/// Reads a file of parameters.
fn whole(file: &str) -> Result<Map<String, Value>, Failure> {
    let wrong = |what: String| Failure::usage(format!("--parameters {file}: {what}"));
    let text = text(file).map_err(wrong)?;
    if let Some(Changed { given, becomes }) = changed_number(&text) {
        return Err(wrong(format!("it holds {given}, which would become {becomes}")));
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        Ok(_) => Err(wrong("it is not a JSON object".to_owned())),
        // The message of the parser names the place and repeats nothing of the text.
        Err(error) => Err(wrong(format!("it is not JSON: {error}"))),
    }
}

/// A parameter as it was typed.
#[derive(Debug, PartialEq)]
struct Parameter<'a> {
    name: String,
    /// Its value, or what a value of the file is to be: text or JSON.
    value: Value,
    /// The file that has the value.
    file: Option<&'a str>,
}

fn one(given: &str) -> Result<Parameter<'_>, Failure> {
    if given.is_empty() {
        return Err(Failure::usage("a parameter is empty").with_hint(HINT));
    }
    let (name, text) = given.split_once('=').ok_or_else(|| {
        Failure::usage(format!("parameter `{given}` has no value"))
            .with_hint(format!("write {given}=VALUE, or {given}:=JSON for what is not text"))
    })?;
    let (name, is_json) = match name.strip_suffix(':') {
        Some(name) => (name, true),
        None => (name, false),
    };
    if name.is_empty() {
        return Err(Failure::usage(format!("parameter `{given}` has no name")).with_hint(HINT));
    }
    let file = text.strip_prefix('@').filter(|rest| !rest.starts_with('@'));
    let value = match (file, is_json) {
        (Some(_), true) => Value::Null,
        (Some(_), false) => Value::String(String::new()),
        (None, true) => json(name, text)?,
        // A second @ makes it a text that begins with one.
        (None, false) => Value::String(text.strip_prefix('@').unwrap_or(text).to_owned()),
    };
    Ok(Parameter { name: name.to_owned(), value, file })
}

fn json(name: &str, text: &str) -> Result<Value, Failure> {
    let value = serde_json::from_str(text).map_err(|error| {
        let message = format!("parameter `{name}` is not JSON: {error}");
        Failure::usage(message).with_hint(HINT)
    })?;
    match changed_number(text) {
        Some(changed) => Err(loses_digits(name, &changed)),
        None => Ok(value),
    }
}

/// Reads the value of a parameter from a file. The end of a text's last line is no part of it.
fn in_file(name: &str, file: &str, wanted: &Value) -> Result<Value, Failure> {
    let text = text(file).map_err(|problem| {
        let message = format!("parameter `{name}`: {file}: {problem}");
        Failure::usage(message).with_hint(format!("for a text that begins with @: {name}=@@{file}"))
    })?;
    if wanted.is_null() {
        return json(name, &text);
    }
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Value::String(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

/// Reads a file, or standard input.
pub(in crate::command) fn text(file: &str) -> Result<String, String> {
    match file {
        "" => Err("no file is named".to_owned()),
        STDIN => whole_text(std::io::stdin().lock()),
        _ => whole_text(std::fs::File::open(file).map_err(|error| error.to_string())?),
    }
}

/// Reads everything there is, and nothing of what is too long.
fn whole_text(source: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > FILE_BYTES_MAX) {
        return Err(format!("it is longer than {} MiB", FILE_BYTES_MAX / (1024 * 1024)));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("it is not UTF-8 text at byte {}", error.utf8_error().valid_up_to())
    })
}

/// Numbers are sent as they are read, so one that would change is not sent.
fn loses_digits(name: &str, Changed { given, becomes }: &Changed) -> Failure {
    let message = format!("parameter `{name}` holds {given}, which would become {becomes}");
    Failure::usage(message).with_hint(format!("write {name}=VALUE to send it as text"))
}

/// Turns text into what the schema wants in its place, where it can be read as that. Whether
/// anything was turned.
pub(in crate::command) fn fit(parameters: &mut Value, schema: &Value) -> bool {
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

/// Turns the texts that a server refused into the JSON that they are. Whether any was turned.
pub(in crate::command) fn turn_refused(parameters: &mut Value, refused: &Failure) -> bool {
    let violations = refused.refusal.as_ref().and_then(|it| at(&it.details, "violations"));
    let violations = violations.and_then(Value::as_array).into_iter().flatten();
    as_json(parameters, violations.filter_map(|it| it.get("path")?.as_str()?.strip_prefix('/')))
}

fn as_json<'a>(parameters: &mut Value, names: impl Iterator<Item = &'a str>) -> bool {
    let mut turned = false;
    for name in names {
        let Some(value) = parameters.get_mut(name) else { continue };
        // A number that would lose digits stays text.
        let text = value.as_str().filter(|text| changed_number(text).is_none());
        let read = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
        if let Some(read) = read {
            *value = read;
            turned = true;
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES_MAX, as_json, fit, one, read};
    use serde_json::json;

    #[test]
    fn parameters_are_text_unless_marked_as_json() {
        for (given, value) in [
            ("a=1=2", json!("1=2")),
            ("a:=[1]", json!([1])),
            ("a=", json!("")),
            ("a=@@b", json!("@b")),
            ("a=b@c", json!("b@c")),
        ] {
            assert_eq!(read(&[given.to_owned()], None).unwrap()["a"], value, "{given}");
        }
    }

    #[test]
    fn values_come_from_files_and_replace_those_of_a_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (pin, list) = (file("pin", "12 34\n"), file("list", "[1, 2]\n"));
        let all = file("all", r#"{"pin": "no", "more": true}"#);
        let given = [format!("pin=@{pin}"), format!("list:=@{list}")];
        let read_all = read(&given, Some(&all)).unwrap();
        assert_eq!(json!(read_all), json!({"pin": "12 34", "list": [1, 2], "more": true}));
        let gone = read(&["pin=@/no/such".to_owned()], None).unwrap_err();
        assert!(gone.message.starts_with("parameter `pin`: /no/such: "), "{gone}");
        assert!(gone.hint.unwrap().contains("pin=@@/no/such"));
        let broken = read(&[format!("pin:=@{pin}")], None).unwrap_err();
        assert!(!broken.to_string().contains("34"), "{broken}");
        let no_object = read(&[], Some(&list)).unwrap_err();
        assert!(no_object.message.contains("not a JSON object"), "{no_object}");
        let twice = read(&["a=@-".to_owned()], Some("-"));
        assert!(twice.is_err());
    }

    // It was cut there without a word.
    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let given = [format!("text=@{path}")];
        file.as_file().set_len(FILE_BYTES_MAX).unwrap();
        assert!(read(&given, None).is_ok());
        file.as_file().set_len(FILE_BYTES_MAX + 1).unwrap();
        for refused in [read(&given, None), read(&[], Some(path))] {
            let refused = refused.unwrap_err();
            assert!(refused.message.ends_with("it is longer than 64 MiB"), "{refused}");
        }
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

    #[test]
    fn only_what_was_refused_and_can_be_read_becomes_json() {
        let mut long = json!({"id": "12345678901234567890123"});
        assert!(!as_json(&mut long, ["id"].into_iter()));
        let mut given = json!({"n": "5", "list": "[1]", "text": "7", "word": "five"});
        assert!(as_json(&mut given, ["n", "list", "word", "gone"].into_iter()));
        assert_eq!(given, json!({"n": 5, "list": [1], "text": "7", "word": "five"}));
        assert!(!as_json(&mut given, ["word", "n"].into_iter()), "nothing is left to turn");
    }
}
