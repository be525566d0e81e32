//! The examples as processes: they work, drain, go quiet, are forced, and are killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_e2e::process::Process;
use outlast_e2e::wait::eventually;
use outlast_e2e::{Api, Scene};
use outlast_sdk::{Client, Job, JobContext, JobId, JobState, NewJob, Worker};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const BOUND: Duration = Duration::from_secs(30);

/// A server, and a client whose calls are waited for.
struct Stage {
    scene: Scene,
    client: Client,
    runtime: Runtime,
}

impl Stage {
    fn set() -> Self {
        let scene = Scene::start();
        let client = Client::new(scene.server().url()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { scene, client, runtime }
    }

    /// Starts an example with the server's address.
    #[expect(clippy::disallowed_methods, reason = "an example is seen from outside")]
    fn example(&self, name: &str) -> Process {
        let test = std::env::current_exe().unwrap();
        let built = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
        assert!(built.is_file(), "cargo build -p outlast-sdk --examples makes {}", built.display());
        let mut command = Command::new(built);
        command.arg(self.scene.server().url()).stdin(Stdio::null());
        Process::spawn(name, command, self.scene.folder())
    }

    /// Starts the example worker and waits until it is registered.
    fn worker(&self) -> Process {
        let mut worker = self.example("worker");
        let _ = worker.await_line("registered", BOUND);
        worker
    }

    fn report(&self, rows: u32) -> JobId {
        self.enqueue(NewJob::new("report.build", json!({"title": "spring", "rows": rows})))
    }

    fn enqueue(&self, job: NewJob) -> JobId {
        self.runtime.block_on(self.client.enqueue(job.queue("reports"))).unwrap().id
    }

    fn job(&self, id: JobId) -> Job {
        self.runtime.block_on(self.client.get(id)).unwrap()
    }

    fn wait(&self, id: JobId) -> Job {
        self.runtime.block_on(self.client.wait(id, BOUND)).unwrap()
    }

    /// Waits until the server knows that a job runs.
    fn await_running(&self, id: JobId) {
        eventually("it runs", BOUND, || self.job(id).started_at.map(|_| ()));
    }

    const fn api(&self) -> &Api {
        self.scene.api()
    }
}

#[test]
fn the_examples_work_together() {
    let stage = Stage::set();
    let mut worker = stage.worker();
    let mut producer = stage.example("producer");
    assert_eq!(producer.await_end(BOUND), Some(0), "{}", producer.log());
    assert!(producer.log().contains("job.enqueued"), "{}", producer.log());
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(BOUND), Some(0));
    assert!(worker.log().contains("completed: 1"), "{}", worker.log());
}

#[test]
fn a_worker_that_is_told_to_end_ends_what_runs_and_takes_nothing_new() {
    let stage = Stage::set();
    let mut worker = stage.worker();
    let running = stage.report(40);
    stage.await_running(running);
    worker.signal(Signal::TERM);
    let _ = worker.await_line("draining", BOUND);
    let late = stage.report(1);
    assert_eq!(worker.await_end(BOUND), Some(0));
    assert_eq!(stage.job(running).state, JobState::Completed);
    assert_eq!(stage.job(late).state, JobState::Available);
    let workers = stage.api().get("/api/v1/workers").expect(200);
    assert_eq!(workers["data"][0]["state"], "stopped", "it said goodbye");
}

#[test]
fn a_second_signal_hands_everything_back_at_once_even_from_a_thread_that_blocks() {
    let stage = Stage::set();
    let mut worker = stage.worker();
    // It has no writer: reading it blocks forever.
    let pipe = stage.scene.folder().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let blocked = stage.enqueue(NewJob::new("file.count_lines", &pipe));
    let long = stage.report(1_000_000);
    for id in [blocked, long] {
        stage.await_running(id);
    }
    worker.signal(Signal::INT);
    let _ = worker.await_line("draining", BOUND);
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(BOUND), Some(0));
    for id in [blocked, long] {
        let job = stage.job(id);
        assert_eq!((job.state, job.attempt), (JobState::Available, 0), "{job:?}");
    }
}

