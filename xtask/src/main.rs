//! Project chores: `cargo xtask tidy | codegen | ci`.

mod codegen;
mod parameters;
mod tidy;
mod words;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let root = root();
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::write(&root),
        Some("tidy") => {
            let faults = tidy::check(&root)?;
            anyhow::ensure!(faults.is_empty(), "not tidy:\n  {}", faults.join("\n  "));
            Ok(())
        }
        Some("ci") => {
            let status = std::process::Command::new("bash")
                .arg(root.join(".ci/run"))
                .status()
                .context("failed to run .ci/run")?;
            anyhow::ensure!(status.success(), ".ci/run failed");
            Ok(())
        }
        other => anyhow::bail!("unknown chore {other:?}: try tidy, codegen or ci"),
    }
}

/// Returns the repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(1)
        .unwrap_or_else(|| Path::new("."))
        .to_owned()
}
