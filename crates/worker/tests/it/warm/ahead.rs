//! Attempts of Node.js whose interpreter was started ahead: each has one of its own, which is what would have
//! been executed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use outlast_core::resources::Resources;
use outlast_worker::attempt::{Attempt, AttemptEnd, AttemptSpec, EndKind};
use outlast_worker::containment::Containment;
use outlast_worker::resources::Enforcement;
use outlast_worker::runtime::Runtime;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{NODE, Pack, assert_same_lines, check_stops, ended, soon, text, variables};
use crate::support::{Host, eventually, is_gone, listed, marker};

impl Pack {
    /// A pack whose Node.js scripts have these modules imported ahead.
    fn node(preload: &[&str]) -> Self {
        Self::of(Runtime::Node, NODE, preload)
    }

    /// The interpreters that wait.
    fn waiting(&self) -> Vec<Pid> {
        listed(&format!("outlast warm {}", self.key.pack))
    }

    /// Those that still import.
    fn starting(&self) -> Vec<Pid> {
        listed(&format!("outlast warm {} (starting)", self.key.pack))
    }
}

fn said(ending: &AttemptEnd) -> String {
    text(&ending.output.stdout.bytes)
}

fn complaints(ending: &AttemptEnd) -> String {
    text(&ending.output.stderr.bytes)
}

/// The shim that holds an interpreter: its inner and its outer half.
fn shim_of(interpreter: Pid) -> [Pid; 2] {
    let inner = parent_of(interpreter);
    [inner, parent_of(inner)]
}

fn parent_of(pid: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
    Pid::from_raw(parent.parse().unwrap()).unwrap()
}

/// Says of the process that runs it whatever it could find out about how it was started.
const FACTS: &str = r#"
const fs = require("fs");
const read = (file) => { try { return fs.readFileSync(file, "utf8"); } catch (error) { return error.code; } };
const about = Object.fromEntries(read("/proc/self/status").trim().split("\n").map((line) => line.split(":\t")));
console.log("arguments", process.argv, process.argv0, process.execArgv, process.execPath, process._eval);
console.log("globals", Reflect.ownKeys(globalThis).map(String).sort().join(" "));
console.log("process", Reflect.ownKeys(process).map(String).sort().join(" "));
console.log("main", require.main === module, module.id, module.path, module.children.length, module.parent);
console.log("loaded", Object.keys(require.cache), process.mainModule === module, __filename, __dirname);
for (const name of ["Name", "Umask", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt",
                    "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed_list"]) {
  console.log(name, about[name]);
}
console.log("family", process.ppid, about.NSsid === about.NSpid, about.NSpgid === about.NSpid, about.NSpid.split("\t").length);
console.log("folder", process.cwd(), fs.readlinkSync("/proc/self/exe"), fs.readlinkSync("/proc/self/root"));
console.log("list", read("/proc/self/cmdline").split("\0").filter(Boolean).join(" "));
console.log("variables", Object.entries(process.env).sort());
console.log("open", fs.readdirSync("/proc/self/fd").filter((number) => number < 3 || /socket/.test(
  (() => { try { return fs.readlinkSync("/proc/self/fd/" + number); } catch { return ""; } })())));
console.log("limits", read("/proc/self/limits"));
console.log("groups", read("/proc/self/cgroup"), read("/proc/self/oom_score_adj"));
console.log("owner", fs.statSync("/proc/self/status").uid, fs.statSync("/proc/self/environ").uid);
console.log("processes", fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)).length);
console.log("events", process.eventNames().map(String), process.listenerCount("exit"), process.exitCode);
console.log("names", (() => { try { return typeof link; } catch { return "dead"; } })(), typeof l, typeof b);
process.stdin.on("data", (data) => console.log("input", String(data)));
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_action_cannot_find_out_that_its_interpreter_was_started_ahead() {
    let pack = Pack::node(&["node:path", "util"]).file("facts.js", FACTS);
    let mut with_secret = variables();
    with_secret.push(("SECRET".to_owned(), "sesame=\n".to_owned()));
    with_secret.push(("TMPDIR".to_owned(), "/tmp".to_owned()));
    let spec = |spec: AttemptSpec| AttemptSpec {
        env: with_secret.clone(),
        stdin: b"some input".to_vec(),
        ..spec
    };
    let warm = ended(spec(pack.warm("facts.js").await)).await;
    assert_eq!(warm.kind, EndKind::Exited { code: 0 }, "{}", complaints(&warm));
    let cold = ended(spec(pack.cold("facts.js"))).await;
    assert!(said(&warm).ends_with("input some input\n") && said(&warm).contains("sesame"));
    assert_same_lines(&said(&warm), &said(&cold));
}

