//! Shell actions: the system's POSIX shell, or bash for a script that says so.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use outlast_packs::plain_file;

use super::{Interpreter, find_in_path};

pub(super) const PROGRAMS: &[&str] = &["sh", "bash"];

/// A POSIX shell has no version to tell; running at all is the answer.
pub(super) const QUESTION: &[&str] = &["-c", "exit 0"];

/// Longest first line that is looked at.
const FIRST_LINE_MAX: u64 = 256;

/// Chooses by the script's first line. Where it asks for a bash that is not here, the plain
/// shell tries, and what it says about the script is in the job's output.
pub(super) fn program_for(script: &Path, plain: &Interpreter, path: &str) -> PathBuf {
    let bash = asks_for_bash(script).then(|| find_in_path("bash", path)).flatten();
    bash.unwrap_or_else(|| plain.program.clone())
}

fn asks_for_bash(script: &Path) -> bool {
    let Ok(file) = plain_file::open(script) else { return false };
    let mut line = Vec::new();
    if BufReader::new(file.take(FIRST_LINE_MAX)).read_until(b'\n', &mut line).is_err() {
        return false;
    }
    let line = String::from_utf8_lossy(&line);
    let Some(interpreter) = line.strip_prefix("#!") else { return false };
    interpreter.split_ascii_whitespace().any(|word| word.rsplit('/').next() == Some("bash"))
}
