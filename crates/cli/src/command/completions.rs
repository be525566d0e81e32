//! `outlast completions`: what a shell needs to complete our command line.

use clap::{Args as ClapArgs, ValueEnum};
use clap_complete::env::Shells;
use outlast_cli_core::exit::{Exit, Failure};

use crate::completion;
use crate::output::print;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Shell that will read it
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells that can complete.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Shell {
    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Elvish => "elvish",
            Self::Fish => "fish",
            Self::Powershell => "powershell",
            Self::Zsh => "zsh",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("no completion for {}: {error}", args.shell.name()))
    };
    let shells = Shells::builtins();
    let shell = shells.completer(args.shell.name()).ok_or_else(|| failed(&"unknown shell"))?;
    let mut script = Vec::new();
    shell
        .write_registration(completion::VARIABLE, "outlast", "outlast", "outlast", &mut script)
        .map_err(|error| failed(&error))?;
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
