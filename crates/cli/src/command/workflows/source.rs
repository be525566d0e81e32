//! Where the steps of a workflow are: in a file, or in a pack.

use std::path::Path;

use outlast_cli_core::exit::Failure;
use outlast_wire::json::{Changed, changed_number, long_number};
use serde_json::{Value, json};

use crate::command::run::parameters;

/// Stands for standard input.
pub(super) const STDIN: &str = "-";

/// Returns the field of a request, and what it holds: the workflow in a file, or a reference.
pub(super) fn read(given: &str) -> Result<(&'static str, Value), Failure> {
    if !is_file(given) {
        return Ok(("workflow_ref", json!(given)));
    }
    let wrong = |problem: String| Failure::usage(format!("{given}: {problem}"));
    let text = parameters::text(given).map_err(wrong)?;
    let workflow = parse(&text, ends_with(given, &[".json"])).map_err(wrong)?;
    if !workflow.is_object() {
        let failure = wrong("it is no workflow".to_owned());
        return Err(failure.with_hint("a workflow has `steps`, each with `action` or `type`"));
    }
    Ok(("workflow", workflow))
}

/// A reference has no such ending, unless there is a file of that name.
fn is_file(given: &str) -> bool {
    given == STDIN
        || ends_with(given, &[".yaml", ".yml", ".json"])
        || given.contains('/')
        || Path::new(given).is_file()
}

fn ends_with(given: &str, endings: &[&str]) -> bool {
    let given = given.to_lowercase();
    endings.iter().any(|ending| given.ends_with(ending))
}

/// Reads JSON or YAML. Numbers are sent as they are read, so one that would change is not sent.
fn parse(text: &str, is_json: bool) -> Result<Value, String> {
    if is_json || text.trim_start().starts_with('{') {
        match serde_json::from_str(text) {
            Ok(workflow) => {
                return match changed_number(text) {
                    Some(Changed { given, becomes }) => {
                        Err(format!("it holds {given}, which would become {becomes}"))
                    }
                    None => Ok(workflow),
                };
            }
            Err(error) if is_json => return Err(format!("it is not JSON: {error}")),
            // YAML may begin so, too.
            Err(_) => {}
        }
    }
    let workflow: Value = serde_saphyr::from_str(text)
        .map_err(|error| format!("it cannot be read as YAML: {error}"))?;
    match long_number(&workflow) {
        Some(number) => {
            Err(format!("it holds {number}, which may have lost digits: write it as a text"))
        }
        None => Ok(workflow),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{parse, read};

    #[test]
    fn what_looks_like_a_file_or_is_one_is_a_file() {
        assert_eq!(read("reports.nightly").unwrap(), ("workflow_ref", json!("reports.nightly")));
        for gone in ["night.yaml", "night.YML", "night.json", "./night"] {
            let failure = read(gone).unwrap_err();
            assert!(failure.message.starts_with(&format!("{gone}: ")), "{failure}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let workflow = json!({"steps": {"say": {"action": "core.echo"}}});
        for (name, text) in [
            ("a.yaml", "steps:\n  say: {action: core.echo}\n".to_owned()),
            ("b.json", workflow.to_string()),
            ("plain", workflow.to_string()),
            ("flow.yml", "{steps: {say: {action: core.echo}}}".to_owned()),
        ] {
            assert_eq!(read(&file(name, &text)).unwrap(), ("workflow", workflow.clone()), "{name}");
        }
        for (name, text, problem) in [
            ("c.yaml", "- a\n", "it is no workflow"),
            ("d.yaml", "steps: [\n", "it cannot be read as YAML"),
            ("e.json", "{", "it is not JSON"),
        ] {
            let failure = read(&file(name, text)).unwrap_err();
            assert!(failure.message.contains(problem), "{failure}");
        }
    }

    #[test]
    fn numbers_that_would_change_are_refused() {
        let json = r#"{"steps": {}, "parameters": {"n": {"default": 123456789012345678901}}}"#;
        assert!(parse(json, false).unwrap_err().contains("which would become"));
        let yaml = "parameters:\n  n: {default: 123456789012345678901}\n";
        assert!(parse(yaml, false).unwrap_err().contains("may have lost digits"));
        assert!(parse("parameters:\n  n: {default: 1.5}\n", false).is_ok());
    }
}
