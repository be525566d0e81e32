//! The job and the workflow that this user stored last, for `@last`: one of each for each server, in
//! two small files below `$XDG_STATE_HOME`, or `~/.local/state`.
//!
//! It is a convenience: where it cannot be written, both are stored all the same.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::config::Environment;

/// Servers that are remembered; the one that was used longest ago makes room.
const SERVERS_MAX: usize = 50;
/// Longest file that is read.
const BYTES_MAX: u64 = 64 * 1024;

static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Kinds of things whose last id is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Job,
    Workflow,
}

impl Last {
    fn file(self) -> Option<PathBuf> {
        let name = match self {
            Self::Job => "last-jobs",
            Self::Workflow => "last-workflows",
        };
        Some(FOLDER.get()?.as_ref()?.join(name))
    }
}

/// Says where it is remembered from now on.
pub(crate) fn keep_below(environment: &Environment) {
    let is_absolute = |path: &PathBuf| path.is_absolute();
    let state = environment.get("XDG_STATE_HOME").map(PathBuf::from).filter(is_absolute);
    let home = || Some(Path::new(environment.get("HOME")?).join(".local/state"));
    let folder = state.or_else(home).map(|folder| folder.join("outlast"));
    // Set once; an error would mean that it was set before.
    FOLDER.set(folder).unwrap_or_default();
}

/// Returns the id of the one that was stored last at a server.
pub(crate) fn of(last: Last, server: &str) -> Option<String> {
    let lines = read(&last.file()?);
    let (_, id) = lines.iter().rev().find(|(at, _)| at == server)?;
    Some(id.clone())
}

/// Remembers what was stored at a server.
pub(crate) fn remember(last: Last, server: &str, id: &str) {
    if let Some(file) = last.file() {
        // Only `@last` needs it, and says if it is not there.
        write(&file, server, id).unwrap_or_default();
    }
}

/// The servers and their ids, the one that was used last at the end.
fn read(file: &Path) -> Vec<(String, String)> {
    let is_small = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() < BYTES_MAX);
    let text = if is_small { fs::read_to_string(file).unwrap_or_default() } else { String::new() };
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(server, id)| (server.to_owned(), id.to_owned())).collect()
}

fn write(file: &Path, server: &str, id: &str) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    let mut lines = read(file);
    lines.retain(|(at, _)| at != server);
    lines.push((server.to_owned(), id.to_owned()));
    let first = lines.len().saturating_sub(SERVERS_MAX);
    fs::create_dir_all(folder)?;
    // Replaced as a whole: two commands at the same time leave the file of one of them.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    for (server, id) in lines.iter().skip(first) {
        writeln!(new, "{server} {id}")?;
    }
    new.persist(file).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::{SERVERS_MAX, read, write};

    #[test]
    fn each_server_has_its_own_last_job_and_the_oldest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/outlast/last-jobs");
        write(&file, "http://a", "1").unwrap();
        write(&file, "http://b", "2").unwrap();
        write(&file, "http://a", "3").unwrap();
        let pair = |server: &str, job: &str| (server.to_owned(), job.to_owned());
        assert_eq!(read(&file), [pair("http://b", "2"), pair("http://a", "3")]);
        for n in 0..SERVERS_MAX {
            write(&file, &format!("http://{n}"), "4").unwrap();
        }
        assert_eq!(read(&file).len(), SERVERS_MAX);
        assert!(!read(&file).contains(&pair("http://a", "3")));
    }
}
