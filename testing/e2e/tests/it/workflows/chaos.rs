//! Workflows run to their ends while workers and servers are killed every few seconds.

use std::thread;
use std::time::{Duration, Instant};

use outlast_e2e::wait::{LEASE, eventually, within};
use outlast_e2e::{Api, Server, ServerOptions, Worker, WorkerOptions};
use serde_json::{Value, json};

use super::{Site, WORKFLOWS, id_of, revive, step_of};

/// How long a worker or a server lives.
const ALIVE: Duration = Duration::from_secs(3);
/// Items of the list in each workflow.
const ITEMS: usize = 5;

/// How many, and for how long processes are killed.
#[derive(Clone, Copy)]
struct Trial {
    workflows: usize,
    killing: Duration,
}

const SHORT: Trial = Trial { workflows: 40, killing: Duration::from_secs(30) };
const LONG: Trial = Trial { workflows: 500, killing: Duration::from_secs(300) };

#[test]
fn workflows_survive_kills() {
    survive(&mut Site::with(options()), None, SHORT);
}

#[test]
fn workflows_survive_kills_of_two_servers() {
    let mut site = Site::with(options().postgres());
    let other = site.another_server("other");
    survive(&mut site, Some(other), SHORT);
}

#[test]
#[ignore = "takes more than five minutes: .ci/nightly runs it"]
fn workflows_survive_kills_of_two_servers_for_long() {
    let mut site = Site::with(options().postgres());
    let other = site.another_server("other");
    survive(&mut site, Some(other), LONG);
}

/// Every job here may lose its worker again and again, and none is to blame.
fn options() -> ServerOptions {
    ServerOptions::default().set("executor.loss_budget", json!(1_000))
}

/// Ten steps. In every fourth workflow, one of them fails.
fn steps(site: &Site, n: usize) -> Vec<Value> {
    let items: Vec<usize> = (0..ITEMS).collect();
    let list = "${{ steps.each.result.map(it, it.value).join(',') }}";
    let missing = if n.is_multiple_of(4) { site.path("missing") } else { site.path("ledger") };
    let short = json!({"ticks": 2});
    let once = json!({"max_attempts": 3, "initial_interval": "100ms", "jitter": false});
    vec![
        site.step("start", &short, &json!({})),
        site.step("left", &short, &json!({"after": "start"})),
        site.step(
            "right",
            &json!({"fail_before_epoch": 2}),
            &json!({"after": "start", "retry": once}),
        ),
        site.step(
            "each",
            &json!({"item": "${{ index }}", "value": "${{ string(item) }}", "ticks": 2}),
            &json!({"after": "start", "for_each": items, "concurrency": 2}),
        ),
        site.step("join", &json!({"value": list}), &json!({"after": ["left", "right", "each"]})),
        site.step(
            "optional",
            &json!({"needs": site.path("missing")}),
            &json!({"after": "join", "retry": {"max_attempts": 1}, "on_failure": "continue"}),
        ),
        site.step(
            "verdict",
            &json!({"needs": missing}),
            &json!({"after": "optional", "retry": once}),
        ),
        site.step("next", &short, &json!({"after": "verdict"})),
        site.step("alarm", &short, &json!({"after": "next", "when": "failure"})),
        site.step("tail", &short, &json!({"after": ["next", "alarm"], "when": "always"})),
    ]
}

struct Fleet {
    workers: Vec<Worker>,
    servers: String,
    started: usize,
}

impl Fleet {
    fn start_one(&mut self, site: &Site) {
        let options = WorkerOptions::named(&format!("worker-{}", self.started));
        self.started += 1;
        self.workers.push(site.worker_with(options.through(&self.servers)));
    }
}

fn survive(site: &mut Site, mut other: Option<Server>, trial: Trial) {
    let mut apis = vec![site.scene.api().clone()];
    apis.extend(other.as_ref().map(|other| Api::new(&other.url())));
    let servers: Vec<&str> = apis.iter().map(Api::url).collect();
    let mut fleet = Fleet { workers: Vec::new(), servers: servers.join(","), started: 0 };
    for _ in 0..3 {
        fleet.start_one(site);
    }
    // The first line of the ledger is what some steps need.
    site.make("ledger");
    let (begun, mut killed) = (Instant::now(), 0);
    let mut workflows: Vec<String> = Vec::new();
    while begun.elapsed() < trial.killing {
        // So many at a time that some run at each kill.
        let rounds = usize::try_from(trial.killing.as_secs() / ALIVE.as_secs()).expect("few");
        let due = trial.workflows.div_ceil(rounds).min(trial.workflows - workflows.len());
        for _ in 0..due {
            let n = workflows.len();
            let begun = begin(site, &apis, n);
            workflows.push(begun);
        }
        thread::sleep(ALIVE / 2);
        match (killed % 3, &mut other) {
            (0, Some(other)) => {
                other.kill();
                revive(other);
            }
            (1, _) | (0, None) => {
                site.scene.server_mut().kill();
                thread::sleep(LEASE / 2);
                revive(site.scene.server_mut());
            }
            _ => {
                fleet.workers.remove(0).kill_whole();
                fleet.start_one(site);
            }
        }
        killed += 1;
        thread::sleep(ALIVE / 2);
    }
    for n in workflows.len()..trial.workflows {
        let begun = begin(site, &apis, n);
        workflows.push(begun);
    }
    for (n, id) in workflows.iter().enumerate() {
        let ended = site.ended_within(id, within(trial.killing));
        let fails = n.is_multiple_of(4);
        let expected = if fails { "failed" } else { "completed" };
        assert_eq!(ended["status"], expected, "{ended:#}");
        let joined = step_of(&ended, "join");
        assert_eq!(joined["result"]["value"], "0,1,2,3,4", "{joined:#}");
        let ran = |name: &str| step_of(&ended, name)["status"].clone();
        assert_eq!(ran("alarm"), if fails { "completed" } else { "skipped" }, "{ended:#}");
        assert_eq!(ran("tail"), "completed", "{ended:#}");
    }
    site.judge(&workflows);
}

/// Begins a workflow at any server that answers. The key makes it one, however often it is sent.
fn begin(site: &Site, apis: &[Api], n: usize) -> String {
    let key = format!("chaos-{n}");
    let headers = [("Idempotency-Key", key.as_str()), ("Content-Type", "application/json")];
    let request = json!({"workflow": {"name": "chaos", "steps": steps(site, n)}});
    eventually("a server answers", within(LEASE), || {
        let reply = apis[n % apis.len()].try_post_with(WORKFLOWS, &headers, &request).ok()?;
        assert!(reply.is_success() || reply.status == 503, "{reply:?}");
        reply.is_success().then(|| id_of(&reply.body))
    })
}
