//! Keeping tokens and passwords out of `/proc/PID/environ` and `/proc/PID/cmdline`, where jobs
//! of the same user would read them.
//!
//! A process that stays is started again under the same process id: its environment waits in a
//! descriptor, and what is secret among its arguments has become part of that environment.

use std::ffi::OsString;

use outlast_worker::handover;

use crate::config::{Environment, keys};

/// Flags with a secret, and their keys.
const FLAGS: [(&str, &str); 3] =
    [("--token", "worker.token"), ("--server", "worker.server"), ("--database", "server.database")];

/// Starts this process again if it shows more than it must. Does nothing the second time.
pub(crate) fn start_again_if_seen(environment: &Environment) {
    if handover::received().is_some() {
        return;
    }
    let (args, moved) = without_secrets(std::env::args_os().collect());
    let seen = environment.variables().iter().any(|(name, _)| !Environment::is_harmless(name));
    if !seen && moved.is_empty() {
        return;
    }
    let environment = with_moved(environment, &moved);
    let variables = environment.variables();
    let failed = handover::start_again(&args, variables, Environment::is_harmless);
    // Goes on as it is: its memory and environment are closed to other users all the same.
    warn(&failed);
}

/// The environment with what was among the arguments, which still beats what it said itself.
fn with_moved(environment: &Environment, moved: &[(&'static str, String)]) -> Environment {
    moved.iter().fold(environment.clone(), |all, (key, value)| {
        // A file with the token is another way to say the same.
        let all = if *key == "worker.token" { all.without("worker.token_file") } else { all };
        all.with(&keys::variable(key), value)
    })
}

fn warn(error: &std::io::Error) {
    use std::io::Write;
    let text = "cannot hide the environment from other processes of this user";
    writeln!(std::io::stderr(), "warning: {text}: {error}").unwrap_or_default();
}

/// The arguments without secrets, and the secrets by key.
fn without_secrets(args: Vec<OsString>) -> (Vec<OsString>, Vec<(&'static str, String)>) {
    let (mut kept, mut moved) = (Vec::new(), Vec::new());
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), None),
        };
        let Some((_, key)) = FLAGS.iter().find(|(flag, _)| *flag == name) else {
            kept.push(arg);
            continue;
        };
        let value = inline.or_else(|| args.next()?.into_string().ok()).unwrap_or_default();
        if is_secret(key, &value) {
            moved.push((*key, value));
        } else {
            kept.extend([OsString::from(name), value.into()]);
        }
    }
    (kept, moved)
}

/// A token always is; an address only if it holds a password, or a user that may be one.
fn is_secret(key: &str, value: &str) -> bool {
    key == "worker.token" || value.contains('@') || value.contains("password")
}

#[cfg(test)]
mod tests {
    use super::{with_moved, without_secrets};
    use crate::config::Environment;

    // `--token` beside OUTLAST_TOKEN_FILE was "given twice", though a flag beats the environment.
    #[test]
    fn a_token_among_the_arguments_beats_a_file_in_the_environment() {
        for name in ["OUTLAST_TOKEN_FILE", "OUTLAST_WORKER__TOKEN_FILE"] {
            let given = Environment::of(&[(name, "/run/token"), ("OUTLAST_SERVER", "http://h")]);
            let moved = with_moved(&given, &[("worker.token", "hush".into())]);
            let expected = Environment::of(&[
                ("OUTLAST_SERVER", "http://h"),
                ("OUTLAST_WORKER__TOKEN", "hush"),
            ]);
            assert_eq!(moved.variables(), expected.variables());
            let others = with_moved(&given, &[("server.database", "postgres://u:p@h/d".into())]);
            assert!(others.variables().iter().any(|(known, _)| known == name));
        }
    }

    #[test]
    fn secrets_leave_the_arguments_and_nothing_else_does() {
        let args = "outlast worker --name a --token hush --packs=x --token=hush2";
        let (kept, moved) = without_secrets(args.split(' ').map(Into::into).collect());
        assert_eq!(kept, ["outlast", "worker", "--name", "a", "--packs=x"]);
        assert_eq!(moved, [("worker.token", "hush".into()), ("worker.token", "hush2".into())]);
        let args = "outlast worker --server http://u:hush@h:1 --name a";
        let (kept, moved) = without_secrets(args.split(' ').map(Into::into).collect());
        assert_eq!(kept, ["outlast", "worker", "--name", "a"]);
        assert_eq!(moved, [("worker.server", "http://u:hush@h:1".into())]);
        let args = "outlast worker --server http://h:1";
        let (kept, moved) = without_secrets(args.split(' ').map(Into::into).collect());
        assert_eq!((kept.len(), moved.len()), (4, 0));
        let args = "outlast server --database sqlite:x";
        let (kept, moved) = without_secrets(args.split(' ').map(Into::into).collect());
        assert_eq!((kept.len(), moved.len()), (4, 0));
        let args = "outlast server --database postgres://u:hush@h/d --listen 127.0.0.1:1";
        let (kept, moved) = without_secrets(args.split(' ').map(Into::into).collect());
        assert_eq!(kept, ["outlast", "server", "--listen", "127.0.0.1:1"]);
        assert_eq!(moved, [("server.database", "postgres://u:hush@h/d".into())]);
    }
}
