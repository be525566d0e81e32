//! What an environment was made of, written when it is whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plain_file;

/// The stamp's name in the environment's folder.
pub(super) const FILE: &str = "outlast.json";

/// What an environment was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The digest of what the pack asked for.
    pub digest: String,
    /// The version of the interpreter.
    pub version: String,
    /// The interpreter, behind all links.
    pub interpreter: PathBuf,
    /// The pack's folder.
    pub folder: PathBuf,
    /// The program that installed it, for people.
    pub made_with: String,
}

impl Stamp {
    /// Reads the stamp of an environment.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn read(folder: &Path) -> io::Result<Self> {
        Ok(serde_json::from_reader(plain_file::open(&folder.join(FILE))?)?)
    }

    /// Writes the stamp of a whole environment, in one step.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let draft = folder.join("outlast.json.new");
        let mut file = File::create(&draft)?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(draft, folder.join(FILE))
    }
}
