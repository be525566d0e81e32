//! The page `docs/reference/http.md`, written from `/openapi.json`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use outlast_wire::ojs::error::Code;
use serde_json::Value;

use crate::api::Api;

const INTRO: &str = "\
# HTTP reference

Generated from the server's routes with `UPDATE_DOCS=1 cargo test -p outlast-server`; a difference fails the
test. A running server serves the same description at `/openapi.json`, as OpenAPI 3.1.

- Every path under `/api/v1/executions` is also served under `/executions`.
- A server with tokens requires `Authorization: Bearer TOKEN`; the token must have one of the
  roles listed. A server without tokens accepts every request that reaches it.
- Bodies are JSON in UTF-8, at most `server.max_body` (1 MiB) long and 64 levels deep. Paths
  under `/ojs` use `application/openjobspec+json` and refuse an `OJS-Version` other than 1.
- `X-Request-Id` is returned, and logged with errors.
- Durations are seconds, or strings such as `200ms`, `30s`, `5m`; times are RFC 3339 in UTC.
- Lists are paged: send `next_cursor` as `cursor` to get the next page; `null` means there is none. A page of jobs or
  events may be short, or empty, although there is a next one: each looks at a bounded part of the store. Of events the
  last one is that which leaves the cursor as it was. A page also ends before its jobs, or its output, come to more than
  1 MiB, unless the first one alone does.
- Lists leave out parameters, `args` and results above 16 KiB: these are `null`, `[]` or missing, and `omitted` has the
  length of each in bytes. The job by itself shows them. `omitted` of an attempt is about its error, if later errors of
  the same job come to 1 MiB.
- Fields may be added to responses at any time: ignore those you do not know.
";

const ERRORS: &str = "\
An error is `{\"error\": {\"code\", \"message\", \"retryable\", \"request_id\", \"hint\", …}}`;
`details` is added where there is more to say. A 429 and a 503 have a `Retry-After` header. A method that a
path does not support is refused with 405 `method_not_allowed`; `Allow` lists those that it does.
";

const TAGS: [(&str, &str); 10] = [
    ("executions", "Executions"),
    ("operations", "Operations"),
    ("events", "Events"),
    ("workers", "Workers"),
    ("limits", "Limits"),
    ("queues", "Queues"),
    ("actions", "Actions"),
    ("packs", "Packs"),
    ("open job spec", "Open Job Spec"),
    ("service", "The service itself"),
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Says what a value of a schema is.
fn kind(schema: &Value) -> String {
    if let Some(name) = text(&schema["$ref"]).rsplit('/').next().filter(|name| !name.is_empty()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    let several = |kinds: &Vec<Value>, one: fn(&Value) -> String| {
        kinds.iter().map(one).collect::<Vec<_>>().join(" or ")
    };
    if let Some(kinds) = schema["anyOf"].as_array() {
        return several(kinds, kind);
    }
    if let Some(words) = schema["enum"].as_array() {
        return several(words, |word| format!("`{}`", text(word)));
    }
    match &schema["type"] {
        Value::Array(kinds) => several(kinds, |kind| text(kind).to_owned()),
        Value::String(name) => match (name.as_str(), text(&schema["format"])) {
            ("string", "uuid") => "UUID".to_owned(),
            ("string", "date-time") => "time".to_owned(),
            ("string", _) => "string".to_owned(),
            ("array", _) if schema["items"].is_object() => {
                format!("list of {}", kind(&schema["items"]))
            }
            ("array", _) => "list".to_owned(),
            ("object", _) => object(schema),
            ("integer", _) => range(schema),
            ("boolean", _) => "boolean".to_owned(),
            (other, _) => other.to_owned(),
        },
        _ => "any JSON".to_owned(),
    }
}

fn range(schema: &Value) -> String {
    match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        (Some(least), Some(most)) => format!("integer from {least} to {most}"),
        _ => "integer".to_owned(),
    }
}

/// Writes an object in one line.
fn object(schema: &Value) -> String {
    let more = &schema["additionalProperties"];
    if more.is_object() {
        return format!("object of {}s", kind(more));
    }
    let mut all: Vec<String> = fields(&schema["properties"])
        .map(|(name, schema)| format!("`{name}`: {}", kind(schema)))
        .collect();
    if all.is_empty() {
        return "object".to_owned();
    }
    if more == true {
        all.push("…".to_owned());
    }
    format!("{{ {} }}", all.join(", "))
}

/// Which side fills in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Writes the fields of an object as a table.
fn table(page: &mut String, schema: &Value, side: Side) {
    page.push_str("\n| Field | Type | |\n|---|---|---|\n");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, schema_of) in fields(&schema["properties"]) {
        let presence = match (side, required.iter().any(|field| field == name)) {
            (Side::Client, true) => "required",
            (Side::Client, false) => "optional",
            (Side::Server, true) => "",
            (Side::Server, false) => "absent where it does not apply",
        };
        writeln!(page, "| `{name}` | {} | {presence} |", kind(schema_of)).expect("a line");
    }
    if schema["additionalProperties"] == true {
        let more = match side {
            Side::Client => "other fields are accepted",
            Side::Server => "other fields that were sent with it",
        };
        writeln!(page, "| … | any JSON | {more} |").expect("a line");
    }
}

