//! Project chores. `cargo xtask codegen` writes the generated gRPC code.

mod codegen;

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new("."));
    match std::env::args().nth(1).as_deref() {
        Some("codegen") => codegen::write(root),
        other => anyhow::bail!("unknown chore {other:?}: try `codegen`"),
    }
}
