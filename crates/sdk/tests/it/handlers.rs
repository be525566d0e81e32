//! Typed handlers: what they are given, what becomes of what they return, and how they end.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Ending, StopAttempt, order};
use outlast_sdk::{
    BoxError, BuildError, CancellationToken, HandlerError, JobContext, RunError, StopReason,
    Summary, Worker, WorkerBuilder,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Server, ending, eventually, job, key, number, within};

struct Served {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<Summary, RunError>>,
}

/// With an interval that forgives a loaded machine its silence: a panic prints its way here,
/// and that takes time.
fn builder(server: &Server) -> WorkerBuilder {
    Worker::builder(&server.url).concurrency(4).heartbeat_interval(Duration::from_secs(5))
}

fn serve(builder: WorkerBuilder) -> Served {
    let worker = builder.build().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    Served { stop: Some(stop), task }
}

impl Served {
    async fn drained(mut self) -> Summary {
        drop(self.stop.take());
        within(self.task).await.unwrap().unwrap()
    }
}

#[derive(Debug, Deserialize)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(Serialize)]
struct Answer {
    sum: i64,
}

async fn add(sum: Sum, _context: JobContext) -> Result<Answer, BoxError> {
    Ok(Answer { sum: sum.a + sum.b })
}

#[tokio::test]
async fn arguments_come_as_their_type_and_the_result_goes_as_json() {
    let mut server = Server::start();
    let served = serve(builder(&server).handle("t", add));
    let (mut stream, hello) = server.attach(1).await;
    assert_eq!(hello.types, ["t"], "handlers announce their types");
    let mut delivery = job(1);
    delivery.args_json = br#"[{"a":2,"b":40}]"#.to_vec().into();
    stream.deliver([delivery]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), &end.result_json[..]), (Ending::Completed, &br#"{"sum":42}"#[..]));
    assert_eq!(served.drained().await.completed, 1);
}

#[tokio::test]
async fn arguments_that_do_not_fit_fail_the_job_for_good_and_say_why() {
    let mut server = Server::start();
    let _served = serve(builder(&server).handle("t", add));
    let (mut stream, _) = server.attach(1).await;
    let mut delivery = job(1);
    delivery.args_json = br#"[{"a":2}]"#.to_vec().into();
    stream.deliver([delivery]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Failed, "invalid_args"));
    assert!(end.not_retryable && end.ran_ms.is_none(), "the handler never ran");
    let expected = "arguments of \"t\" do not fit its handler: missing field `b`";
    assert!(end.error_message.starts_with(expected), "{}", end.error_message);
}

#[tokio::test]
async fn an_error_fails_the_attempt_as_it_says_itself() {
    let mut server = Server::start();
    let _served = serve(builder(&server).handle("t", async |n: u8, _| -> Result<(), BoxError> {
        match n {
            1 => Err(HandlerError::permanent("bad_card", "card has expired").into()),
            2 => Err(HandlerError::new("busy", "try later").with_details([7]).into()),
            _ => Err(io::Error::other("disk on fire").into()),
        }
    }));
    let (mut stream, _) = server.attach(1).await;
    for (n, error_type, message, details, for_good) in [
        (1, "bad_card", "card has expired", "", true),
        (2, "busy", "try later", "[7]", false),
        (3, "error", "disk on fire", "", false),
    ] {
        stream.deliver([job(n)]);
        let (_, end) = stream.accept().await;
        assert_eq!((end.error_type.as_str(), end.error_message.as_str()), (error_type, message));
        assert_eq!(end.error_details_json, details.as_bytes());
        assert_eq!(end.not_retryable, for_good);
    }
}

