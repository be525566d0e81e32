//! What a job finds when it starts, and what is said when it cannot.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptSpec, EndKind, StartFault};
use outlast_worker::containment::Containment;

use crate::support::{HOST, Host, shell};

async fn check_refused(spec: AttemptSpec, expected: &str) {
    check_refused_for(StartFault::Host, spec, expected).await;
}

async fn check_refused_for(fault: StartFault, spec: AttemptSpec, expected: &str) {
    for containment in Containment::ALL {
        let ending = Attempt::spawn(AttemptSpec { containment, ..spec.clone() }).finished().await;
        let EndKind::SpawnFailed(failure) = ending.kind else { panic!("{:?}", ending.kind) };
        assert!(failure.reason.contains(expected), "{failure:?}");
        assert_eq!(failure.fault, fault, "{failure:?}");
        assert!(ending.tree_empty && !ending.executed);
    }
}

fn program(path: &str) -> AttemptSpec {
    AttemptSpec { shim: OwnProgram::at(HOST), ..AttemptSpec::new("test", path) }
}

#[tokio::test]
async fn missing_program_is_named() {
    let expected = "program /nonexistent/program not found";
    check_refused(program("/nonexistent/program"), expected).await;
}

#[tokio::test]
async fn program_that_is_not_executable_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    check_refused(program(path.to_str().unwrap()), "is not executable").await;
}

#[tokio::test]
async fn missing_working_folder_is_named() {
    let spec = AttemptSpec { cwd: PathBuf::from("/nonexistent/folder"), ..program("/bin/true") };
    check_refused(spec, "working folder /nonexistent/folder").await;
}

#[tokio::test]
async fn arguments_beyond_the_systems_limit_are_explained() {
    let spec = AttemptSpec { args: vec!["x".repeat(300_000)], ..program("/bin/true") };
    check_refused_for(StartFault::Job, spec, "too long for the system").await;
}

// The job was charged for it: a sentence was searched for words that its path has too.
#[tokio::test]
async fn a_program_whose_path_speaks_of_arguments_that_are_too_long_is_the_hosts_fault() {
    let path = "/nonexistent/too long for the system (os error 11)";
    check_refused(program(path), "not found").await;
}

async fn stdout_of(spec: AttemptSpec) -> String {
    let ending = Attempt::spawn(spec).finished().await;
    assert_eq!(ending.kind, EndKind::Exited { code: 0 });
    String::from_utf8(ending.output.stdout.bytes).unwrap()
}

#[tokio::test]
async fn job_sees_exactly_the_environment_it_was_given() {
    let env = vec![("ONE".to_owned(), "a b\n$c".to_owned())];
    let spec = AttemptSpec { env, ..program("/usr/bin/env") };
    assert_eq!(stdout_of(spec).await, "ONE=a b\n$c\n");
}

#[tokio::test]
async fn job_starts_with_signals_as_at_login_in_a_session_of_its_own() {
    for containment in Containment::ALL {
        let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= -o pgid= -o pid= $$";
        let text = stdout_of(AttemptSpec { containment, ..shell(script) }).await;
        assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
        let ignored = text.split_once("SigIgn:\t").unwrap().1.split_once('\n').unwrap().0;
        // Signals 32 and 33 belong to the C library, which lets no program touch them.
        let ignored = u64::from_str_radix(ignored, 16).unwrap() & !(0b11 << 31);
        assert_eq!(ignored, 0, "{text}");
        let numbers: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        let [session, group, pid] = numbers.as_slice() else { panic!("{text}") };
        assert!(session == pid && group == pid, "{text}");
    }
}

#[tokio::test]
async fn job_inherits_no_descriptor_but_its_three() {
    for containment in Containment::ALL {
        // The fourth is the one by which ls reads the folder.
        let spec = AttemptSpec { containment, ..shell("ls /proc/self/fd | wc -l") };
        assert_eq!(stdout_of(spec).await.trim(), "4");
    }
}

