//! What callers of the executions API send, and how a status comes about.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{DeadLetterReason, Overlap, State};
use outlast_core::retry::RetryPolicy;
use outlast_core::time::Span;
use outlast_wire::execution::request::Request;
use outlast_wire::execution::status::{Facts, Status};
use outlast_wire::time::When;

fn check_names(body: &str, field: &str) {
    let fault = Request::read(body.as_bytes()).expect_err(body);
    assert!(fault.message.contains(field), "{body}: {}", fault.message);
}

#[test]
fn an_action_alone_is_enough() {
    let request = Request::read(br#"{"action_ref":"core.noop"}"#).expect("a request");
    assert_eq!((&*request.action_ref, request.queue), ("core.noop", None));
    assert!(request.parameters.is_null() && request.labels.is_empty());
}

#[test]
fn every_field_takes_effect() {
    let body = br#"{"action_ref":"a.b","queue":"q","priority":3,"timeout":1.5,
        "scheduled_timeout":"never","retry":5,"labels":{"zone":"a","n":1},"overlap":"forbidden",
        "delay":"5m"}"#;
    let request = Request::read(body).expect("a request");
    assert_eq!((request.queue.as_deref(), request.priority), (Some("q"), Some(3)));
    assert_eq!(request.timeout, Some(Span(1500)));
    assert_eq!(request.scheduled_timeout, Some(ScheduledTimeout::Never));
    assert_eq!(request.policy(RetryPolicy::standard()).expect("a policy").max_attempts, 5);
    assert_eq!(request.labels.get("n").map(String::as_str), Some("1"));
    assert_eq!(request.overlap, Some(Overlap::Forbidden));
    assert_eq!(request.delay, Some(When::In(Span::from_secs(300))));
}

#[test]
fn slips_are_named() {
    check_names(r#"{"action_ref":"a","paramters":{}}"#, "paramters");
    check_names("{}", "action_ref");
    check_names(r#"{"action_ref":7}"#, "action_ref");
    check_names(r#"{"action_ref":"a","priority":1000}"#, "priority");
    check_names(r#"{"action_ref":"a","timeout":-1}"#, "timeout");
    check_names(r#"{"action_ref":"a","timeout":0}"#, "timeout");
    check_names(r#"{"action_ref":"a","scheduled_timeout":"x"}"#, "scheduled_timeout");
    check_names(r#"{"action_ref":"a","labels":["x"]}"#, "labels");
    check_names(r#"{"action_ref":"a","overlap":"maybe"}"#, "overlap");
    check_names(r#"{"action_ref":"a","delay":"x"}"#, "delay");
    check_names(r#"{"action_ref":"a","queue":"A B"}"#, "queue");
    check_names("[]", "object");
}

#[test]
fn a_status_follows_from_the_job() {
    let of = |state, started, dead_letter, timed_out| {
        Status::of(&Facts { state, started, dead_letter, timed_out })
    };
    for waiting in [State::Available, State::Scheduled, State::Pending, State::Retryable] {
        assert_eq!(of(waiting, false, None, true), Status::Requested);
    }
    assert_eq!(of(State::Active, false, None, false), Status::Scheduled);
    assert_eq!(of(State::Active, true, None, false), Status::Running);
    assert_eq!(of(State::Completed, false, None, false), Status::Completed);
    assert_eq!(of(State::Cancelled, false, None, false), Status::Cancelled);
    assert_eq!(of(State::Discarded, false, None, false), Status::Failed);
    assert_eq!(of(State::Discarded, false, None, true), Status::Timeout);
    let dead = |reason| of(State::Discarded, false, Some(reason), false);
    assert_eq!(dead(DeadLetterReason::Exhausted), Status::Failed);
    assert_eq!(dead(DeadLetterReason::PoisonSuspect), Status::Abandoned);
    assert_eq!(dead(DeadLetterReason::AtMostOnce), Status::Abandoned);
}

#[test]
fn every_status_is_found_by_its_word() {
    for status in Status::ALL {
        assert_eq!(Status::parse(status.as_str()), Some(status));
    }
    assert_eq!(Status::parse("done"), None);
}
