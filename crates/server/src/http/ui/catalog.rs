//! Actions, each with a form that runs it; and servers.

use outlast_dashboard::pages::Text;
use outlast_dashboard::pages::sheet::{Cell, Field, Form, Row, Section, Table};
use outlast_dashboard::{Flash, Place};
use serde_json::{Value, json};

use super::jobs::encoded;
use super::sheet::{self, Head};
use crate::http::error::ApiError;
use crate::http::request::ApiRequest;
use crate::intake::IntakeError;

pub(super) async fn list(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let packs = req.app.engine.settings().packs.current();
    let frame =
        Head::new(Place::Actions, "Actions", "outlast packs list").saying(said).frame(req).await;
    let rows = packs.actions().map(|action| Row {
        key: encoded(&action.reference),
        testid: Some(format!("action-{}", action.reference)),
        cells: vec![
            Cell::Link(action.reference.clone(), format!("actions/{}", encoded(&action.reference))),
            Cell::Text(action.pack.clone()),
            Cell::Text(action.runner.as_str().to_owned()),
            Cell::Text(action.description.clone()),
            Cell::Text(if action.enabled { "yes" } else { "no" }.to_owned()),
        ],
    });
    let table = Table {
        name: "actions",
        caption: "What the packs of this server have.".to_owned(),
        columns: vec!["Action", "Pack", "Runs in", "What it does", "On"],
        rows: rows.collect(),
        empty: "There are no actions.",
        ..Table::default()
    };
    Ok(sheet::page(frame, vec![Section::Table(table)]))
}

pub(super) async fn one(
    req: &ApiRequest,
    name: &str,
    said: Option<Flash>,
) -> Result<String, ApiError> {
    let packs = req.app.engine.settings().packs.current();
    let action = packs.get(name).ok_or_else(|| IntakeError::no_action(&packs, name))?;
    let command = format!("outlast run {}", action.reference);
    let frame = Head::new(Place::Actions, format!("Action {}", action.reference), command)
        .saying(said)
        .frame(req)
        .await;
    let schema = action.schema();
    let mut sections = vec![Section::Note(action.description.clone())];
    if frame.reader.may.produce && action.enabled {
        sections.push(Section::Heading("Run it".to_owned()));
        sections.push(Section::Buttons(vec![run(&action.reference, schema)]));
    }
    sections.push(Section::Facts(vec![
        ("Pack", Cell::Text(action.pack.clone())),
        ("Runs in", Cell::Text(action.runner.as_str().to_owned())),
        ("Tags", Cell::Text(action.tags.join(", "))),
    ]));
    let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
    sections.push(Section::Text("Its parameters".to_owned(), Text::of(&schema)));
    Ok(sheet::page(frame, sections))
}

/// A form with a field for each parameter.
fn run(name: &str, schema: &Value) -> Form {
    let mut form = Form::button("run", format!("{}/run", encoded(name)), "Run");
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, about) in schema["properties"].as_object().into_iter().flatten() {
        let default = match &about["default"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
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
        field.is_secret = about["secret"] == true;
        if field.is_secret {
            field.value.clear();
        }
        if kind == "boolean" {
            field.choices = vec![String::new(), "true".to_owned(), "false".to_owned()];
        }
        form.fields.push(field);
    }
    form.with(Field::word("queue", "Queue", "").such_as("default"))
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

/// This server, its store, and what it says of itself.
pub(super) async fn servers(req: &ApiRequest, said: Option<Flash>) -> Result<String, ApiError> {
    let engine = &req.app.engine;
    let (facts, health, settings) = (engine.store().facts(), engine.health(), engine.settings());
    let frame =
        Head::new(Place::Servers, "Servers", "outlast doctor").saying(said).frame(req).await;
    let up = outlast_dashboard::atoms::Lasting(crate::clock::boot_time().since(req.app.started));
    let sections = vec![
        Section::Note("The server that answers; with several behind one address, each request may see another one.".to_owned()),
        Section::Facts(vec![
            ("State", Cell::Live(if health.ready { "ready".to_owned() } else { health.store.clone() })),
            ("Store", Cell::Text(facts.kind.to_owned())),
            ("A commit is durable by", Cell::Text(facts.durability.to_owned())),
            ("Generation of the store", Cell::Text(facts.generation.to_string())),
            ("Version", Cell::Text(settings.version.to_owned())),
            ("Up for", Cell::Live(up.to_string())),
        ]),
    ];
    Ok(sheet::page(frame, sections))
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
