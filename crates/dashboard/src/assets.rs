//! The style sheet and the script. Their names hold a digest of what they are, so that browsers keep them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file that pages refer to.
#[derive(Debug)]
pub struct Asset {
    /// Its name, with a digest.
    pub name: String,
    /// Its media type.
    pub media_type: &'static str,
    /// What it is.
    pub bytes: &'static [u8],
}

impl Asset {
    fn new(stem: &str, extension: &str, media_type: &'static str, bytes: &'static [u8]) -> Self {
        let mut name = format!("{stem}-");
        for byte in Sha256::digest(bytes).iter().take(6) {
            // Writing to a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        Self { name: format!("{name}.{extension}"), media_type, bytes }
    }
}

/// The style sheet.
pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style", "css", "text/css; charset=utf-8", include_bytes!("../assets/style.css"))
});

/// The script.
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let bytes = include_bytes!("../assets/script.js");
    Asset::new("script", "js", "text/javascript; charset=utf-8", bytes)
});

/// The icon. Browsers ask for it by this name.
pub static ICON: LazyLock<Asset> = LazyLock::new(|| Asset {
    name: "icon.svg".to_owned(),
    media_type: "image/svg+xml",
    bytes: include_bytes!("../assets/icon.svg"),
});

/// Returns the file of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Asset> {
    [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, STYLE, find};

    #[test]
    fn assets_are_small_and_found_by_their_names() {
        assert!(SCRIPT.bytes.len() <= 10 * 1024, "{} bytes", SCRIPT.bytes.len());
        assert!(SCRIPT.bytes.len() + STYLE.bytes.len() <= 40 * 1024);
        assert_eq!(find(&SCRIPT.name).map(|asset| asset.media_type), Some(SCRIPT.media_type));
        assert!(find("script.js").is_none());
    }

    /// Trusted Types refuse them, and a text of a job must never become HTML.
    #[test]
    fn script_makes_no_html_of_texts() {
        let script = std::str::from_utf8(SCRIPT.bytes).unwrap();
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!script.contains(sink), "{sink}");
        }
    }
}
