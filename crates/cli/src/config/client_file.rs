//! `~/.config/outlast/client.yaml`: the server of an operator's commands, and how to be let in.
//!
//! ```yaml
//! server: https://jobs.example.com
//! token_file: token
//! ```
//!
//! Flags and the environment win over it. If they name another server, nothing of the file counts:
//! its token is for its own server. Without `server`, its token is for the default address alone, and
//! the rest of it for any server. Paths in it begin at its folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::value;
use super::{ConfigError, Environment, Origin, Settings, keys};

/// Its keys. Each is a key of the section `worker`.
const KEYS: &[&str] = &["server", "token", "token_file", "ca_file", "client_cert", "client_key"];
/// Keys that hold a token, or name its file.
const TOKENS: &[&str] = &["token", "token_file"];
/// Keys that name files.
const FILES: &[&str] = &["token_file", "ca_file", "client_cert", "client_key"];

/// Where the file is, if there is a home.
fn path(environment: &Environment) -> Option<PathBuf> {
    let folder = match environment.get("XDG_CONFIG_HOME").map(Path::new) {
        Some(folder) if folder.is_absolute() => folder.to_owned(),
        _ => Path::new(environment.get("HOME")?).join(".config"),
    };
    Some(folder.join("outlast/client.yaml"))
}

/// Adds what the file says to settings that have no more than flags and the environment.
pub(super) fn add(settings: &mut Settings, environment: &Environment) -> Result<(), ConfigError> {
    let Some(path) = path(environment) else { return Ok(()) };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(ConfigError::Unreadable { path, reason: error.to_string() });
        }
    };
    let mut entries = parse(&path, &text)?;
    if entries.contains_key("token") {
        refuse_open(&path)?;
    }
    let belongs = is_asked(settings, entries.get("server"))?;
    if !belongs && entries.contains_key("server") {
        return Ok(());
    }
    if !belongs {
        withhold_token(&path, &mut entries, settings)?;
    }
    for (name, value) in entries {
        let line = text.lines().zip(1..).find(|(line, _)| line.trim_start().starts_with(&name));
        let origin = Origin::File { path: path.clone(), line: line.map_or(1, |(_, line)| line) };
        settings.fill(&format!("worker.{name}"), placed(&path, &name, value), origin)?;
    }
    Ok(())
}

/// Whether this server, or the one at the default address, is the one that is asked.
fn is_asked(settings: &Settings, server: Option<&Value>) -> Result<bool, ConfigError> {
    let asked = settings.setting("worker.server")?;
    if asked.origin == Origin::Default {
        return Ok(true);
    }
    let default = Settings::defaults();
    let own = match server {
        Some(server) => server,
        None => &default.setting("worker.server")?.value,
    };
    Ok(value::servers(&asked.value).ok() == value::servers(own).ok())
}

/// Takes the token out, which would be sent to whichever server is asked.
fn withhold_token(
    path: &Path,
    entries: &mut Map<String, Value>,
    settings: &Settings,
) -> Result<(), ConfigError> {
    let before = entries.len();
    entries.retain(|name, _| !TOKENS.contains(&name.as_str()));
    let mut is_needed = before > entries.len();
    for key in ["worker.token", "worker.token_file"] {
        is_needed &= settings.setting(key)?.origin == Origin::Default;
    }
    if is_needed {
        let default = Settings::defaults().get("worker.server", value::servers)?;
        tracing::warn!(
            "client file {} names no server, so its token is for {default} alone and is not sent; \
             add the line `server:` with the address that it is for",
            path.display()
        );
    }
    Ok(())
}

fn parse(path: &Path, text: &str) -> Result<Map<String, Value>, ConfigError> {
    // Nothing of the file is repeated: it may hold a token.
    let malformed = |problem: String| {
        ConfigError::together(
            format!("client file {} {problem}", path.display()),
            format!("it holds `key: value` lines; keys are {}", KEYS.join(", ")),
        )
    };
    let read: Result<Option<Value>, _> = serde_saphyr::from_str(text);
    let entries = match read {
        Ok(None | Some(Value::Null)) => Map::new(),
        Ok(Some(Value::Object(entries))) => entries,
        Ok(Some(_)) => return Err(malformed("is not a mapping".to_owned())),
        Err(_shows_text) => return Err(malformed("is no YAML".to_owned())),
    };
    match entries.keys().find(|key| !KEYS.contains(&key.as_str())) {
        None => Ok(entries),
        Some(unknown) => Err(malformed(format!("has an unknown key `{unknown}`"))),
    }
}

/// A path from the folder of the file.
fn placed(path: &Path, name: &str, value: Value) -> Value {
    match (value, path.parent()) {
        (Value::String(file), Some(folder)) if FILES.contains(&name) && !file.is_empty() => {
            Value::String(folder.join(file).display().to_string())
        }
        (value, _) => value,
    }
}

