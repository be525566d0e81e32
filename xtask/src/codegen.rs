//! Generates `crates/proto/src/generated/` from the .proto file, without protoc.

use std::path::Path;

use anyhow::Context as _;

const PROTO: &str = "outlast/session/v1/session.proto";
const GENERATED: &str = "crates/proto/src/generated";

/// Writes the generated code below `root`.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    generate(root, &root.join(GENERATED))
}

fn generate(root: &Path, out: &Path) -> anyhow::Result<()> {
    let descriptors = protox::compile([PROTO], [root.join("crates/proto/proto")])?;
    tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".")
        .compile_fds(descriptors)
        .context("failed to generate gRPC code")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_grpc_code_is_what_the_proto_file_generates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let fresh = std::env::temp_dir().join(format!("outlast-codegen-{}", std::process::id()));
        std::fs::create_dir_all(&fresh).unwrap();
        generate(root, &fresh).unwrap();
        let name = "outlast.session.v1.rs";
        let expected = std::fs::read_to_string(fresh.join(name)).unwrap();
        let committed = std::fs::read_to_string(root.join(GENERATED).join(name)).unwrap();
        std::fs::remove_dir_all(&fresh).unwrap();
        assert!(expected == committed, "run `cargo xtask codegen`");
    }
}
