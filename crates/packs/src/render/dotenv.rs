//! Parameters as `NAME='value'` lines.
//!
//! What an object holds is written one line each, under `object.name`; lists are JSON; null
//! is empty. An object with a name in it that is not plain is written whole, as JSON. Quoting
//! is the shell's: everything between two single quotes is literal, newlines too, and a
//! single quote is written as `'\''`.

use serde_json::{Map, Value};

use super::as_text;

pub(super) fn lines(parameters: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in parameters.iter().filter(|(name, _)| is_plain(name)) {
        write(name, value, &mut text);
    }
    text
}

/// Whether a name can stand in front of `=` without being read as anything else.
pub(super) fn is_plain(name: &str) -> bool {
    let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.chars().all(fit)
}

/// Names with an effect on shells, loaders or interpreters, if a script evaluates the lines as
/// assignments.
const STEERING: [&str; 26] = [
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "CLASSPATH",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "LOCPATH",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OPTIND",
    "PATH",
    "PROMPT_COMMAND",
    "PS4",
    "RUBYLIB",
    "RUBYOPT",
    "SHELL",
    "SHELLOPTS",
    "TMPDIR",
    "TZDIR",
    "ZDOTDIR",
];

/// The beginnings of more such names, and of the product's own.
const STEERING_PREFIXES: [&str; 14] = [
    "ATTUNE_",
    "BASH_FUNC_",
    "DYLD_",
    "GIT_",
    "JAVA_",
    "LC_",
    "LD_",
    "MALLOC_",
    "NPM_CONFIG_",
    "OUTLAST_",
    "PERL",
    "PYTHON",
    "SSH_",
    "_JAVA_",
];

/// Whether a shell, the loader or an interpreter obeys a variable of this name.
pub(super) fn steers(name: &str) -> bool {
    STEERING.contains(&name) || STEERING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn write(name: &str, value: &Value, text: &mut String) {
    match value {
        Value::Object(map) if map.keys().all(|inner| is_plain(inner)) => {
            for (inner, value) in map {
                write(&format!("{name}.{inner}"), value, text);
            }
        }
        Value::Null => line(name, "", text),
        Value::Object(_)
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_) => line(name, &as_text(value), text),
    }
}

fn line(name: &str, value: &str, text: &mut String) {
    text.push_str(name);
    text.push_str("='");
    text.push_str(&value.replace('\'', "'\\''"));
    text.push_str("'\n");
}
