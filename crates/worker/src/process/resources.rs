//! By what this host limits the memory, processors and processes of an attempt.
//!
//! ```text
//! cgroup v2, if the worker's group may limit its children
//!   else cgroup v1, for each controller that is there
//!   else the shim: it samples memory and processes; nothing limits the use of processors
//! ```
//!
//! Nothing here trusts a version number: a way is used if a trial group could be limited by it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::resources::{MEMORY_MIN, Resources};
use serde::{Deserialize, Serialize};

use super::cgroup::{self, Group};
use super::protocol::ContainedIn;
use super::{OwnProgram, keeper};

/// The period of which a share of processors is counted, in microseconds: the kernel's own choice.
const CPU_PERIOD_US: u64 = 100_000;
/// Least share of a period that the kernel takes.
const CPU_QUOTA_MIN_US: u64 = 1_000;

/// What limits one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The unified hierarchy.
    Cgroup2,
    /// A hierarchy of its own.
    Cgroup1,
    /// The shim, which looks at it several times a second.
    Shim,
    /// Nothing does.
    Nothing,
}

impl LimitedBy {
    /// Returns the word that the worker reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cgroup2 => "cgroup2",
            Self::Cgroup1 => "cgroup1",
            Self::Shim => "shim",
            Self::Nothing => "nothing",
        }
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What limits each resource on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforcement {
    /// Memory.
    pub memory: LimitedBy,
    /// Time on processors.
    pub cpu: LimitedBy,
    /// Processes and threads.
    pub processes: LimitedBy,
}

impl Enforcement {
    /// What works without anything from the host.
    pub const BY_SHIM: Self =
        Self { memory: LimitedBy::Shim, cpu: LimitedBy::Nothing, processes: LimitedBy::Shim };

    /// Finds out what works here.
    #[must_use]
    pub fn find() -> Self {
        let least = |memory, cpu, processes| Resources::new(memory, cpu, processes);
        let way = |limits: Result<Resources, _>, controller, otherwise| {
            let limits = limits.unwrap_or_default();
            [LimitedBy::Cgroup2, LimitedBy::Cgroup1]
                .into_iter()
                .find(|way| works(*way, controller, &limits))
                .unwrap_or(otherwise)
        };
        Self {
            memory: way(least(Some(MEMORY_MIN), None, None), "memory", LimitedBy::Shim),
            cpu: way(least(None, Some(1000), None), "cpu", LimitedBy::Nothing),
            processes: way(least(None, None, Some(1)), "pids", LimitedBy::Shim),
        }
    }

    /// Returns the groups in which an attempt with these limits is held, and what the shim looks at.
    /// An attempt that is held in a group of version 2 anyway has its limits there.
    pub(crate) fn plan(
        &self,
        limits: &Resources,
        contained_in: &ContainedIn,
        program: &OwnProgram,
    ) -> io::Result<LimitPlan> {
        let mut plan = LimitPlan::default();
        let wanted = [
            (self.memory, limits.memory().is_some(), memory as fn(&Resources, _) -> _, "memory"),
            (self.cpu, limits.cpu_millis().is_some(), cpu, "cpu"),
            (self.processes, limits.processes().is_some(), processes, "pids"),
        ];
        let name = std::cell::LazyCell::new(|| next_name(program));
        let named = || name.as_ref().map_err(|error| io::Error::from(error.kind()));
        for (way, _, settings, controller) in wanted.into_iter().filter(|(_, is, ..)| *is) {
            match way {
                LimitedBy::Cgroup2 => {
                    let folder = match contained_in {
                        ContainedIn::Cgroup { folder } => folder.clone(),
                        ContainedIn::Pidns | ContainedIn::Subreaper => {
                            cgroup::own_folder()?.join(named()?)
                        }
                    };
                    plan.add(folder, settings(limits, way));
                }
                LimitedBy::Cgroup1 => {
                    let parent = cgroup::old_folder(controller)
                        .ok_or_else(|| io::Error::other("the cgroups of this worker are gone"))?;
                    plan.add(parent.join(named()?), settings(limits, way));
                }
                LimitedBy::Shim | LimitedBy::Nothing => {}
            }
        }
        plan.sampled = Sampled {
            memory: limits.memory().filter(|_| self.memory == LimitedBy::Shim),
            processes: limits.processes().filter(|_| self.processes == LimitedBy::Shim),
        };
        Ok(plan)
    }
}

/// Names a group that no attempt of this or another living engine uses.
pub(crate) fn next_name(program: &OwnProgram) -> io::Result<String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let prefix = keeper::ensure(program)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{prefix}{number}"))
}

/// How an attempt's limits are kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LimitPlan {
    pub(crate) groups: Vec<LimitGroup>,
    pub(crate) sampled: Sampled,
}

/// A group that the attempt's processes are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitGroup {
    pub(crate) folder: PathBuf,
    pub(crate) settings: Vec<Setting>,
}

