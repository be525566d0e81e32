//! The pages in `docs/reference/`, generated from the definitions of the command line and the
//! configuration.

mod commands;
mod settings;

use std::path::Path;

/// Compares the page with the committed one; rewrites it first if `UPDATE_DOCS` is set.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(page.lines()).find(|(kept, page)| kept != page);
    assert!(
        kept == page,
        "docs/reference/{name} differs from the code, first at {first:?}; \
         if the change is intended, run UPDATE_DOCS=1 cargo test -p outlast-cli"
    );
}

/// A row of a table.
fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table.
fn head(names: &[&str]) -> String {
    format!("{}|{}\n", row(names), "---|".repeat(names.len()))
}
