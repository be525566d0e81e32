//! Packs as their writers change them: a slip, a new action while server and worker run, and
//! secrets of the worker.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use outlast_e2e::process::{command, run_against, run_to_end};
use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Process, Proxy, Scene, ServerOptions, Weather, Worker, WorkerOptions};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

/// A scene with a pack called `site` that the test writes.
struct Site {
    scene: Scene,
    folder: tempfile::TempDir,
}

fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "packs/site/pack.yaml", "ref: site\n");
        fs::create_dir_all(folder.path().join("secrets")).unwrap();
        let secrets = folder.path().join("secrets").display().to_string();
        let options = ServerOptions::default()
            .set("worker.secrets", json!(secrets))
            .set("worker.environment", json!(["CARGO_MANIFEST_*"]))
            .argument("--packs");
        let scene = Scene::with(options.argument(&Self::packs(&folder)));
        Self { scene, folder }
    }

    fn packs(folder: &tempfile::TempDir) -> String {
        folder.path().join("packs").display().to_string()
    }

    /// Writes a shell action, of which only this is special.
    fn action(&self, name: &str, keys: &str, script: &str) {
        let text = format!("runner_type: shell\nentry_point: {name}.sh\n{keys}");
        put(self.folder.path(), &format!("packs/site/actions/{name}.yaml"), &text);
        let script = format!("#!/bin/sh\n{script}\n");
        put(self.folder.path(), &format!("packs/site/actions/{name}.sh"), &script);
    }

    fn secret(&self, name: &str, value: &str, mode: u32) {
        let path = put(self.folder.path(), &format!("secrets/{name}"), value);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn worker(&self) -> Worker {
        let options = WorkerOptions::named("site").flag("--packs", &Self::packs(&self.folder));
        self.scene.worker_with(&options)
    }

    /// Asks for an action until the server knows it, and returns the execution's id.
    fn accepted(&self, action: &str, parameters: &Value) -> String {
        let body = json!({"action_ref": action, "parameters": parameters});
        let accepted = eventually("the action is known", within(LEASE), || {
            let reply = self.scene.api().post("/api/v1/executions", &body);
            reply.is_success().then(|| reply.expect(201))
        });
        accepted["data"]["id"].as_str().unwrap().to_owned()
    }

    fn result(&self, action: &str, parameters: &Value) -> Value {
        let id = self.accepted(action, parameters);
        self.scene.await_status(&id, "completed", within(LEASE))["result"].clone()
    }

    fn hang_up(&self, worker: &Worker) {
        self.scene.server().process().signal(Signal::HUP);
        worker.hang_up();
    }
}

#[test]
fn one_slip_stops_nothing_and_is_corrected_while_all_run() {
    let site = Site::new();
    site.action("good", "", "echo one");
    site.action("bad", "timout: 5\n", "echo bad");
    // The server was started before there was any action.
    let worker = site.worker();
    site.hang_up(&worker);
    assert_eq!(site.result("site.good", &Value::Null), json!({"stdout": "one"}));

    let body = json!({"action_ref": "site.bad"});
    let refused = site.scene.api().post("/api/v1/executions", &body).expect(404);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("bad.yaml:3") && message.contains("`timeout`?"), "{message}");
    let pack = site.scene.api().get("/api/v1/packs/site").expect(200)["data"].clone();
    assert!(pack["faults"].to_string().contains("timout"), "{pack}");

    site.action("bad", "timeout: 5\nparameters: {message: {type: string}}\n", "echo two");
    site.action("good", "", "echo three");
    site.hang_up(&worker);
    assert_eq!(site.result("site.bad", &Value::Null), json!({"stdout": "two"}));
    assert_eq!(site.result("site.good", &Value::Null), json!({"stdout": "three"}));
    let body = json!({"action_ref": "site.bad", "parameters": {"mesage": "x"}});
    let refused = site.scene.api().post("/api/v1/executions", &body).expect(422);
    assert!(refused["error"]["message"].as_str().unwrap().contains("did you mean `message`?"));
    let after = site.scene.api().get("/api/v1/packs/site").expect(200)["data"].clone();
    assert_ne!(pack["digest"], after["digest"]);
}

