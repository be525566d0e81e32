//! How many rows a section has, and the sum of their texts.
//!
//! The sum is a chain: that of a row is over the one before it and the row's text. So each
//! line of a file proves itself and everything before it, and the last one the section.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::row::write_hex;

/// Digits of the chain that a line carries.
const LINE_DIGITS: usize = 16;

/// Rows and their sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How many.
    pub rows: u64,
    /// SHA-256 of the chain, in hexadecimal digits.
    pub sha256: String,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.sha256.get(..LINE_DIGITS).unwrap_or(&self.sha256);
        write!(f, "{} rows with sum {short}", self.rows)
    }
}

/// A digest in the making.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    rows: u64,
    last: [u8; 32],
}

impl Chain {
    /// Takes the text of the next row.
    pub fn add(&mut self, text: &str) {
        let mut sum = Sha256::new();
        sum.update(self.last);
        sum.update(text.as_bytes());
        self.last = sum.finalize().into();
        self.rows += 1;
    }

    /// Returns how many rows were taken.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns what the line of the last row carries.
    #[must_use]
    pub fn line(&self) -> String {
        let mut hex = String::with_capacity(LINE_DIGITS);
        write_hex(self.last.get(..LINE_DIGITS / 2).unwrap_or_default(), &mut hex);
        hex
    }

    /// Returns the digest of all rows taken.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sha256 = String::with_capacity(64);
        write_hex(&self.last, &mut sha256);
        Digest { rows: self.rows, sha256 }
    }
}

/// Returns the sum of a text by itself.
#[must_use]
pub fn sum_of(text: &str) -> String {
    let mut chain = Chain::default();
    chain.add(text);
    chain.digest().sha256
}
