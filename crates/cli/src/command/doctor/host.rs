//! What this host offers a worker: interpreters, containment, limits, time to stop.

use std::collections::BTreeSet;
use std::path::PathBuf;

use outlast_cli_core::output::span;
use outlast_packs::{Overlap, Runner};
use outlast_worker::OwnProgram;
use outlast_worker::containment::{Choice, Containment};
use outlast_worker::daemon::{Supervisor, needed_to_stop, open_files_needed};
use outlast_worker::environment::HostEnvironment;
use outlast_worker::probe::Probe;
use outlast_worker::resources::{Enforcement, LimitedBy};
use outlast_worker::runtime::{Interpreters, Runtime};
use rustix::process::{Resource, getpid, getrlimit, set_child_subreaper};

use super::Subject;
use super::check::Check;
use crate::config::value;
use crate::config::worker;

/// A server needs one a connection, and this many connections are nothing unusual.
const FILES_SERVER: u64 = 1024;
/// What lets a worker hold jobs in PID namespaces.
const NAMESPACES: &str = "allow user namespaces, run the worker as root, or give it CAP_SYS_ADMIN";
/// Shells do not pass SIGTERM on to what they started.
const DEAF_INITS: &[&str] = &["sh", "bash", "dash", "ash", "busybox"];

pub(super) async fn check(subject: &Subject<'_>, checks: &mut Vec<Check>) {
    let host = HostEnvironment::allowed_of(subject.environment.variables().iter().cloned());
    let interpreters = Interpreters::find(host.path()).await;
    for runtime in Runtime::ALL {
        checks.push(interpreter(subject, &interpreters, runtime));
    }
    containment(subject, checks).await;
    checks.push(resources(subject));
    checks.push(open_files(subject));
    checks.push(reaping());
    checks.push(grace(subject));
}

fn interpreter(subject: &Subject<'_>, found: &Interpreters, runtime: Runtime) -> Check {
    let name = match runtime {
        Runtime::Shell => "runtime shell",
        Runtime::Python => "runtime python",
        Runtime::Node => "runtime node",
    };
    let needed = needed_by(subject, runtime);
    let by = if needed.is_empty() {
        "no pack needs it".to_owned()
    } else {
        format!("needed by pack {}", needed.into_iter().collect::<Vec<_>>().join(", "))
    };
    let wanted = subject.settings.get("worker.runtimes", value::runtimes).unwrap_or_default();
    match found.get(runtime) {
        Ok(interpreter) => {
            let version = match interpreter.version.as_str() {
                "" => String::new(),
                version => format!(" {version}"),
            };
            let program = interpreter.program.display();
            Check::ok(name, format!("{runtime}{version} at {program}, {by}"))
        }
        Err(missing) => {
            let fact = format!("{missing}; {by}");
            if wanted.iter().any(|wanted| wanted == runtime.name()) {
                let fix = "install it, or remove it from worker.runtimes";
                Check::fail(name, fact, fix)
            } else if by.starts_with("no pack") {
                Check::ok(name, fact)
            } else {
                Check::warn(name, fact, "install it where these jobs are to run")
            }
        }
    }
}

/// Packs with an action of this runtime that is switched on.
fn needed_by(subject: &Subject<'_>, runtime: Runtime) -> BTreeSet<String> {
    let runner = match runtime {
        Runtime::Shell => Runner::Shell,
        Runtime::Python => Runner::Python,
        Runtime::Node => Runner::Node,
    };
    let actions = subject.packs.actions();
    let needing = actions.filter(|action| action.enabled && action.runner == runner);
    needing.map(|action| action.pack.clone()).collect()
}

/// Says by what attempts of a worker that is started like this command are limited.
fn resources(subject: &Subject<'_>) -> Check {
    let limited = subject.packs.actions().filter(|action| !action.resources.is_empty());
    let (count, of_cpu) = limited.fold((0_u32, Vec::new()), |(count, mut of_cpu), action| {
        of_cpu.extend(action.resources.cpu_millis().map(|_| action.reference.as_str()));
        (count + 1, of_cpu)
    });
    limits_kept(&Enforcement::find(), count, &of_cpu)
}

