//! Parameters as environment variables, each under a name of its own.
//!
//! `message` is `ATTUNE_ACTION_MESSAGE`: the prefix keeps a parameter from standing in for
//! `PATH` or the like. Characters that a variable's name cannot have become underscores.
//! Objects and lists are JSON; null is left out.

use serde_json::{Map, Value};

use super::as_text;

const PREFIX: &str = "ATTUNE_ACTION_";

pub(super) fn variables(
    parameters: &Map<String, Value>,
) -> impl Iterator<Item = (String, String)> + '_ {
    let given = parameters.iter().filter(|(_, value)| !value.is_null());
    given.map(|(name, value)| (variable(name), as_text(value)))
}

pub(super) fn variable(parameter: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    parameter.chars().map(fit).fold(PREFIX.to_owned(), |mut name, c| {
        name.push(c);
        name
    })
}
