//! Rebuilds the crate when a file of the built-in pack changes: the macro that embeds
//! them cannot say so itself.

fn main() {
    let pack = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packs/core");
    for folder in ["", "actions", "lib"] {
        println!("cargo::rerun-if-changed={}", pack.join(folder).display());
    }
}
