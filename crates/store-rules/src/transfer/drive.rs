//! Export, check, import, compare: the same for every pair of stores.
//!
//! ```text
//! import: check the folder ─▶ empty, or begun by this export? ─▶ pages ─▶ settle ─▶ read back,
//!         compare ─▶ done.  Ended anywhere, the same call goes on from what is stored.
//! ```

use std::path::Path;

use outlast_store::error::StoreError;
use uuid::Uuid;

use super::digest::{Chain, Digest};
use super::folder::{Entry, FORMAT, FolderWriter, Manifest, SectionReader, read_manifest};
use super::row::{Row, size, write};
use super::section::{SECTIONS, Section};
use super::{Page, PageQuery, Part, Progress, Source, Target, TransferError};

/// What an export is called.
#[derive(Clone, Debug)]
pub struct Label {
    /// Names it; new for each.
    pub export: Uuid,
    /// Version of the program.
    pub outlast: String,
    /// When, formatted for display.
    pub taken: String,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Writing files.
    Exporting,
    /// Reading files.
    Checking,
    /// Storing rows.
    Importing,
    /// Reading rows back.
    Comparing,
}

/// Hears how far a move has come: what, in which section, how many rows.
pub type Hear<'a> = &'a mut (dyn FnMut(Doing, &'static str, u64) + Send);

/// Writes all that a store holds into a folder.
///
/// # Errors
/// Returns what failed; the folder then holds no export.
pub async fn export<S: Source>(
    source: &mut S,
    folder: &Path,
    label: Label,
    page: Page,
    hear: Hear<'_>,
) -> Result<Manifest, TransferError> {
    let writer = FolderWriter::create(folder)?;
    let facts = source.facts();
    let mut sections = Vec::with_capacity(SECTIONS.len());
    for section in SECTIONS {
        sections.push(export_section(source, &writer, section, page, hear).await?);
    }
    let manifest = Manifest {
        format: FORMAT,
        export: label.export,
        outlast: label.outlast,
        source: facts.kind.to_owned(),
        schema: facts.schema,
        taken: label.taken,
        time_ms: facts.time.0,
        sections,
    };
    writer.finish(&manifest)?;
    Ok(manifest)
}

async fn export_section<S: Source>(
    source: &mut S,
    folder: &FolderWriter,
    section: &'static Section,
    page: Page,
    hear: Hear<'_>,
) -> Result<Entry, TransferError> {
    let mut file = folder.section(section)?;
    let mut last: Option<Row> = None;
    let mut count = 0;
    loop {
        let rows = source.page(PageQuery { section, after: last.as_ref(), page }).await?;
        count += rows.len() as u64;
        for row in &rows {
            file.add(row)?;
        }
        hear(Doing::Exporting, section.name, count);
        match rows.into_iter().next_back() {
            Some(row) => last = Some(row),
            None => return file.finish(),
        }
    }
}

/// Reads a whole export, and says what it holds.
///
/// # Errors
/// Returns what is wrong, with file and line.
pub fn check(folder: &Path, hear: Hear<'_>) -> Result<Manifest, TransferError> {
    let manifest = read_manifest(folder)?;
    for section in SECTIONS {
        let mut reader = SectionReader::open(folder, section, &manifest)?;
        let mut count = 0;
        while reader.next_row()?.is_some() {
            count += 1;
        }
        hear(Doing::Checking, section.name, count);
    }
    Ok(manifest)
}

/// Brings an export into an empty store, or goes on with an import of it that was ended.
///
/// # Errors
/// Returns what failed. Nothing was stored if the target is not empty or the export is
/// damaged; else the store stays marked as half imported until this is called again.
pub async fn import<T: Target>(
    target: &mut T,
    folder: &Path,
    page: Page,
    hear: Hear<'_>,
) -> Result<Manifest, TransferError> {
    let manifest = check(folder, hear)?;
    let first = Progress {
        export: manifest.export,
        section: SECTIONS.first().map_or("", |section| section.name).to_owned(),
        stored: 0,
        done: false,
    };
    let mut progress = match target.progress().await? {
        Some(begun) if begun.export == manifest.export && begun.done => {
            return Err(TransferError::AlreadyImported);
        }
        Some(begun) if begun.export == manifest.export => begun,
        Some(other) if !other.done => {
            return Err(TransferError::OtherImport { export: other.export });
        }
        Some(_) | None => {
            refuse_occupied(target).await?;
            target.keep(&first).await?;
            first
        }
    };
    let begun = SECTIONS.iter().position(|section| section.name == progress.section);
    let begun = begun.ok_or_else(|| {
        StoreError::Corrupt(format!("an import came to `{}`, which is unknown", progress.section))
    })?;
    for section in SECTIONS.iter().skip(begun) {
        if progress.section != section.name {
            progress = Progress { section: section.name.to_owned(), stored: 0, ..progress };
        }
        let reader = SectionReader::open(folder, section, &manifest)?;
        import_section(target, reader, &mut progress, page, hear).await?;
    }
    target.complete(outlast_core::time::Timestamp(manifest.time_ms)).await?;
    compare(target, &manifest, page, hear).await?;
    target.keep(&Progress { done: true, ..progress }).await?;
    Ok(manifest)
}

async fn refuse_occupied<T: Target>(target: &mut T) -> Result<(), TransferError> {
    let mut tables = Vec::new();
    for section in SECTIONS {
        let first = PageQuery { section, after: None, page: Page { rows: 1, bytes: 1 } };
        if !target.page(first).await?.is_empty() {
            tables.push(section.name);
        }
    }
    if tables.is_empty() { Ok(()) } else { Err(TransferError::NotEmpty { tables }) }
}

async fn import_section<T: Target>(
    target: &mut T,
    mut reader: SectionReader,
    progress: &mut Progress,
    page: Page,
    hear: Hear<'_>,
) -> Result<(), TransferError> {
    let mut seen = 0;
    let mut rows = Vec::new();
    let mut bytes = 0;
    loop {
        let row = reader.next_row()?;
        let last = row.is_none();
        seen += u64::from(!last);
        if let Some(row) = row.filter(|_| seen > progress.stored + rows.len() as u64) {
            bytes += size(&row);
            rows.push(row);
        }
        if !rows.is_empty() && (last || rows.len() >= page.rows || bytes >= page.bytes) {
            progress.stored += rows.len() as u64;
            let rows = std::mem::take(&mut rows);
            target.write(Part { section: reader.section(), rows, progress }).await?;
            bytes = 0;
            hear(Doing::Importing, reader.section().name, progress.stored);
        }
        if last {
            return Ok(());
        }
    }
}

/// Reads everything that a store holds, and holds it against an export.
///
/// # Errors
/// Returns the first section that differs.
pub async fn compare<S: Source>(
    source: &mut S,
    manifest: &Manifest,
    page: Page,
    hear: Hear<'_>,
) -> Result<(), TransferError> {
    for section in SECTIONS {
        let found = digest(source, section, page).await?;
        hear(Doing::Comparing, section.name, found.rows);
        match manifest.digest(section.name) {
            Some(expected) if expected == found => {}
            None if section.is_added() && found == Chain::default().digest() => {}
            other => {
                let expected = other.unwrap_or_else(|| Chain::default().digest());
                return Err(TransferError::Differs { section: section.name, expected, found });
            }
        }
    }
    Ok(())
}

/// Returns the digest of a section as a store holds it.
///
/// # Errors
/// Returns what the store says.
pub async fn digest<S: Source>(
    source: &mut S,
    section: &'static Section,
    page: Page,
) -> Result<Digest, StoreError> {
    let mut chain = Chain::default();
    let mut last: Option<Row> = None;
    let mut text = String::new();
    loop {
        let rows = source.page(PageQuery { section, after: last.as_ref(), page }).await?;
        for row in &rows {
            text.clear();
            write(section, row, &mut text);
            chain.add(&text);
        }
        match rows.into_iter().next_back() {
            Some(row) => last = Some(row),
            None => return Ok(chain.digest()),
        }
    }
}