fn operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    writeln!(page, "\n### `{} {path}`\n", method.to_uppercase()).expect("a line");
    let roles = operation["x-roles"].as_array();
    let roles = roles.map(|roles| roles.iter().map(text).collect::<Vec<_>>().join(", "));
    let who =
        roles.map_or_else(|| "No token is needed.".to_owned(), |roles| format!("Roles: {roles}."));
    writeln!(page, "{}. {who}", text(&operation["summary"])).expect("a line");
    let parameters = operation["parameters"].as_array().expect("a list");
    let named: Vec<_> = parameters.iter().filter(|parameter| parameter["in"] != "path").collect();
    if !named.is_empty() {
        page.push_str("\n| Parameter | |\n|---|---|\n");
    }
    for parameter in named {
        let place = if parameter["in"] == "header" { " (header)" } else { "" };
        let (name, about) = (text(&parameter["name"]), text(&parameter["description"]));
        writeln!(page, "| `{name}`{place} | {} |", about.replace('|', "\\|")).expect("a line");
    }
    for (_media, content) in fields(&operation["requestBody"]["content"]) {
        let schema = &content["schema"];
        if schema["properties"].is_object() {
            page.push_str("\nRequest body:\n");
            table(page, schema, Side::Client);
        } else {
            writeln!(page, "\nRequest body: {}", kind(schema)).expect("a line");
        }
    }
    let (mut given, mut refused) = (Vec::new(), Vec::new());
    let mut answers: Vec<_> = fields(&operation["responses"]).collect();
    answers.sort_unstable_by_key(|(status, _)| *status);
    for (status, answer) in answers {
        let gives = fields(&answer["content"]).map(|(media, content)| described(media, content));
        let gives: Vec<_> = gives.filter(|described| !described.is_empty()).collect();
        if !gives.is_empty() {
            given.push(format!("{status} with {}", gives.join(", or ")));
        } else if answer.get("content").is_none() {
            given.push(format!("{status} without a body: {}", text(&answer["description"])));
        }
        let codes = answer["x-codes"].as_array().into_iter().flatten();
        refused.extend(codes.map(|code| format!("{status} `{}`", text(code))));
    }
    writeln!(page, "\nReturns {}.", given.join("; ")).expect("a line");
    writeln!(page, "\nErrors: {}.", refused.join(", ")).expect("a line");
}

/// Describes a media type of a response; errors are described by their codes.
fn described(media: &str, content: &Value) -> String {
    if !media.ends_with("json") {
        return format!("`{media}`");
    }
    let described = kind(&content["schema"]);
    let error = kind(&serde_json::json!({"$ref": "#/components/schemas/Error"}));
    let described = described.replace(&format!(" or {error}"), "");
    if described == error { String::new() } else { described }
}

fn page(document: &Value) -> String {
    let mut page = INTRO.to_owned();
    for (tag, title) in TAGS {
        writeln!(page, "\n## {title}").expect("a line");
        for (path, methods) in fields(&document["paths"]) {
            if path.starts_with("/executions") {
                continue;
            }
            for (method, about) in fields(methods).filter(|(_, about)| about["tags"][0] == tag) {
                operation(&mut page, path, method, about);
            }
        }
    }
    write!(
        page,
        "\n## Errors\n\n{ERRORS}\n| Code | Meaning | What to do | Retry |\n|---|---|---|---|\n"
    )
    .expect("lines");
    for code in Code::ALL {
        let again = if code.is_retryable() { "yes" } else { "" };
        let (name, about, hint) = (code.as_str(), code.about(), code.hint());
        writeln!(page, "| `{name}` | {about} | {hint} | {again} |").expect("a line");
    }
    page.push_str("\n## Shapes\n");
    for (name, schema) in fields(&document["components"]["schemas"]) {
        writeln!(page, "\n### {name}").expect("a line");
        let side = if name.ends_with("Request") { Side::Client } else { Side::Server };
        table(&mut page, schema, side);
    }
    page
}

#[tokio::test]
async fn the_reference_says_what_the_routes_are() {
    let document = Api::start().get("/openapi.json").await.expect(200);
    for methods in document["paths"].as_object().expect("paths").values() {
        for (_method, about) in fields(methods) {
            assert!(TAGS.iter().any(|(tag, _)| about["tags"][0] == *tag), "{about:#}");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/http.md");
    let page = page(&document);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).expect("docs");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(page.lines()).find(|(kept, page)| kept != page);
    assert!(
        kept == page,
        "docs/reference/http.md differs from the routes, first at {first:?}; \
         if the change is intended, run UPDATE_DOCS=1 cargo test -p outlast-server"
    );
}
