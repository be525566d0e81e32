//! Faults of a worker and its host are never a job's, and a worker comes back by itself.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use outlast_e2e::process::command;
use outlast_e2e::wait::{HEARTBEAT, LEASE, eventually, stays, within};
use outlast_e2e::{
    Process, Proxy, Run, Scene, ServerOptions, Weather, WorkerOptions, binary, process_table,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;

const NOBODY: u32 = 65534;

#[test]
fn a_worker_without_descriptors_is_quiet_and_charges_nothing_until_it_has_some_again() {
    let scene = Scene::start();
    let worker = scene.worker("starved");
    let warm = scene.run(Run::short());
    scene.await_status(&warm, "completed", within(LEASE));
    let engine = Pid::from_raw(worker.engine());
    // What is open stays open.
    let starved = Rlimit { current: Some(8), maximum: Some(4096) };
    prlimit(engine, Resource::Nofile, starved).unwrap();
    let job = scene.run(Run::short());
    let quiet = scene.await_worker(worker.id(), "quiet", within(LEASE));
    let why = quiet["evidence"].as_str().unwrap_or_default();
    assert!(why.contains("fault of the worker") && why.contains("open files"), "{quiet}");
    let waiting = scene.api().execution(&job);
    assert_eq!((&waiting["failures"], &waiting["losses"]), (&json!(0), &json!(0)), "{waiting}");

    let enough = Rlimit { current: Some(1024), maximum: Some(4096) };
    prlimit(engine, Resource::Nofile, enough).unwrap();

    let recovery = within(Duration::from_secs(8));
    let done = scene.await_status(&job, "completed", recovery);
    assert_eq!((&done["failures"], &done["losses"]), (&json!(0), &json!(0)), "{done}");
    let attempts = scene.api().attempts(&job);
    let first = &attempts[0];
    let end = (&first["outcome"], &first["evidence_code"]);
    assert_eq!(end, (&json!("undelivered"), &json!("host")), "{first}");
    scene.await_worker(worker.id(), "running", recovery);
    scene.judge();
}

#[test]
fn a_limit_on_open_files_that_is_too_low_for_the_slots_is_refused_with_the_numbers() {
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 200 && exec \"$0\" worker --concurrency 1000 --server http://127.0.0.1:9",
        ])
        .arg(binary::outlast())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("13208 open files") && said.contains("may open 200"), "{said}");
}

#[test]
fn a_worker_takes_as_many_large_jobs_as_it_has_slots() {
    const JOBS: u32 = 90;
    // So much at once holds up a busy machine. How long a worker may be silent is not the question.
    let calm = Duration::from_secs(5);
    let options = ServerOptions::default().set("worker.reconnect_window", json!(calm.as_secs()));
    let scene = Scene::with(options);
    let load = "x".repeat(1_000_000);
    let large = || Run::action("ledger.deaf").parameter("load", json!(load));
    // They are there before the worker is: all of them are handed over at once.
    let jobs: Vec<String> = (0..JOBS).map(|_| scene.run(large())).collect();
    let options = WorkerOptions::named("wide").concurrency(JOBS).heartbeat(calm);
    let _worker = scene.worker_with(&options);
    for job in &jobs {
        let done = scene.await_status(job, "completed", within(Duration::from_secs(20)));
        assert_eq!(done["epoch"], 1, "{done} {:?}", scene.api().attempts(job));
    }
    scene.judge();
}

/// A fault that is made and unmade, and what the worker is to say of it.
struct Fault {
    name: &'static str,
    process: Process,
    make: Box<dyn FnOnce()>,
    unmake: Box<dyn FnOnce()>,
    says: String,
}

/// A worker that serves the queue of its own name.
fn serving(scene: &Scene, name: &str, more: &[&str]) -> Command {
    let url = scene.api().url();
    let arguments = ["worker", "--server", url, "--name", name, "--queues", name];
    let arguments = arguments.iter().chain(more).map(|word| (*word).to_owned());
    command(&arguments.collect::<Vec<_>>())
}

