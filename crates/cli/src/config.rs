//! Configuration: flag over environment over YAML file over default.
//!
//! ```text
//! flags ─┐
//! OUTLAST_SECTION__KEY ─┤
//! --config FILE ────────┼─▶ Settings (value and origin of every key) ─▶ ServerConfig, WorkerConfig
//! defaults ─────────────┘
//! ```
//!
//! Only this module and the files below it read the environment. Every value is checked when it
//! is loaded, whether or not the command uses it. An unknown key is an error that names the nearest known one.

pub(crate) mod client;
mod client_file;
pub(crate) mod environment;
mod error;
mod file;
pub(crate) mod keys;
pub(crate) mod server;
pub(crate) mod token;
pub(crate) mod value;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use environment::Environment;
pub(crate) use error::ConfigError;
use error::excerpt;
pub(crate) use keys::Key;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The default of the key.
    Default,
    /// A line of the YAML file.
    File {
        /// The path as it was given.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
    },
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl Origin {
    /// Precedence: a higher rank wins.
    const fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { .. } => 1,
            Self::Environment(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// One key's value with where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The key.
    pub(crate) key: &'static Key,
    /// The value as it was written; text from the environment and from flags.
    pub(crate) value: Value,
    /// Where it was written.
    pub(crate) origin: Origin,
    /// The line of the file that it was written on, with the value marked.
    excerpt: String,
}

/// A key set on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Flag {
    /// The key it sets.
    pub(crate) key: &'static str,
    /// The flag, with its dashes.
    pub(crate) flag: &'static str,
    /// Its value, if it was given.
    pub(crate) value: Option<Value>,
}

impl Flag {
    pub(crate) fn new(key: &'static str, flag: &'static str, value: Option<String>) -> Self {
        Self { key, flag, value: value.map(Value::String) }
    }

    /// A flag that may be given several times.
    pub(crate) fn many(key: &'static str, flag: &'static str, values: Vec<String>) -> Self {
        let given = !values.is_empty();
        let values = values.into_iter().map(Value::String).collect();
        Self { key, flag, value: given.then_some(Value::Array(values)) }
    }
}

/// Every key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    entries: BTreeMap<&'static str, Setting>,
    /// Keys that were read, in that order: the reference page lists the readers of each.
    #[cfg(test)]
    pub(crate) read: std::cell::RefCell<Vec<&'static str>>,
}

impl Settings {
    /// Loads all layers and checks every value, whether or not the caller uses it.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: &Environment,
        flags: Vec<Flag>,
    ) -> Result<Self, ConfigError> {
        let mut settings = Self::defaults();
        if let Some(path) = file {
            for entry in file::read(path)? {
                let set = settings.set(&entry.name, entry.value, entry.origin);
                set.map_err(|error| error.with_excerpt(&entry.key_marked))?.excerpt =
                    entry.value_marked;
            }
        }
        for (name, value, variable) in environment.settings()? {
            settings.set(&name, Value::String(value), Origin::Environment(variable))?;
        }
        for flag in flags {
            if let Some(value) = flag.value {
                settings.set(flag.key, value, Origin::Flag(flag.flag))?;
            }
        }
        for setting in settings.entries.values() {
            (setting.key.kind.check)(&setting.value).map_err(|expected| setting.wrong(expected))?;
        }
        Ok(settings)
    }

    /// All settings, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.entries.values()
    }

    /// One setting read as `parse` understands it.
    pub(crate) fn get<T, E: Into<Cow<'static, str>>>(
        &self,
        name: &str,
        parse: fn(&Value) -> Result<T, E>,
    ) -> Result<T, ConfigError> {
        let setting = self.setting(name)?;
        parse(&setting.value).map_err(|expected| setting.wrong(expected.into()))
    }

    /// One setting as it was written.
    pub(crate) fn setting(&self, name: &str) -> Result<&Setting, ConfigError> {
        let found = self.entries.get(name);
        let setting = found.ok_or_else(|| ConfigError::unknown(name, Origin::Default))?;
        #[cfg(test)]
        self.read.borrow_mut().push(setting.key.name);
        Ok(setting)
    }

    pub(crate) fn defaults() -> Self {
        let entry = |key: &'static Key| {
            let value = Value::String(key.default.to_owned());
            (key.name, Setting { key, value, origin: Origin::Default, excerpt: String::new() })
        };
        Self {
            entries: keys::ALL.iter().map(entry).collect(),
            #[cfg(test)]
            read: std::cell::RefCell::default(),
        }
    }

    fn set(
        &mut self,
        name: &str,
        value: Value,
        origin: Origin,
    ) -> Result<&mut Setting, ConfigError> {
        let Some(setting) = self.entries.get_mut(name) else {
            return Err(ConfigError::unknown(name, origin));
        };
        setting.value = value;
        setting.origin = origin;
        setting.excerpt.clear();
        Ok(setting)
    }
}

impl Setting {
    fn wrong(&self, expected: Cow<'static, str>) -> ConfigError {
        ConfigError::Wrong {
            key: self.key.name,
            value: self.shown(),
            origin: self.origin.clone(),
            expected,
            // A line of a file with a secret is not repeated.
            excerpt: if self.key.secret { String::new() } else { excerpt(&self.excerpt) },
        }
    }

    /// The value on one line, without secrets.
    pub(crate) fn shown(&self) -> String {
        match (&self.value, self.key.secret) {
            (Value::String(text), true) if text.is_empty() => String::new(),
            (Value::Array(items), true) => format!("{} hidden", items.len()),
            (_, true) => "hidden".to_owned(),
            (Value::String(text), false) => outlast_cli_core::without_passwords(text),
            (other, false) => other.to_string(),
        }
    }
}
