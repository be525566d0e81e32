//! Settings of queues: what a body changes, and what is refused.

use outlast_core::queue::{Change, QueueChange, Weight};
use outlast_core::selector::Selector;
use outlast_wire::queue::{max_depth, read, weight};

fn weights(of: &[(&str, &str, u32)]) -> Vec<Weight> {
    let weight = |(key, value, weight): &(&str, &str, u32)| Weight {
        key: (*key).into(),
        value: (*value).into(),
        weight: *weight,
    };
    of.iter().map(weight).collect()
}

#[test]
fn body_names_what_changes() {
    assert_eq!(read(b"{}").unwrap(), QueueChange::default());
    let change = read(br#"{"fair_by": "tenant", "weights": {"tenant:a:b=c": 3}}"#).unwrap();
    let expected = weights(&[("tenant", "a:b=c", 3)]);
    let fair_by = Change::Set("tenant".into());
    assert_eq!(change, QueueChange { fair_by, weights: expected, ..QueueChange::default() });
    assert_eq!(read(br#"{"fair_by": null}"#).unwrap().fair_by, Change::Unset);
    for (max, change) in
        [("1", Change::Set(1)), ("1000000000", Change::Set(1_000_000_000)), ("null", Change::Unset)]
    {
        let body = format!(r#"{{"max_depth": {max}}}"#);
        let expected = QueueChange { max_depth: change, ..QueueChange::default() };
        assert_eq!(read(body.as_bytes()).unwrap(), expected);
    }
    let change = read(br#"{"requires": "zone in (b, a) ,gpu=true", "prefers": null}"#).unwrap();
    let requires = Change::Set("gpu=true,zone in (a,b)".parse().unwrap());
    let prefers = Change::Unset;
    assert_eq!(change, QueueChange { requires, prefers, ..QueueChange::default() });
    let cleared =
        read(br#"{"requires": ""}"#).unwrap().requires.apply(Some("gpu".parse().unwrap()));
    assert_eq!(cleared, Some(Selector::default()), "an empty text asks for nothing");
}

#[test]
fn body_that_is_wrong_says_what_would_be_right() {
    for (body, expected) in [
        (r#"{"fairby": "tenant"}"#, "did you mean `fair_by`?"),
        (r#"{"fair_by": "Tenant"}"#, "must be the name of a key"),
        (r#"{"fair_by": 1}"#, "or null for none"),
        (r#"{"weights": [3]}"#, r#"such as {"tenant:42": 3}"#),
        (r#"{"weights": {"42": 3}}"#, "which is not KEY:VALUE"),
        (r#"{"weights": {"tenant:42": 0}}"#, "a whole number from 1 to 1000"),
        (r#"{"weights": {"tenant:42": 1001}}"#, "a whole number from 1 to 1000"),
        (r#"{"max_depth": 0}"#, "must be a whole number from 1 to 1000000000; or null for none"),
        (r#"{"max_depth": -1}"#, "from 1 to 1000000000"),
        (r#"{"max_depth": 1.5}"#, "from 1 to 1000000000"),
        (r#"{"max_depth": 1000000001}"#, "from 1 to 1000000000"),
        (r#"{"max_depth": "10"}"#, "from 1 to 1000000000"),
        (r#"{"max_dept": 10}"#, "did you mean `max_depth`?"),
        (
            r#"{"requires": "gpu true"}"#,
            "field `requires` is no selector: expected =, !=, in, notin",
        ),
        (r#"{"prefers": "gpu=true,"}"#, "field `prefers` is no selector: a requirement is missing"),
        (r#"{"requires": {"gpu": true}}"#, "field `requires` must be a text such as `gpu=true"),
        (r#"{"require": "gpu"}"#, "did you mean `requires`?"),
        ("[]", "must be a JSON object"),
    ] {
        let fault = read(body.as_bytes()).unwrap_err();
        assert!(fault.message.contains(expected), "{body}: {fault}");
    }
}

#[test]
fn bound_on_the_command_line_is_a_number_or_none() {
    assert_eq!((max_depth("1"), max_depth("none")), (Ok(Some(1)), Ok(None)));
    for wrong in ["0", "-1", "1.5", "1000000001", "all", "", "null"] {
        assert!(max_depth(wrong).unwrap_err().contains("from 1 to 1000000000"), "{wrong}");
    }
}

#[test]
fn weight_on_the_command_line_has_key_value_and_number() {
    assert_eq!(weight("tenant:42=3"), Ok(("tenant:42".into(), 3)));
    assert_eq!(weight("tenant:a=b=1000"), Ok(("tenant:a=b".into(), 1000)));
    for wrong in ["tenant:42", "tenant=3", "42=3", "Tenant:42=3"] {
        assert!(weight(wrong).unwrap_err().contains("tenant:42=3"), "{wrong}");
    }
    for wrong in ["tenant:42=0", "tenant:42=1001", "tenant:42=x"] {
        assert!(weight(wrong).unwrap_err().contains("from 1 to 1000"), "{wrong}");
    }
}