fn engine_of(guardian: &Process) -> i32 {
    eventually("the guardian has an engine", within(LEASE), || {
        let engines = process_table::with_argument("engine");
        process_table::children(guardian.pid()).into_iter().find(|pid| engines.contains(pid))
    })
}

/// Limits the processes of an ordinary user's engine, and of its spawner: root knows no such limit.
fn limit_processes(engine: i32, soft: &str) {
    let spawners = process_table::with_argument("spawner");
    let children = process_table::children(engine);
    let spawners = children.into_iter().filter(|child| spawners.contains(child));
    for pid in spawners.chain([engine]) {
        let mut prlimit = Command::new("prlimit");
        // The same user may do it, and stays below the hard limit.
        prlimit.args([&format!("--pid={pid}"), &format!("--nproc={soft}:")]);
        assert!(prlimit.uid(NOBODY).gid(NOBODY).status().unwrap().success());
    }
}

fn process_limit() -> String {
    getrlimit(Resource::Nproc).current.map_or_else(|| "unlimited".into(), |n| n.to_string())
}

fn out_of_processes(scene: &Scene) -> Fault {
    let mut command = serving(scene, "processes", &[]);
    command.uid(NOBODY).gid(NOBODY);
    let process = Process::spawn("processes", command, scene.folder());
    let engine = engine_of(&process);
    Fault {
        name: "processes",
        process,
        make: Box::new(move || limit_processes(engine, "1")),
        unmake: Box::new(move || limit_processes(engine, &process_limit())),
        says: "temporarily unavailable".into(),
    }
}

