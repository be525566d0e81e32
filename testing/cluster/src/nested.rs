//! Commands that may start `cargo`, from a program that `cargo` started.

use std::process::Command;

/// Hides from a command the variables by which `cargo` describes the package it runs.
///
/// Build scripts read such variables. A `cargo` that inherits them builds every package above
/// those scripts again, and removes their files while another `cargo` reads them.
pub fn hide_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_cargo_does_not_see_this_package() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo runs this test");
        let output = hide_package(&mut Command::new("env")).output().unwrap();
        let seen = String::from_utf8_lossy(&output.stdout);
        assert!(seen.contains("PATH="), "{seen}");
        assert!(!seen.contains("CARGO_MANIFEST_DIR=") && !seen.contains("CARGO_PKG_"), "{seen}");
    }
}
