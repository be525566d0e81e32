//! `outlast token`: makes bearer tokens, and the hash that a server is configured with.

use std::fmt::Display;
use std::io::Read;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as ClapArgs, Subcommand};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;
use outlast_server::access::{Role, TokenHash};

use crate::config::value::{self, TOKEN_LENGTH_MIN};
use crate::output::print;

/// Longest text that is read as a token: anything longer is the wrong file.
const STDIN_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a token: the token on stdout, its lines for `server.tokens` on stderr
    New(NewArgs),
    /// Read a token from stdin and print its SHA-256 for `server.tokens`
    Hash,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct NewArgs {
    /// Role: admin, operator, producer, worker or viewer
    #[arg(long, default_value = "producer", value_parser = parse_role)]
    role: Role,
    /// Name of its user [default: the role]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::New(args) => new(args)?,
        Command::Hash => print(&format!("{}\n", TokenHash::of(&from_stdin()?)))?,
    }
    Ok(Exit::Ok)
}

fn new(args: NewArgs) -> Result<(), Failure> {
    let random: [u8; 32] = rand::random();
    let token = random.iter().fold("outlast_".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let NewArgs { role, name } = args;
    let name = name.unwrap_or_else(|| role.to_string());
    let hash = TokenHash::of(&token);
    // JSON is YAML, and quotes what needs it.
    let name = serde_json::Value::from(name);
    print(&format!("{token}\n"))?;
    say(&format!(
        "shown once; the server's configuration needs only its hash:\n\n\
         server:\n  tokens:\n    - {{name: {name}, role: {role}, sha256: {hash}}}\n"
    ));
    Ok(())
}

/// Not an argument: other users of this machine could read it.
fn from_stdin() -> Result<String, Failure> {
    let unreadable =
        |error: &dyn Display| Failure::usage(format!("cannot read a token from stdin: {error}"));
    let mut bytes = Vec::new();
    // One byte more shows that it is too long.
    let read = std::io::stdin().take(STDIN_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&error))?;
    if bytes.len() > STDIN_BYTES_MAX {
        return Err(unreadable(&format!("it is longer than {STDIN_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|error| unreadable(&error))?;
    let token = text.trim();
    if token.len() < TOKEN_LENGTH_MIN {
        let message = format!("a token has at least {TOKEN_LENGTH_MIN} characters");
        return Err(Failure::usage(message).with_hint("`outlast token new` creates a safe one"));
    }
    Ok(token.to_owned())
}

fn parse_role(name: &str) -> Result<Role, String> {
    value::role(name).ok_or_else(|| {
        let names = Role::ALL.map(Role::as_str).join(", ");
        format!("roles are {names}")
    })
}
