//! Attempts that a warm process forks: they are what the interpreter would have executed, and have nothing
//! of one another.

mod ahead;
mod ends;
mod processes;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast_core::resources::Resources;
use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptEnd, AttemptSpec, EndKind};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::Containment;
use outlast_worker::resources::Enforcement;
use outlast_worker::runtime::Runtime;
use outlast_worker::warm::{WarmKey, WarmProcess, WarmProcesses, WarmRequest};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tempfile::TempDir;

use crate::support::{
    HOST, Host, PATIENCE_MS, arguments, children_of, eventually, marker, memory_of, shims,
    survivors,
};

/// The interpreters of all these tests: those that every user may execute.
const PYTHON: &str = "/usr/bin/python3";
const NODE: &str = "/usr/bin/node";

/// A pack with scripts and modules in one folder, and the warm processes of a worker.
struct Pack {
    _folder: TempDir,
    key: WarmKey,
    processes: WarmProcesses,
    /// Files that jobs must not see.
    hidden: Vec<PathBuf>,
}

impl Pack {
    /// A pack whose Python scripts have these modules imported ahead.
    fn new(preload: &[&str]) -> Self {
        Self::of(Runtime::Python, PYTHON, preload)
    }

    /// The same in another language.
    fn of(runtime: Runtime, program: &str, preload: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("attempts")).unwrap();
        let is_python = runtime == Runtime::Python;
        let key = WarmKey {
            runtime,
            pack: marker(),
            digest: "one".into(),
            program: program.into(),
            options: is_python.then(|| "-u".to_owned()).into_iter().collect(),
            environment: None,
            preload: preload.iter().map(|name| (*name).to_owned()).collect(),
            imports: false,
            folder: real.clone(),
            cwd: real.clone(),
            variables: variables(),
            idle: Duration::from_secs(60),
        };
        let processes = WarmProcesses::new(OwnProgram::at(HOST), real.join("attempts"));
        Self { _folder: folder, key, processes, hidden: Vec::new() }
    }

    /// Writes a script or a module.
    fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.key.folder.join(name), text).unwrap();
        self
    }

    fn path(&self, name: &str) -> String {
        self.key.folder.join(name).display().to_string()
    }

    /// How a script is executed.
    fn cold(&self, script: &str) -> AttemptSpec {
        let program = self.key.program.display().to_string();
        AttemptSpec {
            args: self.key.options.iter().cloned().chain([self.path(script)]).collect(),
            env: variables(),
            cwd: self.key.cwd.clone(),
            hidden: self.hidden.clone(),
            kill_after: Duration::from_millis(300),
            containment: Containment::Pidns,
            shim: OwnProgram::at(HOST),
            ..AttemptSpec::new(format!("warm-{}", marker()), program)
        }
    }

    /// The process that serves attempts which are held so, if one does by now.
    fn process_in(&self, containment: Containment) -> Option<WarmProcess> {
        self.processes.find(WarmRequest {
            key: self.key.clone(),
            environment: None,
            variables: &variables(),
            containment,
            hidden: self.hidden.clone(),
        })
    }

    /// The process that serves, if one does by now.
    fn process(&self) -> Option<WarmProcess> {
        self.process_in(Containment::Pidns)
    }

    /// How a script is run warm, once there is an interpreter for that.
    async fn warm(&self, script: &str) -> AttemptSpec {
        let warm = soon("a warm process comes", || {
            let why = self.processes.reasons();
            assert!(why.is_empty(), "{why:?}");
            self.process()
        });
        AttemptSpec { warm: Some(warm.await), ..self.cold(script) }
    }

    /// Why attempts are executed, once that is known.
    async fn reasons(&self) -> Vec<String> {
        soon("a reason comes", || {
            let reasons = self.processes.reasons().into_iter().map(|(_, why)| why);
            Some(reasons.collect::<Vec<String>>()).filter(|reasons| !reasons.is_empty())
        })
        .await
    }

    /// The numbers of the processes that serve this pack.
    fn pids(&self) -> Vec<Pid> {
        let mut children = children_of(getpid());
        children.retain(|child| arguments(*child) == ["outlast", "warm", &self.key.pack]);
        children
    }

    /// The number of the one that does.
    fn pid(&self) -> Option<Pid> {
        self.pids().first().copied()
    }
}

