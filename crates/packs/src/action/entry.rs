//! The script behind an action: where it is, and which shell it asks for.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::error::PackError;
use crate::plain_file;
use crate::source::{Found, Source};
use crate::yaml::{Document, line};
use serde_saphyr::Spanned;

/// Some editors put it before UTF-8 text. The kernel finds no `#!` behind it, and a shell takes it
/// for a part of the first command's name.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An action's script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryPoint {
    /// Part of the binary: its path below the folder of built-in packs, and its content.
    Embedded {
        /// Such as `core/actions/echo.sh`.
        name: String,
        /// The script.
        bytes: &'static [u8],
    },
    /// A file.
    Path(PathBuf),
}

/// What to run, and where. Both paths are absolute if the folder of built-in packs is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The script.
    pub script: PathBuf,
    /// The pack's folder, which scripts expect to be started in.
    pub folder: PathBuf,
}

/// A script that was found inside its pack.
#[derive(Debug)]
pub(crate) struct Entry {
    place: ScriptSource,
    shell: &'static str,
    shebang: Option<String>,
}

#[derive(Debug)]
enum ScriptSource {
    Embedded { pack: String, file: &'static include_dir::File<'static> },
    Folder { root: PathBuf, script: PathBuf },
}

impl Entry {
    /// Finds the script that `named` names, in `actions/` or else in the pack's folder.
    pub(crate) fn find(
        source: &Source,
        document: &Document,
        pack: &str,
        named: &Spanned<String>,
    ) -> Result<Self, PackError> {
        let name = &named.value;
        let fault = |problem: String, remedy: String| document.fault(line(named), problem, remedy);
        let escapes = || {
            fault(
                format!("entry_point `{name}` leads out of its pack"),
                "name a script inside the pack, relative to actions/".to_owned(),
            )
        };
        if Path::new(name).is_absolute() {
            return Err(escapes());
        }
        // Some packs write the path from the pack's folder; there is no harm in it.
        for path in [format!("actions/{name}"), name.clone()] {
            match source.find(&path) {
                Found::Missing => {}
                Found::Outside => return Err(escapes()),
                Found::Embedded(file) => {
                    let place = ScriptSource::Embedded { pack: pack.to_owned(), file };
                    return Ok(Self::new(place, file.contents()));
                }
                Found::Path(script) => {
                    let first = first_line(&script).map_err(|error| {
                        PackError::io(script.display().to_string(), "read entry point", error)
                    })?;
                    if first.starts_with(BYTE_ORDER_MARK) {
                        let problem = format!("entry_point `{name}` begins with a byte order mark");
                        return Err(fault(problem, "save it as UTF-8 without one".to_owned()));
                    }
                    return Ok(Self::on_disk(source, script, &first));
                }
            }
        }
        Err(fault(
            format!("entry_point `{name}` does not exist"),
            format!("put the script at {}", source.label(&format!("actions/{name}"))),
        ))
    }

    fn on_disk(source: &Source, script: PathBuf, first: &[u8]) -> Self {
        let root = match source {
            Source::Folder { real, .. } => real.clone(),
            Source::Embedded(_) => PathBuf::new(),
        };
        Self::new(ScriptSource::Folder { root, script }, first)
    }

    fn new(place: ScriptSource, script: &[u8]) -> Self {
        Self { place, shell: shell(script), shebang: shebang(script) }
    }

    /// What the script's first line asks for, after `#!`.
    pub(crate) fn shebang(&self) -> Option<&str> {
        self.shebang.as_deref()
    }

    pub(crate) fn point(&self) -> EntryPoint {
        match &self.place {
            ScriptSource::Embedded { pack, file } => EntryPoint::Embedded {
                name: format!("{pack}/{}", file.path().display()),
                bytes: file.contents(),
            },
            ScriptSource::Folder { script, .. } => EntryPoint::Path(script.clone()),
        }
    }

    pub(crate) fn program(&self, built_in: &Path) -> Program {
        match &self.place {
            ScriptSource::Embedded { pack, file } => {
                let folder = built_in.join(pack);
                Program { script: folder.join(file.path()), folder }
            }
            ScriptSource::Folder { root, script } => {
                Program { script: script.clone(), folder: root.clone() }
            }
        }
    }

    pub(crate) const fn shell(&self) -> &'static str {
        self.shell
    }
}

fn shebang(script: &[u8]) -> Option<String> {
    let first = script.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    first.strip_prefix("#!").map(|command| command.trim().to_owned())
}

/// The shell that a script's first line asks for.
fn shell(script: &[u8]) -> &'static str {
    let Some(command) = shebang(script) else { return "bash" };
    let mut words = command.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let program = words.find(|word| *word != "env" && !word.starts_with('-'));
    if matches!(program, Some("sh" | "dash" | "ash")) { "sh" } else { "bash" }
}

fn first_line(script: &Path) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(plain_file::open(script)?.take(256)).read_until(b'\n', &mut line)?;
    Ok(line)
}
