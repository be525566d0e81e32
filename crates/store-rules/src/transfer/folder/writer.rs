//! Writing an export. Whatever ends it early leaves a folder without a manifest, which the
//! next export into it overwrites.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::{Entry, LINE_HEAD, LINE_MIDDLE, LINE_TAIL, MANIFEST, MANIFEST_PART, Manifest, io};
use crate::transfer::TransferError;
use crate::transfer::digest::{Chain, sum_of};
use crate::transfer::row::{Cell, write};
use crate::transfer::section::{SECTIONS, Section};

/// A folder that an export is written to.
#[derive(Debug)]
pub struct FolderWriter {
    folder: PathBuf,
}

/// A section's file under way.
#[derive(Debug)]
pub struct SectionWriter {
    path: PathBuf,
    file: BufWriter<File>,
    section: &'static Section,
    chain: Chain,
    text: String,
}

impl FolderWriter {
    /// Takes a folder: a new one, an empty one, or one that an export was begun in.
    ///
    /// # Errors
    /// Returns [`TransferError::Occupied`] when there is anything else in it.
    pub fn create(folder: &Path) -> Result<Self, TransferError> {
        fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
        let ours: Vec<String> = SECTIONS.iter().map(Section::file).collect();
        let occupied = |what: String| TransferError::Occupied { folder: folder.to_owned(), what };
        let mut left = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| io(folder, error))? {
            let entry = entry.map_err(|error| io(folder, error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == MANIFEST {
                return Err(occupied("an export".to_owned()));
            }
            if name != MANIFEST_PART && !ours.contains(&name) {
                return Err(occupied(format!("`{name}`, which is no part of an export")));
            }
            left.push(entry.path());
        }
        for path in left {
            fs::remove_file(&path).map_err(|error| io(&path, error))?;
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Begins the file of a section.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn section(&self, section: &'static Section) -> Result<SectionWriter, TransferError> {
        let path = self.folder.join(section.file());
        let file = BufWriter::new(File::create(&path).map_err(|error| io(&path, error))?);
        Ok(SectionWriter { path, file, section, chain: Chain::default(), text: String::new() })
    }

    /// Makes the export whole, on disk.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn finish(self, manifest: &Manifest) -> Result<(), TransferError> {
        let part = self.folder.join(MANIFEST_PART);
        let inner = serde_json::to_string(manifest).unwrap_or_default();
        let text = format!("{{\"sum\":\"{}\",\"manifest\":{inner}}}\n", sum_of(&inner));
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            File::open(&self.folder)?.sync_all()?;
            fs::rename(&part, self.folder.join(MANIFEST))?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| io(&part, error))
    }
}

impl SectionWriter {
    /// Writes a row.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn add(&mut self, row: &[Cell]) -> Result<(), TransferError> {
        self.text.clear();
        write(self.section, row, &mut self.text);
        self.chain.add(&self.text);
        let sum = self.chain.line();
        let text = &self.text;
        let wrote = writeln!(self.file, "{LINE_HEAD}{sum}{LINE_MIDDLE}{text}{LINE_TAIL}");
        wrote.map_err(|error| io(&self.path, error))
    }

    /// Ends the file, on disk, and says what it holds.
    ///
    /// # Errors
    /// Returns what the system says.
    pub fn finish(mut self) -> Result<Entry, TransferError> {
        let ended = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        ended.map_err(|error| io(&self.path, error))?;
        let digest = self.chain.digest();
        Ok(Entry {
            name: self.section.name.to_owned(),
            file: self.section.file(),
            rows: digest.rows,
            sha256: digest.sha256,
        })
    }
}
