//! Public cases that cannot be passed honestly, each with its reason.
//!
//! They are run all the same: one that passes is reported, because then either the case or
//! this list has changed.

/// Case ids and why each fails.
const EXPECTED_FAILURES: &[(&str, &str)] =
    &[("L1-RTR-014", "expects the history to name an error type that its own reports never carry")];

/// Returns why a case is expected to fail, if it is.
pub(super) fn reason(test_id: &str) -> Option<&'static str> {
    EXPECTED_FAILURES.iter().find(|(id, _)| *id == test_id).map(|(_, reason)| *reason)
}
