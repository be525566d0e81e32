//! A job that outgrows its memory limit is said to have done so (F19).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::Host;

/// A memory-limited group, in whichever hierarchy counts memory here, if we may make one.
struct LimitedGroup(PathBuf);

impl LimitedGroup {
    fn create() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("outlast-test-{}-{number}", std::process::id());
        let old = Path::new("/sys/fs/cgroup/memory").join(&name);
        if fs::create_dir(&old).is_ok() {
            let group = Self(old);
            let limited = fs::write(group.0.join("memory.limit_in_bytes"), "100M");
            return limited.is_ok().then_some(group);
        }
        let new = Path::new("/sys/fs/cgroup").join(&name);
        fs::create_dir(&new).ok()?;
        let group = Self(new);
        let limited = fs::write(group.0.join("memory.max"), "100M").is_ok();
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        limited.then_some(group)
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn check_oom(script: &str) {
    let Some(group) = LimitedGroup::create() else {
        let allowed = std::env::var_os("OUTLAST_ALLOW_SKIP").is_some_and(|value| value == "1");
        assert!(allowed, "this host lets us limit no memory (OUTLAST_ALLOW_SKIP=1 allows it)");
        return;
    };
    // The engine joins the group before it becomes itself, so shim and job are in it too.
    let join = format!(
        "echo $$ > {}/cgroup.procs; exec {} engine pidns 0 hog \"$0\"",
        group.0.display(),
        crate::support::HOST
    );
    let mut engine = Host::start_program("/bin/sh", &["-c", &join, script]);
    assert_eq!(engine.line(), "OomKilled tree_empty=true");
    assert_eq!(engine.exit_code(), Some(0));
}

#[test]
fn job_killed_for_want_of_memory_is_told_apart_from_a_killed_one() {
    check_oom("exec dd if=/dev/zero of=/dev/null bs=400M count=1");
}

#[test]
fn shell_whose_child_was_killed_for_want_of_memory_passes_that_on() {
    check_oom("dd if=/dev/zero of=/dev/null bs=400M count=1; exit $?");
}