#[test]
fn each_attempt_keeps_the_digest_of_the_pack_that_it_ran() {
    let site = Site::new();
    site.action("work", "", "echo one");
    let worker = site.worker();
    site.hang_up(&worker);
    let first = site.accepted("site.work", &Value::Null);
    site.scene.await_status(&first, "completed", within(LEASE));
    // One that runs while the pack changes, and ends afterwards.
    let go = site.folder.path().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    site.action("held", "retry: {max_attempts: 1}\n", &wait);
    site.hang_up(&worker);
    let held = site.accepted("site.held", &Value::Null);
    site.scene.await_status(&held, "running", within(LEASE));
    let digest = |id: &str| site.scene.api().attempts(id)[0]["pack_digest"].clone();
    let known = || {
        let pack = site.scene.api().get("/api/v1/packs/site").expect(200);
        pack["data"]["digest"].clone()
    };
    let before = eventually("the running attempt has a digest", within(LEASE), || {
        Some(digest(&held)).filter(Value::is_string)
    });
    assert_eq!(before, known());
    assert_ne!(digest(&first), before);

    site.action("work", "", "echo two");
    site.hang_up(&worker);
    let after = eventually("the server has read the pack again", within(LEASE), || {
        Some(known()).filter(|digest| *digest != before)
    });
    let new = eventually("the worker has read the pack again", within(LEASE), || {
        let id = site.accepted("site.work", &Value::Null);
        let done = site.scene.await_status(&id, "completed", within(LEASE));
        (done["result"] == json!({"stdout": "two"}) && digest(&id) == after).then_some(id)
    });
    fs::write(&go, "").unwrap();
    site.scene.await_status(&held, "completed", within(LEASE));
    assert_eq!(digest(&held), before, "what it was started with");
    let server = site.scene.server().url();
    let shown = run_to_end(&["jobs", "show", &new, "--server", &server], within(LEASE));
    let begins = &after.as_str().unwrap()[..12];
    assert!(shown.stdout.contains(begins), "{begins}: {}", shown.stdout);
}

// A script that was gone was called a fault of the host: the worker went quiet again and again,
// and the job was handed back without end.
#[test]
fn an_action_whose_script_is_gone_is_not_offered_until_it_is_back() {
    let site = Site::new();
    site.action("lost", "", "echo back");
    site.action("here", "", "echo here");
    let worker = site.worker();
    site.scene.server().process().signal(Signal::HUP);
    assert_eq!(site.result("site.lost", &Value::Null), json!({"stdout": "back"}));
    let lost = site.folder.path().join("packs/site/actions/lost.sh");
    let (packs, away) = (site.folder.path().join("packs"), site.folder.path().join("away"));
    fs::rename(&lost, &away).unwrap();
    let handed_back = |job: &str| {
        eventually("the job is handed back", within(LEASE), || {
            let attempts = site.scene.api().attempts(job);
            let undelivered = attempts[0]["outcome"] == "undelivered";
            undelivered.then(|| assert_ne!(attempts[0]["evidence_code"], "host", "{}", attempts[0]))
        });
        let row = site.scene.api().get(&format!("/api/v1/workers/{}", worker.id())).expect(200);
        // It may be on its way back with another list of actions.
        assert_ne!(row["data"]["state"], "quiet", "{row}");
    };

    let job = site.accepted("site.lost", &Value::Null);
    handed_back(&job);
    assert_eq!(site.result("site.here", &Value::Null), json!({"stdout": "here"}));
    let waiting = site.scene.api().execution(&job);
    assert_eq!((&waiting["status"], &waiting["failures"]), (&json!("requested"), &json!(0)));
    fs::rename(&away, &lost).unwrap();
    site.scene.await_status(&job, "completed", within(LEASE));

    // The same with everything in that folder, which cannot be read again then.
    fs::rename(&packs, &away).unwrap();
    let job = site.accepted("site.here", &Value::Null);
    handed_back(&job);
    fs::rename(&away, &packs).unwrap();
    site.scene.await_status(&job, "completed", within(LEASE));
}

