//! `outlast completions`: what a shell needs to complete our command line.

use clap::Args as ClapArgs;
use clap_complete::Shell;
use outlast_cli_core::exit::{Exit, Failure};

use crate::output::print;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Shell that will read it
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut tree: clap::Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut tree, "outlast", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