#[tokio::test]
async fn a_panic_fails_its_own_attempt_and_nothing_else() {
    let mut server = Server::start();
    let worker = builder(&server)
        .handle("t", async |n: u8, _| {
            assert!(n != 1, "one is too few");
            Ok::<_, BoxError>(n)
        })
        .handle_blocking("blocking", |n: u8, _| {
            assert!(n != 2, "two are too many");
            Ok::<_, BoxError>(n)
        });
    let served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    let mut blocking = job(2);
    blocking.job_type = "blocking".to_owned();
    for (delivery, message) in [(job(1), "one is too few"), (blocking, "two are too many")] {
        stream.deliver([delivery]);
        let (_, end) = stream.accept().await;
        assert_eq!((end.error_type.as_str(), end.error_message.as_str()), ("panic", message));
        assert!(!end.not_retryable && end.tree_empty);
    }
    stream.deliver([job(3)]);
    assert_eq!(ending(&stream.accept().await.1), Ending::Completed);
    let summary = served.drained().await;
    assert_eq!((summary.completed, summary.failed), (1, 2));
}

#[tokio::test]
async fn a_handler_that_blocks_holds_nothing_else_up() {
    let mut server = Server::start();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let worker = builder(&server)
        .handle_blocking("blocking", move |(), context| {
            released.lock().unwrap().recv()?;
            Ok::<_, BoxError>(context.attempt_number())
        })
        .handle("t", async |n: u8, _| Ok::<_, BoxError>(n));
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    let mut blocking = job(1);
    blocking.job_type = "blocking".to_owned();
    blocking.args_json = b"[]".to_vec().into();
    stream.deliver([blocking]);
    stream.deliver([job(2)]);
    let (first, _) = stream.accept().await;
    assert_eq!(number(&first), 2);
    release.send(()).unwrap();
    let (second, end) = stream.accept().await;
    assert_eq!((number(&second), ending(&end)), (1, Ending::Completed));
    assert!(end.tree_empty);
}

/// Keeps what the handlers were given, to look at from outside.
type Kept<T> = Arc<Mutex<Option<T>>>;

#[tokio::test]
async fn a_cancelled_job_cancels_its_token_and_the_handler_ends_it() {
    let mut server = Server::start();
    let kept: Kept<CancellationToken> = Kept::default();
    let keep = Arc::clone(&kept);
    let worker = builder(&server).handle("t", move |_: u8, context: JobContext| {
        let keep = Arc::clone(&keep);
        async move {
            *keep.lock().unwrap() = Some(context.cancellation());
            context.cancelled().await;
            assert_eq!(context.stop_reason(), Some(StopReason::Cancelled));
            Err::<(), BoxError>("gave up".into())
        }
    });
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    eventually("it runs", || kept.lock().unwrap().is_some()).await;
    let stop = StopAttempt { attempt: Some(key(1, 1)), why: "cancelled".to_owned() };
    stream.order(order::What::Stop(stop));
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.evidence.as_str()), (Ending::Cancelled, "stopped: gave up"));
    assert!(kept.lock().unwrap().as_ref().unwrap().is_cancelled());
}

#[tokio::test]
async fn a_blocking_handler_learns_that_its_time_is_over() {
    let mut server = Server::start();
    let (sender, received) = mpsc::channel();
    let sender = Mutex::new(sender);
    let worker = builder(&server).handle_blocking("t", move |_: u8, context| {
        assert!(context.time_left().unwrap() <= Duration::from_millis(50));
        assert!(context.deadline().is_some());
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        sender.lock().unwrap().send(context.cancellation().is_cancelled())?;
        Ok::<_, BoxError>(())
    });
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    let mut limited = job(1);
    limited.timeout_ms = Some(50);
    stream.deliver([limited]);
    let (_, end) = stream.accept().await;
    assert_eq!(ending(&end), Ending::TimedOut);
    assert!(!end.tree_empty, "its thread could not be seen to end");
    let received = received.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(received, "the token says so too");
}

