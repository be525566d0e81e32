//! The digest of a pack, which records on every attempt which version of the pack ran.
//!
//! Names and contents of all files count, in order; hidden ones and what interpreters leave
//! behind do not. Modes, times and owners do not count either: the same pack has the same
//! digest wherever it is installed.

use sha2::{Digest as _, Sha256};

use crate::error::PackError;
use crate::source::Source;

/// Folders that tools fill and that differ from one installation to the next.
const PASSED_OVER: &[&str] = &["__pycache__", "node_modules", "venv", "virtualenv"];

pub(crate) fn of(source: &Source) -> Result<String, PackError> {
    let mut sum = Sha256::new();
    let mut open = vec![String::new()];
    let mut files = 0;
    while let Some(folder) = open.pop() {
        for name in source.names(&folder)? {
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if source.is_folder(&path) {
                if !PASSED_OVER.contains(&name.as_str()) {
                    open.push(path);
                }
                continue;
            }
            let Some(content) = source.content(&path)? else { continue };
            files += 1;
            if files > crate::limits::DIGEST_FILES_MAX {
                return Err(PackError::new(
                    source.label(""),
                    format!("holds more than {} files", crate::limits::DIGEST_FILES_MAX),
                    "keep what is not part of the pack outside of its folder",
                ));
            }
            sum.update(u64::try_from(path.len()).unwrap_or(u64::MAX).to_be_bytes());
            sum.update(path.as_bytes());
            sum.update(u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes());
            sum.update(content);
        }
    }
    Ok(hex(&sum.finalize()))
}

fn hex(bytes: &[u8]) -> String {
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
    }
}
