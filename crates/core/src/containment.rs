//! Which containments of a process tree prove that it is dead, even when the process that
//! watched it was killed. `overlap: forbidden` needs one of them (I9), so it is part of what makes a worker
//! eligible.

/// The containments that prove it, by the names that workers register with.
///
/// Not a cgroup: nothing ends it when every process of the worker is killed at once, and
/// a job with the rights of its worker can leave it.
pub const PROVING: [&str; 1] = ["pidns"];

/// The label that a worker's containment is shown and asked for under. It is reserved: what a
/// worker says of itself here is what it found when it started.
pub const LABEL: &str = "containment";

/// Returns whether the containment of this name proves a tree's end.
#[must_use]
pub fn proves_death(name: &str) -> bool {
    PROVING.contains(&name)
}
