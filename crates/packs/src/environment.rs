//! The environments of a pack: what its scripts import, installed beside them.
//!
//! ```text
//! requirements.txt, pyproject.toml ─▶ .venv ────────▶ .outlast/python-…
//! package.json ─────────────────────▶ node_modules ─▶ .outlast/node-…/pack/node_modules
//! ```
//!
//! Programs in a virtual environment hold its path, so it is made where it stays. Its stamp is
//! written last, and a link is put in place in one step: there is a whole environment or none. An
//! attempt runs in the folder behind the link, so that a new environment is none of its business.
//!
//! Nothing here installs anything: `outlast packs sync` does. None of it is part of the pack's
//! digest.

mod in_use;
mod layout;
mod manifest;
mod stamp;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub use in_use::InUse;
pub use layout::SyncLock;
pub use manifest::Manifest;
pub use stamp::Stamp;

use crate::note::Note;
use crate::source::Source;

/// How often an attempt looks again for an environment that is replaced at the same moment.
const ENTER_TRIES: u32 = 8;

/// What is installed for the scripts of a pack that run in one language.
#[derive(Debug)]
pub struct PackEnvironment {
    pack: String,
    kind: EnvironmentKind,
    manifest: Manifest,
    /// SHA-256 of all that decides what is installed.
    digest: String,
    /// The pack's folder: the real one, and as the user gave it.
    folder: PathBuf,
    given: PathBuf,
}

/// The language that an environment is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnvironmentKind {
    /// A virtual environment.
    Python,
    /// A folder `node_modules`.
    Node,
}

/// Whether an environment is what the pack asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentState {
    /// It was made of what the pack asks for now.
    Fresh,
    /// It is whole, but was made of something else; what has changed.
    Stale(String),
    /// There is none that can be used, and why.
    Missing(String),
    /// It was not made by `outlast packs sync`, which leaves it alone.
    ByHand,
}

/// What is where the environment belongs.
enum Found {
    Ours(PathBuf),
    ByHand,
    Missing(String),
}

impl EnvironmentKind {
    /// The name in lists, as that of the runner.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
        }
    }

    /// Where scripts look for it, from the pack's folder.
    #[must_use]
    pub const fn link(self) -> &'static str {
        match self {
            Self::Python => ".venv",
            Self::Node => "node_modules",
        }
    }

    /// What of a version must be the same for what was installed to work: Python's first two
    /// numbers, the first of Node.js.
    fn significant(self, version: &str) -> &str {
        let numbers = match self {
            Self::Python => 2,
            Self::Node => 1,
        };
        let end = version.match_indices('.').nth(numbers - 1);
        end.map_or(version, |(at, _)| &version[..at])
    }
}

impl fmt::Display for EnvironmentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Python => "Python",
            Self::Node => "Node.js",
        })
    }
}

impl PackEnvironment {
    /// What a pack asks for in one language, if it does; and what is passed over.
    pub(crate) fn of(source: &Source, pack: &str, kind: EnvironmentKind) -> Asked {
        let Source::Folder { given, real } = source else { return Asked::default() };
        let found = match manifest::find(source, kind) {
            Ok(Some(found)) => found,
            Ok(None) => return Asked::default(),
            Err(note) => return Asked { environment: None, note: Some(note) },
        };
        let environment = Self {
            pack: pack.to_owned(),
            kind,
            manifest: found.manifest,
            digest: found.digest,
            folder: real.clone(),
            given: given.clone(),
        };
        Asked { environment: Some(environment), note: None }
    }

    /// The pack's name.
    #[must_use]
    pub fn pack(&self) -> &str {
        &self.pack
    }

    /// The language that it is for.
    #[must_use]
    pub const fn kind(&self) -> EnvironmentKind {
        self.kind
    }

    /// The file that says what is installed.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// SHA-256 of all that decides what is installed, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The pack's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What to run when it is missing or stale.
    #[must_use]
    pub fn remedy(&self) -> String {
        format!("run `outlast packs sync {}`", self.given.display())
    }

