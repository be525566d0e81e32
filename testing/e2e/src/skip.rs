//! Tests that need something which is not here: they fail, unless that is allowed by name.

/// Says that a test is skipped because of what is missing.
///
/// # Panics
///
/// Unless `OUTLAST_ALLOW_SKIP=1`.
#[track_caller]
pub fn for_want_of(missing: &str) {
    let allowed = std::env::var_os("OUTLAST_ALLOW_SKIP").is_some_and(|value| value == "1");
    eprintln!("NOT RUN, for want of {missing}");
    assert!(allowed, "{missing} is missing (OUTLAST_ALLOW_SKIP=1 allows it)");
}

/// Returns whether a program can be started; if not, the test is to be skipped.
///
/// # Panics
///
/// When it cannot, unless `OUTLAST_ALLOW_SKIP=1`.
#[track_caller]
#[must_use]
pub fn has(program: &str, package: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        for_want_of(&format!("{program} (package {package})"));
    }
    found
}