fn limits_kept(by: &Enforcement, limited: u32, of_cpu: &[&str]) -> Check {
    const NAME: &str = "limits of jobs";
    const FIX: &str = "run the worker in a unit with Delegate=yes, or in a container with a \
                       writable cgroup namespace; on a host with cgroup v1, as root";
    let actions = match limited {
        0 => "no action has limits".to_owned(),
        1 => "1 action has limits".to_owned(),
        _ => format!("{limited} actions have limits"),
    };
    let Enforcement { memory, cpu, processes } = by;
    let fact = format!("memory by {memory}, cpu by {cpu}, processes by {processes}; {actions}");
    if *cpu != LimitedBy::Nothing || of_cpu.is_empty() {
        return Check::ok(NAME, fact);
    }
    Check::warn(NAME, format!("{fact}; nothing limits the cpu of {}", of_cpu.join(", ")), FIX)
}

/// Runs a trial in each kind, as a worker does at its start.
async fn containment(subject: &Subject<'_>, checks: &mut Vec<Check>) {
    const NAME: &str = "containment";
    let word = subject.settings.get("worker.containment", value::containment);
    let choice: Choice = word.ok().and_then(|kind| kind.word().parse().ok()).unwrap_or_default();
    let forbids = |action: &&outlast_packs::Action| action.overlap == Overlap::Forbidden;
    let forbidding: Vec<&str> =
        subject.packs.actions().filter(forbids).map(|action| action.reference.as_str()).collect();
    let hidden = Hidden::of(subject);
    let probe = Probe::hiding(choice, &OwnProgram::running(), &hidden.all).await;
    let probe = match probe {
        Ok(probe) => probe,
        Err(error) => {
            let fix = "allow the worker to create namespaces or its own cgroup, or set \
                       worker.containment to auto";
            return checks.push(Check::fail(NAME, error.to_string(), fix));
        }
    };
    checks.extend(secret_files(&probe, &hidden));
    let kind = probe.chosen;
    if kind.proves_death() {
        return checks.push(proving(NAME, &probe, Containment::knows_one_user(), &hidden));
    }
    let refused: Vec<String> =
        probe.refused.iter().map(|kind| format!("{}: {}", kind.kind, kind.reason)).collect();
    let why = if refused.is_empty() { "asked for".to_owned() } else { refused.join("; ") };
    checks.push(if forbidding.is_empty() {
        let fact = format!("{kind} ({why}); `overlap: forbidden` is not offered");
        Check::warn(NAME, fact, NAMESPACES)
    } else {
        let actions = forbidding.join(", ");
        Check::fail(NAME, format!("{kind} ({why}); {actions} cannot run here"), NAMESPACES)
    });
}

/// The files that a worker here hides from its jobs.
#[derive(Debug, Default)]
struct Hidden {
    /// As the worker names them.
    all: Vec<PathBuf>,
    /// The client's key among them: the only one that must be a file.
    key: Option<PathBuf>,
}

impl Hidden {
    fn of(subject: &Subject<'_>) -> Self {
        let absolute = |path: PathBuf| std::path::absolute(path).ok();
        let named = worker::hidden(&subject.settings).unwrap_or_default();
        let key = subject.settings.get("worker.client_key", value::file).ok().flatten();
        Self { all: named.into_iter().filter_map(absolute).collect(), key: key.and_then(absolute) }
    }

    /// How to do without those files for which there is another way.
    fn instead(&self) -> Option<String> {
        let others = self.all.iter().filter(|file| Some(*file) != self.key.as_ref());
        let names: Vec<String> = others.map(|file| file.display().to_string()).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(" and ");
            format!("give the token in the environment (OUTLAST_TOKEN) instead of {names}")
        })
    }
}

/// Only a PID namespace hides files from jobs, which otherwise have all rights of the worker.
fn secret_files(probe: &Probe, hidden: &Hidden) -> Option<Check> {
    const NAME: &str = "secret files";
    let files: Vec<String> = hidden.all.iter().map(|file| file.display().to_string()).collect();
    let files = (!files.is_empty()).then(|| files.join(", "))?;
    if probe.chosen == Containment::Pidns && probe.ordinary == Containment::Pidns {
        return Some(Check::ok(NAME, format!("hidden from jobs: {files}")));
    }
    let fact = format!(
        "jobs can read {files}: a worker here has containment {}, which hides no files",
        probe.ordinary
    );
    let fix = match (hidden.instead(), &hidden.key) {
        (Some(instead), None) => format!("{NAMESPACES}; or {instead}"),
        (None, _) => NAMESPACES.to_owned(),
        (Some(instead), Some(key)) => {
            let key = key.display();
            format!("{NAMESPACES}: nothing else hides {key}; and {instead}")
        }
    };
    Some(Check::warn(NAME, fact, fix))
}

