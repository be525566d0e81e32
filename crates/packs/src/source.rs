//! Where a pack's files come from: the binary itself or a folder.
//!
//! The rest of the crate reads both the same way. Paths inside a pack are relative, with
//! forward slashes. A script's path never leads out of its pack, neither by `..` nor by a link.
//! Definitions are read through links: who may put one into a pack may as well write a definition.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use include_dir::Dir;

use crate::action::is_name;
use crate::error::PackError;
use crate::limits::{DEFINITION_BYTES_MAX, DIGEST_FILE_BYTES_MAX};
use crate::plain_file;

/// The files of one pack.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Built into the binary, under its pack's name.
    Embedded(&'static Dir<'static>),
    /// A folder: the path as the user gave it, and the real one.
    Folder { given: PathBuf, real: PathBuf },
}

/// Where a script was found.
#[derive(Debug)]
pub(crate) enum Found {
    Embedded(&'static include_dir::File<'static>),
    Path(PathBuf),
    Missing,
    Outside,
}

impl Source {
    /// Opens a folder as a pack.
    pub(crate) fn folder(given: &Path) -> Result<Self, PackError> {
        let real = given
            .canonicalize()
            .map_err(|source| PackError::io(given.display().to_string(), "open pack", source))?;
        Ok(Self::Folder { given: given.to_owned(), real })
    }

    /// The name that errors and notes give to a file of this pack.
    pub(crate) fn label(&self, path: &str) -> String {
        match self {
            Self::Embedded(_) => format!("built-in core/{path}"),
            Self::Folder { given, .. } => given.join(path).display().to_string(),
        }
    }

    /// The name of a pack that cannot be read: its `ref`, if that is plain to see, else its
    /// folder's.
    pub(crate) fn presumed_name(&self) -> String {
        let text = self.text("pack.yaml").ok().flatten().unwrap_or_default();
        let named = text.lines().find_map(|line| line.strip_prefix("ref:")).map(|name| {
            name.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned()
        });
        named.filter(|name| is_name(name)).unwrap_or_else(|| match self {
            Self::Embedded(_) => "core".to_owned(),
            Self::Folder { real, .. } => {
                real.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        })
    }

    /// The text of a file, or nothing if there is no such file.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, PackError> {
        let result = match self {
            Self::Embedded(dir) => {
                return Ok(dir.get_file(path).and_then(|f| f.contents_utf8()).map(str::to_owned));
            }
            Self::Folder { real, .. } => read_bounded(&real.join(path)),
        };
        match result {
            Ok(text) => Ok(Some(text)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PackError::io(self.label(path), "read file", source)),
        }
    }

    /// The names in one folder of the pack, in order; none if there is no such folder.
    pub(crate) fn names(&self, folder: &str) -> Result<Vec<String>, PackError> {
        let mut names = match self {
            Self::Embedded(dir) => {
                // The crate finds folders by their paths; the pack itself has none.
                let dir = if folder.is_empty() { Some(*dir) } else { dir.get_dir(folder) };
                let entries = dir.into_iter().flat_map(|dir| dir.entries());
                entries.filter_map(|entry| name_of(entry.path())).collect()
            }
            Self::Folder { real, .. } => match list(&real.join(folder)) {
                Ok(names) => names,
                Err(source) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(source) => {
                    return Err(PackError::io(self.label(folder), "list folder", source));
                }
            },
        };
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a path inside the pack is a folder. A link to one is none: it may lead in circles.
    pub(crate) fn is_folder(&self, path: &str) -> bool {
        match self {
            Self::Embedded(dir) => dir.get_dir(path).is_some(),
            Self::Folder { real, .. } => {
                fs::symlink_metadata(real.join(path)).is_ok_and(|found| found.is_dir())
            }
        }
    }

    /// What a digest takes of a file: its content, or of a huge one its length; nothing of what
    /// is no file.
    pub(crate) fn content(&self, path: &str) -> Result<Option<Vec<u8>>, PackError> {
        let read = match self {
            Self::Embedded(dir) => {
                return Ok(dir.get_file(path).map(|file| file.contents().to_vec()));
            }
            Self::Folder { real, .. } => content(&real.join(path)),
        };
        read.map_err(|source| PackError::io(self.label(path), "read file", source))
    }

    /// Finds a script by its path inside the pack.
    pub(crate) fn find(&self, path: &str) -> Found {
        let Some(path) = inside(path) else { return Found::Outside };
        match self {
            Self::Embedded(dir) => dir.get_file(&path).map_or(Found::Missing, Found::Embedded),
            Self::Folder { real, .. } => match real.join(&path).canonicalize() {
                Err(_) => Found::Missing,
                Ok(target) if !target.starts_with(real) => Found::Outside,
                Ok(target) if !target.is_file() => Found::Missing,
                Ok(_) => Found::Path(real.join(&path)),
            },
        }
    }
}

/// Resolves `.` and `..` by name; nothing if the path is absolute or climbs out.
pub(crate) fn inside(path: &str) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = plain_file::open(path)?.take(DEFINITION_BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > DEFINITION_BYTES_MAX {
        let problem = format!("longer than {DEFINITION_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(text)
}

fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        // A link that leads nowhere is no part of the pack.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Ok(None);
    }
    if found.len() > DIGEST_FILE_BYTES_MAX {
        return Ok(Some(found.len().to_be_bytes().to_vec()));
    }
    let mut bytes = Vec::new();
    plain_file::open(path)?.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(name_of(&entry?.path()));
    }
    Ok(names)
}

/// A file's own name; nothing for hidden files and names that are not UTF-8.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    (!name.starts_with('.')).then(|| name.to_owned())
}