/// A limit as the kernel wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) file: String,
    pub(crate) value: String,
    /// Kernels without it limit enough without it.
    pub(crate) optional: bool,
}

/// What the shim looks at by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sampled {
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u32>,
}

impl LimitPlan {
    fn add(&mut self, folder: PathBuf, settings: Vec<Setting>) {
        match self.groups.iter_mut().find(|group| group.folder == folder) {
            Some(group) => group.settings.extend(settings),
            None => self.groups.push(LimitGroup { folder, settings }),
        }
    }
}

impl LimitGroup {
    /// Makes the group with its limits. Nothing is left of one that is refused.
    pub(crate) fn create(&self) -> io::Result<Group> {
        let group = Group::create(self.folder.clone())?;
        for Setting { file, value, optional } in &self.settings {
            if let Err(error) = group.set(file, value)
                && !optional
            {
                group.remove();
                return Err(error);
            }
        }
        Ok(group)
    }
}

/// Whether a group could be limited so.
fn works(way: LimitedBy, controller: &str, limits: &Resources) -> bool {
    let parent = match way {
        LimitedBy::Cgroup2 if cgroup::delegated::limits_by(controller) => cgroup::own_folder().ok(),
        LimitedBy::Cgroup1 => cgroup::old_folder(controller),
        LimitedBy::Cgroup2 | LimitedBy::Shim | LimitedBy::Nothing => None,
    };
    let Some(parent) = parent else { return false };
    let Ok(prefix) = cgroup::own_prefix() else { return false };
    let settings = match controller {
        "memory" => memory(limits, way),
        "cpu" => cpu(limits, way),
        _ => processes(limits, way),
    };
    let folder = parent.join(format!("{prefix}trial"));
    let made = LimitGroup { folder, settings }.create();
    // Who may not enter it has no use for it.
    let enters = made.as_ref().is_ok_and(|group| group.entrance().is_ok());
    made.into_iter().for_each(|group| group.remove());
    enters
}

fn memory(limits: &Resources, way: LimitedBy) -> Vec<Setting> {
    let Some(bytes) = limits.memory() else { return Vec::new() };
    match way {
        LimitedBy::Cgroup2 => vec![
            required("memory.max", bytes),
            // What is swapped out would not count.
            optional("memory.swap.max", 0),
            optional("memory.oom.group", 1),
        ],
        _ => vec![
            required("memory.limit_in_bytes", bytes),
            optional("memory.memsw.limit_in_bytes", bytes),
        ],
    }
}

fn cpu(limits: &Resources, way: LimitedBy) -> Vec<Setting> {
    let Some(millis) = limits.cpu_millis() else { return Vec::new() };
    let quota = u64::from(millis).saturating_mul(CPU_PERIOD_US / 1000).max(CPU_QUOTA_MIN_US);
    match way {
        LimitedBy::Cgroup2 => vec![required("cpu.max", format_args!("{quota} {CPU_PERIOD_US}"))],
        _ => {
            vec![required("cpu.cfs_period_us", CPU_PERIOD_US), optional("cpu.cfs_quota_us", quota)]
        }
    }
}

fn processes(limits: &Resources, _way: LimitedBy) -> Vec<Setting> {
    limits.processes().map(|most| required("pids.max", most)).into_iter().collect()
}

fn required(file: &str, value: impl fmt::Display) -> Setting {
    Setting { file: file.to_owned(), value: value.to_string(), optional: false }
}

fn optional(file: &str, value: impl fmt::Display) -> Setting {
    Setting { optional: true, ..required(file, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|it| format!("{}={}", it.file, it.value)).collect()
    }

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        let limits = Resources::new(Some(64 << 20), Some(1500), Some(7)).unwrap();
        let of = |way| [memory(&limits, way), cpu(&limits, way), processes(&limits, way)].concat();
        assert_eq!(
            written(&of(LimitedBy::Cgroup2)),
            [
                "memory.max=67108864",
                "memory.swap.max=0",
                "memory.oom.group=1",
                "cpu.max=150000 100000",
                "pids.max=7"
            ]
        );
        assert_eq!(
            written(&of(LimitedBy::Cgroup1)),
            [
                "memory.limit_in_bytes=67108864",
                "memory.memsw.limit_in_bytes=67108864",
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=150000",
                "pids.max=7"
            ]
        );
    }

    #[test]
    fn without_cgroups_the_shim_looks_at_what_it_can() {
        let limits = Resources::new(Some(64 << 20), Some(1500), Some(7)).unwrap();
        let program = OwnProgram::running();
        let plan = Enforcement::BY_SHIM.plan(&limits, &ContainedIn::Pidns, &program).unwrap();
        assert_eq!(plan.groups, []);
        assert_eq!(plan.sampled, Sampled { memory: Some(64 << 20), processes: Some(7) });
    }
}
