//! The mark: a small file beside the database that says up to when the store is known to hold
//! everything, so that a store which has lost some of it is refused at the next start.
//!
//! ```text
//! batch is committed (on disk) ─▶ answered ─▶ its time is written into the mark (not waited for)
//! start: time of the latest batch in the store ≥ time in the mark, or something is missing
//! ```
//!
//! The mark is written after the commit, when the writer has been idle for 50 ms or the mark is
//! 50 ms behind. So after a kill or a power cut it may be behind the store and never ahead of it: a
//! store that is whole is never refused. Only two writes a session are waited for: the first, when
//! there is a write-ahead log to miss, and the last.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::time::{Span, Timestamp};

/// How far the mark may be behind the store while the writer is busy.
pub(crate) const BEHIND_MAX: Duration = Duration::from_millis(50);
/// How the file begins.
const HEAD: &str = "outlast mark 1";
/// What comes after the file's name.
const SUFFIX: &str = ".mark";

/// What the mark says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The store holds every batch up to this time.
    pub(crate) time: Timestamp,
    /// Whether a write-ahead log that is there must have a head that can be read.
    pub(crate) log: bool,
}

/// The mark of a store that this process owns.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    said: Said,
    /// What the file says.
    in_file: Said,
    /// A store that does not wait for the disk may lose what the mark would promise.
    promises: bool,
}

/// Returns where the mark of the store at `path` is.
pub(crate) fn path_of(path: &Path) -> PathBuf {
    beside(path, SUFFIX)
}

/// Returns the file that has the name of `path` and `suffix` after it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Reads the mark of the store at `path`, if it has one. One that cannot be understood says
/// only that a store was there.
pub(crate) fn read(path: &Path) -> io::Result<Option<Said>> {
    match std::fs::read(path_of(path)) {
        Ok(bytes) => Ok(Some(parse(&bytes).unwrap_or_default())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Mark {
    /// Makes or takes over the mark of the store at `path`, and waits until it is on disk.
    pub(crate) fn open(path: &Path, said: Said, promises: bool) -> io::Result<Self> {
        let place = path_of(path);
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o600).open(&place)?;
        let mark = Self { file, said, in_file: said, promises };
        mark.write()?;
        mark.file.sync_all()?;
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        Ok(mark)
    }

    /// Notes that a batch of this time is on disk. The first one waits until the mark says that
    /// there is a write-ahead log; of the others the mark learns when the writer has time.
    pub(crate) fn note(&mut self, time: Timestamp) {
        if !self.promises {
            return;
        }
        let first = !self.said.log;
        self.said = Said { time: time.max(self.said.time), log: true };
        if first {
            let written = self.write().and_then(|()| self.file.sync_data());
            self.written(written);
        }
    }

    /// Whether something was noted that the file does not say yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.promises && self.said != self.in_file
    }

    /// Writes what was noted, unless the file says so already.
    pub(crate) fn write_if_behind(&mut self) {
        if self.is_behind() {
            let written = self.write();
            self.written(written);
        }
    }

    /// Writes what was noted if the file is behind by more than [`BEHIND_MAX`]: a writer that is
    /// never idle has no better time.
    pub(crate) fn write_if_late(&mut self) {
        let behind = Span::from_millis(u64::try_from(BEHIND_MAX.as_millis()).unwrap_or(u64::MAX));
        if self.said.time > self.in_file.time.after(behind) {
            self.write_if_behind();
        }
    }

    /// The store has its batches all the same; they only cannot be missed.
    fn written(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => self.in_file = self.said,
            Err(error) => tracing::debug!(%error, "failed to write the store's mark"),
        }
    }

    /// Notes that the write-ahead log is about to go, and waits until that is on disk.
    pub(crate) fn close(mut self) {
        self.said.log = false;
        if let Err(error) = self.write().and_then(|()| self.file.sync_data()) {
            tracing::warn!(%error, "failed to write the store's mark");
        }
    }

    fn write(&self) -> io::Result<()> {
        self.file.write_all_at(text(self.said).as_bytes(), 0)
    }
}

/// One line of always the same length, so that it is written over in one piece.
fn text(said: Said) -> String {
    let body = format!("{HEAD} time={:020} log={}", said.time.0.max(0), u8::from(said.log));
    format!("{body} sum={:016x}\n", sum(&body))
}

fn parse(bytes: &[u8]) -> Option<Said> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (body, found) = line.split_once(" sum=")?;
    if u64::from_str_radix(found, 16).ok()? != sum(body) {
        return None;
    }
    let (time, log) = body.strip_prefix(HEAD)?.strip_prefix(" time=")?.split_once(" log=")?;
    Some(Said { time: Timestamp(time.parse().ok()?), log: log == "1" })
}

/// FNV-1a: it finds a line that was half written.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use outlast_core::time::Timestamp;

    use super::{Said, parse, text};

    #[test]
    fn what_is_written_is_read_and_a_torn_line_says_nothing() {
        let said = Said { time: Timestamp(1_763_769_600_123), log: true };
        let line = text(said);
        assert_eq!(parse(line.as_bytes()), Some(said));
        assert_eq!(text(Said::default()).len(), line.len());
        for torn in [line.replace("time=0", "time=1"), line[..20].to_owned(), String::new()] {
            assert_eq!(parse(torn.as_bytes()), None, "{torn}");
        }
    }
}
