//! The token for a server: given directly, or as the file that holds it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use super::value;
use super::{ConfigError, Flag, Settings};

/// The flags of every client command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TokenFlags {
    /// Bearer token [default: OUTLAST_TOKEN or OJS_AUTH_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// File that holds the bearer token [default: OUTLAST_TOKEN_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<String>,
}

impl TokenFlags {
    /// The keys that they set.
    pub(crate) fn flags(self) -> [Flag; 2] {
        [
            Flag::new("worker.token", "--token", self.token),
            Flag::new("worker.token_file", "--token-file", self.token_file),
        ]
    }
}

/// The token of these settings: a flag wins over the environment, and that over the file.
pub(crate) fn token(settings: &Settings) -> Result<Option<String>, ConfigError> {
    let given = settings.get("worker.token", value::shown_token)?;
    let Some(path) = settings.get("worker.token_file", value::file)? else { return Ok(given) };
    let (plain, file) =
        (&settings.setting("worker.token")?.origin, &settings.setting("worker.token_file")?.origin);
    match given {
        Some(token) if plain.rank() > file.rank() => Ok(Some(token)),
        Some(_) if plain.rank() == file.rank() => Err(ConfigError::together(
            format!(
                "the token is given twice: `worker.token` ({plain}), `worker.token_file` ({file})"
            ),
            "leave one of them out",
        )),
        Some(_) | None => read(&path).map(Some),
    }
}

/// The file that [`token`] reads it from, if it does.
pub(crate) fn token_file(settings: &Settings) -> Result<Option<PathBuf>, ConfigError> {
    let given = settings.get("worker.token", value::shown_token)?;
    let file = settings.get("worker.token_file", value::file)?;
    let (plain, held) =
        (&settings.setting("worker.token")?.origin, &settings.setting("worker.token_file")?.origin);
    Ok(file.filter(|_| given.is_none() || plain.rank() < held.rank()))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let hint = "it must hold one token and nothing else; `outlast token new` creates one";
    let words = |reason: &str| format!("token file {} {reason}", path.display());
    let wrong = |reason: &str| ConfigError::together(words(reason), hint);
    // Another program may be about to write it.
    let not_yet =
        |reason: &str| ConfigError::NotYet { message: words(reason), hint: hint.to_owned() };
    let text = std::fs::read_to_string(path).map_err(|error| {
        let reason = format!("cannot be read: {error}");
        if error.kind() == ErrorKind::NotFound { not_yet(&reason) } else { wrong(&reason) }
    })?;
    let token = value::shown_token(&text.into()).map_err(|_expected| wrong("holds no token"))?;
    token.ok_or_else(|| not_yet("is empty"))
}
