use std::time::Duration;

use outlast_core::limits::LOG_BYTES_MAX;
use outlast_proto::v1::worker_message::Body as Said;
use outlast_proto::v1::{Ending, Report, RevokeAttempt, StopAttempt, Verdict, order, report};
use outlast_sdk::{AttemptContext, Delivery, Handler, LogStream, Outcome, StopReason};

use crate::control::{Call, Gate};
use crate::support::{Server, builder, ending, eventually, job, key, number, run};

#[tokio::test]
async fn a_panic_fails_its_own_attempt_and_no_other() {
    let mut server = Server::start();
    let handler = Call(|delivery: Delivery| {
        assert!(delivery.args_json != "[1]", "job one is rotten");
        Outcome::completed("2")
    });
    let _worker = run(builder(&server), handler);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    let mut ends = [stream.accept().await, stream.accept().await];
    ends.sort_by_key(|(key, _)| number(key));
    let [(_, first), (_, second)] = ends;
    assert_eq!((ending(&first), first.error_type.as_str()), (Ending::Failed, "panic"));
    assert!(first.error_message.contains("rotten"));
    assert_eq!(ending(&second), Ending::Completed);
}

#[tokio::test]
async fn short_jobs_are_reported_many_at_a_time_and_fetched_ahead() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Call(|_| Outcome::completed("1")));
    let (mut stream, _) = server.attach(1).await;
    stream.deliver((0..200).map(job));
    let (mut reports, mut messages, mut prefetch) = (0, 0, 0);
    while reports < 200 || prefetch == 0 {
        match stream.next().await.unwrap() {
            Said::Reports(batch) => {
                messages += 1;
                reports += batch.reports.len();
            }
            Said::Capacity(capacity) => prefetch = prefetch.max(capacity.prefetch),
            _ => {}
        }
    }
    assert_eq!(reports, 200, "each ended once, and none lasted long enough to be announced");
    assert!(messages < 100, "{messages} messages for 200 reports");
    assert!(prefetch <= 1024);
}

#[tokio::test]
async fn a_start_is_told_when_it_lasts_and_at_once_where_there_is_a_single_attempt() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    let mut single = job(1);
    single.max_attempts = 1;
    stream.deliver([job(2), single]);
    let mut reports = Vec::new();
    while reports.len() < 2 {
        let Some(Said::Reports(batch)) = stream.next().await else { continue };
        reports.extend(batch.reports.into_iter().map(|Report { attempt, what }| match what {
            Some(report::What::Started(started)) => (number(&attempt.unwrap()), started.ago_ms),
            other => panic!("expected a start, got {other:?}"),
        }));
    }
    assert_eq!((reports[0].0, reports[1].0), (1, 2));
    assert!(reports[1].1 >= 50, "told after {} ms", reports[1].1);
}

#[tokio::test]
async fn an_isolated_job_runs_with_nothing_beside_it() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    let mut isolated = job(2);
    isolated.isolated = true;
    stream.deliver([job(1), isolated, job(3)]);
    gate.started_reach(1).await;
    for expected in [[1].as_slice(), &[1, 2], &[1, 2, 3]] {
        eventually("the next one started", || gate.started() == expected).await;
        assert_eq!(gate.running(), 1);
        gate.open();
        stream.accept().await;
    }
}

#[tokio::test]
async fn orders_stop_what_runs_and_take_back_what_waits() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server).concurrency(1), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    gate.started_reach(1).await;
    stream.order(order::What::Revoke(RevokeAttempt { attempt: Some(key(2, 1)) }));
    let (back, end) = stream.accept().await;
    assert_eq!((number(&back), ending(&end)), (2, Ending::NotStarted));
    let stop = StopAttempt { attempt: Some(key(1, 1)), why: "cancelled".into() };
    stream.order(order::What::Stop(stop));
    let (stopped, end) = stream.finished().await;
    assert_eq!((number(&stopped), ending(&end)), (1, Ending::Cancelled));
    stream.answer(&stopped, Verdict::TooLate);
    assert_eq!(gate.stops(), [(1, StopReason::Cancelled)]);
}

#[tokio::test]
async fn a_job_that_waits_long_behind_others_goes_back() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server).concurrency(1), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1), job(2)]);
    let (key, end) = stream.accept().await;
    assert_eq!((number(&key), ending(&end)), (2, Ending::NotStarted));
    assert_eq!(gate.started(), [1]);
}

