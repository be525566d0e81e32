//! Reading an export, and trusting nothing in it: a line that was changed, left out or cut
//! off is named.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Entry, FORMAT, LINE_HEAD, LINE_MIDDLE, LINE_TAIL, MANIFEST, Manifest, damaged, io};
use crate::transfer::TransferError;
use crate::transfer::digest::{Chain, Digest, sum_of};
use crate::transfer::row::{Row, parse};
use crate::transfer::section::{SECTIONS, Section};

/// The longest line that is read: several times what limits allow a row.
const LINE_MAX: u64 = 64 << 20;

/// Reads what an export holds.
///
/// # Errors
/// Returns [`TransferError::Unfinished`] for a folder without a manifest, and what is wrong
/// with one that is there.
pub fn read_manifest(folder: &Path) -> Result<Manifest, TransferError> {
    let path = folder.join(MANIFEST);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => {
            return Err(TransferError::Unfinished { folder: folder.to_owned() });
        }
        Err(error) => return Err(io(folder, error)),
    };
    let wrong = |what: String| damaged(&path, 0, what);
    let mut whole: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let inner = whole.get_mut("manifest").map(Value::take).unwrap_or_default();
    let sum = whole.get("sum").and_then(Value::as_str).unwrap_or_default();
    if sum != sum_of(&inner.to_string()) {
        return Err(wrong("its sum is not that of what it says".to_owned()));
    }
    let format = inner.get("format").and_then(Value::as_u64).unwrap_or(0);
    let format = u32::try_from(format).unwrap_or(u32::MAX);
    if format > FORMAT {
        return Err(TransferError::NewerFormat { found: format, known: FORMAT });
    }
    let manifest: Manifest =
        serde_json::from_value(inner).map_err(|error| wrong(error.to_string()))?;
    let names: Vec<&str> = manifest.sections.iter().map(|entry| entry.name.as_str()).collect();
    let of_this_build =
        SECTIONS.iter().filter(|section| !section.is_added() || names.contains(&section.name));
    let known: Vec<&str> = of_this_build.map(|section| section.name).collect();
    if names != known {
        return Err(wrong(format!("it has the sections {names:?}, not {known:?}")));
    }
    Ok(manifest)
}

/// Reads the file of a section, row by row.
pub struct SectionReader {
    path: PathBuf,
    file: Box<dyn BufRead + Send>,
    section: &'static Section,
    entry: Entry,
    chain: Chain,
    line: Vec<u8>,
}

impl fmt::Debug for SectionReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionReader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SectionReader {
    /// Returns the section that it reads.
    #[must_use]
    pub const fn section(&self) -> &'static Section {
        self.section
    }

    /// Opens the file of a section of which the manifest says `entry`.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn open(
        folder: &Path,
        section: &'static Section,
        manifest: &Manifest,
    ) -> Result<Self, TransferError> {
        let path = folder.join(section.file());
        let entry = manifest.sections.iter().find(|entry| entry.name == section.name).cloned();
        if entry.is_none() && section.is_added() {
            let Digest { rows, sha256 } = Chain::default().digest();
            let name = section.name.to_owned();
            let entry = Entry { name, file: section.file(), rows, sha256 };
            let file = Box::new(std::io::empty());
            return Ok(Self {
                path,
                file,
                section,
                entry,
                chain: Chain::default(),
                line: Vec::new(),
            });
        }
        let entry =
            entry.ok_or_else(|| damaged(folder.join(MANIFEST), 0, "a section is missing"))?;
        let file = match File::open(&path) {
            Ok(file) => Box::new(BufReader::with_capacity(1 << 18, file)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged(&path, 0, "the file is missing"));
            }
            Err(error) => return Err(io(&path, error)),
        };
        Ok(Self { path, file, section, entry, chain: Chain::default(), line: Vec::new() })
    }

    /// Returns the next row; `None` at the end, when all that was written has been read.
    ///
    /// # Errors
    /// Returns [`TransferError::Damaged`] with the line that is not what was written.
    pub fn next_row(&mut self) -> Result<Option<Row>, TransferError> {
        let number = self.chain.rows() + 1;
        self.line.clear();
        let mut limited = (&mut self.file).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut self.line);
        if read.map_err(|error| io(&self.path, error))? == 0 {
            return self.end().map(|()| None);
        }
        let wrong = |what: &str| damaged(&self.path, number, what);
        if number > self.entry.rows {
            return Err(wrong(&format!("the export has {} lines here", self.entry.rows)));
        }
        let line = self.line.strip_suffix(b"\n").ok_or_else(|| wrong("it is cut off"))?;
        let line = std::str::from_utf8(line).map_err(|_utf8| wrong("it is not UTF-8"))?;
        let inner = line.strip_prefix(LINE_HEAD).and_then(|rest| rest.strip_suffix(LINE_TAIL));
        let (sum, text) = inner
            .and_then(|inner| inner.split_once(LINE_MIDDLE))
            .ok_or_else(|| wrong("it is not a sum and a row"))?;
        self.chain.add(text);
        if sum != self.chain.line() {
            return Err(wrong("its sum is not that of its row and those before"));
        }
        parse(self.section, text).map(Some).map_err(|what| wrong(&what))
    }

    fn end(&self) -> Result<(), TransferError> {
        let found = self.chain.digest();
        if found.rows != self.entry.rows {
            let what = format!("it ends here, {} lines were written", self.entry.rows);
            return Err(damaged(&self.path, found.rows + 1, what));
        }
        if found.sha256 != self.entry.sha256 {
            return Err(damaged(&self.path, 0, "its sum is not what the manifest says"));
        }
        Ok(())
    }
}
