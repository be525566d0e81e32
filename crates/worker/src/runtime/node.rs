//! Node.js actions.

pub(super) const PROGRAMS: &[&str] = &["node", "nodejs"];

pub(super) const QUESTION: &[&str] = &["-p", "process.execPath + '\\n' + process.versions.node"];

pub(super) const OPTIONS: &[&str] = &[];
