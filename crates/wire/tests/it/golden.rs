//! Jobs as they are shown, whole.

use std::sync::LazyLock;

use outlast_core::id::{Epoch, JobId};
use outlast_core::job::State;
use outlast_core::keys::Keys;
use outlast_core::selector::Placement;
use outlast_core::time::{Span, Timestamp};
use outlast_wire::ojs::job::{Course, ErrorView, JobView};
use outlast_wire::ojs::manifest;
use serde_json::Value;
use uuid::Uuid;

static NONE: LazyLock<Keys> = LazyLock::new(Keys::default);
static ANYWHERE: LazyLock<Placement> = LazyLock::new(Placement::default);

fn view() -> JobView<'static> {
    JobView {
        id: JobId(Uuid::from_u128(0x0194_61a8_1a2b_7c3d_8e4f_5a6b_7c8d_9e0f)),
        job_type: "email.send",
        queue: "default",
        state: State::Available,
        args: r#"["a", 1.0]"#,
        meta: "",
        extra: "",
        keys: &NONE,
        placement: &ANYWHERE,
        priority: 0,
        attempt: 0,
        max_attempts: 3,
        created: Timestamp(1_800_000_000_000),
        scheduled: None,
        expires: None,
        course: Course::default(),
    }
}

fn document(view: &JobView<'_>) -> Value {
    let mut out = Vec::new();
    view.write(&mut out);
    serde_json::from_slice(&out).expect("the view is JSON")
}

#[test]
fn a_new_job_is_shown_without_what_has_not_happened() {
    insta::assert_json_snapshot!(document(&view()), @r#"
    {
      "specversion": "1.0",
      "id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
      "type": "email.send",
      "state": "available",
      "queue": "default",
      "args": [
        "a",
        1.0
      ],
      "priority": 0,
      "attempt": 0,
      "max_attempts": 3,
      "created_at": "2027-01-15T08:00:00Z",
      "enqueued_at": "2027-01-15T08:00:00Z"
    }
    "#);
}

#[test]
fn a_retried_job_is_shown_with_its_errors_and_what_was_sent() {
    let error = r#"{"code":"c","message":"m"}"#;
    let at = Timestamp(1_800_000_001_500);
    let course = Course {
        started: Some(Timestamp(1_800_000_001_000)),
        next_attempt: Some(at.after(Span(1000))),
        retry_delay: Some(Span(1000)),
        error: Some(error),
        errors: vec![ErrorView { error, attempt: 1, at }],
        lease: Some(Epoch(1)),
        ..Course::default()
    };
    let view = JobView {
        state: State::Retryable,
        attempt: 1,
        meta: r#"{"trace":"t"}"#,
        extra: r#"{"options":{"queue":"q","tags":["x"],"priority":4},"x_custom":{"a":1}}"#,
        course,
        ..view()
    };
    insta::assert_json_snapshot!(document(&view), @r#"
    {
      "specversion": "1.0",
      "id": "019461a8-1a2b-7c3d-8e4f-5a6b7c8d9e0f",
      "type": "email.send",
      "state": "retryable",
      "queue": "default",
      "args": [
        "a",
        1.0
      ],
      "meta": {
        "trace": "t"
      },
      "priority": 0,
      "attempt": 1,
      "max_attempts": 3,
      "created_at": "2027-01-15T08:00:00Z",
      "enqueued_at": "2027-01-15T08:00:00Z",
      "started_at": "2027-01-15T08:00:01Z",
      "next_attempt_at": "2027-01-15T08:00:02.5Z",
      "retry_delay_ms": 1000,
      "error": {
        "code": "c",
        "message": "m",
        "type": "c"
      },
      "errors": [
        {
          "code": "c",
          "message": "m",
          "type": "c",
          "attempt": 1,
          "occurred_at": "2027-01-15T08:00:01.5Z"
        }
      ],
      "epoch": 1,
      "lease": "1",
      "x_custom": {
        "a": 1
      },
      "tags": [
        "x"
      ]
    }
    "#);
}

#[test]
fn keys_are_shown_as_they_are_stored_whatever_was_sent() {
    let keys = [("tenant", "42"), ("account", "\"a\"")];
    let keys = keys.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let keys = Keys::new(keys.into_iter().collect()).expect("keys");
    let extra = r#"{"options":{"keys":{"tenant":"7"},"tags":["x"]},"keys":{"tenant":"8"}}"#;
    let shown = document(&JobView { extra, keys: &keys, ..view() });
    let stored = serde_json::json!({"account": "\"a\"", "tenant": "42"});
    assert_eq!((&shown["options"]["keys"], &shown["keys"]), (&stored, &stored));
    assert_eq!(shown["tags"], serde_json::json!(["x"]));
    let mut text = Vec::new();
    JobView { extra, keys: &keys, ..view() }.write(&mut text);
    let text = String::from_utf8(text).expect("text");
    assert_eq!(text.matches("\"keys\"").count(), 2, "{text}");
}

#[test]
fn the_manifest_claims_what_is_served() {
    let manifest: Value =
        serde_json::from_slice(&manifest::document("0.1.0")).expect("the manifest is JSON");
    assert_eq!(manifest["conformance_level"], 3);
    assert_eq!(manifest["specversion"], "1.0");
    assert_eq!(manifest["capabilities"]["dead_letter"], true);
    assert_eq!(manifest["capabilities"]["workflows"], true);
}