/// A namespace is there; the question is what jobs can do in it.
fn proving(name: &'static str, probe: &Probe, one_user: bool, hidden: &Hidden) -> Check {
    let kept = "`overlap: forbidden` can be kept";
    if probe.ordinary != probe.chosen {
        let fact = format!(
            "{kept}: such jobs run in a pid namespace of this user's own, where files of root \
             look foreign, and ssh, git over ssh and ansible refuse; all others in a {}",
            probe.ordinary
        );
        return Check::ok(name, fact);
    }
    if one_user {
        let fact = format!(
            "{}; {kept}, but in a namespace of this user's own files of root look foreign, and \
             ssh, git over ssh and ansible refuse",
            probe.chosen
        );
        // A cgroup hides no files: a worker that has to hide some does not use it.
        let cgroup = "delegate a cgroup to the worker (Delegate=yes) and leave worker.containment \
                      at auto, or ";
        let first = match (&hidden.key, hidden.instead()) {
            (Some(_), _) => String::new(),
            (None, Some(instead)) => format!("{instead}, {cgroup}"),
            (None, None) => cgroup.to_owned(),
        };
        let fix = format!("if jobs need them: {first}run the worker as root or with CAP_SYS_ADMIN");
        return Check::warn(name, fact, fix);
    }
    Check::ok(name, format!("{}; {kept}", probe.chosen))
}

fn open_files(subject: &Subject<'_>) -> Check {
    const NAME: &str = "open files";
    let concurrency = subject.settings.get("worker.concurrency", value::concurrency).unwrap_or(10);
    let needed = open_files_needed(concurrency);
    // A worker, and a server too, raises the soft limit by itself.
    let Some(limit) = getrlimit(Resource::Nofile).maximum else {
        return Check::ok(NAME, "no limit");
    };
    let fact =
        format!("hard limit {limit}; {concurrency} jobs at the same time need up to {needed}");
    let fix = "raise it: LimitNOFILE=65536 in a unit, or ulimit -n 65536";
    let check = if limit < needed {
        Check::fail(NAME, fact, fix)
    } else if limit < FILES_SERVER {
        Check::warn(NAME, format!("{fact}; a server may need {FILES_SERVER}"), fix)
    } else {
        Check::ok(NAME, fact)
    };
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    let number = limit as f64;
    check.with_number(number, "files")
}

/// Whether orphans will be reaped, and whether signals will come through.
fn reaping() -> Check {
    const NAME: &str = "reaping";
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        let fact = format!("this process cannot become a subreaper: {error}");
        return Check::fail(NAME, fact, "run on Linux 3.4 or newer, without a filter on prctl");
    }
    let init = std::fs::read_to_string("/proc/1/comm").unwrap_or_default().trim().to_owned();
    let fact = format!("a worker reaps its orphans itself; process 1 is {init}");
    let in_container = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|mark| std::path::Path::new(mark).exists());
    if in_container && DEAF_INITS.contains(&init.as_str()) {
        let fix = "start outlast in exec form (CMD [\"outlast\", \"worker\"]) so that it is \
                   process 1: a shell does not pass SIGTERM on";
        return Check::warn(NAME, fact, fix);
    }
    Check::ok(NAME, fact)
}