#[tokio::test]
async fn job_is_a_likelier_victim_of_the_oom_killer_than_its_worker() {
    let score = stdout_of(shell("cat /proc/self/oom_score_adj")).await;
    assert!(score.trim().parse::<i32>().unwrap() >= 500, "{score}");
}

#[tokio::test]
async fn many_attempts_at_once_do_not_disturb_each_other() {
    for containment in Containment::ALL {
        let attempts: Vec<_> = (0..30)
            .map(|number| {
                let spec = AttemptSpec { containment, ..shell(&format!("cat; exit {number}")) };
                Attempt::spawn(AttemptSpec { stdin: b"in".to_vec(), ..spec })
            })
            .collect();
        for (number, attempt) in (0..).zip(attempts) {
            let ending = attempt.finished().await;
            assert_eq!(ending.kind, EndKind::Exited { code: number });
            assert!(ending.tree_empty && !ending.output.cut);
            assert_eq!(ending.output.stdout.bytes, b"in");
        }
    }
}

// Once /dev/null was opened only after the job had started: one that ran was said not to have.
#[test]
fn a_shim_that_could_not_let_go_of_the_jobs_pipes_starts_no_job() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let script = format!("mount -t tmpfs tmpfs /dev && exec {HOST} engine subreaper 0 x \"$0\"");
    let job = format!(": > {}", ran.display());
    let mut host = Host::start_program("unshare", &["--mount", "sh", "-c", &script, &job]);
    let said = host.line();
    assert!(said.contains("SpawnFailed") && said.contains("cannot open /dev/null"), "{said}");
    assert!(!ran.exists());
}

#[tokio::test]
async fn a_shim_that_dies_before_it_executes_the_job_is_no_fault_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast");
    // A keeper of cgroups it can be, a shim it cannot.
    let script =
        format!("#!/bin/sh\ncase $1 in shim | spawner) kill -9 $$;; esac\nexec {HOST} \"$@\"\n");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = AttemptSpec { shim: OwnProgram::at(path), ..program("/bin/true") };
    check_refused(spec, "killed before it executed the job").await;
}

// Where mounts were refused, jobs read the token of their worker and nothing said so.
#[tokio::test]
async fn no_job_starts_where_secrets_of_the_worker_cannot_be_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let (secret, gone) = (folder.path().join("token"), folder.path().join("gone"));
    fs::write(&secret, "hush").unwrap();
    let hiding = |hidden: Vec<PathBuf>| AttemptSpec {
        hidden,
        ..shell(&format!("cat {}; echo seen", secret.display()))
    };
    assert_eq!(stdout_of(hiding(vec![gone, secret.clone()])).await, "seen\n");
    assert_eq!(stdout_of(hiding(vec![folder.path().to_owned()])).await, "seen\n");
    // A link to itself leads nowhere where something could be laid over it.
    let endless = folder.path().join("endless");
    std::os::unix::fs::symlink(&endless, &endless).unwrap();
    let ending = Attempt::spawn(hiding(vec![endless])).finished().await;
    let EndKind::SpawnFailed(failure) = ending.kind else { panic!("{:?}", ending.kind) };
    assert!(failure.reason.contains("cannot hide") && !ending.executed, "{failure:?}");
}

#[test]
fn a_namespace_that_can_hide_nothing_is_not_chosen_where_something_is_to_be_hidden() {
    let probe = |more: &[&str]| {
        // Without room for another mount namespace nothing can be mounted.
        let script = "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$0\" probe pidns \"$@\"";
        let args = [&["--user", "--map-root-user", "sh", "-c", script, HOST], more].concat();
        Host::start_program("unshare", &args).line()
    };
    assert_eq!(probe(&[]), "pidns pidns");
    let refused = probe(&["/etc/passwd"]);
    assert!(refused.contains("cannot hide /etc/passwd from jobs"), "{refused}");
}
