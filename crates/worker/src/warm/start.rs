//! What all warm interpreters have in common at their start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;

use super::WarmKey;
use crate::process::protocol::WarmProgram;

/// How long it may take until all is imported: libraries are large, and disks may be cold.
pub(super) const IMPORTS_MAX: Duration = Duration::from_secs(60);

/// How long one has to end.
pub(super) const END_MAX: Duration = Duration::from_secs(1);

/// Most that is read of what imports print.
const PRINTED_BYTES_MAX: usize = 4096;

/// What is needed to start one.
pub(super) struct Launch {
    pub(super) key: Arc<WarmKey>,
    /// Where attempts have their folders.
    pub(super) attempts: PathBuf,
    /// Files that it must not see.
    pub(super) hidden: Vec<PathBuf>,
}

impl Launch {
    /// What the list of processes shows of its shim.
    pub(super) fn label(&self) -> String {
        format!("warm-{}", self.key.pack)
    }

    /// The interpreter with these arguments behind its options.
    pub(super) fn program(
        self,
        arguments: impl IntoIterator<Item = String>,
        cwd: PathBuf,
    ) -> WarmProgram {
        let Self { key, attempts, hidden } = self;
        WarmProgram {
            program: key.program.to_string_lossy().into_owned(),
            args: key.options.iter().cloned().chain(arguments).collect(),
            env: key.variables.clone(),
            cwd,
            hidden,
            attempts,
        }
    }
}

/// Why one cannot serve.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What it imports cannot be imported ahead.
    Unfit(String),
    /// It could not be started, or has ended.
    Broken(String),
}

impl Trouble {
    /// Importing takes too long.
    pub(super) fn late() -> Self {
        Self::Unfit(format!("importing takes more than {IMPORTS_MAX:?}"))
    }

    /// The interpreter has ended while it imported.
    pub(super) fn ended(printed: Option<String>) -> Self {
        let why = printed.map_or_else(String::new, |line| format!(": {line}"));
        Self::Unfit(format!("the interpreter has ended{why}"))
    }

    /// What is imported prints, which would come before the output of attempts.
    pub(super) fn prints(line: &str) -> Self {
        Self::Unfit(format!("importing them prints: {line}"))
    }
}

pub(super) fn broken(error: impl Into<io::Error>) -> Trouble {
    Trouble::Broken(format!("it cannot be started: {}", error.into()))
}

/// The last line that was printed, if any was.
pub(super) fn last_line(pipe: &pipe::Receiver) -> Option<String> {
    let mut bytes = [0_u8; PRINTED_BYTES_MAX];
    let length = pipe.try_read(&mut bytes).ok().filter(|length| *length > 0)?;
    let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    Some(line.unwrap_or("empty lines").to_owned())
}
