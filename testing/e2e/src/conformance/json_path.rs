//! Paths into JSON as the cases write them: `$.jobs[0].meta["a.b"].x`, `$.jobs[*].id`,
//! `$.jobs[?(@.id=='7')].state`.

use serde_json::Value;

#[derive(Debug, PartialEq)]
enum Part {
    Name(String),
    Index(usize),
    Every,
    First { field: Vec<Self>, equals: String },
}

/// Finds the value at `path`; `None` when there is none.
pub(crate) fn resolve(path: &str, root: &Value) -> Result<Option<Value>, String> {
    let path = path.strip_prefix('$').unwrap_or(path);
    Ok(walk(&parse(path)?, root))
}

fn parse(path: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(inside) = rest.strip_prefix('[') {
            let end = closing_bracket(inside).ok_or_else(|| format!("no ] in {path:?}"))?;
            parts.push(bracket(&inside[..end])?);
            rest = &inside[end + 1..];
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return Err(format!("an empty name in {path:?}"));
            }
            parts.push(Part::Name(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
    Ok(parts)
}

/// Finds the bracket that closes, outside quotes.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, ']') => return Some(at),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Result<Part, String> {
    if inside == "*" {
        return Ok(Part::Every);
    }
    if let Some(name) = unquoted(inside) {
        return Ok(Part::Name(name.to_owned()));
    }
    if let Some(filter) = inside.strip_prefix("?(@").and_then(|rest| rest.strip_suffix(')')) {
        let (field, equals) =
            filter.split_once("==").ok_or_else(|| format!("no == in the filter {inside:?}"))?;
        let equals = equals.trim();
        let equals = unquoted(equals).unwrap_or(equals).to_owned();
        return Ok(Part::First { field: parse(field.trim())?, equals });
    }
    inside.parse().map(Part::Index).map_err(|error| format!("index {inside:?}: {error}"))
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn walk(parts: &[Part], value: &Value) -> Option<Value> {
    let Some((part, rest)) = parts.split_first() else {
        return Some(value.clone());
    };
    match part {
        Part::Name(name) => walk(rest, value.get(name)?),
        Part::Index(index) => walk(rest, value.get(index)?),
        Part::Every => {
            let found = value.as_array()?.iter().filter_map(|element| walk(rest, element));
            Some(Value::Array(found.collect()))
        }
        Part::First { field, equals } => {
            let matches = |element: &&Value| {
                walk(field, element).is_some_and(|found| displayed(&found) == *equals)
            };
            walk(rest, value.as_array()?.iter().find(matches)?)
        }
    }
}

/// Writes a value the way cases write it inside text: strings bare, the rest as JSON.
pub(crate) fn displayed(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;

    fn check(path: &str, expected: Option<serde_json::Value>) {
        let root = json!({
            "jobs": [{"id": "a", "n": [1, [2, 3]], "meta": {"x.y": {"z": true}}}, {"id": "b"}],
            "step-2": null,
        });
        assert_eq!(resolve(path, &root), Ok(expected), "{path}");
    }

    #[test]
    fn paths_find_what_they_name() {
        check("$.jobs[0].id", Some(json!("a")));
        check("jobs[1].id", Some(json!("b")));
        check("$.jobs[0].n[1][0]", Some(json!(2)));
        check("$.jobs[*].id", Some(json!(["a", "b"])));
        check("$.jobs[*].n", Some(json!([[1, [2, 3]]])));
        check("$.jobs[?(@.id=='b')]", Some(json!({"id": "b"})));
        check("$.jobs[0].meta[\"x.y\"].z", Some(json!(true)));
        check("$.step-2", Some(json!(null)));
    }

    #[test]
    fn paths_to_nothing_find_nothing() {
        check("$.jobs[2]", None);
        check("$.jobs[?(@.id=='c')].id", None);
        check("$.none.deeper", None);
        check("$.jobs.id", None);
    }

    #[test]
    fn malformed_paths_are_errors_not_misses() {
        for path in ["$.jobs[", "$.jobs[x]", "$..a", "$.jobs[?(@.id)]"] {
            assert!(resolve(path, &json!({})).is_err(), "{path}");
        }
    }
}