    /// The folder of the environment that is in force, if it was made by `outlast packs sync`.
    #[must_use]
    pub fn current(&self) -> Option<PathBuf> {
        match self.find() {
            Found::Ours(folder) => Some(folder),
            Found::ByHand | Found::Missing(_) => None,
        }
    }

    /// Compares it with what the pack asks for; and with the `version` of the interpreter that
    /// would use it, if that is known.
    #[must_use]
    pub fn state(&self, version: Option<&str>) -> EnvironmentState {
        let folder = match self.find() {
            Found::Ours(folder) => folder,
            Found::ByHand => return EnvironmentState::ByHand,
            Found::Missing(why) => return EnvironmentState::Missing(why),
        };
        let stamp = match Stamp::read(&folder) {
            Ok(stamp) => stamp,
            Err(error) => {
                return EnvironmentState::Missing(format!(
                    "has no stamp that can be read: {error}"
                ));
            }
        };
        self.changed(&folder, &stamp, version)
            .map_or(EnvironmentState::Fresh, EnvironmentState::Stale)
    }

    fn changed(&self, folder: &Path, stamp: &Stamp, version: Option<&str>) -> Option<String> {
        if stamp.digest != self.digest {
            return Some(format!("{} has changed since it was made", self.manifest.file()));
        }
        let (was, now) = (&stamp.version, version.unwrap_or(&stamp.version));
        if self.kind.significant(was) != self.kind.significant(now) {
            return Some(format!("it was made with {} {was}, and {now} would use it", self.kind));
        }
        if self.kind == EnvironmentKind::Node {
            return None;
        }
        if stamp.folder != self.folder {
            let was = stamp.folder.display();
            return Some(format!("it was made in {was}, and the programs in it name that folder"));
        }
        let now = interpreter(folder).canonicalize().unwrap_or_default();
        (now != stamp.interpreter).then(|| {
            let (was, now) = (stamp.interpreter.display(), now.display());
            format!("it was made with {was}, and {now} would use it")
        })
    }

    /// Holds the environment for an attempt; nothing if it was made by hand.
    ///
    /// # Errors
    /// When there is none that can be used: what to do about it.
    pub fn enter(&self) -> Result<Option<InUse>, String> {
        let mut why = String::new();
        for _ in 0..ENTER_TRIES {
            let folder = match self.find() {
                Found::Ours(folder) => folder,
                Found::ByHand => return Ok(None),
                Found::Missing(found) => {
                    why = found;
                    break;
                }
            };
            if let Some(in_use) = InUse::of(folder) {
                return Ok(Some(in_use));
            }
            "is replaced again and again".clone_into(&mut why);
        }
        Err(format!("{}: {}", self.says(&why), self.remedy()))
    }

    /// A sentence about it, such as that it "is missing".
    #[must_use]
    pub fn says(&self, what: &str) -> String {
        format!("the {} environment of pack {} {what}", self.kind, self.pack)
    }

    fn find(&self) -> Found {
        let link = self.folder.join(self.kind.link());
        let found = match fs::symlink_metadata(&link) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Found::Missing("is missing".to_owned());
            }
            Err(error) => return Found::Missing(format!("cannot be found: {error}")),
        };
        let folder = if found.is_symlink() { self.behind(&link) } else { None };
        let Some(folder) = folder else {
            let leads = link.exists();
            return if leads { Found::ByHand } else { Found::Missing("leads nowhere".to_owned()) };
        };
        if !folder.join(stamp::FILE).is_file() || !link.exists() {
            return Found::Missing("is not whole".to_owned());
        }
        if self.kind == EnvironmentKind::Python && !is_program(&interpreter(&folder)) {
            let gone = fs::read_link(interpreter(&folder)).unwrap_or_default();
            return Found::Missing(format!("has lost its interpreter {}", gone.display()));
        }
        Found::Ours(folder)
    }
}

/// The interpreter of a virtual environment.
#[must_use]
pub fn interpreter(folder: &Path) -> PathBuf {
    folder.join("bin/python")
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// What a pack asks for in one language.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) environment: Option<PackEnvironment>,
    pub(crate) note: Option<Note>,
}
