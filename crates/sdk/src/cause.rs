//! What an error comes from.

use std::error::Error;

/// Returns the innermost error: those around it only say that something failed.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
