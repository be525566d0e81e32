//! The form that runs an action: a field for each of its parameters, and what is made of them.

use outlast_dashboard::pages::sheet::{Field, Form};
use serde_json::{Value, json};

use super::sheet;
use crate::hidden::HiddenKeys;
use crate::http::request::encoded;

/// A form with a field for each parameter.
pub(super) fn form(name: &str, schema: &Value, hidden: &HiddenKeys) -> Form {
    let mut form = Form::button("run", format!("{}/run", encoded(name)), "Run").with(sheet::once());
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, about) in schema["properties"].as_object().into_iter().flatten() {
        let default = match &about["default"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => shown_default(other, hidden),
        };
        let kind = about["type"].as_str().unwrap_or("any JSON");
        let mut field = Field::word(&format!("p.{name}"), &format!("{name} ({kind})"), default);
        field.is_required = required.contains(&name.as_str());
        field.is_long = matches!(kind, "object" | "array");
        let choices = about["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        field.choices = choices.map(ToOwned::to_owned).collect();
        let is_free = !field.is_required && field.value.is_empty();
        if is_free && !field.choices.is_empty() {
            field.choices.insert(0, String::new());
        }
        field.is_secret = about["secret"] == true || hidden.has(name);
        if field.is_secret {
            field.value.clear();
            field.choices.clear();
        }
        if kind == "boolean" {
            field.choices = vec![String::new(), "true".to_owned(), "false".to_owned()];
        }
        form.fields.push(field);
    }
    form.with(Field::word("queue", "Queue", "").such_as("default"))
}

/// A default as a field shows it. One that would have to be shown in part is left to the server.
fn shown_default(default: &Value, hidden: &HiddenKeys) -> String {
    if hidden.mask(&mut default.clone()) { String::new() } else { default.to_string() }
}

/// Reads what a form gave into the body of a request: each parameter as its schema has it.
pub(super) fn request(name: &str, schema: &Value, fields: &[(String, String)]) -> Value {
    let mut parameters = serde_json::Map::new();
    let mut body = json!({ "action_ref": name });
    for (field, text) in fields {
        if let Some(parameter) = field.strip_prefix("p.") {
            if text.is_empty() {
                continue;
            }
            let kind = schema["properties"][parameter]["type"].as_str().unwrap_or_default();
            let value = match kind {
                "string" => Value::String(text.clone()),
                // What is wrong with it, the server says.
                _ => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())),
            };
            parameters.insert(parameter.to_owned(), value);
        } else if field == "queue" && !text.is_empty() {
            body["queue"] = json!(text);
        }
    }
    body["parameters"] = Value::Object(parameters);
    body
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::request;

    #[test]
    fn fields_become_parameters_as_the_schema_has_them() {
        let schema = json!({"properties": {
            "n": {"type": "integer"}, "text": {"type": "string"}, "on": {"type": "boolean"},
            "list": {"type": "array"}, "left": {"type": "string"},
        }});
        let fields = [
            ("p.n", "5"),
            ("p.text", "7"),
            ("p.on", "true"),
            ("p.list", "[1]"),
            ("p.left", ""),
            ("queue", "q"),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = request("a.b", &schema, &fields);
        let parameters = json!({"n": 5, "text": "7", "on": true, "list": [1]});
        assert_eq!(body, json!({"action_ref": "a.b", "parameters": parameters, "queue": "q"}));
        let wrong = [("p.n".to_owned(), "five".to_owned())];
        assert_eq!(request("a.b", &schema, &wrong)["parameters"], json!({"n": "five"}));
    }
}