/// Polls until there is something, without keeping other tasks from their work.
async fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = boot_now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(boot_now().since(began).as_millis() < PATIENCE_MS, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn variables() -> Vec<(String, String)> {
    [("PATH", "/usr/bin:/bin"), ("HOME", "/"), ("LANG", "C.UTF-8")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

async fn ended(spec: AttemptSpec) -> AttemptEnd {
    Attempt::spawn(spec).finished().await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Says of the process that runs it whatever it could find out about how it was started.
const FACTS: &str = r#"
import sys
print("names", sorted(globals()), __name__, __file__, __spec__, __package__, __doc__)
print("loader", type(__loader__).__name__, __loader__.name, __loader__.path)
print("main", sys.modules["__main__"].__dict__ is globals())
print("arguments", sys.argv, sys.orig_argv, sys.path, sys.executable, sys.prefix)
print("flags", sys.flags, sys.warnoptions, sys._xoptions)
import atexit, ctypes, gc, locale, os, resource, signal, threading
def status(pid="self"):
    with open("/proc/%s/status" % pid) as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
about = status()
for name in ("Name", "Umask", "Uid", "Gid", "Groups", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn",
             "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
             "Speculation_Store_Bypass", "Cpus_allowed_list", "THP_enabled", "CoreDumping"):
    print(name, about.get(name))
print("family", os.getppid(), os.getpid() == os.getsid(0) == os.getpgid(0), len(about["NSpid"].split()))
print("folder", os.getcwd(), os.readlink("/proc/self/exe"), os.readlink("/proc/self/root"))
print("list", [word for word in open("/proc/self/cmdline").read().split("\0") if word])
print("variables", sorted(os.environ.items()))
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print("variables of libc", libc.getenv(b"SECRET"), libc.getenv(b"PATH"), libc.getenv(b"LC_CTYPE"))
print("open", sorted((int(name), os.readlink("/proc/self/fd/" + name).split(":")[0])
                     for name in os.listdir("/proc/self/fd") if int(name) < 3 or os.path.exists("/proc/self/fd/" + name)))
print("kept at exec", [os.get_inheritable(number) for number in range(3)])
print("limits", [resource.getrlimit(getattr(resource, name)) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")])
print("signals", [(int(number), signal.getsignal(number)) for number in sorted(signal.valid_signals()) if int(number) not in (32, 33)])
print("timers", signal.getitimer(signal.ITIMER_REAL))
death = ctypes.c_int()
libc.prctl(2, ctypes.byref(death))
print("death", death.value, "dumpable", libc.prctl(3), "subreaper", libc.prctl(37, ctypes.byref(death)), death.value)
print("oom", open("/proc/self/oom_score_adj").read().strip(), open("/proc/self/cgroup").read())
print("owner", os.stat("/proc/self/status").st_uid, os.stat("/proc/self/environ").st_uid)
print("namespaces", sorted(os.listdir("/proc/self/ns")))
print("processes", len([name for name in os.listdir("/proc") if name.isdigit()]))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print("stream", stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.write_through,
          stream.fileno(), stream.isatty(), stream.seekable(), type(stream.buffer).__name__, stream is getattr(sys, "__%s__" % stream.name.strip("<>")))
print("locale", locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding())
print("threads", threading.active_count(), threading.current_thread() is threading.main_thread(), threading.main_thread().native_id == os.getpid())
print("collector", gc.isenabled(), gc.get_threshold(), gc.callbacks, gc.garbage)
print("hooks", sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace(), sys.getprofile())
print("nice", os.nice(0), os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0))
print("switch", sys.getswitchinterval(), sys.getrecursionlimit(), sys.dont_write_bytecode)
print("input", sys.stdin.read())
"#;

/// Compares line by line: the first that differs is easier to read than all.
fn assert_same_lines(warm: &str, cold: &str) {
    for (warm, cold) in warm.lines().zip(cold.lines()) {
        assert_eq!(warm, cold);
    }
    assert_eq!(warm.lines().count(), cold.lines().count());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_cannot_find_out_that_it_was_forked() {
    let pack = Pack::new(&["json", "asyncio", "logging", "ctypes"]).file("facts.py", FACTS);
    let mut with_secret = variables();
    with_secret.push(("SECRET".to_owned(), "sesame=\n".to_owned()));
    with_secret.push(("TMPDIR".to_owned(), "/tmp".to_owned()));
    let spec = |spec: AttemptSpec| AttemptSpec {
        env: with_secret.clone(),
        stdin: b"some input".to_vec(),
        ..spec
    };
    let warm = ended(spec(pack.warm("facts.py").await)).await;
    assert_eq!(warm.kind, EndKind::Exited { code: 0 }, "{}", text(&warm.output.stderr.bytes));
    let cold = ended(spec(pack.cold("facts.py"))).await;
    let (warm_said, cold_said) = (text(&warm.output.stdout.bytes), text(&cold.output.stdout.bytes));
    assert!(
        warm_said.ends_with("input some input\n") && warm_said.contains("sesame"),
        "{warm_said}"
    );
    assert_same_lines(&warm_said, &cold_said);
    assert_eq!(children_of(pack.pid().unwrap()), [], "it keeps no children");
}

/// Leaves a secret wherever a script can leave one.
const LEAVES: &str = r#"
import atexit, json, logging, os, sys, tempfile, threading, random
secret = os.environ["SECRET"]
json.left = logging.left = sys.left = __builtins__.left = secret
sys.modules["left"] = json
sys.path.insert(0, secret)
os.environ["LEFT"] = secret
os.putenv("LEFT2", secret)
os.umask(0)
os.chdir("/")
atexit.register(print, secret)
sys.stdin.read()
logging.getLogger().addHandler(logging.StreamHandler())
sys.stdout = sys.stderr
for number in range(3, 20):
    os.dup2(1, number)
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
open("/dev/shm/" + secret, "w").close()
os.unlink("/dev/shm/" + secret)
import gc
keep = [secret * 1000 for _ in range(1000)]
open(sys.argv[0] + ".done", "w").write(str(os.getpid()))
"#;

/// Looks for it wherever a script can look.
const LOOKS: &str = r#"
import gc, json, logging, os, sys
secret = sys.stdin.read().strip()
found = [name for name, module in list(sys.modules.items()) if hasattr(module, "left")]
found += [name for name in os.environ if "LEFT" in name or secret in os.environ[name]]
found += [path for path in sys.path if secret in path]
found += ["left"] * hasattr(__builtins__, "left") + logging.getLogger().handlers
for process in filter(str.isdigit, os.listdir("/proc")):
    for file in ("environ", "cmdline", "maps"):
        try:
            if secret in open("/proc/%s/%s" % (process, file)).read():
                found.append((process, file))
        except OSError:
            pass
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    own = secret.encode()
    for line in maps.read().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if line.split()[1].startswith("rw") and (end - start) < 1 << 28:
            memory.seek(start)
            try:
                # It has some copies itself.
                if memory.read(end - start).count(own) > 100:
                    found.append(line)
            except OSError:
                pass
print("found", found, len(os.listdir("/proc/self/fd")), os.umask(0o22), len(os.sched_getaffinity(0)))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_attempt_leaves_behind_the_next_does_not_find() {
    let secret = marker();
    let pack = Pack::new(&["json", "logging", "tempfile", "random"])
        .file("leaves.py", LEAVES)
        .file("looks.py", LOOKS);
    let mut env = variables();
    env.push(("SECRET".to_owned(), secret.clone()));
    let spec =
        AttemptSpec { stdin: secret.clone().into_bytes(), env, ..pack.warm("leaves.py").await };
    let first = ended(spec).await;
    assert_eq!(first.kind, EndKind::Exited { code: 0 }, "{}", text(&first.output.stderr.bytes));
    assert!(Path::new(&pack.path("leaves.py.done")).exists());
    let serving = pack.pid().unwrap();
    let mut said = Vec::new();
    for spec in [pack.warm("looks.py").await, pack.cold("looks.py")] {
        let ending = ended(AttemptSpec { stdin: secret.clone().into_bytes(), ..spec }).await;
        assert_eq!(
            ending.kind,
            EndKind::Exited { code: 0 },
            "{}",
            text(&ending.output.stderr.bytes)
        );
        said.push(text(&ending.output.stdout.bytes));
    }
    assert!(said[0].starts_with("found [] "), "{}", said[0]);
    assert_eq!(said[0], said[1], "as one that was executed");
    assert_eq!(pack.pid(), Some(serving), "one process has served both");
    let memory = memory_of(serving);
    let has = |text: &str| memory.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("importing them starts processes"), "the memory was read");
    assert!(!has(&secret), "the warm process has had the secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_draw_different_random_numbers() {
    let draws = "import multiprocessing, os, random, secrets, ssl, tempfile, uuid\n\
        for draw in (random.random(), random.SystemRandom().random(), secrets.token_hex(), ssl.RAND_bytes(8),\n\
                     uuid.uuid4(), os.urandom(8), next(tempfile._get_candidate_names()),\n\
                     bytes(multiprocessing.current_process().authkey)):\n    print(draw)\n";
    let modules = ["random", "secrets", "ssl", "tempfile", "uuid", "multiprocessing", "early"];
    // What an import has drawn already.
    let early = "import tempfile, ssl, multiprocessing\nnext(tempfile._get_candidate_names())\n\
        ssl.RAND_bytes(8)\n";
    let pack = Pack::new(&modules).file("early.py", early).file("draws.py", draws);
    let mut drawn: Vec<String> = Vec::new();
    for _ in 0..3 {
        let ending = ended(pack.warm("draws.py").await).await;
        assert_eq!(
            ending.kind,
            EndKind::Exited { code: 0 },
            "{}",
            text(&ending.output.stderr.bytes)
        );
        drawn.extend(text(&ending.output.stdout.bytes).lines().map(str::to_owned));
    }
    let all = drawn.len();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!((all, drawn.len()), (24, 24), "{drawn:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_imports_have_registered_are_not_called_in_attempts() {
    let registers = "import atexit, os, tempfile, weakref\nlogged = os.path.dirname(__file__) + '/called'\n\
        atexit.register(lambda: open(logged, 'w').write('x'))\n\
        folder = tempfile.TemporaryDirectory()\n";
    let uses = "import os, registers, logging, weakref\n\
        class C: pass\n\
        mine = C()\n\
        weakref.finalize(mine, print, 'its own')\n\
        print(os.path.isdir(registers.folder.name))";
    let pack =
        Pack::new(&["registers", "logging"]).file("registers.py", registers).file("uses.py", uses);
    for _ in 0..2 {
        let ending = ended(pack.warm("uses.py").await).await;
        assert_eq!(
            text(&ending.output.stdout.bytes),
            "True\nits own\n",
            "{}",
            text(&ending.output.stderr.bytes)
        );
    }
    assert!(!Path::new(&pack.path("called")).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_ended_children_that_an_import_has_set_is_called_in_attempts() {
    let handles = "import os, signal\nended = []\n\
        signal.signal(signal.SIGCHLD, lambda *_: ended.append(os.waitpid(-1, os.WNOHANG)))\n";
    let uses = "import os, time, handles\n\
        child = os.fork() or os._exit(7)\n\
        while not handles.ended: time.sleep(0.01)\n\
        print(handles.ended == [(child, 7 << 8)])";
    let pack = Pack::new(&["handles"]).file("handles.py", handles).file("uses.py", uses);
    for _ in 0..20 {
        let ending = ended(pack.warm("uses.py").await).await;
        assert_eq!(ending.kind, EndKind::Exited { code: 0 });
        assert_eq!(text(&ending.output.stdout.bytes), "True\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_attempt_is_limited_and_measured_like_any_other() {
    let hog = "import time\nkeep = bytearray(300 << 20)\nkeep[::4096] = b'x' * len(keep[::4096])\ntime.sleep(60)";
    let many = "import os, time\nfor _ in range(50):\n    if not os.fork():\n        time.sleep(60)\ntime.sleep(60)";
    let busy =
        "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass";
    let pack = Pack::new(&["json"]).file("hog.py", hog).file("many.py", many).file("busy.py", busy);
    for enforcement in [Enforcement::find(), Enforcement::BY_SHIM] {
        let resources = Resources::new(Some(128 << 20), None, None).unwrap();
        let spec = AttemptSpec { resources, enforcement, ..pack.warm("hog.py").await };
        assert_eq!(ended(spec).await.kind, EndKind::OomKilled, "{enforcement:?}");
        let ending = ended(AttemptSpec { enforcement, ..pack.warm("busy.py").await }).await;
        let used = ending.usage.cpu.unwrap().as_millis();
        assert!((250..5000).contains(&used), "{used} ms");
    }
    let resources = Resources::new(None, None, Some(10)).unwrap();
    let spec = AttemptSpec { resources, ..pack.warm("many.py").await };
    assert_eq!(ended(spec).await.kind, EndKind::TooManyProcesses);
}

/// An archive without a file, which is what ends every archive.
const EMPTY_ARCHIVE: &str = "PK\u{5}\u{6}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_cannot_be_forked_is_executed_and_says_why_as_ever() {
    let pack = Pack::new(&[]).file("it.py", "print('ran')").file("it.zip", EMPTY_ARCHIVE);
    let serving = pack.warm("it.py").await;
    let mut gone = serving.clone();
    gone.cwd = "/nowhere".into();
    let ending = ended(gone).await;
    assert!(!ending.executed && ending.tree_empty);
    assert!(format!("{:?}", ending.kind).contains("working folder /nowhere"), "{:?}", ending.kind);
    let missing = ended(pack.warm("missing.py").await).await;
    assert_eq!(missing.kind, EndKind::Exited { code: 2 });
    assert!(text(&missing.output.stderr.bytes).contains("can't open file"));
    let mut env = variables();
    env.push(("LONG".to_owned(), "x".repeat(130 * 1024)));
    let long = ended(AttemptSpec { env, ..serving }).await;
    assert!(matches!(long.kind, EndKind::SpawnFailed(_)), "{:?}", long.kind);
    let archive = ended(pack.warm("it.zip").await).await;
    let executed = ended(pack.cold("it.zip")).await;
    assert_eq!(
        (archive.kind, archive.output.stderr.bytes),
        (executed.kind, executed.output.stderr.bytes)
    );
}

/// The ways in which attempts are stopped, each with what such an end is called.
const STOPS: [(&str, &str); 4] = [
    ("cancel", "Cancelled"),
    ("kill", "Interrupted"),
    ("shim", "ShimDied"),
    ("deadline", "DeadlinePassed"),
];

/// Begins an attempt whose script creates the file `MARK` once it runs; returns it with that file and its
/// label.
async fn begun(pack: &Pack, script: &str) -> (Attempt, String, String) {
    let mark = pack.path(&marker());
    let mut env = variables();
    env.push(("MARK".to_owned(), mark.clone()));
    let spec = AttemptSpec { env, ..pack.warm(script).await };
    let label = spec.label.clone();
    let attempt = Attempt::spawn(spec);
    eventually("the job runs", || Path::new(&mark).exists());
    (attempt, mark, label)
}

/// Stops an attempt in every way, and looks at how it ends and what is left of it.
async fn check_stops(pack: &Pack, script: &str) {
    for (way, expected) in STOPS {
        let (attempt, mark, label) = begun(pack, script).await;
        let handle = attempt.handle();
        match way {
            "cancel" => handle.cancel(),
            "kill" => handle.kill_now(),
            // Both halves are listed with the attempt's own label by now.
            "shim" => kill_process(shims(&label)[0], Signal::KILL).unwrap(),
            _ => handle.extend_deadline(boot_now()),
        }
        let ending = attempt.finished().await;
        assert!(ending.tree_empty, "{way}");
        assert_eq!(survivors(&mark), [], "{way}");
        let kind = format!("{:?}", ending.kind);
        assert!(kind.starts_with(expected), "{way}: {kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_attempt_is_stopped_in_every_way_there_is() {
    let stubborn = "import os, signal, subprocess, sys, time\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        mark = os.environ['MARK']\n\
        subprocess.Popen(['setsid', 'sh', '-c', 'trap \"\" TERM; while :; do sleep 0.05; done', mark])\n\
        open(mark, 'w').close()\nwhile True: time.sleep(0.05)";
    let polite = "import os, signal, sys, time\n\
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n\
        open(os.environ['MARK'], 'w').close()\nwhile True: time.sleep(0.05)";
    let pack =
        Pack::new(&["json", "subprocess"]).file("stubborn.py", stubborn).file("polite.py", polite);
    check_stops(&pack, "stubborn.py").await;
    let (attempt, _, _) = begun(&pack, "polite.py").await;
    attempt.handle().ask_to_stop();
    let ending = attempt.finished().await;
    assert_eq!((ending.kind, ending.code), (EndKind::Interrupted, Some(75)));
}

/// Runs the script of facts as a user without any rights, forked and executed.
#[test]
fn a_worker_without_rights_forks_attempts_in_user_namespaces() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(path.join("attempts")).unwrap();
    fs::write(path.join("it.py"), FACTS).unwrap();
    let mut host = Host::start_as_nobody(&["warm", "python", path.to_str().unwrap()]);
    let said: Vec<String> = std::iter::from_fn(|| host.try_line()).collect();
    let said = said.join("\n");
    let (warm, cold) = said.split_once("executed\n").unwrap_or_else(|| panic!("{said}"));
    let warm = warm.strip_prefix("warm\n").unwrap_or_else(|| panic!("{said}"));
    assert_same_lines(warm.trim_end(), cold.trim_end());
    assert!(warm.contains("CapEff 0000000000000000"), "{warm}");
}