fn grace(subject: &Subject<'_>) -> Check {
    const NAME: &str = "time to stop";
    let Ok(grace) = subject.settings.get("worker.shutdown_timeout", value::duration) else {
        return Check::skipped(NAME, "worker.shutdown_timeout cannot be read");
    };
    let needed = needed_to_stop(grace);
    let seconds = needed.as_secs_f64();
    let needs = format!("a worker needs up to {} (grace {})", span(needed), span(grace));
    let check = match Supervisor::of(subject.environment.variables()) {
        None => Check::ok(
            NAME,
            format!("{needs}; no service manager was detected that would kill it earlier"),
        ),
        Some(supervisor) if needed > supervisor.stop_timeout => {
            // What it allows here cannot be seen from inside, so this is no warning.
            let fact = format!(
                "{needs}; {} kills after {} unless it is set otherwise, which cannot be seen from \
                 here: {}",
                supervisor.name,
                span(supervisor.stop_timeout),
                supervisor.setting
            );
            Check::skipped(NAME, fact)
        }
        Some(supervisor) => Check::ok(
            NAME,
            format!("{needs}; {} usually waits {}", supervisor.name, span(supervisor.stop_timeout)),
        ),
    };
    check.with_number(seconds, "s")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use outlast_worker::containment::Containment;
    use outlast_worker::probe::Probe;

    use super::super::check::Level;
    use super::{Enforcement, Hidden, LimitedBy, limits_kept, proving, secret_files};

    fn probe(chosen: Containment, ordinary: Containment) -> Probe {
        Probe { chosen, ordinary, refused: Vec::new() }
    }

    /// Files to hide, of which `/run/key` is the client's key.
    fn hidden(files: &[&str]) -> Hidden {
        let all: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let key = all.iter().find(|file| file.ends_with("key")).cloned();
        Hidden { all, key }
    }

    #[test]
    fn files_that_jobs_can_read_are_named() {
        let files = hidden(&["/run/token"]);
        let inside = probe(Containment::Pidns, Containment::Pidns);
        assert!(secret_files(&inside, &Hidden::default()).is_none());
        assert_eq!(secret_files(&inside, &files).unwrap().level, Level::Ok);
        let outside = probe(Containment::Cgroup, Containment::Cgroup);
        let check = secret_files(&outside, &files).unwrap();
        assert_eq!(check.level, Level::Warn);
        assert!(check.fact.contains("jobs can read /run/token"), "{check:?}");
        assert!(check.fix.as_deref().unwrap_or_default().contains("OUTLAST_TOKEN"), "{check:?}");
    }

    // A key was to be given in the environment, which no setting allows.
    #[test]
    fn a_client_key_is_not_to_be_given_in_the_environment() {
        let outside = probe(Containment::Cgroup, Containment::Cgroup);
        let fix = |files: &Hidden| secret_files(&outside, files).unwrap().fix.unwrap();
        assert!(!fix(&hidden(&["/run/key"])).contains("environment"));
        let both = fix(&hidden(&["/run/token", "/run/key"]));
        assert!(both.contains("nothing else hides /run/key"), "{both}");
        assert!(both.ends_with("OUTLAST_TOKEN) instead of /run/token"), "{both}");
        let inside = probe(Containment::Pidns, Containment::Pidns);
        let fix = proving("containment", &inside, true, &hidden(&["/run/token", "/run/key"]))
            .fix
            .unwrap();
        assert!(!fix.contains("cgroup") && !fix.contains("environment"), "{fix}");
    }

    #[test]
    fn a_limit_that_nothing_keeps_is_named() {
        let check = |by: Enforcement, of_cpu: &[&str]| limits_kept(&by, 2, of_cpu);
        let fine = check(Enforcement::BY_SHIM, &[]);
        assert_eq!(fine.level.word(), "ok");
        assert_eq!(
            fine.fact,
            "memory by shim, cpu by nothing, processes by shim; 2 actions have limits"
        );
        let unkept = check(Enforcement::BY_SHIM, &["a.b"]);
        assert_eq!(unkept.level.word(), "warn");
        assert!(unkept.fact.ends_with("nothing limits the cpu of a.b"), "{}", unkept.fact);
        let cpu = LimitedBy::Cgroup1;
        assert_eq!(check(Enforcement { cpu, ..Enforcement::BY_SHIM }, &["a.b"]).level.word(), "ok");
    }

    // A cgroup was advised, which a worker with a file to hide never uses.
    #[test]
    fn a_cgroup_is_advised_only_together_with_what_makes_the_worker_use_it() {
        let inside = probe(Containment::Pidns, Containment::Pidns);
        let fix = |hidden: &Hidden| proving("containment", &inside, true, hidden).fix.unwrap();
        assert!(fix(&Hidden::default()).starts_with("if jobs need them: delegate a cgroup"));
        let fix = fix(&hidden(&["/run/token"]));
        assert!(fix.contains("OUTLAST_TOKEN) instead of /run/token, delegate a cgroup"), "{fix}");
    }
}