/// Stands in for Node.js: says what it is, and runs scripts as the shell does.
const NODE: &str = "#!/bin/sh
if [ \"$1\" = -p ]; then echo \"$0\"; echo 20.0.0; else exec /bin/sh \"$@\"; fi
";

// Without one of its interpreters a worker ran nothing at all, and one that had moved was never
// found again.
#[test]
fn an_interpreter_that_is_gone_takes_its_own_actions_away_until_it_is_found_elsewhere() {
    let site = Site::new();
    site.action("plain", "", "echo plain");
    let nodes = "runner_type: nodejs\nentry_point: nodes.js\n";
    put(site.folder.path(), "packs/site/actions/nodes.yaml", nodes);
    put(site.folder.path(), "packs/site/actions/nodes.js", "echo nodes\n");
    let [old, new, tools] = ["old", "new", "tools"].map(|name| site.folder.path().join(name));
    for folder in [&old, &new, &tools] {
        fs::create_dir(folder).unwrap();
    }
    for tool in ["sh", "cat"] {
        symlink(Path::new("/bin").join(tool), tools.join(tool)).unwrap();
    }
    let node = put(&old, "node", NODE);
    fs::set_permissions(&node, fs::Permissions::from_mode(0o755)).unwrap();
    let (url, packs) = (site.scene.server().url(), Site::packs(&site.folder));
    let arguments = ["worker", "--server", &url, "--name", "site", "--packs", &packs];
    let mut worker = command(&arguments.map(str::to_owned));
    worker.env("PATH", format!("{}:{}:{}", old.display(), new.display(), tools.display()));
    let _worker = Process::spawn("site", worker, site.scene.folder());
    site.scene.server().process().signal(Signal::HUP);
    assert_eq!(site.result("site.nodes", &Value::Null), json!({"stdout": "nodes"}));

    let away = site.folder.path().join("away");
    fs::rename(&node, &away).unwrap();
    let job = site.accepted("site.nodes", &Value::Null);
    eventually("the job is handed back", within(LEASE), || {
        let attempts = site.scene.api().attempts(&job);
        let undelivered = attempts[0]["outcome"] == "undelivered";
        undelivered.then(|| assert_ne!(attempts[0]["evidence_code"], "host", "{}", attempts[0]))
    });
    assert_eq!(site.result("site.plain", &Value::Null), json!({"stdout": "plain"}));
    let waiting = site.scene.api().execution(&job);
    assert_eq!((&waiting["status"], &waiting["failures"]), (&json!("requested"), &json!(0)));

    fs::rename(&away, new.join("node")).unwrap();
    site.scene.await_status(&job, "completed", within(LEASE * 2));
    site.scene.judge();
}

const SECRETIVE: &str = "output_format: json
env: {GREETING: hello}
secrets: {API_KEY: {as: env}, CERT: {as: file, from: tls.crt}}
parameters: {pin: {type: string, secret: true}}
";

/// It names a wrapper that says so; a virtual environment is reached in the same way.
#[test]
fn an_action_runs_with_the_interpreter_of_its_pack_once_it_is_there() {
    let site = Site::new();
    let pack = "ref: site\npython: .venv/bin/python\n";
    put(site.folder.path(), "packs/site/pack.yaml", pack);
    let action = "runner_type: python\nentry_point: own.py\nqueue: own\npriority: 7\n";
    put(site.folder.path(), "packs/site/actions/own.yaml", action);
    let script = "import os\nprint(os.environ['RUN_BY'])\n";
    put(site.folder.path(), "packs/site/actions/own.py", script);
    let server = site.scene.api();
    let packs = Site::packs(&site.folder);
    let options = WorkerOptions::named("site").flag("--packs", &packs).flag("--queues", "own");
    let _worker = site.scene.worker_with(&options);
    site.scene.server().process().signal(Signal::HUP);
    let id = site.accepted("site.own", &json!({}));
    let waiting = server.get(&format!("/api/v1/executions/{id}?wait=1")).expect(200);
    assert_eq!(waiting["data"]["status"], "requested", "{waiting}");
    assert_eq!(
        (&waiting["data"]["queue"], &waiting["data"]["priority"]),
        (&json!("own"), &json!(7))
    );
    let own = "#!/bin/sh\nRUN_BY=own exec python3 \"$@\"\n";
    let path = put(site.folder.path(), "packs/site/.venv/bin/python", own);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let done = site.scene.await_status(&id, "completed", within(LEASE));
    assert_eq!(done["result"]["stdout"], "own", "{done}");
}

#[test]
fn an_action_gets_its_secrets_and_nobody_sees_them() {
    let site = Site::new();
    let script = "read -r given; echo \"key $API_KEY given $given\" >&2; \
                  cat \"$CERT_FILE\" >&2; [ -n \"$CARGO_MANIFEST_DIR\" ] || exit 9; \
                  printf '{\"%s\": \"%s %s\"}\n' \"$GREETING\" \"$API_KEY\" ${#API_KEY}";
    site.action("secretive", SECRETIVE, script);
    site.secret("tls.crt", "-----BEGIN CERTIFICATE-----\nMIIBVgIBADANBg\n", 0o440);
    site.scene.server().process().signal(Signal::HUP);
    let _worker = site.worker();

    // One secret is missing: the job waits for it, at nobody's expense.
    let id = site.accepted("site.secretive", &json!({"pin": "4711-4712"}));
    site.scene.await_status(&id, "requested", within(LEASE));
    site.secret("API_KEY", "open-sesame\n", 0o400);
    let done = site.scene.await_status(&id, "completed", within(LEASE));
    assert_eq!(done["result"], json!({"hello": "*** 11"}));
    assert_eq!((&done["failures"], &done["parameters"]), (&json!(0), &json!({"pin": "***"})));
    let log = site.scene.api().get(&format!("/api/v1/executions/{id}/logs")).expect(200);
    let log = log.to_string();
    for secret in ["open-sesame", "MIIBVgIBADANBg", "4711-4712"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
    assert!(log.contains("key *** given"), "{log}");

    // A schedule keeps them for its jobs, and shows them as little.
    let api = site.scene.api();
    let schedule = json!({
        "cron": "@daily", "action_ref": "site.secretive", "parameters": {"pin": "4711-4712"},
    });
    let (path, body) = ("/api/v1/schedules/secretive", schedule.to_string().into_bytes());
    let set = api.try_send(Method::PUT, path, "application/json", Some(body)).unwrap();
    let shown = [
        set.expect(201),
        api.get(path).expect(200),
        api.get("/api/v1/schedules").expect(200),
        api.get("/ojs/v1/cron/secretive").expect(200),
        api.get("/ojs/v1/cron").expect(200),
        api.get("/api/v1/events?stream=false&type=cron.*").expect(200),
    ];
    assert_eq!(shown[1]["data"]["job"]["parameters"], json!({"pin": "***"}));
    for shown in shown {
        assert!(!shown.to_string().contains("4711-4712"), "{shown:#}");
    }
}

/// Both were changed: numbers lost digits, and success became a failure that is never tried again.
#[test]
fn what_an_action_prints_as_json_is_its_result_as_it_was_printed() {
    let site = Site::new();
    let printed = r#"{"n":123456789012345678901,"d":0.12345678901234567891}"#;
    let json = "output_format: json\nsecrets: {API_KEY: }\n";
    site.secret("API_KEY", "sesame-42", 0o400);
    site.action("digits", json, &format!("echo '{printed}'"));
    let (open, close) = ("[".repeat(100), "]".repeat(100));
    site.action("deep", json, &format!("echo '{open}{close}'"));
    let worker = site.worker();
    site.hang_up(&worker);

    let id = site.accepted("site.digits", &json!({}));
    site.scene.await_status(&id, "completed", within(LEASE));
    let shown = site.scene.api().get(&format!("/api/v1/executions/{id}")).text;
    assert!(shown.contains(printed), "{shown}");

    let result = site.result("site.deep", &json!({}));
    assert_eq!(result["stdout"], format!("{open}{close}"));
    let problem = result["output_error"].as_str().expect("a reason");
    assert!(problem.contains("nested more than 64 levels"), "{problem}");
}

/// A SIGHUP to `dev` once ended it, and left its worker behind.
#[test]
fn dev_reads_packs_again_when_it_is_hung_up() {
    let folder = tempfile::tempdir().unwrap();
    let (data, packs) = (folder.path().join("data"), folder.path().join("packs"));
    put(&packs, "site/pack.yaml", "ref: site\n");
    let (data, packs_flag) = (data.display().to_string(), packs.display().to_string());
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--data", &data, "--packs", &packs_flag];
    let mut dev = Process::spawn("dev", command(&arguments.map(str::to_owned)), folder.path());
    let announced = dev.await_line("Outlast is at http://", within(LEASE));
    let url = announced.split_whitespace().find(|word| word.starts_with("http")).unwrap();
    let url = url.trim_end_matches(',').to_owned();

    put(&packs, "site/actions/new.yaml", "runner_type: shell\nentry_point: new.sh\n");
    put(&packs, "site/actions/new.sh", "#!/bin/sh\necho new\n");
    dev.signal(Signal::HUP);
    let run = ["run", "site.new", "--wait", "--server", &url];
    let ran = eventually("the new action runs", within(LEASE), || {
        let ran = run_to_end(&run, within(LEASE));
        (ran.code == Some(0)).then_some(ran)
    });
    assert!(ran.stdout.contains("new"), "{ran:?}");
    dev.signal(Signal::TERM);
    assert_eq!(dev.await_end(within(LEASE)), Some(0), "{}", dev.log());
}

/// Waits until the reason why a job waits has these words.
fn await_words(site: &Site, id: &str, words: &str) {
    let mut reason = String::new();
    eventually(&format!("the reason has `{words}`"), within(LEASE), || {
        reason = site.scene.api().execution(id)["waiting_reason"].to_string();
        reason.contains(words).then_some(())
    });
}

/// Parameters are validated by a server, and the action runs at a worker: each reads packs by itself.
#[test]
fn pinned_job_waits_for_a_worker_with_the_files_that_it_was_validated_with() {
    let site = Site::new();
    put(site.folder.path(), "packs/site/pack.yaml", "ref: site\nversion: '1.2'\n");
    site.action("work", "", "echo one");
    site.action("strict", "packs: pinned\n", "echo one");
    let worker = site.worker();
    site.hang_up(&worker);
    assert_eq!(site.result("site.strict", &Value::Null), json!({"stdout": "one"}));

    put(site.folder.path(), "packs/site/pack.yaml", "ref: site\nversion: '1.3'\n");
    site.action("work", "", "echo two");
    site.action("strict", "packs: pinned\n", "echo two");
    site.scene.server().process().signal(Signal::HUP);
    let api = site.scene.api();
    let skew = eventually("the skew is named", within(LEASE), || {
        let shown = api.get(&format!("/api/v1/workers/{}", worker.id())).expect(200);
        let skew = shown["data"]["skew"].as_array()?.clone();
        (!skew.is_empty()).then(|| skew[0].as_str().unwrap().to_owned())
    });
    assert!(skew.starts_with("runs site 1.2 (") && skew.contains("validated with 1.3"), "{skew}");
    let doctor = run_against(&site.scene.server().url(), &["doctor", "--output", "json"]);
    assert!(doctor.stdout.contains(&format!("site {skew}")), "{}", doctor.stdout);
    let listed = run_against(&site.scene.server().url(), &["packs", "list"]);
    assert!(listed.stdout.contains("0, 1 other"), "{}", listed.stdout);

    // Whatever files the worker has read, unless the action or the job says otherwise.
    let any = site.accepted("site.work", &Value::Null);
    let done = site.scene.await_status(&any, "completed", within(LEASE));
    let digest = |id: &str| -> String {
        api.attempts(id)[0]["pack_digest"].as_str().unwrap_or_default().chars().take(12).collect()
    };
    assert_ne!(done["validated_with"], digest(&any));
    let events = api.get("/api/v1/events?stream=false&type=job.pack_skew").expect(200);
    let events = events["data"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["data"]["job_id"]), (1, &json!(any)));
    let strict = site.accepted("site.strict", &Value::Null);
    let body = json!({"action_ref": "site.work", "packs": "pinned"});
    let pinned = api.post("/api/v1/executions", &body).expect(201)["data"]["id"].clone();
    let pinned = pinned.as_str().unwrap().to_owned();
    for id in [&strict, &pinned] {
        await_words(&site, id, "without pack/site=");
    }
    worker.hang_up();
    for id in [&strict, &pinned] {
        let done = site.scene.await_status(id, "completed", within(LEASE * 2));
        assert_eq!(done["result"], json!({"stdout": "two"}));
        assert_eq!(done["validated_with"], digest(id));
    }
    let body = json!({"action_ref": "site.work", "packs": "mine"});
    let refused = api.post("/api/v1/executions", &body).expect(400);
    assert!(refused.to_string().contains("`any` or `pinned`"), "{refused}");
}

/// Its connection ends before the server hears of the attempt.
#[test]
fn skew_is_named_when_the_attempt_is_reported_after_the_worker_has_attached_again() {
    let site = Site::new();
    let ran = site.folder.path().join("ran");
    site.action("work", "", &format!("touch {}", ran.display()));
    let proxy = Proxy::to(&site.scene.server().url());
    let options = WorkerOptions::named("site").flag("--packs", &Site::packs(&site.folder));
    let worker = site.scene.worker_with(&options.through(&proxy.url()));
    site.hang_up(&worker);
    site.result("site.work", &Value::Null);
    fs::remove_file(&ran).unwrap();
    let digest = |api: &Api| api.get("/api/v1/packs/site").expect(200)["data"]["digest"].clone();
    let before = digest(site.scene.api());
    put(site.folder.path(), "packs/site/actions/more.txt", "more");
    site.scene.server().process().signal(Signal::HUP);
    eventually("the server has other files", within(LEASE), || {
        (digest(site.scene.api()) != before).then_some(())
    });
    proxy.set(Weather::DropRequests);
    let id = site.accepted("site.work", &Value::Null);
    eventually("it runs", within(LEASE), || ran.exists().then_some(()));
    proxy.set(Weather::Cut);
    proxy.set(Weather::Clear);
    site.scene.await_status(&id, "completed", within(LEASE));
    assert_eq!(site.scene.api().execution(&id)["epoch"], 1);
    let events = site.scene.api().get("/api/v1/events?stream=false&type=job.pack_skew").expect(200);
    let events = events["data"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["data"]["job_id"]), (1, &json!(id)), "{events:?}");
}

#[test]
fn job_says_which_worker_lacks_which_secret() {
    let site = Site::new();
    site.action("work", "secrets: {TOKEN: {as: env, from: missing_one}}\n", "echo one");
    let worker = site.worker();
    site.hang_up(&worker);
    let id = site.accepted("site.work", &Value::Null);
    await_words(&site, &id, "site lacks secret missing_one");
    let doctor = run_against(&site.scene.server().url(), &["doctor"]);
    let words = "site lacks secret missing_one for site.work";
    assert!(doctor.stdout.contains(words), "{}", doctor.stdout);
    site.secret("missing_one", "sesame", 0o600);
    let done = site.scene.await_status(&id, "completed", within(LEASE * 10));
    assert_eq!(done["result"], json!({"stdout": "one"}));
    let shown = site.scene.api().get(&format!("/api/v1/workers/{}", worker.id())).expect(200);
    assert_eq!(shown["data"]["skew"], json!([]));
}
