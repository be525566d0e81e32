//! Which containments of a process tree prove that it is dead, even when the process that
//! watched it was killed. `overlap: forbidden` needs one of them (I9), so it is part of what makes a worker
//! eligible.

/// The containments that prove it, by the names that workers register with.
pub const PROVING: [&str; 2] = ["pidns", "cgroup"];

/// The label that a worker's containment is shown and asked for under. It is reserved: what a
/// worker says of itself here is what it found when it started.
pub const LABEL: &str = "containment";

/// Returns whether the containment of this name proves a tree's end.
#[must_use]
pub fn proves_death(name: &str) -> bool {
    PROVING.contains(&name)
}
