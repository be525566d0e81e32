//! `outlast man`: manual pages, made of the same words as `--help`.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use clap_mangen::Man;
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::say;

use crate::output::print;

#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Folder for outlast.1, outlast-jobs.1, …
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, tree: clap::Command) -> Result<Exit, Failure> {
    match &args.dir {
        None => print(&String::from_utf8_lossy(&page(tree)?))?,
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))?;
            let written = clap_mangen::generate_to(tree, folder);
            written.map_err(|error| unwritten(folder, &error))?;
            say(&format!("manual pages written to {}\n", folder.display()));
        }
    }
    Ok(Exit::Ok)
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| Failure::failed(format!("manual page: {error}")))?;
    Ok(page)
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}", path.display()))
        .with_hint("name a folder that you may write to with --dir")
}
