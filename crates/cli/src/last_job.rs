//! The job that this user enqueued last, for `@last`: one for each server, in a small file below
//! `$XDG_STATE_HOME`, or `~/.local/state`.
//!
//! It is a convenience: where it cannot be written, jobs are enqueued all the same.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::config::Environment;

/// Servers that are remembered; the one that was used longest ago makes room.
const SERVERS_MAX: usize = 50;
/// Longest file that is read.
const BYTES_MAX: u64 = 64 * 1024;

static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Says where it is remembered from now on.
pub(crate) fn keep_below(environment: &Environment) {
    let is_absolute = |path: &PathBuf| path.is_absolute();
    let state = environment.get("XDG_STATE_HOME").map(PathBuf::from).filter(is_absolute);
    let home = || Some(Path::new(environment.get("HOME")?).join(".local/state"));
    let file = state.or_else(home).map(|folder| folder.join("outlast/last-jobs"));
    // Set once; an error would mean that it was set before.
    FILE.set(file).unwrap_or_default();
}

/// Returns the job that was enqueued last at a server.
pub(crate) fn of(server: &str) -> Option<String> {
    let file = FILE.get()?.as_ref()?;
    let lines = read(file);
    let (_, job) = lines.iter().rev().find(|(at, _)| at == server)?;
    Some(job.clone())
}

/// Remembers a job that was enqueued at a server.
pub(crate) fn remember(server: &str, job: &str) {
    if let Some(Some(file)) = FILE.get() {
        // Only `@last` needs it, and says if it is not there.
        write(file, server, job).unwrap_or_default();
    }
}

/// The servers and their jobs, the one that was used last at the end.
fn read(file: &Path) -> Vec<(String, String)> {
    let is_small = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() < BYTES_MAX);
    let text = if is_small { fs::read_to_string(file).unwrap_or_default() } else { String::new() };
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(server, job)| (server.to_owned(), job.to_owned())).collect()
}

fn write(file: &Path, server: &str, job: &str) -> std::io::Result<()> {
    let Some(folder) = file.parent() else { return Ok(()) };
    let mut lines = read(file);
    lines.retain(|(at, _)| at != server);
    lines.push((server.to_owned(), job.to_owned()));
    let first = lines.len().saturating_sub(SERVERS_MAX);
    fs::create_dir_all(folder)?;
    // Replaced as a whole: two commands at the same time leave the file of one of them.
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    for (server, job) in lines.iter().skip(first) {
        writeln!(new, "{server} {job}")?;
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