/// Scripts that end in every way there is.
const ENDS: [(&str, &str); 13] = [
    ("nothing.js", ""),
    ("code.js", "console.log('out'); process.exit(3)"),
    ("kept.js", "process.exitCode = 4"),
    ("error.js", "function f() { throw new TypeError('x'); }\nsetTimeout(f, 1)"),
    ("at_once.js", "throw new Error('y')"),
    ("syntax.js", "console.log('x'\nx = = 1\n"),
    ("rejected.js", "Promise.reject(new Error('z'))"),
    ("killed.js", "process.kill(process.pid, 'SIGUSR2'); setTimeout(() => {}, 9000)"),
    ("handlers.js", "process.on('exit', () => console.log('last')); console.log('first')"),
    (
        "module.mjs",
        "import path from 'path';\nconsole.log(import.meta.url, typeof require);\nawait 0;",
    ),
    ("never.mjs", "await new Promise(() => {})"),
    ("thrown.mjs", "await 0;\nthrow new RangeError('w')"),
    (
        "thread.js",
        "const { Worker } = require('worker_threads');\nnew Worker('console.log(`thread`)', {eval: true});",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_script_ends_as_if_it_was_executed() {
    let mut pack = Pack::node(&["util"]);
    for (name, script) in ENDS {
        pack = pack.file(name, script);
    }
    for name in ENDS.map(|(name, _)| name).into_iter().chain(["missing.js"]) {
        let mut ends = Vec::new();
        for spec in [pack.warm(name).await, pack.cold(name)] {
            let ending = ended(spec).await;
            assert!(ending.tree_empty && ending.executed, "{name}");
            // The frames below the script are others.
            let own = complaints(&ending);
            let own = own.lines().filter(|line| !line.contains("    at ")).collect::<Vec<_>>();
            ends.push((
                ending.kind.clone(),
                ending.code,
                ending.signal,
                said(&ending),
                own.join("\n"),
            ));
        }
        assert_eq!(ends[0], ends[1], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_interpreter_is_used_once_and_modules_are_there_before() {
    let script = "const was = Object.keys(require.cache).some((file) => file.endsWith('dough.js'));\n\
        const dough = require('./dough.js');\n\
        console.log(was, dough.left, globalThis.left, process.env.LEFT);\n\
        dough.left = globalThis.left = process.env.LEFT = process.env.SECRET;";
    let pack =
        Pack::node(&["./dough.js"]).file("dough.js", "exports.version = 1").file("it.js", script);
    for _ in 0..3 {
        let mut env = variables();
        env.push(("SECRET".to_owned(), marker()));
        let ending = ended(AttemptSpec { env, ..pack.warm("it.js").await }).await;
        assert_eq!(
            said(&ending),
            "true undefined undefined undefined\n",
            "{}",
            complaints(&ending)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_are_imported_as_the_scripts_import_them() {
    let both = r#"{"name": "both", "exports": {"import": "./it.mjs", "require": "./it.cjs"}}"#;
    let looks = "import both from 'both';\nconsole.log(both, globalThis.loaded);";
    let requires = "console.log(require('both'), globalThis.loaded);";
    for (imports, manifest, script, expected) in [
        (false, "{}", ("it.js", requires), "cjs [ 'cjs' ]\n"),
        (true, "{}", ("it.mjs", looks), "mjs [ 'mjs' ]\n"),
        (false, r#"{"type": "module"}"#, ("it.js", looks), "mjs [ 'mjs' ]\n"),
    ] {
        let mut pack = Pack::node(&["both", "only"]);
        pack.key.imports = imports;
        for folder in ["both", "only"] {
            fs::create_dir_all(pack.path(&format!("node_modules/{folder}"))).unwrap();
        }
        let loaded = |kind: &str| format!("(globalThis.loaded ??= []).push('{kind}');\n");
        let pack = pack
            .file("node_modules/both/package.json", both)
            .file("node_modules/both/it.mjs", &(loaded("mjs") + "export default 'mjs';"))
            .file("node_modules/both/it.cjs", &(loaded("cjs") + "module.exports = 'cjs';"))
            .file("node_modules/only/package.json", r#"{"exports": {"import": "./it.mjs"}}"#)
            .file("node_modules/only/it.mjs", "await 0; export default 1;")
            .file("package.json", manifest)
            .file(script.0, script.1);
        let ending = ended(pack.warm(script.0).await).await;
        assert_eq!(said(&ending), expected, "{}", complaints(&ending));
    }
}

/// Modules that cannot be imported ahead, and what is said about them.
const UNFIT: [(&str, &str); 11] = [
    ("throw new TypeError('no licence')", "cannot import ./unfit.js: TypeError: no licence"),
    ("require('nowhere')", "cannot import ./unfit.js: Error: Cannot find module 'nowhere'"),
    ("let x = ;", "cannot import ./unfit.js: SyntaxError: Unexpected token ';'"),
    ("process.exit(0)", "the interpreter has ended"),
    ("Promise.reject(new Error('late'))", "the interpreter has ended: Node.js "),
    ("console.log('hello')", "importing them prints: hello"),
    ("process.emitWarning('old')", "importing them prints: "),
    ("process.env.COLOUR = 'red'", "importing them changes environment variables: COLOUR"),
    ("process.chdir('/')", "importing them changes the working folder"),
    ("setInterval(() => {}, 1000)", "importing them leaves something going on: Timeout"),
    (
        "require('child_process').spawn('sleep', ['60'], {stdio: 'ignore', detached: true}).unref()",
        "importing them starts processes",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_imported_ahead_is_named_and_attempts_are_executed() {
    for (module, expected) in UNFIT {
        let pack = Pack::node(&["./unfit.js"])
            .file("unfit.js", module)
            .file("it.js", "console.log('ran')");
        assert!(pack.process().is_none(), "none yet");
        let ending = ended(pack.cold("it.js")).await;
        assert_eq!(said(&ending), "ran\n", "nothing waits");
        let reasons = pack.reasons().await;
        assert!(reasons.len() == 1 && reasons[0].starts_with(expected), "{module}: {reasons:?}");
        assert!(pack.process().is_none(), "it is not tried again at once");
        eventually("it has ended", || pack.starting().is_empty() && pack.waiting().is_empty());
        assert_eq!(pack.reasons().await, reasons, "it is said once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_waits_for_a_module_that_hangs() {
    let pack = Pack::node(&["./hangs.mjs"])
        .file("hangs.mjs", "setInterval(() => {}, 1000); await new Promise(() => {})")
        .file("it.js", "console.log('ran')");
    assert!(pack.process().is_none());
    eventually("it has begun to import", || !pack.starting().is_empty());
    for _ in 0..3 {
        assert!(pack.process().is_none());
        assert_eq!(said(&ended(pack.cold("it.js")).await), "ran\n");
    }
    assert_eq!(pack.starting().len(), 1, "they are not started one upon the other");
    pack.processes.end_all();
    eventually("it has ended", || pack.starting().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_sees_its_own_folder_and_no_hidden_file() {
    let token = tempfile::NamedTempFile::new().unwrap();
    fs::write(token.path(), "token").unwrap();
    let looks = format!(
        "const fs = require('fs');\nexports.found = fs.readFileSync({:?}, 'utf8');\n\
         exports.attempts = fs.readdirSync(__dirname + '/attempts');",
        token.path().display().to_string()
    );
    let uses = "const fs = require('fs'), looks = require('./looks.js');\n\
        fs.writeFileSync(process.env.OWN + '/out', 'text');\n\
        console.log([looks.found], looks.attempts, fs.readdirSync(__dirname + '/attempts'));";
    let mut pack = Pack::node(&["./looks.js"]).file("looks.js", &looks).file("uses.js", uses);
    pack.hidden.push(token.path().to_owned());
    fs::create_dir(pack.path("attempts/neighbour")).unwrap();
    let own = Path::new(&pack.path("attempts/own")).to_owned();
    let spec = pack.warm("uses.js").await;
    fs::create_dir(&own).unwrap();
    let mut env = variables();
    env.push(("OWN".to_owned(), own.display().to_string()));
    let ending = ended(AttemptSpec { env, private_folder: Some(own.clone()), ..spec }).await;
    assert_eq!(said(&ending), "[ '' ] [] [ 'own' ]\n", "{}", complaints(&ending));
    assert_eq!(fs::read_to_string(own.join("out")).unwrap(), "text");

    // Those that wait see what is hidden since then.
    let other = tempfile::NamedTempFile::new().unwrap();
    soon("one waits", || pack.waiting().first().copied()).await;
    pack.hidden.push(other.path().to_owned());
    assert!(pack.process().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_limited_and_measured_like_any_other() {
    let hog = "const keep = [];\nfor (let n = 0; n < 30; n++) keep.push(Buffer.alloc(10 << 20, 1));\n\
        setTimeout(() => {}, 60000)";
    let many = "const { spawn } = require('child_process');\n\
        for (let n = 0; n < 50; n++) spawn('sleep', ['60']).on('error', () => {});";
    let busy = "while (process.cpuUsage().user < 300000);";
    let pack = Pack::node(&["child_process"])
        .file("hog.js", hog)
        .file("many.js", many)
        .file("busy.js", busy);
    for enforcement in [Enforcement::find(), Enforcement::BY_SHIM] {
        let resources = Resources::new(Some(160 << 20), None, None).unwrap();
        let spec = AttemptSpec { resources, enforcement, ..pack.warm("hog.js").await };
        assert_eq!(ended(spec).await.kind, EndKind::OomKilled, "{enforcement:?}");
        let ending = ended(AttemptSpec { enforcement, ..pack.warm("busy.js").await }).await;
        let used = ending.usage.cpu.unwrap().as_millis();
        assert!((250..5000).contains(&used), "{used} ms");
    }
    let resources = Resources::new(None, None, Some(30)).unwrap();
    let spec = AttemptSpec { resources, ..pack.warm("many.js").await };
    assert_eq!(ended(spec).await.kind, EndKind::TooManyProcesses);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_stopped_in_every_way_there_is() {
    let stubborn = "process.on('SIGTERM', () => {});\n\
        const mark = process.env.MARK;\n\
        require('child_process').spawn('setsid', ['sh', '-c', 'trap \"\" TERM; while :; do sleep 0.05; done', mark]);\n\
        require('fs').writeFileSync(mark, '');\nsetInterval(() => {}, 50);";
    let pack = Pack::node(&["child_process"]).file("stubborn.js", stubborn);
    check_stops(&pack, "stubborn.js").await;
}

/// Notes each time that it runs.
const COUNTS: &str = "require('fs').appendFileSync(__filename + '.ran', 'x')";

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_an_interpreter_or_its_shim_before_an_attempt_fails_no_attempt() {
    let pack = Pack::node(&["util"]).file("it.js", COUNTS);
    let mut runs = 0;
    for signal in [Signal::KILL, Signal::STOP] {
        for part in ["interpreter", "inner", "outer"] {
            let spec = pack.warm("it.js").await;
            let taken = soon("it waits", || pack.waiting().first().copied()).await;
            let [inner, outer] = shim_of(taken);
            let victim = match part {
                "interpreter" => taken,
                "inner" => inner,
                _ => outer,
            };
            kill_process(victim, signal).unwrap();
            let ending = ended(spec).await;
            runs += 1;
            assert_eq!(ending.kind, EndKind::Exited { code: 0 }, "{part} {signal:?}");
            let ran = fs::read_to_string(pack.path("it.js.ran")).unwrap();
            assert_eq!(ran.len(), runs, "{part} {signal:?}: it ran once");
            eventually("nothing is left of it", || {
                is_gone(taken) && is_gone(inner) && is_gone(outer)
            });
            pack.processes.end_all();
            eventually("nothing waits", || pack.waiting().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_while_it_waits_is_replaced() {
    let pack = Pack::node(&["util"]).file("it.js", "console.log('ran')");
    ended(pack.warm("it.js").await).await;
    let killed = soon("the next one waits", || pack.waiting().first().copied()).await;
    kill_process(killed, Signal::KILL).unwrap();
    eventually("it is gone", || is_gone(killed));
    let next = ended(pack.warm("it.js").await).await;
    assert_eq!(said(&next), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_wait_end_when_no_attempt_comes() {
    let mut pack = Pack::node(&[]).file("it.js", "console.log('ran')");
    pack.key.idle = Duration::from_millis(400);
    ended(pack.warm("it.js").await).await;
    let shim = format!("outlast shim warm-{}", pack.key.pack);
    eventually("none is left, nor its shim", || {
        pack.waiting().is_empty() && listed(&shim).is_empty()
    });
    assert_eq!(said(&ended(pack.warm("it.js").await).await), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_pack_is_used_by_the_next_attempt() {
    let mut pack = Pack::node(&["./version.js"])
        .file("version.js", "exports.number = 1")
        .file("it.js", "console.log(require('./version.js').number)");
    assert_eq!(said(&ended(pack.warm("it.js").await).await), "1\n");
    let before = soon("the next one waits", || pack.waiting().first().copied()).await;
    pack = pack.file("version.js", "exports.number = 2000");
    pack.key.digest = "two".into();
    assert_eq!(said(&ended(pack.warm("it.js").await).await), "2000\n");
    eventually("the one before has ended", || test_kill_process(before).is_err());
    pack.processes.end_all();
    eventually("all have ended", || pack.waiting().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_the_same_time_have_an_interpreter_each() {
    let pack = Pack::node(&[]).file("it.js", "console.log(process.env.OWN)");
    let mut specs = Vec::new();
    for number in 0..4 {
        let mut env = variables();
        env.push(("OWN".to_owned(), number.to_string()));
        specs.push(AttemptSpec { env, ..pack.warm("it.js").await });
    }
    assert!(pack.waiting().len() >= 4, "each has one of its own");
    let attempts: Vec<Attempt> = specs.into_iter().map(Attempt::spawn).collect();
    for (number, attempt) in attempts.into_iter().enumerate() {
        assert_eq!(said(&attempt.finished().await), format!("{number}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_pid_namespace_holds_jobs_they_are_executed() {
    let (pack, other) = (Pack::node(&["util"]), Pack::node(&["util"]));
    let other = other.file("it.js", "console.log('ran')");
    for containment in [Containment::Cgroup, Containment::Subreaper] {
        assert!(pack.process_in(containment).is_none());
        // Whatever an attempt is given, it is used in no other containment.
        let ending = ended(AttemptSpec { containment, ..other.warm("it.js").await }).await;
        assert_eq!(said(&ending), "ran\n", "{containment}");
        assert!(ending.tree_empty, "{containment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_are_too_long_to_be_sent_are_those_of_an_attempt_that_is_executed() {
    let pack = Pack::node(&[]).file("it.js", "console.log(process.env.ONE.length)");
    let mut env = variables();
    for name in ["ONE", "OTHER"] {
        env.push((name.to_owned(), "x".repeat(70 * 1024)));
    }
    let ending = ended(AttemptSpec { env, ..pack.warm("it.js").await }).await;
    assert_eq!(
        (ending.kind.clone(), said(&ending)),
        (EndKind::Exited { code: 0 }, "71680\n".to_owned())
    );
}

/// Runs the script of facts as a user without any rights, ahead and executed.
#[test]
fn a_worker_without_rights_starts_interpreters_ahead_in_user_namespaces() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(path.join("attempts")).unwrap();
    fs::write(path.join("it.js"), FACTS).unwrap();
    let mut host = Host::start_as_nobody(&["warm", "node", path.to_str().unwrap()]);
    let said: Vec<String> = std::iter::from_fn(|| host.try_line()).collect();
    let said = said.join("\n");
    let (warm, cold) = said.split_once("executed\n").unwrap_or_else(|| panic!("{said}"));
    let warm = warm.strip_prefix("warm\n").unwrap_or_else(|| panic!("{said}"));
    assert_same_lines(warm.trim_end(), cold.trim_end());
    assert!(warm.contains("CapEff 0000000000000000"), "{warm}");
}
