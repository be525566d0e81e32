//! A server of our own, as a child process.

use std::ffi::OsString;
use std::path::Path;

use outlast_cli_core::exit::Failure;
use outlast_cli_core::process::{Child, Launch};
use tempfile::TempDir;

/// A temporary folder, in `parent` if one is named.
pub(crate) fn temporary_folder(parent: Option<&Path>) -> Result<TempDir, Failure> {
    let made = match parent {
        Some(parent) => TempDir::with_prefix_in("outlast-bench-", parent),
        None => TempDir::with_prefix("outlast-bench-"),
    };
    made.map_err(|error| Failure::failed(format!("cannot make a temporary folder: {error}")))
}

/// The embedded store in `folder`, as `--database` names it.
pub(crate) fn sqlite_in(folder: &Path) -> OsString {
    let mut database = OsString::from("sqlite:");
    database.push(folder.join("outlast.db"));
    database
}

/// Starts a server called `name` with the packs in `folder`, if there are any.
pub(crate) fn start(
    folder: &Path,
    name: &str,
    database: OsString,
    listen: &str,
) -> Result<Child, Failure> {
    let mut args: Vec<OsString> = vec!["server".into(), "--listen".into(), listen.into()];
    args.extend(["--database".into(), database]);
    let packs = folder.join("packs");
    if packs.is_dir() {
        args.extend(["--packs".into(), packs.into()]);
    }
    Child::start(Launch::with_log_in(folder, name, args))
}

/// Waits until a server listens; returns its address.
pub(crate) async fn address(server: &Child) -> Result<String, Failure> {
    let url = server.address().await;
    url.ok_or_else(|| server.explain(Failure::failed("the server did not start")))
}
