//! W1, C9: a job cannot get at the token of its worker through the process table.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use outlast_e2e::process::command;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Process, Run, Scene, ServerOptions, WorkerOptions};
use rustix::process::Signal;
use serde_json::json;

const ADMIN: &str = "an-admin-token-for-tests";
const TOKEN: &str = "a-worker-token-no-job-may-see";
const BOUND: Duration = Duration::from_secs(30);
const NOBODY: u32 = 65534;

/// How a worker learns its token.
enum Given {
    Flag,
    Variable(&'static str),
    /// A file that only the worker's user can read.
    File,
}

fn scene() -> Scene {
    let tokens = json!([
        {"name": "root", "role": "admin", "token": ADMIN},
        {"name": "fleet", "role": "worker", "token": TOKEN},
    ]);
    let scene = Scene::with(ServerOptions::default().set("server.tokens", tokens));
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scene.folder(), open).unwrap();
    scene.acting_as(ADMIN)
}

/// Starts a worker of its own queue, which has its name.
fn worker(scene: &Scene, name: &str, user: u32, given: &Given) -> Process {
    let (folder, url) = (scene.folder(), scene.api().url());
    let kind = name.rsplit('-').next().unwrap();
    // By this path the job finds guardian and engine.
    let packs = folder.join("packs").display().to_string();
    let mut arguments: Vec<String> =
        ["worker", "--server", url, "--name", name, "--queues", name, "--packs", &packs]
            .map(str::to_owned)
            .to_vec();
    arguments.extend(["--containment".to_owned(), kind.to_owned()]);
    match given {
        Given::Flag => arguments.extend(["--token".to_owned(), TOKEN.to_owned()]),
        Given::File => {
            let file = token_file(folder, name);
            std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
            std::os::unix::fs::chown(&file, Some(user), None).unwrap();
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, private).unwrap();
            arguments.extend(["--token-file".to_owned(), file]);
        }
        Given::Variable(_) => {}
    }
    let mut command = command(&arguments);
    if let Given::Variable(variable) = given {
        command.env(variable, TOKEN);
    }
    if user != 0 {
        command.uid(user).gid(user);
    }
    Process::spawn(name, command, folder)
}

fn token_file(folder: &Path, name: &str) -> String {
    folder.join(format!("{name}.token")).display().to_string()
}

#[test]
fn no_job_gets_at_the_token_of_its_worker() {
    let workers = [
        ("root-pidns", 0, Given::Flag),
        ("root-cgroup", 0, Given::Variable("OUTLAST_TOKEN")),
        ("root-subreaper", 0, Given::Variable("OJS_AUTH_TOKEN")),
        ("nobody-pidns", NOBODY, Given::File),
        ("nobody-subreaper", NOBODY, Given::Variable("OUTLAST_WORKER__TOKEN")),
    ];
    let scene = scene();
    let _running: Vec<Process> =
        workers.iter().map(|(name, user, given)| worker(&scene, name, *user, given)).collect();
    let mut neighbours = Vec::new();
    let pry = |name: &str| {
        scene.run(
            Run::action("ledger.pry")
                .with("queue", json!(name))
                .with("retry", json!({"max_attempts": 1}))
                .parameter("backwards", json!(TOKEN.chars().rev().collect::<String>()))
                .parameter("mark", json!(scene.folder().join("packs")))
                .parameter("file", json!(token_file(scene.folder(), name))),
        )
    };
    // A neighbour whose folder could be found (W12).
    for (name, ..) in workers.iter().filter(|(name, ..)| name.ends_with("pidns")) {
        let neighbour = Run::action("core.sleep").parameter("duration", json!(30));
        let neighbour = scene.run(neighbour.with("queue", json!(name)));
        scene.await_status(&neighbour, "running", within(BOUND));
        neighbours.push(neighbour);
    }
    let jobs: Vec<String> = workers.iter().map(|(name, ..)| pry(name)).collect();
    for ((name, ..), job) in workers.iter().zip(&jobs) {
        let execution = scene.await_status(job, "completed", within(BOUND));
        let result = execution["result"].to_string();
        assert!(result.contains("\"got\":[]"), "{name}: {result}");
        assert!(!result.contains("\"seen\":0"), "{name} looked at nothing: {result}");
        assert!(result.contains("\"file\":0"), "{name} read the token's file: {result}");
        let alone = !name.ends_with("pidns") || result.contains("\"neighbours\":0");
        assert!(alone, "{name} saw the folder of another: {result}");
    }
    for neighbour in &neighbours {
        assert!(scene.cancel(neighbour).is_success());
    }
    scene.judge();
}

const LOOK: &str = "ref: ledger.look\nlabel: Look\ndescription: Looks twice.\n\
                    runner_type: shell\nentry_point: look.sh\n";

// The cover lay on the file that was there at the start of the job.
#[test]
fn a_token_that_is_rotated_while_a_job_runs_stays_hidden_from_it() {
    let scene = scene();
    let (folder, actions) =
        (scene.folder().join("private"), scene.folder().join("packs/ledger/actions"));
    std::fs::create_dir(&folder).unwrap();
    let (file, started, go) =
        (folder.join("token"), scene.folder().join("started"), scene.folder().join("go"));
    std::fs::write(&file, TOKEN).unwrap();
    let script = format!(
        "#!/bin/sh\n: > {}\nuntil [ -e {} ]; do sleep 0.05; done\ncat {} 2>&1 || true\n",
        started.display(),
        go.display(),
        file.display(),
    );
    std::fs::write(actions.join("look.sh"), script).unwrap();
    std::fs::write(actions.join("look.yaml"), LOOK).unwrap();
    scene.server().process().signal(Signal::HUP);
    let name = file.display().to_string();
    let options = WorkerOptions::named("hiding").flag("--token-file", &name);
    let _worker = scene.worker_with(&options.flag("--containment", "pidns"));
    let order = json!({"action_ref": "ledger.look"});
    let job = eventually("the action is known", within(BOUND), || {
        let reply = scene.api().post("/executions", &order);
        reply.is_success().then(|| reply.body["data"]["id"].as_str().map(str::to_owned))?
    });
    eventually("it runs", within(BOUND), || started.exists().then_some(()));
    let new = scene.folder().join("token.new");
    std::fs::write(&new, "a-new-token-no-job-may-see").unwrap();
    std::fs::rename(&new, &file).unwrap();
    std::fs::write(&go, "").unwrap();
    let done = scene.await_status(&job, "completed", within(BOUND));
    let result = done["result"].to_string();
    assert!(result.contains("No such file") && !result.contains("a-new-token"), "{result}");
}
