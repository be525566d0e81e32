//! Runs a command beside a throw-away PostgreSQL, which its tests share:
//! `outlast-cluster COMMAND [ARGUMENT…]`.

use std::process::{Command, ExitCode};

use anyhow::Context as _;
use outlast_cluster::{Cluster, SHARED, hide_package};

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().context("which command? outlast-cluster COMMAND [ARGUMENT…]")?;
    let cluster = Cluster::start(&["max_connections=400"])?;
    let ended = hide_package(Command::new(&program).args(arguments))
        .env(SHARED, cluster.url())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
