//! The token for a server: given directly, or as the file that holds it.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use outlast_sdk::read_token;

use super::value;
use super::{ConfigError, Flag, Settings};

/// Longest text of a pipe that holds a token.
const PIPE_BYTES_MAX: u64 = 64 * 1024;

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
    let token = match read_token(path) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => from_pipe(path),
        read => read,
    };
    token.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => not_yet("is empty"),
        ErrorKind::NotFound => not_yet(&format!("cannot be read: {error}")),
        ErrorKind::InvalidData => wrong("holds no token"),
        _ => wrong(&format!("cannot be read: {error}")),
    })
}

/// Reads a token from what can be read once, such as `--token-file <(pass show outlast)`.
fn from_pipe(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more shows that it is too long.
    let length = File::open(path)?.take(PIPE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(length).map_or(true, |length| length > PIPE_BYTES_MAX) {
        return Err(ErrorKind::InvalidData.into());
    }
    match value::shown_token(&text.into()) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(ErrorKind::UnexpectedEof.into()),
        Err(_expected) => Err(ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::path::Path;

    use super::read;

    #[test]
    fn a_token_may_come_through_a_pipe_of_the_shell() {
        let of = |text: &str| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
            read(Path::new(&path)).map_err(|error| error.to_string())
        };
        assert_eq!(of("a-token\n").unwrap(), "a-token");
        assert!(of("").unwrap_err().ends_with("is empty"));
        assert!(of("two words").unwrap_err().ends_with("holds no token"));
        let folder = read(Path::new("/")).unwrap_err().to_string();
        assert!(folder.contains("cannot be read"), "{folder}");
    }
}
