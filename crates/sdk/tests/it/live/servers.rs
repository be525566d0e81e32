//! A worker as several servers on one store see it.

use std::sync::mpsc;
use std::time::Duration;

use outlast_e2e::wait::eventually;
use outlast_e2e::{Api, Scene, ServerOptions};
use outlast_sdk::{BoxError, Client, JobContext, NewJob, Worker};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

const BOUND: Duration = Duration::from_secs(30);

/// The waiting reason with `#` for each number.
fn reason(api: &Api, id: &str) -> String {
    let execution = api.try_execution(id).unwrap_or(Value::Null);
    let words = execution["waiting_reason"].as_str().unwrap_or_default();
    words
        .split(' ')
        .map(|word| if word.parse::<u64>().is_ok() { "#" } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Code that blocks in an async handler stops a worker's event loop, and not its heartbeats. Only
/// the server that the worker was attached to used to see it, and only until its connection broke.
#[test]
fn every_server_says_that_a_worker_beats_but_does_not_poll() {
    let scene = Scene::with(ServerOptions::bare().postgres());
    let other = scene.another_server_with("other", ServerOptions::bare());
    let url = scene.server().url();
    let (release, blocked) = mpsc::channel::<()>();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = std::thread::spawn({
        let (url, blocked) = (url.clone(), std::sync::Mutex::new(Some(blocked)));
        move || {
            let handler = move |_: Value, _: JobContext| {
                if let Some(blocked) = blocked.lock().unwrap().take() {
                    let _ = blocked.recv();
                }
                std::future::ready(Ok::<_, BoxError>(()))
            };
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            let worker =
                Worker::builder(&url).name("stuck").concurrency(1).handle("block", handler);
            let stopped = async {
                let _ = stopped.await;
            };
            runtime.block_on(worker.build().unwrap().run_until(stopped)).map(drop)
        }
    });
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::new(url).unwrap();
    let enqueue = || runtime.block_on(client.enqueue(NewJob::new("block", json!({})))).unwrap().id;
    let first = enqueue().to_string();
    eventually("the first job is claimed", BOUND, || {
        (scene.api().try_execution(&first)?["epoch"] == 1).then_some(())
    });
    let second = enqueue();

    let expected = "no eligible worker: stuck beats but has not polled for # s";
    for api in [scene.api(), &Api::new(&other.url())] {
        eventually("the server says that it does not poll", BOUND, || {
            (reason(api, &second.to_string()) == expected).then_some(())
        });
    }
    release.send(()).unwrap();
    runtime.block_on(client.wait(second, BOUND)).unwrap();
    stop.send(()).unwrap();
    worker.join().unwrap().unwrap();
}
