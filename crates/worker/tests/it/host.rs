//! The program that the tests execute again as shim, engine and guardian. Nothing ships it.
#![expect(clippy::print_stdout, reason = "the tests read what happened from it")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test program: failing loudly is the point"
)]

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::resources::Resources;
use outlast_core::time::Span;
use outlast_sdk::LEASE_OVER_EXIT_CODE;
use outlast_worker::OwnProgram;
use outlast_worker::attempt::{Attempt, AttemptSpec};
use outlast_worker::clock::boot_now;
use outlast_worker::containment::{Choice, Containment};
use outlast_worker::guardian::{self, FOLLOWS, GuardianEvent, GuardianLink, GuardianOptions};
use outlast_worker::probe::Probe;
use outlast_worker::resources::Enforcement;
use outlast_worker::runtime::Runtime;
use outlast_worker::warm::{WarmKey, WarmProcesses, WarmRequest};
use outlast_worker::{keeper, shim, spawner};

/// As whom the engine registers.
const WORKER: WorkerId = WorkerId(uuid::Uuid::from_u128(7));

fn main() {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let code = match command.as_str() {
        "shim" => shim::main(),
        "spawner" => spawner::main(),
        "keeper" => keeper::main(),
        "sweep" => sweep(),
        "engine" => on_runtime(engine(rest)),
        "limited" => on_runtime(limited(rest)),
        "probe" => on_runtime(probe(rest)),
        "guardian" => guardian::stay_in_front().unwrap().unwrap_or_else(|| guardian(rest)),
        "report" => report(),
        "listen" => on_runtime(listen(rest)),
        "churn" => on_runtime(churn(rest)),
        "churn-warm" => on_runtime(churn_warm(rest)),
        "warm" => on_runtime(warm(rest)),
        other => panic!("unknown command {other:?}"),
    };
    std::process::exit(code);
}

fn guardian(engine_args: Vec<String>) -> i32 {
    guardian::run(&GuardianOptions {
        program: OwnProgram::running(),
        engine_args: engine_args.into_iter().map(Into::into).collect(),
        reporter_args: vec!["report".into()],
        shutdown_timeout: Duration::from_millis(500),
    })
}

/// `sweep`: what a worker does first.
fn sweep() -> i32 {
    keeper::end_orphans();
    0
}

