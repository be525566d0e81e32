//! What plain workers send.

use outlast_core::id::Epoch;
use outlast_core::limits::LONG_POLL_MAX;
use outlast_core::time::Span;
use outlast_wire::ojs::quirks;
use outlast_wire::ojs::quirks::ActiveJobs;
use outlast_wire::ojs::worker::{Ack, BeatPhase, Fetch, Heartbeat, Nack, NackSort};

const JOB: &str = "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f";

fn nack(rest: &str) -> Nack {
    let body = format!(r#"{{"job_id":"{JOB}",{rest}}}"#);
    Nack::read(body.as_bytes()).expect("a nack")
}

fn beat(rest: &str) -> Heartbeat {
    let body = format!(r#"{{"worker_id":"w"{rest}}}"#);
    Heartbeat::read(body.as_bytes()).expect("a heartbeat")
}

#[test]
fn a_fetch_takes_one_job_and_does_not_wait_unless_asked() {
    let fetch = Fetch::read(br#"{"queues":["a"]}"#).expect("a fetch");
    assert_eq!((fetch.count, fetch.wait, fetch.worker), (1, None, None));
    let fetch = Fetch::read(br#"{"queues":["a"],"count":5,"wait_ms":999999}"#).expect("a fetch");
    assert_eq!((fetch.count, fetch.wait), (5, Some(LONG_POLL_MAX)));
    for wrong in [
        "{}",
        r#"{"queues":[]}"#,
        r#"{"queues":["A"]}"#,
        r#"{"queues":["a"],"count":0}"#,
        r#"{"queues":["a"],"count":100000}"#,
        r#"{"queues":["a"],"worker_id":""}"#,
        r#"{"queues":["a"],"visibility_timeout_ms":0}"#,
        // Sums with it once overflowed.
        r#"{"queues":["a"],"visibility_timeout_ms":3162240000001}"#,
        r#"{"queues":["a"],"visibility_timeout_ms":9223372036854775807}"#,
    ] {
        assert!(Fetch::read(wrong.as_bytes()).is_err(), "{wrong}");
    }
    for (wrong, message) in [
        (r#"{"queues":"a"}"#, "field `queues` must be an array of strings"),
        (r#"{"queues":[1]}"#, "field `queues` must be an array of strings"),
        (r#"{"queues":["a","B"]}"#, "field `queues` holds \"B\", but a queue must be lower-case"),
        (r#"{"queues":["a"],"count":-1}"#, "field `count` must be a whole number from 1 to"),
        (r#"{"queues":["a"],"count":"2"}"#, "field `count` must be a whole number from 1 to"),
        (r#"{"queues":["a"],"wait_ms":-1}"#, "field `wait_ms` must be a whole number of milli"),
        (r#"{"queues":["a"],"worker_id":7}"#, "field `worker_id` must be a string"),
    ] {
        let fault = Fetch::read(wrong.as_bytes()).expect_err(wrong).message;
        assert!(fault.starts_with(message), "{wrong}: {fault}");
    }
    let longest = br#"{"queues":["a"],"visibility_timeout_ms":3162240000000}"#;
    assert_eq!(Fetch::read(longest).expect("a fetch").visibility, Some(Span(3_162_240_000_000)));
}

#[test]
fn a_fetch_names_a_bounded_number_of_queues() {
    let of = |count: usize| {
        let queues: Vec<String> = (0..count).map(|n| format!("q{n}")).collect();
        Fetch::read(serde_json::json!({"queues": queues}).to_string().as_bytes())
    };
    assert_eq!(of(1_000).expect("a fetch").queues.len(), 1_000);
    let fault = of(1_001).expect_err("too many").message;
    assert_eq!(fault, "field `queues` names 1001 queues; at most 1000 are taken");
}

#[test]
fn a_report_may_name_its_claim() {
    let body =
        format!(r#"{{"job_id":"{JOB}","worker_id":"w","attempt":2,"lease":"7","result":[ 1]}}"#);
    let ack = Ack::read(body.as_bytes()).expect("an ack");
    assert_eq!(ack.about.lease, Some(Epoch(7)));
    assert_eq!((ack.about.worker.as_deref(), ack.about.attempt), (Some("w"), Some(2)));
    assert_eq!(ack.result.as_deref(), Some("[ 1]"));
    assert!(Ack::read(br#"{"job_id":"x"}"#).is_err());
    let negative = Ack::read(format!(r#"{{"job_id":"{JOB}","attempt":-1}}"#).as_bytes());
    let message = negative.expect_err("a negative attempt").message;
    assert!(message.ends_with("expected a whole number from 0 to 4294967295"), "{message}");
    assert!(Ack::read(b"{}").is_err());
}

#[test]
fn a_nack_says_how_the_attempt_ended() {
    let failed = |error_type: &str, retryable| NackSort::Failed {
        error_type: error_type.to_owned(),
        retryable,
    };
    let sort = |rest: &str| nack(rest).sort;
    assert_eq!(sort(r#""error":{"code":"handler_error"}"#), failed("handler_error", true));
    let with_class =
        r#""error":{"code":"c","details":{"error_class":"Auth.Gone"},"retryable":false}"#;
    assert_eq!(sort(with_class), failed("Auth.Gone", false));
    assert_eq!(sort(r#""error":{"type":"T","code":"c"}"#), failed("T", true));
    assert_eq!(sort(r#""error":{"code":"ShutdownError"}"#), NackSort::Interrupted);
    assert_eq!(sort(r#""error":{"code":"timeout"}"#), NackSort::TimedOut);
    assert_eq!(
        sort(r#""error":{"code":"c","retryable":false},"requeue":true"#),
        NackSort::Requeued
    );
}

#[test]
fn a_stored_error_has_code_type_and_message() {
    assert_eq!(
        nack(r#""error":{"code":"c","message":"m"}"#).error,
        r#"{"code":"c","message":"m","type":"c"}"#
    );
    assert_eq!(
        nack(r#""error":"it broke""#).error,
        r#"{"message":"it broke","code":"error","type":"error"}"#
    );
}

#[test]
fn a_heartbeat_counts_its_jobs_or_lists_them() {
    assert_eq!(beat("").active_jobs, ActiveJobs::Count(None));
    assert_eq!(beat(r#","active_jobs":2"#).active_jobs, ActiveJobs::Count(Some(2)));
    let listed = beat(&format!(r#","active_jobs":["{JOB}"]"#)).active_jobs;
    assert!(matches!(&listed, ActiveJobs::Jobs(jobs) if jobs.len() == 1), "{listed:?}");
    let both = beat(&format!(r#","active_jobs":1,"active_job_ids":["{JOB}"]"#)).active_jobs;
    assert_eq!(both, listed);
    for wrong in [r#","active_jobs":"2""#, r#","active_jobs":["x"]"#, r#","active_jobs":-1"#] {
        let body = format!(r#"{{"worker_id":"w"{wrong}}}"#);
        assert!(Heartbeat::read(body.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_heartbeat_says_what_its_sender_does_about_work() {
    assert_eq!(beat("").phase, None);
    assert_eq!(beat(r#","state":"running""#).phase, Some(BeatPhase::Running));
    assert_eq!(beat(r#","state":"drain""#).phase, Some(BeatPhase::Drain));
    assert_eq!(beat(r#","shutdown":true"#).phase, Some(BeatPhase::Drain));
    assert_eq!(beat(r#","state":"terminated","shutdown":true"#).phase, Some(BeatPhase::Terminated));
}

#[test]
fn each_client_gets_a_content_type_it_reads() {
    assert_eq!(quirks::content_type(None, Some("*/*")), "application/openjobspec+json");
    let python = quirks::content_type(Some("python-httpx/0.27"), None);
    assert!(python.contains("application/json"), "{python}");
    assert_eq!(
        quirks::content_type(Some("curl/8"), Some("application/json, text/plain")),
        "application/json"
    );
}

#[test]
fn a_tenant_is_put_into_meta() {
    assert_eq!(quirks::with_tenant("", "t"), r#"{"tenant_id":"t"}"#);
    assert_eq!(
        quirks::with_tenant(r#"{"a":1,"tenant_id":"x"}"#, "t\""),
        r#"{"a":1,"tenant_id":"t\""}"#
    );
}

#[test]
fn a_test_directive_is_found_in_the_metadata_only() {
    let directive = |options: &str| quirks::test_directive(&format!(r#"{{"options":{options}}}"#));
    assert_eq!(directive(r#"{"metadata":{"test_directive":"quiet"}}"#), Some("quiet"));
    assert_eq!(directive(r#"{"metadata":{"test_directive":"explode"}}"#), None);
    assert_eq!(directive(r#"{"test_directive":"quiet"}"#), None);
    assert_eq!(quirks::test_directive(""), None);
}
