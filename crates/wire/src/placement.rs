//! Which workers a job wants, in a request: `"requires": "gpu=true, zone in (a, b)"`.

use outlast_core::limits::ROUTE_BYTES_MAX;
use outlast_core::selector::{Selector, SelectorError};

use crate::fault::Fault;

/// Reads a selector out of the text of a field.
///
/// # Errors
/// Returns why it is none.
pub fn read(field: &str, text: Option<&str>) -> Result<Selector, Fault> {
    let text = text.ok_or_else(|| {
        Fault::field(field, "must be a text such as `gpu=true, zone in (a, b), !spot`")
    })?;
    text.parse().map_err(|error: SelectorError| Fault::field(field, problem(&error)))
}

/// Puts into words why a text is no selector; completes "field `requires` …".
#[must_use]
pub fn problem(error: &SelectorError) -> String {
    format!("is no selector: {error}")
}

/// Puts into words that a job asks for too much of its worker.
#[must_use]
pub fn too_long(bytes: usize) -> Fault {
    let problem = format!(
        "is too long: labels, `requires` and `prefers` have {bytes} bytes together, those of the \
         action included; at most {ROUTE_BYTES_MAX} are taken"
    );
    Fault::rule("requires", problem)
}
