//! The files of an export: `SECTION.jsonl` for each section, and `manifest.json`, which is
//! written last and says what the others hold. A folder without it is not an export.
//!
//! ```text
//! {"sum":"0123456789abcdef","row":{"seq":1,…}}        a line: the chain up to here, the row
//! {"sum":"…","manifest":{"format":1,"export":"…","sections":[{"name":"class","rows":2,…}]}}
//! ```

mod reader;
mod writer;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TransferError;
use super::digest::Digest;
pub use reader::{SectionReader, read_manifest};
pub use writer::{FolderWriter, SectionWriter};

/// Version of the format of exports that this build writes.
pub const FORMAT: u32 = 1;
/// The file that is written last.
pub const MANIFEST: &str = "manifest.json";
/// What it is called until it is whole.
const MANIFEST_PART: &str = "manifest.json.part";

/// How a line of a section begins, what is between its sum and its row, and how it ends.
const LINE_HEAD: &str = "{\"sum\":\"";
const LINE_MIDDLE: &str = "\",\"row\":";
const LINE_TAIL: &str = "}";

/// What an export holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    /// Names this export.
    pub export: Uuid,
    /// Version of the program that wrote it.
    pub outlast: String,
    /// Kind of the store.
    pub source: String,
    /// Version of the store's schema.
    pub schema: usize,
    /// When, formatted for display.
    pub taken: String,
    /// The latest time that the store had acted at, in milliseconds since 1970.
    pub time_ms: i64,
    /// The sections, in the order in which they are moved.
    pub sections: Vec<Entry>,
}

/// What a section holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// How many rows.
    pub rows: u64,
    /// The sum of their texts.
    pub sha256: String,
}

impl Manifest {
    /// Returns what a section holds.
    #[must_use]
    pub fn digest(&self, section: &str) -> Option<Digest> {
        let entry = self.sections.iter().find(|entry| entry.name == section)?;
        Some(Digest { rows: entry.rows, sha256: entry.sha256.clone() })
    }

    /// Returns how many rows the export has in all.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.sections.iter().map(|entry| entry.rows).sum()
    }
}

fn io(path: &Path, source: std::io::Error) -> TransferError {
    TransferError::Io { path: path.to_owned(), source }
}

fn damaged(file: impl Into<PathBuf>, line: u64, what: impl Into<String>) -> TransferError {
    TransferError::Damaged { file: file.into(), line, what: what.into() }
}