#[test]
fn a_third_signal_ends_the_process_whatever_it_still_waits_for() {
    let stage = Stage::set();
    let mut worker = stage.worker();
    let long = stage.report(1_000_000);
    stage.await_running(long);
    // A server that hears nothing: leaving it in order would take a while.
    stage.scene.server().process().signal(Signal::STOP);
    for heard in ["draining", "forced shutdown"] {
        worker.signal(Signal::TERM);
        let _ = worker.await_line(heard, BOUND);
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.await_end(BOUND), Some(1));
}

#[test]
fn a_stopped_worker_takes_no_work_until_it_is_continued() {
    let stage = Stage::set();
    let worker = stage.worker();
    worker.signal(Signal::TSTP);
    stage.scene.await_named_worker("reports", "quiet", BOUND);
    let job = stage.report(1);
    worker.signal(Signal::CONT);
    assert_eq!(stage.wait(job).state, JobState::Completed);
    assert!(worker.log().contains("SIGTSTP"), "{}", worker.log());
}

#[test]
fn the_next_worker_goes_on_where_a_killed_one_was() {
    let stage = Stage::set();
    let mut worker = stage.worker();
    let job = stage.report(150);
    let output = format!("/api/v1/executions/{job}/logs?format=text");
    // The second line follows the first checkpoint by a second.
    eventually("progress", BOUND, || {
        (stage.api().get(&output).text.matches("progress").count() >= 2).then_some(())
    });
    worker.kill();
    let _second = stage.worker();
    let ended = stage.wait(job).completed().unwrap();
    let result = ended.result.unwrap();
    assert!(result["resumed_at"].as_u64().unwrap() > 0, "{result}");
    assert_eq!(result["rows"], 150);
    let outcomes = stage.api().outcomes(&job.to_string());
    assert_eq!(outcomes, ["lost", "completed"]);
}

/// Counts the attempts that run at the same time, and those that ever ran.
#[derive(Debug, Default)]
struct Counted {
    now: AtomicUsize,
    ever: AtomicUsize,
}

#[test]
fn a_job_that_forbids_overlap_is_run_by_a_handler_that_wants_it_so() {
    let stage = Stage::set();
    let counted = Arc::new(Counted::default());
    let counts = Arc::clone(&counted);
    let worker = Worker::builder(stage.scene.server().url())
        .queues(["reports"])
        .heartbeat_interval(Duration::from_millis(200))
        .handle("alone", move |(): (), job: JobContext| {
            let counts = Arc::clone(&counts);
            async move {
                assert_eq!(counts.now.fetch_add(1, Ordering::SeqCst), 0, "no other attempt");
                let attempt = counts.ever.fetch_add(1, Ordering::SeqCst);
                if attempt == 0 {
                    // Until the lease is over: it cannot be renewed.
                    job.cancelled().await;
                }
                counts.now.fetch_sub(1, Ordering::SeqCst);
                if attempt == 0 { Err("cut off") } else { Ok(job.stop_reason().is_none()) }
            }
        })
        .overlap_forbidden("alone")
        .build()
        .unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let workers = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let running = workers.spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let job = stage.enqueue(NewJob::new("alone", ()).overlap_forbidden());
    stage.await_running(job);
    stage.scene.server().process().signal(Signal::STOP);
    eventually("it was ordered to end", BOUND, || {
        (counted.now.load(Ordering::SeqCst) == 0).then_some(())
    });
    stage.scene.server().process().signal(Signal::CONT);
    let ended = stage.wait(job).completed().unwrap();
    assert_eq!((ended.result, counted.ever.load(Ordering::SeqCst)), (Some(json!(true)), 2));
    drop(stop);
    workers.block_on(running).unwrap().unwrap();
}
