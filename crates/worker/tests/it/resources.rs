//! Limits on what an attempt may use, by what this host has and by the shim alone (fault F19).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use outlast_core::resources::Resources;
use outlast_worker::attempt::{Attempt, AttemptEnd, AttemptSpec, EndKind};
use outlast_worker::containment::Containment;
use outlast_worker::resources::{Enforcement, LimitedBy};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::support::{Host, eventually, marker, shell, shell_marked, shims, survivors};

const MIB: u64 = 1 << 20;

/// Takes 300 MiB of memory and stays; without it, a minute.
const HOG: &str = "dd if=/dev/zero of=/dev/null bs=300M count=100000 status=none";

fn limits(memory: Option<u64>, cpu_millis: Option<u32>, processes: Option<u32>) -> Resources {
    Resources::new(memory, cpu_millis, processes).unwrap()
}

/// Every way of limiting that there is here, in every containment that works with all of them.
fn ways() -> Vec<(Enforcement, Containment)> {
    let by_host = Enforcement::find();
    let mut ways = Vec::new();
    for enforcement in [by_host, Enforcement::BY_SHIM] {
        ways.extend(Containment::ALL.map(|containment| (enforcement, containment)));
    }
    ways
}

async fn ended(spec: AttemptSpec) -> AttemptEnd {
    Attempt::spawn(spec).finished().await
}

