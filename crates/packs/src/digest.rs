//! The digest of a pack, which records on every attempt which version of the pack ran.
//!
//! Names and contents of all files count, in order; hidden ones and what interpreters leave
//! behind do not. Modes, times and owners do not count either: the same pack has the same
//! digest wherever it is installed. What cannot be read counts by its name alone.

use sha2::{Digest as _, Sha256};

use crate::error::PackError;
use crate::note::Note;
use crate::source::Source;

/// Folders that tools fill and that differ from one installation to the next.
const PASSED_OVER: &[&str] = &["__pycache__", "node_modules", "venv", "virtualenv"];

/// Whether tools fill a folder of this name.
pub(crate) fn is_made(name: &str) -> bool {
    PASSED_OVER.contains(&name)
}

/// What stands for the length of a content that cannot be read.
const UNREADABLE: u64 = u64::MAX;

/// The digest of a pack, and what could not be read for it.
pub(crate) fn of(source: &Source) -> Result<(String, Vec<Note>), PackError> {
    let mut sum = Sha256::new();
    let mut notes = Vec::new();
    let mut open = vec![String::new()];
    let mut files = 0;
    while let Some(folder) = open.pop() {
        let names = source.names(&folder).unwrap_or_else(|error| {
            add(&mut sum, folder.as_bytes(), None);
            notes.push(unread(source, &folder, &error));
            Vec::new()
        });
        for name in names {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if source.is_folder(&path) {
                if !is_made(&name) {
                    open.push(path);
                }
                continue;
            }
            let content = match source.content(&path) {
                Ok(None) => continue,
                Ok(content) => content,
                Err(error) => {
                    notes.push(unread(source, &path, &error));
                    None
                }
            };
            files += 1;
            if files > crate::limits::DIGEST_FILES_MAX {
                return Err(PackError::new(
                    source.label(""),
                    format!("holds more than {} files", crate::limits::DIGEST_FILES_MAX),
                    "keep what is not part of the pack outside of its folder",
                ));
            }
            add(&mut sum, path.as_bytes(), content.as_deref());
        }
    }
    Ok((hex(&sum.finalize()), notes))
}

pub(crate) fn add(sum: &mut Sha256, path: &[u8], content: Option<&[u8]>) {
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(UNREADABLE);
    sum.update(length(path).to_be_bytes());
    sum.update(path);
    sum.update(content.map_or(UNREADABLE, length).to_be_bytes());
    sum.update(content.unwrap_or_default());
}

fn unread(source: &Source, path: &str, error: &PackError) -> Note {
    let message = format!("{}, so only its name is part of the pack's digest", error.problem());
    Note::new(&source.label(path), message)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::set::CORE;

    #[test]
    fn the_built_in_pack_has_the_digest_of_its_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packs/core");
        let folder = of(&Source::folder(&folder).unwrap()).unwrap();
        assert_eq!(of(&Source::Embedded(&CORE)).unwrap(), folder);
        assert!(folder.1.is_empty(), "{folder:?}");
    }
}
