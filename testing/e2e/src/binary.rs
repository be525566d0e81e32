//! Finding the binary under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use outlast_cluster::hide_package;

/// Returns the path of `outlast`: `OUTLAST_BIN`, else the one beside the running test, which is
/// built first if it is not there.
///
/// # Panics
///
/// When there is none and it cannot be built.
#[must_use]
pub fn outlast() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("OUTLAST_BIN") {
            let given = PathBuf::from(given);
            assert!(given.is_file(), "OUTLAST_BIN names no file: {}", given.display());
            return given;
        }
        let profile_dir = profile_dir();
        let binary = profile_dir.join("outlast");
        if !binary.is_file() {
            build(&profile_dir, &binary, &["--package", "outlast-cli"]);
        }
        assert!(binary.is_file(), "no binary at {}", binary.display());
        binary
    })
}

/// Finds `target/<profile>`, from `target/<profile>/deps/<test>`.
pub(crate) fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let mut dir = test.parent().expect("the test lies in a folder");
    if dir.ends_with("deps") {
        dir = dir.parent().expect("deps lies in a profile's folder");
    }
    dir.to_owned()
}

/// Returns the path of an example of the SDK, built if it is not there.
///
/// # Panics
///
/// When it cannot be built.
#[must_use]
pub fn sdk_example(name: &str) -> PathBuf {
    let profile_dir = profile_dir();
    let path = profile_dir.join("examples").join(name);
    if !path.is_file() {
        build(&profile_dir, &path, &["--package", "outlast-sdk", "--example", name]);
    }
    path
}

/// Builds a program once, however many tests ask at the same time.
fn build(profile_dir: &Path, program: &Path, what: &[&str]) {
    let lock = File::create(profile_dir.join(".outlast-e2e.lock")).expect("a lock file");
    lock.lock().expect("the lock");
    if program.is_file() {
        return;
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet"]).args(what).arg("--target-dir");
    build.arg(profile_dir.parent().expect("a target folder"));
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile_dir.ends_with("release") {
        build.arg("--release");
    }
    let status = hide_package(&mut build).stdin(Stdio::null()).status().expect("cargo runs");
    assert!(status.success(), "cargo build of {} failed: {status}", program.display());
}
