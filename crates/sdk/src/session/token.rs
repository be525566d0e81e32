//! The bearer token that a worker shows to its server.
//!
//! One that comes from a file is read again whenever the worker attaches, when the server refuses it,
//! and on request: tokens are replaced while workers run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::metadata::{Ascii, MetadataValue};

use super::BadAddress;

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

    /// Reads the file again, if there is one. One that cannot be used changes nothing.
    pub(crate) fn read_again(&self) {
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

fn read(file: &Path) -> Result<MetadataValue<Ascii>, String> {
    let because = |reason: &str| format!("file {} {reason}", file.display());
    let about = std::fs::metadata(file).map_err(|error| because(&error.to_string()))?;
    if !about.is_file() {
        return Err(because("is no file"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| because(&error.to_string()))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(because("is empty"));
    }
    shown(token).map_err(|reason| because(&reason))
}

fn shown(token: &str) -> Result<MetadataValue<Ascii>, String> {
    let value = token.is_ascii().then(|| MetadataValue::try_from(format!("Bearer {token}")).ok());
    let mut value = value.flatten().ok_or("it is not plain ASCII")?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::{ShownToken, TokenSource};

    #[test]
    fn a_token_is_read_again_and_kept_if_its_file_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let source = TokenSource { text: None, file: Some(file.clone()) };
        assert!(ShownToken::new(&source).is_err(), "there is none yet");
        std::fs::write(&file, "first-token\n").unwrap();
        let token = ShownToken::new(&source).unwrap();
        let shown = || token.get().unwrap().to_str().unwrap().to_owned();
        std::fs::write(&file, "second-token\n").unwrap();
        assert_eq!(shown(), "Bearer first-token");
        token.clone().read_again();
        assert_eq!(shown(), "Bearer second-token");
        for unusable in ["", "two\nlines", "t\u{f6}ken"] {
            std::fs::write(&file, unusable).unwrap();
            token.read_again();
        }
        std::fs::remove_file(&file).unwrap();
        token.read_again();
        assert_eq!(shown(), "Bearer second-token");
        assert!(!format!("{token:?}").contains("second"), "{token:?}");
    }
}
