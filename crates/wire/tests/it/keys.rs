//! Keys, as both APIs take them.

use outlast_core::keys::Keys;
use outlast_wire::execution::request::Request;
use outlast_wire::ojs::enqueue::{bulk, one};
use outlast_wire::{Fault, FaultKind};
use serde_json::json;

fn of(names: &[(&str, &str)]) -> Keys {
    let texts = names.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Keys::new(texts.collect()).expect("keys")
}

/// Reads keys in each place where they may be; each reads the same.
fn read(keys: &str) -> Result<Keys, Fault> {
    let execution = format!(r#"{{"action_ref":"a","keys":{keys}}}"#);
    let execution = Request::read(execution.as_bytes()).map(|request| request.keys);
    for job in [
        format!(r#"{{"type":"a","args":[],"options":{{"keys":{keys}}}}}"#),
        format!(r#"{{"type":"a","args":[],"keys":{keys}}}"#),
    ] {
        assert_eq!(one(job.as_bytes()).map(|job| job.keys), execution, "{job}");
    }
    execution
}

#[test]
fn keys_are_texts_and_numbers_and_booleans_become_theirs() {
    assert_eq!(read(r#"{"tenant":"42"}"#), Ok(of(&[("tenant", "42")])));
    let mixed = read(r#"{"tenant":42,"rate":1.5,"beta":true,"empty":""}"#);
    let texts = of(&[("tenant", "42"), ("rate", "1.5"), ("beta", "true"), ("empty", "")]);
    assert_eq!(mixed, Ok(texts));
    assert_eq!(read("{}"), Ok(Keys::default()));
    assert_eq!(read("null"), Ok(Keys::default()), "as if it was left out");
}

#[test]
fn wrong_keys_are_refused_with_what_would_be_right() {
    let texts = "field `keys` must be an object of texts such as `{\"tenant\": \"42\"}`";
    let long = json!({ "tenant": "v".repeat(257) }).to_string();
    for (keys, message) in [
        ("[]", texts),
        (r#""tenant=42""#, texts),
        (r#"{"tenant":null}"#, texts),
        (r#"{"tenant":["42"]}"#, texts),
        (
            r#"{"a":"1","b":"1","c":"1","d":"1","e":"1"}"#,
            "field `keys` holds 5 keys; at most 4 are taken",
        ),
        (
            r#"{"Tenant":"42"}"#,
            "field `keys` names a key `Tenant`; a name has 1 to 64 characters out of a-z, 0-9, \
             `_`, `.` and `-`",
        ),
        (&long, "field `keys` has a value for `tenant` of 257 bytes; at most 256 are taken"),
        (
            r#"{"tenant":"4\u00002"}"#,
            "field `keys` has a value for `tenant` with a NUL character, which is not taken",
        ),
    ] {
        let fault = read(keys).expect_err(keys);
        assert_eq!((fault.kind, fault.field.as_deref()), (FaultKind::Request, Some("keys")));
        assert_eq!(fault.message, message);
    }
}

#[test]
fn a_bulk_names_the_job_with_wrong_keys() {
    let body = r#"{"jobs":[{"type":"a","args":[]},
                           {"type":"a","args":[],"options":{"keys":{"A":"1"}}}]}"#;
    let fault = bulk(body.as_bytes()).expect_err("wrong keys");
    assert_eq!(fault.field.as_deref(), Some("jobs[1].keys"));
}

#[test]
fn keys_that_were_sent_are_kept_with_the_other_options() {
    let body = br#"{"type":"a","args":[],"options":{"keys":{"tenant":42}}}"#;
    let job = one(body).expect("a job");
    assert_eq!(job.extra, r#"{"options":{"keys":{"tenant":42}}}"#);
}
