//! Python actions.

pub(super) const PROGRAMS: &[&str] = &["python3", "python"];

/// Also refuses Python 2, by failing.
pub(super) const QUESTION: &[&str] = &[
    "-c",
    "import sys; assert sys.version_info[0] >= 3; print(sys.executable); print(sys.version.split()[0])",
];

/// Unbuffered: a log is worth most while the job runs, and most of all when it is killed.
pub(super) const OPTIONS: &[&str] = &["-u"];
