//! `/openapi.json`: the API described from its routes.

use outlast_wire::ojs::error::Code;
use serde_json::{Map, Value, json};

use super::error;
use super::error::ApiError;
use super::request::ApiRequest;
use super::response::ApiResponse;
use super::route::{EVENT_STREAM, Route, Routes, get};
use super::schema::{self, Schema};
use super::{operations, workflows};
use crate::access::{Role, Scope};
use crate::base_path::BasePath;

pub(super) fn routes() -> Routes {
    let about = "Describes this API";
    Routes::new().add(get("/openapi.json", Scope::Nothing, about, Schema::Description), describe)
}

async fn describe(req: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(req.app.description.get().cloned().unwrap_or_default()))
}

/// Describes routes.
pub(super) fn document(routes: &[Route], version: &str, base: &BasePath) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path.to_string()).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Outlast",
            "version": version,
            "description": "Jobs that outlive their workers. Paths under /ojs are Open Job Spec.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schema::components(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    });
    if !base.as_str().is_empty() {
        document["servers"] = json!([{"url": base.as_str()}]);
    }
    document
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "tags": [tag(&route.path)],
        "parameters": parameters(route),
        "responses": responses(route),
        "security": [{"bearer": []}],
    });
    if route.permission == Scope::Nothing {
        operation["security"] = json!([]);
    } else {
        let roles = Role::ALL.into_iter().filter(|role| role.allows(route.permission));
        operation["x-roles"] = roles.map(Role::as_str).collect();
    }
    if let Some(shape) = route.takes {
        operation["requestBody"] = json!({"required": true, "content": content(route, shape)});
    }
    operation
}

fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let method = route.method.as_str().to_lowercase();
    std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_")
}

fn tag(path: &str) -> &str {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    match path.split('/').nth(1) {
        Some("ojs") => "open job spec",
        Some(
            word @ ("executions" | "operations" | "events" | "workers" | "limits" | "queues"
            | "actions" | "packs"),
        ) => word,
        _ => "service",
    }
}

fn parameters(route: &Route) -> Value {
    let text = json!({"type": "string"});
    let mut all = Vec::new();
    for name in route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        all.push(json!({"name": name, "in": "path", "required": true, "schema": text}));
    }
    for (name, about) in route.query {
        all.push(json!({"name": name, "in": "query", "description": about, "schema": text}));
    }
    if route.keyed {
        let until = if route.path == workflows::ALL {
            "as long as the workflow is kept"
        } else if route.path == operations::ALL {
            "as long as the operation is kept"
        } else {
            "for 24 hours"
        };
        let about = format!(
            "Makes the request safe to send again: the same key and body are answered as the \
             first time, {until}. Another body is refused with 409."
        );
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 255});
        let name = "Idempotency-Key";
        all.push(json!({"name": name, "in": "header", "description": about, "schema": schema}));
    }
    if route.also == Some(EVENT_STREAM) {
        let about = "`id` of the last event received; the stream resumes after it";
        let name = "Last-Event-ID";
        all.push(json!({"name": name, "in": "header", "description": about, "schema": text}));
    }
    Value::Array(all)
}

fn responses(route: &Route) -> Value {
    let mut answers = json!({});
    let mut good = content(route, route.gives);
    if let Some(media_type) = route.also {
        good[media_type] = json!({"schema": {"type": "string"}});
    }
    for status in route.statuses {
        answers[status.to_string()] = match status {
            204 => json!({"description": "no event will come after the cursor"}),
            _ => json!({"description": route.about, "content": good}),
        };
    }
    for code in route.codes() {
        refusal(&mut answers[error::status(code).as_str()], media_type(route), code);
    }
    answers
}

/// Adds an error to the response of its status.
fn refusal(answer: &mut Value, media: &str, code: Code) {
    let text = format!("`{}`: {}", code.as_str(), code.about());
    let codes = answer["x-codes"].as_array().cloned().unwrap_or_default();
    let said = answer["description"].as_str().map(|said| format!("{said}. {text}"));
    if codes.is_empty() {
        let schema = answer["content"][media]["schema"].take();
        let refused = json!({"$ref": "#/components/schemas/Error"});
        // An unhealthy service returns its own schema too.
        let either = if schema.is_null() { refused } else { json!({"anyOf": [schema, refused]}) };
        answer["content"][media]["schema"] = either;
    }
    answer["description"] = said.unwrap_or(text).into();
    answer["x-codes"] = codes.into_iter().chain([code.as_str().into()]).collect();
}

fn content(route: &Route, shape: Schema) -> Value {
    json!({shape.media_type().unwrap_or_else(|| media_type(route)): {"schema": shape.schema()}})
}

fn media_type(route: &Route) -> &'static str {
    if route.is_of_the_standard() { "application/openjobspec+json" } else { "application/json" }
}