/// A small file system of the worker's own, in a mount namespace that goes with it.
fn out_of_space(scene: &Scene) -> Fault {
    let work = scene.folder().join("small");
    fs::create_dir(&work).unwrap();
    let path = work.display().to_string();
    let inner = serving(scene, "space", &["--work-dir", &path]);
    let mut outer = Command::new("unshare");
    let mount = "mount -t tmpfs -o size=8m,nr_inodes=600 tmpfs \"$0\" && exec \"$@\"";
    outer.args(["--mount", "sh", "-c", mount, &path]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let process = Process::spawn("space", outer, scene.folder());
    let seen = PathBuf::from(format!("/proc/{}/root", engine_of(&process)));
    let seen = seen.join(work.strip_prefix("/").unwrap());
    let filler = seen.join("filler");
    let there = filler.clone();
    Fault {
        name: "space",
        process,
        make: Box::new(move || fill(&there)),
        unmake: Box::new(move || fs::remove_dir_all(&filler).unwrap()),
        says: "No space left".into(),
    }
}

/// Makes files until there is no room for another.
fn fill(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let full = (0..10_000).any(|n| File::create(folder.join(n.to_string())).is_err());
    assert!(full, "the file system is not a small one");
}

/// A shell of the worker's own.
fn without_its_shell(scene: &Scene) -> Fault {
    let shell = scene.folder().join("sh");
    fs::write(&shell, "#!/bin/sh\nexec /bin/sh \"$@\"\n").unwrap();
    fs::set_permissions(&shell, Permissions::from_mode(0o755)).unwrap();
    let mut command = serving(scene, "shell", &["--runtimes", "shell"]);
    // The only shell in its PATH: another would do as well.
    let tools = scene.folder().join("tools");
    fs::create_dir(&tools).unwrap();
    symlink("/bin/cat", tools.join("cat")).unwrap();
    command.env("PATH", format!("{}:{}", scene.folder().display(), tools.display()));
    let process = Process::spawn("shell", command, scene.folder());
    let away = shell.with_extension("away");
    let (from, to) = (shell.clone(), away.clone());
    let says = scene.folder().display().to_string();
    Fault {
        name: "shell",
        process,
        make: Box::new(move || fs::rename(from, to).unwrap()),
        unmake: Box::new(move || fs::rename(away, shell).unwrap()),
        says,
    }
}

#[test]
fn a_worker_that_can_start_nothing_is_quiet_charges_nothing_and_comes_back_by_itself() {
    let scene = Scene::start();
    fs::set_permissions(scene.folder(), Permissions::from_mode(0o755)).unwrap();
    let faults = [out_of_processes(&scene), out_of_space(&scene), without_its_shell(&scene)];
    let echo = |queue: &str| {
        let echo = Run::action("core.echo").parameter("message", json!("hello"));
        scene.run(echo.with("queue", json!(queue)))
    };
    let recovery = within(Duration::from_secs(8));
    let warm: Vec<String> = faults.iter().map(|fault| echo(fault.name)).collect();
    for job in &warm {
        scene.await_status(job, "completed", recovery);
    }
    let mut broken = Vec::new();
    for Fault { name, process, make, unmake, says } in faults {
        make();
        broken.push((name, process, unmake, says, echo(name)));
    }
    let mut well = Vec::new();
    for (name, process, unmake, says, job) in broken {
        let quiet = scene.await_named_worker(name, "quiet", recovery);
        let why = quiet["evidence"].as_str().unwrap_or_default();
        assert!(why.contains("fault of the worker") && why.contains(&says), "{name}: {quiet}");
        unmake();
        well.push((name, process, job));
    }
    for (name, _process, job) in &well {
        let done = scene.await_status(job, "completed", recovery);
        let spent = (&done["failures"], &done["losses"], &done["interruptions"]);
        assert_eq!(spent, (&json!(0), &json!(0), &json!(0)), "{name}: {done}");
        let first = &scene.api().attempts(job)[0];
        let end = (&first["outcome"], &first["evidence_code"]);
        assert_eq!(end, (&json!("undelivered"), &json!("host")), "{name}: {first}");
        scene.await_named_worker(name, "running", recovery);
    }
    scene.judge();
}

// To resolve a name takes a thread. The panic for want of one ended the heartbeat for good.
#[test]
fn a_worker_that_cannot_resolve_its_servers_name_for_a_while_beats_on_after_it() {
    let scene = Scene::start();
    fs::set_permissions(scene.folder(), Permissions::from_mode(0o755)).unwrap();
    let proxy = Proxy::to(scene.api().url());
    let url = proxy.url().replace("127.0.0.1", "localhost");
    let beats = format!("{}ms", HEARTBEAT.as_millis());
    let arguments = ["worker", "--server", &url, "--name", "far", "--queues", "far"];
    let arguments = arguments.into_iter().chain(["--heartbeat-interval", &beats]);
    let mut command = command(&arguments.map(str::to_owned).collect::<Vec<_>>());
    command.uid(NOBODY).gid(NOBODY);
    let mut process = Process::spawn("far", command, scene.folder());
    scene.await_named_worker("far", "running", within(LEASE));
    let engine = engine_of(&process);
    // The thread that resolved the name goes after ten idle seconds. The engine keeps one.
    let threads = || fs::read_dir(format!("/proc/{engine}/task")).unwrap().flatten();
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm"));
    let idle = || {
        threads().filter_map(|thread| name(thread).ok()).filter(|name| name.starts_with("tokio-rt"))
    };
    eventually("no thread is idle", within(LEASE), || (idle().count() <= 1).then_some(()));
    limit_processes(engine, "1");
    proxy.set(Weather::Cut);
    thread::sleep(Duration::from_secs(1));
    proxy.set(Weather::Clear);
    // It tries all the while; there is nothing to wait for.
    thread::sleep(Duration::from_secs(3));
    limit_processes(engine, &process_limit());

    let echo = Run::action("core.echo").parameter("message", json!("hello"));
    let job = scene.run(echo.with("queue", json!("far")));
    scene.await_status(&job, "completed", within(Duration::from_secs(20)));
    stays("the worker runs", LEASE * 2, || {
        scene.await_named_worker("far", "running", within(HEARTBEAT));
        process.ended().map(|_| process.tail())
    });
    scene.judge();
}
