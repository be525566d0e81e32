use std::path::PathBuf;

use super::mount_of;

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