/// Groups of attempts that an engine has made and that are still there.
fn groups_of(engine: u32) -> Vec<String> {
    let own = format!("-{engine}-");
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if name.starts_with("outlast-") && name.contains(&own) {
                found.push(entry.path().display().to_string());
            } else if is_folder {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_more_memory_than_allowed_is_ended_and_no_one_else() {
    for (enforcement, containment) in ways() {
        let marker = marker();
        let neighbour = Attempt::spawn(AttemptSpec {
            containment,
            enforcement,
            resources: limits(Some(64 * MIB), None, None),
            ..shell("sleep 2; echo unharmed")
        });
        let hog = ended(AttemptSpec {
            containment,
            enforcement,
            resources: limits(Some(64 * MIB), None, None),
            timeout: Some(Duration::from_secs(60)),
            ..shell_marked(HOG, &marker)
        })
        .await;
        assert_eq!(hog.kind, EndKind::OomKilled, "{enforcement:?} {containment}");
        assert!(hog.tree_empty && hog.executed);
        assert_eq!(survivors(&marker), []);
        assert!(hog.usage.peak_memory.unwrap() > 30 * MIB, "{:?}", hog.usage);
        let neighbour = neighbour.finished().await;
        assert_eq!(neighbour.kind, EndKind::Exited { code: 0 });
        assert_eq!(neighbour.output.stdout.bytes, b"unharmed\n");
    }
    assert_eq!(groups_of(std::process::id()), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_takes_too_much_ends_the_whole_attempt() {
    // The kernel of version 1 kills one process only, and the second script ends before the shim looks.
    for then in ["sleep 60", "true"] {
        for (enforcement, containment) in ways() {
            let marker = marker();
            let ending = ended(AttemptSpec {
                containment,
                enforcement,
                resources: limits(Some(64 * MIB), None, None),
                ..shell_marked(&format!("{HOG} & wait $!; {then}"), &marker)
            })
            .await;
            assert_eq!(ending.kind, EndKind::OomKilled, "{enforcement:?} {containment}");
            assert!(ending.duration < Duration::from_secs(30), "{:?}", ending.duration);
            assert_eq!(survivors(&marker), []);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stays_below_its_limits_does_not_notice_them() {
    for (enforcement, containment) in ways() {
        let ending = ended(AttemptSpec {
            containment,
            enforcement,
            resources: limits(Some(256 * MIB), Some(2000), Some(50)),
            ..shell("dd if=/dev/zero of=/dev/null bs=40M count=3 status=none; (sleep 0.2; echo x)")
        })
        .await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 }, "{enforcement:?} {containment}");
        assert_eq!(ending.output.stdout.bytes, b"x\n");
        let peak = ending.usage.peak_memory.unwrap();
        assert!((35 * MIB..200 * MIB).contains(&peak), "{enforcement:?} {containment}: {peak}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_held() {
    for (enforcement, containment) in ways() {
        let marker = marker();
        let script = "i=0; while [ $i -lt 40 ]; do sleep 30 & i=$((i+1)); done; wait";
        let ending = ended(AttemptSpec {
            containment,
            enforcement,
            resources: limits(None, None, Some(8)),
            timeout: Some(Duration::from_secs(20)),
            ..shell_marked(script, &marker)
        })
        .await;
        if enforcement.processes == LimitedBy::Shim {
            assert_eq!(ending.kind, EndKind::TooManyProcesses, "{containment}");
        } else {
            // The kernel refuses the ninth, and the shell gives up.
            assert_eq!(ending.kind, EndKind::Exited { code: 2 }, "{containment}");
        }
        assert_eq!(survivors(&marker), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_on_processors_is_counted_and_limited_where_the_host_can() {
    let busy = "while [ ! -e \"$TMPDIR/stop\" ]; do :; done";
    for (enforcement, containment) in ways() {
        let folder = TempDir::new().unwrap();
        let mut spec = AttemptSpec {
            containment,
            enforcement,
            resources: limits(None, Some(100), None),
            ..shell(busy)
        };
        spec.env.push(("TMPDIR".to_owned(), folder.path().display().to_string()));
        let attempt = Attempt::spawn(spec);
        tokio::time::sleep(Duration::from_secs(2)).await;
        fs::write(folder.path().join("stop"), "").unwrap();
        let ending = attempt.finished().await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 });
        let used = ending.usage.cpu.unwrap().as_millis();
        assert!(used > 50, "{enforcement:?} {containment}: {used} ms");
        if enforcement.cpu != LimitedBy::Nothing {
            let whole = u64::try_from(ending.duration.as_millis()).unwrap();
            assert!(used <= whole / 4, "{enforcement:?} {containment}: {used} of {whole} ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_unlimited_attempt_used_is_known_too() {
    for containment in Containment::ALL {
        let script = "dd if=/dev/zero of=/dev/null bs=50M count=20 status=none";
        let ending = ended(AttemptSpec { containment, ..shell(script) }).await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 });
        assert!(ending.usage.peak_memory.unwrap() >= 50 * MIB, "{:?}", ending.usage);
        assert!(ending.usage.cpu.unwrap().as_millis() > 0, "{:?}", ending.usage);
    }
}

// The files of the worker's own group and of a neighbour's were in reach of jobs without limits.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_limits_cannot_write_to_cgroups() {
    let script = "for file in $(find /sys/fs/cgroup -maxdepth 4 -name cgroup.procs); do
                      (echo $$ > $file) 2> /dev/null && echo entered $file
                  done; echo end";
    let ending = ended(shell(script)).await;
    assert_eq!(String::from_utf8_lossy(&ending.output.stdout.bytes), "end\n");
}

// Without it a job of root raises its own limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_a_namespace_cannot_leave_its_limits() {
    let enforcement = Enforcement::find();
    if enforcement.memory == LimitedBy::Shim {
        return;
    }
    let script = "for folder in $(find /sys/fs/cgroup -maxdepth 4 -name 'outlast-*'); do
                      for file in memory.limit_in_bytes memory.max; do
                          if [ -e $folder/$file ]; then
                              echo found
                              (echo 1000000000 > $folder/$file) && echo raised
                          fi
                      done
                      (echo $$ > $folder/../cgroup.procs) && echo left
                  done 2> /dev/null; echo end";
    let ending = ended(AttemptSpec {
        enforcement,
        resources: limits(Some(64 * MIB), None, None),
        ..shell(script)
    })
    .await;
    // Those of other tests may be there too.
    let said = String::from_utf8_lossy(&ending.output.stdout.bytes).into_owned();
    assert!(said.starts_with("found\n") && said.ends_with("end\n"), "{said}");
    assert!(!said.contains("raised") && !said.contains("left"), "{said}");
}

/// The groups do not stay behind when engines and shims are killed with -9.
fn check_groups_go(kill: impl Fn(&Host)) {
    let marker = marker();
    let host = Host::start(&["limited", &marker, "sleep 60"]);
    let engine = u32::try_from(host.pid().as_raw_nonzero().get()).unwrap();
    eventually("it runs", || !survivors(&marker).is_empty());
    let limits = Enforcement::find().memory != LimitedBy::Shim;
    assert_eq!(groups_of(engine).is_empty(), !limits);
    kill(&host);
    eventually("the job has ended", || survivors(&marker).is_empty());
    eventually("no group is left", || groups_of(engine).is_empty());
}

#[test]
fn groups_go_with_a_killed_engine() {
    check_groups_go(|host| host.signal(Signal::KILL));
}

#[test]
fn groups_of_killed_shims_go_with_their_engine() {
    check_groups_go(|host| {
        for shim in shims(&format!("limited-{}", host.pid().as_raw_nonzero())) {
            let _ = kill_process(shim, Signal::KILL);
        }
        host.signal(Signal::KILL);
    });
}