/// Refuses a file with a token that other users can read.
fn refuse_open(path: &Path) -> Result<(), ConfigError> {
    let is_open = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o077 != 0);
    if !is_open {
        return Ok(());
    }
    let path = path.display();
    Err(ConfigError::together(
        format!("client file {path} holds a token, and other users may read it"),
        format!("chmod 600 {path}; or name a file with `token_file`"),
    ))
}

impl Settings {
    /// Sets a key that neither a flag nor the environment sets.
    fn fill(&mut self, name: &str, value: Value, origin: Origin) -> Result<(), ConfigError> {
        let key = keys::find(name).ok_or_else(|| ConfigError::unknown(name, origin.clone()))?;
        if self.setting(name)?.origin.rank() >= origin.rank() {
            return Ok(());
        }
        let setting = self.set(name, value, origin)?;
        (key.kind.check)(&setting.value).map_err(|expected| setting.wrong(expected))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use crate::config::client::load;
    use crate::config::{Environment, Flag};

    /// The folder of a user with this file, and what clients read there.
    struct Home(tempfile::TempDir);

    impl Home {
        fn with(text: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join(".config/outlast");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("client.yaml"), text).unwrap();
            std::fs::write(folder.join("secret"), "from-the-token-file\n").unwrap();
            let home = Self(home);
            home.mode(0o600);
            home
        }

        fn mode(&self, mode: u32) {
            let path = self.0.path().join(".config/outlast/client.yaml");
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn read(&self, server: Option<&str>, more: &[(&str, &str)]) -> Result<[String; 2], String> {
            let home = self.0.path().to_str().unwrap();
            let environment = Environment::of(&[&[("HOME", home)], more].concat());
            let flag = Flag::new("worker.server", "--server", server.map(ToOwned::to_owned));
            let config = load(vec![flag], &environment).map_err(|error| error.to_string())?;
            Ok([config.server, config.token.unwrap_or_default()])
        }
    }

    const OWN: &str = "server: http://own:1\ntoken_file: secret\n";

    #[test]
    fn server_and_token_are_the_files_unless_something_nearer_says_otherwise() {
        let home = Home::with(OWN);
        let read = |server, more: &[(&str, &str)]| home.read(server, more).unwrap();
        assert_eq!(read(None, &[]), ["http://own:1", "from-the-token-file"]);
        assert_eq!(read(Some("own:1"), &[]), ["http://own:1", "from-the-token-file"]);
        let token = [("OUTLAST_TOKEN", "from-the-environment")];
        assert_eq!(read(None, &token), ["http://own:1", "from-the-environment"]);
        assert_eq!(Home::with("").read(None, &[]).unwrap(), ["http://127.0.0.1:8080", ""]);
    }

    /// Else it would be sent to whichever server is asked.
    #[test]
    fn token_of_the_file_is_for_no_other_server() {
        let home = Home::with(OWN);
        assert_eq!(home.read(Some("other:2"), &[]).unwrap(), ["http://other:2", ""]);
        let other = [("OUTLAST_SERVER", "http://other:2")];
        assert_eq!(home.read(None, &other).unwrap(), ["http://other:2", ""]);
    }

    // It was sent to any server.
    #[test]
    fn token_of_a_file_without_a_server_is_for_the_default_address_alone() {
        let home = Home::with("token_file: secret\nca_file: ca.pem\n");
        let own = "from-the-token-file";
        assert_eq!(home.read(None, &[]).unwrap(), ["http://127.0.0.1:8080", own]);
        assert_eq!(home.read(Some("127.0.0.1:8080"), &[]).unwrap()[1], own);
        assert_eq!(home.read(Some("https://other:2"), &[]).unwrap(), ["https://other:2", ""]);
        let other = [("OUTLAST_SERVER", "http://other:2"), ("OUTLAST_TOKEN", "for-the-other")];
        assert_eq!(home.read(None, &other).unwrap(), ["http://other:2", "for-the-other"]);
        let direct = Home::with("token: from-the-file-itself\n");
        assert_eq!(direct.read(Some("other:2"), &[]).unwrap()[1], "");
    }

    #[test]
    fn file_that_is_wrong_says_what_is_right_and_shows_no_token() {
        for (text, named) in [
            ("servre: x\n", "unknown key `servre`"),
            ("- a\n", "is not a mapping"),
            ("token: [hidden-token\n", "is no YAML"),
            ("server: ftp://x\n", "`worker.server` is `ftp://x`"),
        ] {
            let refused = Home::with(text).read(None, &[]).unwrap_err();
            assert!(refused.contains(named) && !refused.contains("hidden"), "{refused}");
        }
        let home = Home::with("token: hidden-token-0123\n");
        assert_eq!(home.read(None, &[]).unwrap()[1], "hidden-token-0123");
        home.mode(0o644);
        let refused = home.read(None, &[]).unwrap_err();
        assert!(refused.contains("other users may read it"), "{refused}");
    }
}