fn on_runtime(work: impl Future<Output = i32>) -> i32 {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// `engine CONTAINMENT DEADLINE_MS MARKER SCRIPT`: runs one attempt and says how it ended.
async fn engine(args: Vec<String>) -> i32 {
    let ending = attempt(&args).finished().await;
    say(&format!("{:?} tree_empty={}", ending.kind, ending.tree_empty));
    0
}

/// `limited MARKER SCRIPT`: runs an attempt that may have 64 MiB, and says how it ended.
async fn limited(args: Vec<String>) -> i32 {
    let [marker, script] = args.as_slice() else { panic!("two arguments") };
    let ending = Attempt::spawn(AttemptSpec {
        args: vec!["-c".to_owned(), script.clone(), marker.clone()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        resources: Resources::new(Some(64 << 20), None, None).unwrap(),
        enforcement: Enforcement::find(),
        ..AttemptSpec::new(format!("limited-{}", std::process::id()), "/bin/sh")
    });
    say(&format!("{:?}", ending.finished().await.kind));
    0
}

fn attempt(args: &[String]) -> Attempt {
    let [containment, deadline_ms, marker, script] = args else { panic!("four arguments") };
    let deadline_ms: u64 = deadline_ms.parse().unwrap();
    let deadline = (deadline_ms > 0).then(|| boot_now().after(Span::from_millis(deadline_ms)));
    let Choice::Forced(containment) = containment.parse().unwrap() else { panic!("name one") };
    Attempt::spawn(AttemptSpec {
        args: vec!["-c".to_owned(), script.clone(), marker.clone()],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        cwd: PathBuf::from("/"),
        kill_after: Duration::from_millis(300),
        deadline,
        containment,
        ..AttemptSpec::new(format!("engine-{}", std::process::id()), "/bin/sh")
    })
}

/// `report`: says what the guardian would have reported.
fn report() -> i32 {
    say(&std::io::read_to_string(std::io::stdin()).unwrap().replace('\n', " "));
    0
}

/// `probe CHOICE [FILE]…`: says which containment works, and can hide these files.
async fn probe(args: Vec<String>) -> i32 {
    let choice = args.first().unwrap().parse().unwrap();
    let hidden: Vec<PathBuf> = args.iter().skip(1).map(PathBuf::from).collect();
    match Probe::hiding(choice, &OwnProgram::running(), &hidden).await {
        Ok(probe) => say(&format!("{} {}", probe.chosen, probe.ordinary)),
        Err(error) => say(&format!("{error}")),
    }
    0
}

/// `churn CONTAINMENT MARKER SCRIPT`: an engine that runs four attempts at a time until its guardian is
/// gone. It says which attempt left something although its end was proved.
async fn churn(args: Vec<String>) -> i32 {
    let args: Vec<String> = args.into_iter().filter(|arg| !arg.starts_with(FOLLOWS)).collect();
    let [containment, marker, script] = args.as_slice() else { panic!("three arguments") };
    let (mut link, announcer) = GuardianLink::from_stdin().unwrap();
    announcer.registers_as(WORKER);
    say(&format!("engine {}", std::process::id()));
    for slot in 0..4 {
        let (containment, marker, script) = (containment.clone(), marker.clone(), script.clone());
        tokio::spawn(async move {
            for number in 0_u64.. {
                let marker = format!("{marker}-{}-{slot}-{number}", std::process::id());
                let args = [&containment, "0", &marker, &script].map(str::to_owned);
                let ending = attempt(&args).finished().await;
                if ending.tree_empty && is_alive(&marker) {
                    say(&format!("alive after {:?}: {marker}", ending.kind));
                }
            }
        });
    }
    while link.next().await != GuardianEvent::GuardianGone {}
    0
}

/// `churn-warm RUNTIME MARKER FOLDER`: the same with attempts that run `it.py` or `it.js` of that folder,
/// by a warm interpreter whenever there is one.
async fn churn_warm(args: Vec<String>) -> i32 {
    let args: Vec<String> = args.into_iter().filter(|arg| !arg.starts_with(FOLLOWS)).collect();
    let [runtime, marker, folder] = args.as_slice() else { panic!("three arguments") };
    let runtime: Runtime = runtime.parse().unwrap();
    let (mut link, announcer) = GuardianLink::from_stdin().unwrap();
    announcer.registers_as(WORKER);
    say(&format!("engine {}", std::process::id()));
    let processes = WarmProcesses::new(OwnProgram::running(), format!("{folder}/attempts"));
    for slot in 0..4 {
        let (marker, folder, processes) = (marker.clone(), folder.clone(), processes.clone());
        tokio::spawn(async move {
            for number in 0_u64.. {
                let marker = format!("{marker}-{}-{slot}-{number}", std::process::id());
                let spec = interpreted(runtime, &folder, &marker, &processes);
                let ending = Attempt::spawn(spec).finished().await;
                if ending.tree_empty && is_alive(&marker) {
                    say(&format!("alive after {:?}: {marker}", ending.kind));
                }
            }
        });
    }
    while link.next().await != GuardianEvent::GuardianGone {}
    0
}

/// `warm RUNTIME FOLDER`: runs the script of that folder, by a warm interpreter and then executed, and
/// says what it said.
async fn warm(args: Vec<String>) -> i32 {
    let [runtime, folder] = args.as_slice() else { panic!("two arguments") };
    let runtime: Runtime = runtime.parse().unwrap();
    let processes = WarmProcesses::new(OwnProgram::running(), format!("{folder}/attempts"));
    let warm = loop {
        let spec = interpreted(runtime, folder, "", &processes);
        if spec.warm.is_some() {
            break spec;
        }
        let reasons = processes.reasons();
        if !reasons.is_empty() {
            say(&format!("{reasons:?}"));
            return 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let cold = AttemptSpec { warm: None, ..warm.clone() };
    for (word, spec) in [("warm", warm), ("executed", cold)] {
        say(word);
        let ending = Attempt::spawn(spec).finished().await;
        say(&String::from_utf8(ending.output.stdout.bytes).unwrap());
        say(&String::from_utf8(ending.output.stderr.bytes).unwrap());
    }
    0
}

/// An attempt that runs the script of a folder, by a warm interpreter if there is one.
fn interpreted(
    runtime: Runtime,
    folder: &str,
    marker: &str,
    processes: &WarmProcesses,
) -> AttemptSpec {
    let variables = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("MARKER", marker)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (program, script, options, preload) = match runtime {
        Runtime::Node => ("/usr/bin/node", "it.js", vec![], ["path", "child_process"]),
        _ => ("/usr/bin/python3", "it.py", vec!["-u".to_owned()], ["json", "subprocess"]),
    };
    let key = WarmKey {
        runtime,
        pack: folder.to_owned(),
        digest: "one".into(),
        program: program.into(),
        options: options.clone(),
        environment: None,
        preload: preload.map(str::to_owned).to_vec(),
        imports: false,
        folder: folder.into(),
        cwd: folder.into(),
        variables: variables[..2].to_vec(),
        idle: Duration::from_secs(60),
    };
    let warm = processes.find(WarmRequest {
        key,
        environment: None,
        variables: &variables,
        containment: Containment::Pidns,
        hidden: Vec::new(),
    });
    AttemptSpec {
        args: options.into_iter().chain([format!("{folder}/{script}")]).collect(),
        env: variables.to_vec(),
        cwd: folder.into(),
        kill_after: Duration::from_millis(300),
        warm,
        ..AttemptSpec::new(format!("{runtime}-{}", std::process::id()), program)
    }
}

/// Whether a process has this argument.
fn is_alive(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let texts = processes.map(|entry| std::fs::read(entry.path().join("cmdline")));
    texts
        .flatten()
        .any(|text| text.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

/// `listen [drain|deaf] [engine arguments]`: an engine that says what its guardian tells it.
/// `drain` ends at the first Terminate; `deaf` ends by nothing but the guardian's end, and so
/// does `unknown`, which has no identity yet. `hopeless` ends before it has one. `quiet`, `draining`
/// and `resumed` follow an order.
async fn listen(args: Vec<String>) -> i32 {
    let (followed, args): (Vec<String>, Vec<String>) =
        args.into_iter().partition(|arg| arg.starts_with(FOLLOWS));
    let (mode, job) = args.split_first().unwrap();
    let _attempt = (!job.is_empty()).then(|| attempt(job));
    let (mut link, announcer) = GuardianLink::from_stdin().unwrap();
    if mode == "hopeless" {
        return 1;
    }
    if mode != "unknown" {
        // Each engine has an identity of its own.
        announcer.registers_as(WorkerId(uuid::Uuid::from_u128(
            WORKER.0.as_u128() + u128::try_from(followed.len()).unwrap(),
        )));
    }
    if mode == "draining" {
        announcer.drains();
    }
    if mode == "heir" {
        say(&format!("{followed:?}"));
    }
    say(&format!("engine {}", std::process::id()));
    loop {
        let event = link.next().await;
        say(&format!("{event:?}"));
        match (event, mode.as_str()) {
            (GuardianEvent::GuardianGone, _) | (GuardianEvent::Terminate, "drain") => return 0,
            (GuardianEvent::Terminate, "usage") => return 2,
            (GuardianEvent::Terminate, "odd") => return 77,
            (GuardianEvent::Terminate, "fault") | (GuardianEvent::ReloadPacks, "draining") => {
                return 1;
            }
            (GuardianEvent::ReloadPacks, "lease") => return LEASE_OVER_EXIT_CODE,
            (GuardianEvent::Terminate, "denied") => return 5,
            (GuardianEvent::Terminate, "leaves") => {
                announcer.deregistered();
                return 1;
            }
            _ => {}
        }
    }
}
