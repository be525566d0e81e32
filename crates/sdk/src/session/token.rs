//! The bearer token that a worker or a client shows to its server.
//!
//! One that comes from a file is read again whenever the worker attaches, when the server refuses it,
//! and on request: tokens are replaced while workers run.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::oneshot;
use tonic::metadata::{Ascii, MetadataValue};

use super::BadAddress;

/// Longest file that may hold a token, which is a line.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How long reading a token again may hold up what needs it: a file system may hang.
const READ_MAX: Duration = Duration::from_secs(2);

/// A bearer token that shows itself to servers only.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Where the token comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenSource {
    /// As it is now, if that is known.
    pub(crate) text: Option<Token>,
    /// The file that holds it.
    pub(crate) file: Option<PathBuf>,
}

/// The token to show now. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct ShownToken {
    latest: Arc<Mutex<Option<MetadataValue<Ascii>>>>,
    file: Option<Arc<Path>>,
}

impl ShownToken {
    pub(crate) fn new(source: &TokenSource) -> Result<Self, BadAddress> {
        let bad = |reason| BadAddress { what: "the token".to_owned(), reason };
        let latest = match (&source.text, &source.file) {
            (Some(Token(token)), _) => Some(shown(token).map_err(bad)?),
            (None, Some(file)) => Some(read(file).map_err(bad)?),
            (None, None) => None,
        };
        let file = source.file.as_deref().map(Arc::from);
        Ok(Self { latest: Arc::new(Mutex::new(latest)), file })
    }

    pub(crate) fn get(&self) -> Option<MetadataValue<Ascii>> {
        self.latest().clone()
    }

    /// Whether it may be another one later.
    pub(crate) const fn may_change(&self) -> bool {
        self.file.is_some()
    }

    /// Whether the file holds another token than this one, which was refused.
    pub(crate) async fn is_replaced(&self, refused: Option<&MetadataValue<Ascii>>) -> bool {
        self.read_again().await;
        self.latest().as_ref() != refused
    }

    /// Reads the file again, if there is one, without holding up this thread. One that cannot be
    /// used, or not be read in time, changes nothing now.
    pub(crate) async fn read_again(&self) {
        if !self.may_change() {
            return;
        }
        let (done, read) = oneshot::channel();
        let token = self.clone();
        let reader = std::thread::Builder::new().name("token".to_owned()).spawn(move || {
            token.read_now();
            // After a slow read nothing waits for this any more.
            done.send(()).unwrap_or_default();
        });
        match reader {
            Ok(_) => {
                if tokio::time::timeout(READ_MAX, read).await.is_err() {
                    tracing::warn!("reading the token again takes long, going on with the old one");
                }
            }
            // No thread can be had.
            Err(_) => self.read_now(),
        }
    }

    fn read_now(&self) {
        let Some(file) = &self.file else { return };
        match read(file) {
            Ok(token) => {
                let mut latest = self.latest();
                if latest.as_ref() != Some(&token) {
                    *latest = Some(token);
                    drop(latest);
                    tracing::info!(file = %file.display(), "the token has changed");
                }
            }
            Err(reason) => {
                tracing::warn!(reason, "cannot read the token again, keeping the one from before");
            }
        }
    }

    fn latest(&self) -> MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a bearer token from a file, without the blanks around it. Waits for no pipe and reads no
/// more than a token takes.
///
/// # Errors
/// [`ErrorKind::NotFound`] when there is no file, [`ErrorKind::UnexpectedEof`] when it is empty,
/// [`ErrorKind::InvalidInput`] when it is no plain file, [`ErrorKind::InvalidData`] when it does not
/// hold one word of printable ASCII; or that it cannot be read.
pub fn read_token(file: &Path) -> io::Result<String> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no plain file"));
    }
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err(io::Error::new(ErrorKind::UnexpectedEof, "it is empty"));
    }
    let is_whole = u64::try_from(bytes.len()).is_ok_and(|length| length < FILE_BYTES_MAX);
    match std::str::from_utf8(token) {
        Ok(token) if is_whole && token.chars().all(|c| c.is_ascii_graphic()) => {
            Ok(token.to_owned())
        }
        _ => Err(io::Error::new(ErrorKind::InvalidData, "it holds no token")),
    }
}

fn read(file: &Path) -> Result<MetadataValue<Ascii>, String> {
    let because = |reason: String| format!("file {}: {reason}", file.display());
    let token = read_token(file).map_err(|error| because(error.to_string()))?;
    shown(&token).map_err(because)
}

fn shown(token: &str) -> Result<MetadataValue<Ascii>, String> {
    let value = token.is_ascii().then(|| MetadataValue::try_from(format!("Bearer {token}")).ok());
    let mut value = value.flatten().ok_or("it is not plain ASCII")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{FILE_BYTES_MAX, ShownToken, TokenSource, read_token};

    #[tokio::test]
    async fn a_token_is_read_again_and_kept_if_its_file_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let source = TokenSource { text: None, file: Some(file.clone()) };
        assert!(ShownToken::new(&source).is_err(), "there is none yet");
        fs::write(&file, "first-token\n").unwrap();
        let token = ShownToken::new(&source).unwrap();
        let shown = || token.get().unwrap().to_str().unwrap().to_owned();
        fs::write(&file, "second-token\n").unwrap();
        assert_eq!(shown(), "Bearer first-token");
        let refused = token.get();
        assert!(token.clone().is_replaced(refused.as_ref()).await);
        assert_eq!(shown(), "Bearer second-token");
        // Of two requests that were refused, the second finds it read already.
        assert!(token.is_replaced(refused.as_ref()).await);
        let refused = token.get();
        for unusable in ["", "two\nlines", "t\u{f6}ken"] {
            fs::write(&file, unusable).unwrap();
            assert!(!token.is_replaced(refused.as_ref()).await);
        }
        fs::remove_file(&file).unwrap();
        assert!(!token.is_replaced(refused.as_ref()).await);
        assert_eq!(shown(), "Bearer second-token");
        assert!(!format!("{token:?}").contains("second"), "{token:?}");
    }

    // A pipe was looked at before it was opened, and a file of any size was read whole.
    #[test]
    fn a_pipe_is_not_waited_for_and_a_file_that_is_too_long_holds_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str| read_token(&folder.path().join(name)).unwrap_err().kind();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(kind("pipe"), ErrorKind::InvalidInput);
        let long = "x".repeat(usize::try_from(FILE_BYTES_MAX).unwrap() + 1);
        fs::write(folder.path().join("long"), long).unwrap();
        assert_eq!(kind("long"), ErrorKind::InvalidData);
        fs::write(folder.path().join("empty"), " \n").unwrap();
        assert_eq!(kind("empty"), ErrorKind::UnexpectedEof);
        assert_eq!(kind("none"), ErrorKind::NotFound);
        fs::write(folder.path().join("right"), " a-token\r\n").unwrap();
        assert_eq!(read_token(&folder.path().join("right")).unwrap(), "a-token");
    }
}
