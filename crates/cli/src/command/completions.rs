//! `outlast completions`: what a shell needs to complete our command line.

use clap::Args as ClapArgs;
use clap_complete::Shell;
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

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("no completion for {}: {error}", args.shell))
    };
    let shells = Shells::builtins();
    let shell =
        shells.completer(&args.shell.to_string()).ok_or_else(|| failed(&"unknown shell"))?;
    let mut script = Vec::new();
    shell
        .write_registration(completion::VARIABLE, "outlast", "outlast", "outlast", &mut script)
        .map_err(|error| failed(&error))?;
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
