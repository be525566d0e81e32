//! Dead letters are retried and removed all at once, at any server, while workers go on.

use std::time::Duration;

use outlast_e2e::process::run_to_end;
use outlast_e2e::wait::{eventually, within};
use outlast_e2e::{Api, Run, Scene, ServerOptions};
use serde_json::json;

/// How long everything may take that many jobs are part of.
const LONG: Duration = Duration::from_secs(60);

/// More than one request or one step changes.
const LETTERS: usize = 1_200;

#[test]
fn all_are_retried_once_each_and_then_removed_on_the_embedded_store() {
    let scene = Scene::start();
    let url = scene.server().url();
    retried_and_removed(&scene, [&url, &url]);
}

#[test]
fn all_are_retried_once_each_at_one_server_and_then_removed_at_another() {
    let scene = Scene::with(ServerOptions::default().postgres());
    let other = scene.another_server("other");
    retried_and_removed(&scene, [&scene.server().url(), &other.url()]);
}

/// A retried job fails again while the same order is under way: it is not retried by it again.
fn retried_and_removed(scene: &Scene, [here, there]: [&str; 2]) {
    let _worker = scene.worker("one");
    let retry = json!({"max_attempts": 1, "on_exhaustion": "dead_letter"});
    // Of a type that no worker takes: its attempts are taken and failed below.
    let job = json!({"type": "fails", "args": [], "options": {"queue": "plain", "retry": retry}});
    let some: Vec<_> = std::iter::repeat_n(job, 400).collect();
    for _ in 0..LETTERS / 400 {
        let _ = scene.api().post("/ojs/v1/jobs/batch", &json!({"jobs": some})).expect(201);
    }
    let failer = Failer { api: Api::new(here) };
    failer.fail_all(LETTERS);
    assert_eq!(letters(there), LETTERS);
    let dry = outlast(&["retry", "--queue", "plain", "--dry-run"], there);
    assert!(dry.1.starts_with(&format!("{LETTERS} dead letters, of which")), "{}", dry.1);
    let said = std::thread::scope(|scope| {
        let failing = scope.spawn(|| failer.fail_all(LETTERS));
        let said = outlast(&["retry", "--queue", "plain"], there);
        failing.join().expect("all fail again");
        said
    });
    assert_eq!(said, (Some(0), format!("{LETTERS} dead letters retried\n")));
    eventually("all are dead letters again", LONG, || (letters(here) == LETTERS).then_some(()));
    let page = Api::new(here).get("/ojs/v1/dead-letter?limit=1000").expect(200);
    let jobs = page["jobs"].as_array().expect("a list");
    let id = jobs.last().and_then(|job| job["id"].as_str()).expect("an id");
    assert_eq!(scene.api().execution(id)["life"], 2, "it was retried once");
    let said = outlast(&["purge", "--type", "fails", "--reason", "exhausted"], there);
    assert_eq!(said, (Some(0), format!("{LETTERS} dead letters removed\n")));
    assert_eq!(letters(here), 0);
    // The rest goes on.
    let other = scene.run(Run::short());
    scene.await_status(&other, "completed", within(LONG));
    scene.judge();
}

/// A worker of the open standard whose jobs all fail.
struct Failer {
    api: Api,
}

impl Failer {
    fn fail_all(&self, count: usize) {
        let mut failed = 0;
        eventually("all have failed", LONG, || {
            for job in self.api.ojs_fetch("plain", "failer", 100) {
                let error = json!({"code": "handler_error", "message": "no"});
                let nack = json!({"job_id": job["id"], "error": error, "worker_id": "failer"});
                let _ = self.api.post("/ojs/v1/workers/nack", &nack).expect(200);
                failed += 1;
            }
            (failed >= count).then_some(())
        });
    }
}

fn letters(url: &str) -> usize {
    let page = Api::new(url).get("/ojs/v1/dead-letter?queue=plain&limit=1").expect(200);
    let total = page["pagination"]["total"].as_u64();
    usize::try_from(total.expect("a total")).expect("a count")
}

/// The exit code, and what was said.
fn outlast(words: &[&str], url: &str) -> (Option<i32>, String) {
    let all = [&["dead-letters"], words, &["--server", url]].concat();
    let said = run_to_end(&all, LONG);
    (said.code, said.stderr)
}
