//! Limits on the wire: rates, and what a request may say.

use outlast_core::gate::Rate;
use outlast_core::limit::{LimitName, Scope};
use outlast_core::time::Span;
use outlast_wire::limit::{rate, rate_text, read};
use proptest::prelude::*;
use serde_json::{Value, json};

fn name() -> LimitName {
    LimitName::new("tenant").expect("a name")
}

fn refusal(body: &Value) -> String {
    read(name(), body.to_string().as_bytes()).expect_err("a refusal").message
}

#[test]
fn rate_is_starts_and_a_period() {
    for (text, starts, millis) in [
        ("100/1m", 100, 60_000),
        ("5/1s", 5, 1000),
        ("1000/1h", 1000, 3_600_000),
        ("1/1d", 1, 86_400_000),
        ("3/250ms", 3, 250),
        ("2/1.5", 2, 1500),
        (" 2 / 10 s ", 2, 10_000),
        ("2/PT1M", 2, 60_000),
    ] {
        let read = rate(text).expect(text);
        assert_eq!((read.starts(), read.period()), (starts, Span(millis)), "{text}");
    }
}

#[test]
fn rate_that_is_none_is_refused() {
    for text in [
        "",
        "/",
        "5",
        "5/",
        "/1m",
        "5/m",
        "5/1x",
        "0/1m",
        "5/0",
        "-5/1m",
        "+5/1m",
        "1.5/1m",
        "5/25h",
        "5/2d",
        "1000000001/1m",
        "99999999999/1m",
        "5/1m/2",
        "5 per 1m",
    ] {
        assert_eq!(rate(text), None, "{text}");
    }
}

#[test]
fn rate_is_shown_with_the_largest_unit_that_fits() {
    for (given, shown) in
        [("100/60", "100/1m"), ("5/90s", "5/90s"), ("1/24h", "1/1d"), ("7/1.25", "7/1250ms")]
    {
        assert_eq!(rate_text(rate(given).expect(given)), shown);
    }
}

proptest! {
    #[test]
    fn rate_is_read_as_it_is_shown(starts in 1_u32..=1_000_000_000, millis in 1_u64..=86_400_000) {
        let one = Rate::new(starts, Span(millis)).expect("a rate");
        prop_assert_eq!(rate(&rate_text(one)), Some(one));
    }
}

#[test]
fn limit_is_read_from_a_body() {
    let body = json!({"scope": "key", "of": "tenant", "concurrency": 5, "rate": "100/1m"});
    let limit = read(name(), body.to_string().as_bytes()).expect("a limit");
    assert_eq!(limit.scope, Scope::Key("tenant".into()));
    assert_eq!(limit.concurrency, Some(5));
    assert_eq!(limit.rate, rate("100/1m"));
    let stop = json!({"scope": "queue", "of": "mail", "concurrency": 0, "rate": null});
    let stop = read(name(), stop.to_string().as_bytes()).expect("a limit");
    assert_eq!((stop.concurrency, stop.rate), (Some(0), None));
}

#[test]
fn name_that_clients_take_out_of_a_url_is_refused() {
    for dots in [".", ".."] {
        let refused = outlast_wire::limit::name(dots).expect_err("it is no name").to_string();
        assert!(refused.ends_with("and be neither `.` nor `..`"), "{refused}");
    }
}

#[test]
fn refusal_says_what_would_be_right() {
    for (body, expected) in [
        (
            json!({"of": "a", "rate": "1/1s"}),
            "field `scope` is missing; it must be `queue`, `type` or `key`",
        ),
        (json!({"scope": "tag", "of": "a", "rate": "1/1s"}), "field `scope` must be `queue`"),
        (json!({"scope": "key", "rate": "1/1s"}), "field `of` is missing; it names the key"),
        (json!({"scope": "key", "of": "Tenant", "rate": "1/1s"}), "field `of` must have 1 to 64"),
        (json!({"scope": "type", "of": "A B", "rate": "1/1s"}), "such as `email.send`"),
        (json!({"scope": "queue", "of": "", "rate": "1/1s"}), "field `of` must be lower-case"),
        (json!({"scope": "key", "of": "a"}), "a limit has at least one of them"),
        (json!({"scope": "key", "of": "a", "concurrency": -1}), "must be a whole number from 0"),
        (json!({"scope": "key", "of": "a", "concurrency": 1.5}), "must be a whole number from 0"),
        (json!({"scope": "key", "of": "a", "rate": "1/25h"}), "such as `100/1m` or `5/1s`"),
        (json!({"scope": "key", "of": "a", "rate": 5}), "such as `100/1m` or `5/1s`"),
        (json!({"scope": "key", "of": "a", "concurency": 1}), "did you mean `concurrency`?"),
        (
            json!({"scope": "key", "of": "a", "zzz": 1}),
            "known fields are scope, of, concurrency, rate",
        ),
    ] {
        let refused = refusal(&body);
        assert!(refused.contains(expected), "{body}: {refused}");
    }
}
