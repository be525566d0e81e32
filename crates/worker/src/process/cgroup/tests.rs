use std::path::PathBuf;

use rustix::process::getpid;

use super::{Owner, PREFIX, mount_of};

const HYBRID: &str = "\
31 23 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
36 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct
37 31 0:32 / /sys/fs/cgroup/memory rw shared:16 master:1 - cgroup cgroup rw,memory
";

const UNIFIED: &str = "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn unified_hierarchy_is_found_wherever_it_is_mounted() {
    let hybrid = mount_of(HYBRID, "cgroup2", None);
    assert_eq!(hybrid, Some(PathBuf::from("/sys/fs/cgroup/unified")));
    assert_eq!(mount_of(UNIFIED, "cgroup2", None), Some(PathBuf::from("/sys/fs/cgroup")));
    assert_eq!(mount_of("", "cgroup2", None), None);
}

#[test]
fn old_memory_hierarchy_is_told_by_its_controller() {
    let memory = mount_of(HYBRID, "cgroup", Some("memory"));
    assert_eq!(memory, Some(PathBuf::from("/sys/fs/cgroup/memory")));
    let joint = mount_of(HYBRID, "cgroup", Some("cpuacct"));
    assert_eq!(joint, Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")));
    assert_eq!(mount_of(UNIFIED, "cgroup", Some("memory")), None);
}

#[test]
fn only_a_group_of_a_dead_engine_of_this_namespace_is_an_orphan() {
    let living = Owner::of_process(getpid().as_raw_nonzero().get()).unwrap();
    let name =
        |owner: &Owner| format!("{PREFIX}{}-{}-{}-7", owner.namespace, owner.pid, owner.start);
    let read = |owner: &Owner| Owner::of_group(&name(owner)).unwrap();
    assert_eq!(read(&living), living);
    assert!(!read(&living).is_dead());
    let reused = Owner { start: living.start + 1, ..read(&living) };
    assert!(read(&reused).is_dead(), "its number belongs to another process now");
    let elsewhere = Owner { namespace: 1, ..reused };
    assert!(!read(&elsewhere).is_dead());
    for name in ["outlast-1-2", "outlast-x", "outlast-1-2-3-4-5", "other-1-2-3-4"] {
        assert_eq!(Owner::of_group(name), None, "{name}");
    }
}
