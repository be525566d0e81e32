//! Moving a store: all that it holds as an export, a folder of text, and from there into an
//! empty store of either kind.
//!
//! ```text
//! Source ─pages, by key─▶ rows ─text, chained sums─▶ FOLDER/job_row.jsonl …, manifest.json
//! FOLDER ─checked─▶ rows ─pages, progress in the same transaction─▶ Target ─read back─▶ sums equal
//! ```
//!
//! - [`section`]: what a store holds, by table and column, the same for every store
//! - [`row`]: a row and its text, of which there is one only
//! - [`digest`]: how many rows a section has, and the sum of their texts
//! - [`folder`]: the files of an export
//! - [`drive`]: export, check, import, compare
//!
//! Nothing here decides anything about jobs, and nothing is changed on the way: numbers,
//! epochs, times and ids are what they were.

pub mod digest;
pub mod drive;
pub mod folder;
pub mod row;
pub mod section;

use std::future::Future;
use std::path::PathBuf;

use outlast_core::time::Timestamp;
use outlast_store::error::StoreError;
use uuid::Uuid;

use row::Row;
use section::Section;

/// What is read or written at once: memory is bounded by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Rows at most.
    pub rows: usize,
    /// Bytes of text and binary after which no further row is taken.
    pub bytes: usize,
}

impl Page {
    /// Pages of a few milliseconds each.
    pub const STANDARD: Self = Self { rows: 2_000, bytes: 2 << 20 };
}

/// What is said of a store in its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// `sqlite` or `postgres`.
    pub kind: &'static str,
    /// Version of its schema.
    pub schema: usize,
    /// The latest time that it has acted at.
    pub time: Timestamp,
}

/// Asks for rows of a section.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery<'a> {
    /// The section.
    pub section: &'static Section,
    /// The row that they follow by key; `None` for the first ones.
    pub after: Option<&'a Row>,
    /// How many at most.
    pub page: Page,
}

/// Rows that an import stores in one transaction.
#[derive(Debug)]
pub struct Part<'a> {
    /// What they are rows of.
    pub section: &'static Section,
    /// The rows.
    pub rows: Vec<Row>,
    /// How far it has come with them.
    pub progress: &'a Progress,
}

/// A store as it was at one moment, read page by page.
pub trait Source {
    /// Says what the store is.
    fn facts(&self) -> SourceFacts;

    /// Returns the next rows of a section by key; none when there are no more. At least one is
    /// returned if there is one.
    fn page(
        &mut self,
        query: PageQuery<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}

/// How far an import has come; kept in the target, in the transaction of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which export.
    pub export: Uuid,
    /// The section under way; those before it are stored.
    pub section: String,
    /// How many of its rows are stored.
    pub stored: u64,
    /// Whether everything is stored, read back and found right.
    pub done: bool,
}

/// The store that an import fills. No server uses it meanwhile. It is read to compare.
pub trait Target: Source {
    /// Returns how far the import came that is under way, or else the last one that ended.
    fn progress(&mut self) -> impl Future<Output = Result<Option<Progress>, StoreError>> + Send;

    /// Stores rows of a section and how far that is, in one transaction.
    fn write(&mut self, part: Part<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Sets what follows from the rows: the next numbers, the time below which the store's
    /// clock must not fall.
    fn complete(&mut self, time: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Keeps the progress alone.
    fn keep(&mut self, progress: &Progress) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Why a store was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The store does not answer, or refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The folder already holds something.
    #[error("{} already holds {what}", folder.display())]
    Occupied {
        /// The folder.
        folder: PathBuf,
        /// What.
        what: String,
    },
    /// The folder holds no export, or one that was not finished.
    #[error("{} holds no whole export: it has no manifest.json", folder.display())]
    Unfinished {
        /// The folder.
        folder: PathBuf,
    },
    /// The export was made by a newer Outlast.
    #[error(
        "the export has format {found}, this build knows {known}: it was made by a newer outlast"
    )]
    NewerFormat {
        /// Format found.
        found: u32,
        /// Format known.
        known: u32,
    },
    /// A file of the export is not what was written.
    #[error("{} is damaged{}: {what}", file.display(), at_line(*line))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The line, from 1; 0 for the whole file.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The target has data of its own.
    #[error("the store is not empty: it has rows in {}", tables.join(", "))]
    NotEmpty {
        /// Where.
        tables: Vec<&'static str>,
    },
    /// This very export is there already.
    #[error("this export was imported into this store before")]
    AlreadyImported,
    /// The target holds a part of another export.
    #[error("the store holds a part of another export ({export}), whose import was not finished")]
    OtherImport {
        /// That export.
        export: Uuid,
    },
    /// What was stored is not what the export holds.
    #[error("{section} differs: the export has {expected}, the store {found}")]
    Differs {
        /// The section.
        section: &'static str,
        /// Rows and sum of the export.
        expected: digest::Digest,
        /// Rows and sum of the store.
        found: digest::Digest,
    },
}

fn at_line(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" at line {line}") }
}
