//! How much an expression may still do.

use super::evaluate::Trouble;
use crate::limits::{ITEM_WORK_MAX, VALUE_BYTES_MAX, WORK_MAX};

/// Bytes that cost as much as a node to look at.
const BYTES_OF_ONE: usize = 64;

/// Counts down with each node, element and 64 bytes that an expression looks at.
#[derive(Debug)]
pub struct Work {
    most: u64,
    left: u64,
}

impl Work {
    /// Returns the work that one expression may do.
    #[must_use]
    pub const fn of_expression() -> Self {
        Self { most: WORK_MAX, left: WORK_MAX }
    }

    /// Returns the work that the expressions of one of `total` items may do together.
    #[must_use]
    pub const fn of_item(total: usize) -> Self {
        match total {
            0 | 1 => Self::of_expression(),
            _ => Self { most: ITEM_WORK_MAX, left: ITEM_WORK_MAX },
        }
    }

    pub(crate) fn spend(&mut self, amount: usize) -> Result<(), Trouble> {
        let amount = u64::try_from(amount).unwrap_or(u64::MAX);
        match self.left.checked_sub(amount) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Trouble::TooMuchWork(self.most))
            }
        }
    }

    /// Counts a look at so many bytes.
    pub(crate) fn look(&mut self, bytes: usize) -> Result<(), Trouble> {
        self.spend(bytes / BYTES_OF_ONE)
    }

    /// Counts new text, which must not be larger than a value may be.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Trouble> {
        if bytes > VALUE_BYTES_MAX {
            return Err(Trouble::TooLarge);
        }
        self.look(bytes)
    }
}