#[tokio::test]
async fn a_checkpoint_is_read_back_by_the_next_attempt() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct At {
        row: u64,
    }
    let mut server = Server::start();
    let worker = builder(&server).handle("t", async |_: u8, context: JobContext| {
        let at = context.last_checkpoint::<At>()?.unwrap_or(At { row: 0 });
        context.checkpoint(&At { row: at.row + 10 })?;
        if at.row == 0 {
            return Err("half way".into());
        }
        assert!(context.checkpoint(&"x".repeat(2 * 1024 * 1024)).is_err(), "too large");
        Ok::<_, BoxError>(at)
    });
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), &end.checkpoint[..]), (Ending::Failed, &br#"{"row":10}"#[..]));
    let mut second = job(1);
    second.attempt = Some(key(1, 2));
    second.checkpoint = end.checkpoint;
    stream.deliver([second]);
    let (_, end) = stream.accept().await;
    assert_eq!(&end.result_json[..], br#"{"row":10}"#);
    let mut third = job(3);
    third.checkpoint = b"of another program".to_vec().into();
    stream.deliver([third]);
    let (_, end) = stream.accept().await;
    assert_eq!((end.error_type.as_str(), end.not_retryable), ("invalid_checkpoint", true));
}

#[tokio::test]
async fn a_handler_is_told_what_there_is_to_know_and_what_it_says_is_kept() {
    let mut server = Server::start();
    let worker = builder(&server).handle("t", async |(): (), context: JobContext| {
        #[derive(Deserialize)]
        struct Meta {
            trace: String,
        }
        context.log("hello");
        context.progress(0.5, "half");
        context.progress(1.0, "");
        let known = (
            context.job_type().to_owned(),
            context.queue().to_owned(),
            context.attempt_number(),
            context.max_attempts(),
            context.idempotency_key().to_owned(),
            context.meta::<Meta>()?.trace,
        );
        Ok::<_, BoxError>(known)
    });
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    let mut delivery = job(1);
    delivery.args_json = b"[]".to_vec().into();
    delivery.meta_json = br#"{"trace":"abc"}"#.to_vec().into();
    delivery.idempotency_key = "key-1".to_owned();
    delivery.attempt_number = 2;
    stream.deliver([delivery]);
    let mut output = Vec::new();
    let end = stream
        .until(|said| match said {
            Said::Logs(logs) => {
                output.extend(logs.chunks.into_iter().flat_map(|chunk| chunk.bytes));
                None
            }
            Said::Reports(mut reports) => match reports.reports.remove(0).what {
                Some(outlast_proto::v1::report::What::Finished(end)) => Some(end),
                _ => None,
            },
            _ => None,
        })
        .await;
    assert_eq!(&end.result_json[..], br#"["t","default",2,3,"key-1","abc"]"#);
    let output = String::from_utf8(output).unwrap();
    assert_eq!(output, "hello\nprogress 50 %: half\nprogress 100 %\n");
}

#[tokio::test]
async fn a_handler_that_forbids_overlap_runs_no_job_that_allows_it() {
    let mut server = Server::start();
    let worker = builder(&server)
        .handle("t", async |n: u8, context: JobContext| {
            assert!(context.time_left().is_some(), "its lease is its limit");
            Ok::<_, BoxError>(n)
        })
        .overlap_forbidden("t");
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert_eq!((end.error_type.as_str(), end.not_retryable), ("overlap_allowed", true));
    let mut forbidden = job(2);
    forbidden.overlap_forbidden = true;
    stream.deliver([forbidden]);
    assert_eq!(ending(&stream.accept().await.1), Ending::Completed);
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_when_the_worker_is_made() {
    let worker = || {
        Worker::builder("http://127.0.0.1:1")
            .handle("t", async |n: u8, _| Ok::<_, BoxError>(n))
            .overlap_forbidden("t")
    };
    assert!(worker().build().is_ok());
    let refused = worker().refuse_overlap_forbidden().build().unwrap_err();
    assert_eq!(refused, BuildError::MayNotEnd("t".to_owned()));
    let refused = worker().overlap_forbidden("u").build().unwrap_err();
    assert_eq!(refused, BuildError::NoHandler("u".to_owned()));
    let refused = worker().handle("t", add).build().unwrap_err();
    assert_eq!(refused, BuildError::TwoHandlers("t".to_owned()));
    let refused = Worker::builder("ftp://127.0.0.1").handle("t", add).build().unwrap_err();
    assert!(matches!(refused, BuildError::Address(_)), "{refused}");
    let idle = Worker::builder("http://127.0.0.1:1").build().unwrap();
    let refused = within(idle.run_until(std::future::pending())).await.unwrap_err();
    assert!(matches!(refused, RunError::NoHandler), "{refused}");
}

/// Where a subscriber writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_handler_traces_carries_its_attempt() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let mut server = Server::start();
    let _served = serve(builder(&server).handle("t", async |n: u8, _| {
        tokio::task::yield_now().await;
        tracing::info!(n, "at work");
        Ok::<_, BoxError>(())
    }));
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(7)]);
    stream.accept().await;
    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let line = written.lines().find(|line| line.contains("at work")).expect(&written);
    for part in ["attempt{job=07070707-", "epoch=1", "job_type=\"t\"", "attempt=1", "n=7"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test]
async fn a_drain_lets_the_handler_end_and_then_tells_it_to() {
    let mut server = Server::start();
    let worker = builder(&server).shutdown_timeout(Duration::from_millis(100)).handle(
        "t",
        async |_: u8, context: JobContext| {
            context.cancelled().await;
            Err::<(), BoxError>("not finished".into())
        },
    );
    let served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    stream.until(|said| matches!(said, Said::Reports(_)).then_some(())).await;
    let drained = tokio::spawn(served.drained());
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Interrupted, "shutdown"));
    assert_eq!(within(drained).await.unwrap().interrupted, 1);
}