#[tokio::test]
async fn a_job_that_waits_long_behind_one_that_runs_alone_goes_back() {
    let mut server = Server::start();
    let gate = Gate::default();
    let _worker = run(builder(&server).concurrency(2), gate.clone());
    let (mut stream, _) = server.attach(1).await;
    let mut alone = job(1);
    alone.isolated = true;
    stream.deliver([alone, job(2)]);
    let (key, end) = stream.accept().await;
    assert_eq!((number(&key), ending(&end)), (2, Ending::NotStarted));
    assert_eq!(gate.started(), [1]);
}

#[tokio::test]
async fn a_handler_that_does_not_keep_time_is_dropped_at_the_jobs_limit() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Gate::default());
    let (mut stream, _) = server.attach(1).await;
    let mut limited = job(1);
    limited.timeout_ms = Some(100);
    stream.deliver([limited]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::TimedOut, "timeout"));
}

#[tokio::test]
async fn a_result_that_no_server_can_store_fails_its_attempt() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Call(|_| Outcome::completed("{not json")));
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Failed, "invalid_result"));
    assert!(end.not_retryable);
}

#[tokio::test]
async fn a_result_nested_deeper_than_servers_read_fails_its_attempt() {
    let mut server = Server::start();
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    let _worker = run(builder(&server), Call(move |_| Outcome::completed(deep.clone())));
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (_, end) = stream.accept().await;
    assert_eq!((ending(&end), end.error_type.as_str()), (Ending::Failed, "invalid_result"));
    assert!(end.error_message.contains("64 levels"), "{}", end.error_message);
}

#[tokio::test]
async fn output_is_numbered_bounded_and_comes_before_the_end() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Talker);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (mut bytes, mut numbers) = (0, Vec::new());
    loop {
        match stream.next().await.unwrap() {
            Said::Logs(logs) => {
                for chunk in logs.chunks {
                    bytes += chunk.bytes.len();
                    numbers.push(chunk.n);
                }
            }
            Said::Reports(batch) if batch.reports.iter().any(is_end) => break,
            _ => {}
        }
    }
    assert_eq!(bytes, 3 * 1024 * 1024, "all of it: there was a session to send it on");
    assert!(numbers.iter().copied().eq(0..u32::try_from(numbers.len()).unwrap()));
}

/// Servers keep no more, and once passed over the rest in silence.
#[tokio::test]
async fn output_beyond_the_limit_is_cut_by_the_worker_with_a_mark() {
    let mut server = Server::start();
    let _worker = run(builder(&server), Chatterbox);
    let (mut stream, _) = server.attach(1).await;
    stream.deliver([job(1)]);
    let (mut kept, mut last) = (0, Vec::new());
    loop {
        match stream.next().await.unwrap() {
            Said::Logs(logs) => {
                for chunk in logs.chunks {
                    kept += chunk.bytes.iter().filter(|&&byte| byte == b'x').count();
                    last = chunk.bytes.to_vec();
                }
            }
            Said::Reports(batch) if batch.reports.iter().any(is_end) => break,
            _ => {}
        }
    }
    assert_eq!(kept, LOG_BYTES_MAX);
    let mark = String::from_utf8_lossy(&last);
    assert_eq!(mark, format!("[{} bytes of output were dropped here]\n", 2 * 1024 * 1024));
}

/// Says more than is kept.
struct Chatterbox;

impl Handler for Chatterbox {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        for _ in 0..12 {
            let work = context.log(LogStream::Stdout, vec![b'x'; 1024 * 1024]);
            tokio::time::timeout(Duration::from_secs(8), work).await.unwrap();
        }
        Outcome::completed("1")
    }
}

fn is_end(report: &Report) -> bool {
    matches!(report.what, Some(report::What::Finished(_)))
}

/// Says three times what may wait.
struct Talker;

impl Handler for Talker {
    async fn run(&self, _delivery: Delivery, context: AttemptContext) -> Outcome {
        let work = context.log(LogStream::Stdout, vec![b'x'; 3 * 1024 * 1024]);
        tokio::time::timeout(Duration::from_secs(8), work).await.unwrap();
        Outcome::completed("1")
    }
}
