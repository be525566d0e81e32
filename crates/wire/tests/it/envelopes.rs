//! What producers send.

use outlast_core::job::Overlap;
use outlast_core::time::{Span, Timestamp};
use outlast_wire::ojs::enqueue::{FirstWanted, bulk, one};
use outlast_wire::time::When;
use outlast_wire::{Fault, FaultKind};
use proptest::prelude::*;

fn refused(body: &str) -> Fault {
    one(body.as_bytes()).expect_err(body)
}

fn check_names(body: &str, field: &str) {
    let fault = refused(body);
    assert_eq!(fault.kind, FaultKind::Request, "{body}: {}", fault.message);
    assert_eq!(fault.field.as_deref(), Some(field), "{body}: {}", fault.message);
}

#[test]
fn a_minimal_job_gets_the_defaults() {
    let job = one(br#"{"type":"email.send","args":["a"]}"#).expect("a job");
    assert_eq!((&*job.job_type, job.queue, job.priority), ("email.send", None, None));
    assert_eq!((job.args, job.meta, &*job.extra), (r#"["a"]"#, "", ""));
    assert!(job.id.is_none() && job.retry.is_none() && job.first.is_none());
}

#[test]
fn arguments_are_kept_as_they_were_sent() {
    let body = r#"{"type":"a","args":[ 1.0 , 1e2, "\u00e9", {"b":1,"a":2} ]}"#;
    let job = one(body.as_bytes()).expect("a job");
    assert_eq!(job.args, r#"[ 1.0 , 1e2, "\u00e9", {"b":1,"a":2} ]"#);
}

#[test]
fn options_take_effect_and_are_kept() {
    let body =
        br#"{"type":"a","args":[],"x":1,"options":{"queue":"q","priority":-5,"timeout_ms":10,
        "visibility_timeout_ms":20,"scheduled_at":"+PT2S","expires_at":"1970-01-01T00:00:09Z"}}"#;
    let job = one(body).expect("a job");
    assert_eq!((job.queue.as_deref(), job.priority), (Some("q"), Some(-5)));
    assert_eq!((job.timeout, job.visibility), (Some(Span(10)), Some(Span(20))));
    assert_eq!(job.first, Some(FirstWanted::At(When::In(Span(2000)))));
    assert_eq!(job.expires, Some(When::At(Timestamp(9000))));
    assert!(job.extra.starts_with(r#"{"options":{"queue":"q""#), "{}", job.extra);
    assert!(job.extra.ends_with(r#","x":1}"#), "{}", job.extra);
}

#[test]
fn options_at_the_root_count_where_options_say_nothing() {
    let body = br#"{"type":"a","args":[],"queue":"root","priority":7,"options":{"queue":"q"}}"#;
    let job = one(body).expect("a job");
    assert_eq!((job.queue.as_deref(), job.priority), (Some("q"), Some(7)));
}

#[test]
fn a_job_says_whether_its_attempts_may_overlap() {
    let job = one(br#"{"type":"a","args":[],"options":{"overlap":"forbidden"}}"#).expect("a job");
    assert_eq!(job.overlap, Some(Overlap::Forbidden));
    assert_eq!(one(br#"{"type":"a","args":[]}"#).expect("a job").overlap, None);
    check_names(r#"{"type":"a","args":[],"options":{"overlap":"never"}}"#, "overlap");
    check_names(r#"{"type":"a","args":[],"options":{"overlap":true}}"#, "overlap");
}

#[test]
fn fields_that_the_server_manages_are_not_kept() {
    let body = br#"{"type":"a","args":[],"state":"completed","attempt":9,"epoch":3,"result":1}"#;
    assert_eq!(one(body).expect("a job").extra, "");
}

#[test]
fn a_wrong_field_is_named() {
    check_names(r#"{"args":[]}"#, "type");
    check_names(r#"{"type":"a"}"#, "args");
    check_names(r#"{"type":"a","args":null}"#, "args");
    check_names(r#"{"type":"a","args":{}}"#, "args");
    check_names(r#"{"type":1,"args":[]}"#, "type");
    check_names(r#"{"type":"a","args":[],"meta":[]}"#, "meta");
    check_names(r#"{"type":"a","args":[],"options":[]}"#, "options");
    check_names(r#"{"type":"a","args":[],"options":{"priority":101}}"#, "priority");
    check_names(r#"{"type":"a","args":[],"options":{"priority":1.5}}"#, "priority");
    check_names(r#"{"type":"a","args":[],"options":{"queue":"Q"}}"#, "queue");
    check_names(r#"{"type":"a","args":[],"options":{"timeout_ms":0}}"#, "timeout_ms");
    check_names(r#"{"type":"a","args":[],"options":{"expires_at":"soon"}}"#, "expires_at");
    check_names(r#"{"type":"a","args":[],"id":""}"#, "id");
}

#[test]
fn types_are_lower_case_words_joined_by_dots() {
    for good in ["a", "email.send", "dlq.test.list-first", "order.v2", "a_b.c1"] {
        assert!(one(format!(r#"{{"type":"{good}","args":[]}}"#).as_bytes()).is_ok(), "{good}");
    }
    for bad in ["", ".", "a.", ".a", "a..b", "1a", "A", "a b", "a@b", "é", "a/b"] {
        check_names(&format!(r#"{{"type":"{bad}","args":[]}}"#), "type");
    }
}

#[test]
fn only_a_uuidv7_in_lower_case_is_an_id() {
    let job = |id: &str| format!(r#"{{"type":"a","args":[],"id":"{id}"}}"#);
    assert!(one(job("019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f").as_bytes()).is_ok());
    for bad in [
        "550e8400-e29b-41d4-a716-446655440000",
        "019461A8-1A2B-7C3D-8E4F-5A6B7C8D9E0F",
        "019461a81a2b7c3d8e4f5a6b7c8d9e0f",
        "x",
    ] {
        check_names(&job(bad), "id");
    }
}

#[test]
fn what_is_no_json_is_told_with_line_and_column() {
    let fault = refused("{\n  invalid }");
    assert_eq!(fault.kind, FaultKind::Payload);
    assert!(fault.message.contains("line 2, column 3"), "{}", fault.message);
    assert_eq!(refused("").kind, FaultKind::Payload);
    assert_eq!(refused("[]").kind, FaultKind::Payload);
    assert_eq!(refused(r#"{"type":"a","type":"b","args":[]}"#).kind, FaultKind::Payload);
    assert_eq!(refused(r#"{"type":"a","args":[]} {}"#).kind, FaultKind::Payload);
    assert_eq!(one(b"\xff\xfe").expect_err("not text").kind, FaultKind::Payload);
}

#[test]
fn nesting_is_limited_and_brackets_in_texts_do_not_count() {
    let nested = |depth: usize| {
        format!(r#"{{"type":"a","args":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    assert!(one(nested(63).as_bytes()).is_ok());
    let fault = refused(&nested(64));
    assert!(fault.message.contains("64"), "{}", fault.message);
    assert_eq!(refused(&nested(100_000)).kind, FaultKind::Payload);
    let text = format!(r#"{{"type":"a","args":["{}\"["]}}"#, "[".repeat(1000));
    assert!(one(text.as_bytes()).is_ok());
}

#[test]
fn a_bulk_names_the_place_of_its_first_fault() {
    let fault = bulk(br#"{"jobs":[{"type":"a","args":[]},{"args":[]}]}"#).expect_err("a fault");
    assert_eq!(fault.field.as_deref(), Some("jobs[1].type"));
    assert!(bulk(br#"{"jobs":[]}"#).is_err());
    assert_eq!(bulk(br#"{"jobs":[{"type":"a","args":[]}]}"#).expect("jobs").len(), 1);
}

proptest! {
    #[test]
    fn no_body_makes_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        drop((one(&body), bulk(&body)));
    }

    #[test]
    fn no_json_makes_the_reader_panic(body in "[\\[\\]{}\",:0-9a-z\\\\ ]{0,80}") {
        let body = format!("{{\"type\":\"a\",\"args\":[{body}]}}");
        drop(one(body.as_bytes()));
    }

    #[test]
    fn a_fields_text_is_never_changed(text in "\\PC{0,40}") {
        let value = serde_json::Value::String(text).to_string();
        let body = format!("{{\"type\":\"a\",\"args\":[{value}],\"x\":{value}}}");
        let job = one(body.as_bytes()).expect("a job");
        prop_assert_eq!(job.args, format!("[{value}]"));
        prop_assert_eq!(job.extra, format!("{{\"x\":{value}}}"));
    }
}