#[tokio::test]
async fn a_blocking_handler_that_outlives_its_attempt_keeps_its_slot() {
    let mut server = Server::start();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let worker = builder(&server)
        .concurrency(1)
        .handle_blocking("blocking", move |_: u8, _| {
            // It is ordered to stop, and does not care.
            let _ = released.lock().unwrap().recv();
            Ok::<_, BoxError>(())
        })
        .handle("t", async |n: u8, _| Ok::<_, BoxError>(n));
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    let mut limited = job(1);
    limited.job_type = "blocking".to_owned();
    limited.timeout_ms = Some(50);
    stream.deliver([limited]);
    assert_eq!(ending(&stream.accept().await.1), Ending::TimedOut);
    // Handed over all the same, it waits for the slot, and in the end is handed back.
    stream.deliver([job(2)]);
    let (waited, end) = stream.accept().await;
    assert_eq!((number(&waited), ending(&end)), (2, Ending::NotStarted));

    release.send(()).unwrap();

    let is_free = |said: Said| matches!(said, Said::Capacity(now) if now.slots == 1).then_some(());
    stream.until(is_free).await;
    stream.deliver([job(3)]);
    let (third, end) = stream.accept().await;
    assert_eq!((number(&third), ending(&end)), (3, Ending::Completed));
}

#[tokio::test]
async fn an_endless_error_is_cut_where_it_is_made_and_says_so() {
    let mut server = Server::start();
    let worker = builder(&server).handle("t", async |n: u8, _| match n {
        1 => Err::<(), BoxError>("e".repeat(40 << 20).into()),
        _ => {
            let details = serde_json::json!("d".repeat(1 << 20));
            Err(HandlerError::new("big", "m").with_details(details).into())
        }
    });
    let _served = serve(worker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert!(end.error_message.len() <= 16 * 1024 && end.evidence.len() <= 4 * 1024);
    assert!(end.error_message.ends_with("[cut, 41943040 bytes in all]"));
    stream.deliver([job(2)]);
    let (_, end) = stream.accept().await;
    assert!(end.error_details_json.is_empty() && end.evidence.contains("details not kept"));
}
