//! Turns the output of a script into the result of its execution.
//!
//! - text: `{"stdout": "…"}`, without the final newline;
//! - json, yaml: the document; null if nothing was printed. If JSON output as a whole is not a
//!   document but its last line is, that line counts: scripts log before they print a result;
//! - jsonl: the list of the documents, one per line; other lines are skipped, unless there are
//!   no documents.

use outlast_wire::json;
use serde_json::Value;

use crate::yaml;

/// How a script's standard output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// As it is.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// A JSON document a line.
    Jsonl,
}

pub(crate) fn parse(format: OutputFormat, stdout: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(stdout);
    match format {
        OutputFormat::Text => Ok(as_text(&text)),
        OutputFormat::Json if text.trim().is_empty() => Ok(Value::Null),
        OutputFormat::Yaml if text.trim().is_empty() => Ok(Value::Null),
        OutputFormat::Json => as_json(text.trim()),
        OutputFormat::Yaml => {
            yaml::parse(&text).map_err(|problem| format!("output is not YAML: {problem}"))
        }
        OutputFormat::Jsonl => as_jsonl(&text),
    }
}

/// Returns the result as JSON. Numbers stay as they were printed.
pub(crate) fn result(format: OutputFormat, stdout: &[u8]) -> String {
    result_or_problem(format, stdout).unwrap_or_else(|problem| {
        let mut result = as_text(&String::from_utf8_lossy(stdout));
        result["output_error"] = Value::String(problem);
        result.to_string()
    })
}

fn result_or_problem(format: OutputFormat, stdout: &[u8]) -> Result<String, String> {
    let parsed = parse(format, stdout)?;
    let text = String::from_utf8_lossy(stdout);
    let printed = match format {
        OutputFormat::Json => printed_document(text.trim()),
        OutputFormat::Jsonl => {
            let lines = text.lines().filter_map(document_of).collect::<Vec<_>>();
            Some(format!("[{}]", lines.join(",")))
        }
        OutputFormat::Text | OutputFormat::Yaml => None,
    };
    let result = printed.unwrap_or_else(|| parsed.to_string());
    json::document(result.as_bytes()).map_err(|problem| format!("output {problem}"))?;
    Ok(result)
}

/// Returns the document that [`as_json`] reads.
fn printed_document(text: &str) -> Option<String> {
    document_of(text).or_else(|| document_of(text.lines().last()?))
}

fn document_of(text: &str) -> Option<String> {
    serde_json::from_str::<Value>(text).is_ok().then(|| json::compact(text))
}

fn as_text(text: &str) -> Value {
    serde_json::json!({"stdout": text.strip_suffix('\n').unwrap_or(text)})
}

fn as_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).or_else(|error| {
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).map_err(|_last| format!("output is not JSON: {error}"))
    })
}

fn as_jsonl(text: &str) -> Result<Value, String> {
    let mut documents = Vec::new();
    let mut fault = None;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Value>(line) {
            Ok(document) => documents.push(document),
            Err(error) => {
                fault.get_or_insert_with(|| format!("line {}: {error}", number + 1));
            }
        }
    }
    match fault {
        Some(fault) if documents.is_empty() => Err(format!("output is not JSON lines: {fault}")),
        _ => Ok(Value::Array(documents)),
    }
}
