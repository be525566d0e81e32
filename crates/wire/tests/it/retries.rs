//! Retry policies on the wire.

use outlast_core::retry::{Backoff, OnExhaustion, RetryPolicy};
use outlast_core::time::Span;
use outlast_wire::FaultKind;
use outlast_wire::ojs::retry::{Unknown, policy};
use proptest::prelude::*;
use serde_json::{Value, json};

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn read(value: Value) -> RetryPolicy {
    policy(&value, RetryPolicy::standard(), Unknown::Ignored).expect("a policy")
}

#[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
fn check_refused(value: Value, field: &str) {
    let fault = policy(&value, RetryPolicy::standard(), Unknown::Ignored).expect_err("a fault");
    assert_eq!(fault.kind, FaultKind::Rule, "{value}");
    assert!(fault.message.contains(field), "{} does not name {field}", fault.message);
}

#[test]
fn what_a_policy_does_not_say_is_the_standards() {
    assert_eq!(read(json!({})), RetryPolicy::standard());
    assert_eq!(read(json!({"max_attempts": null, "x_custom": 1})), RetryPolicy::standard());
}

#[test]
fn every_field_of_a_policy_takes_effect() {
    let expected = RetryPolicy {
        max_attempts: 5,
        initial_interval: Span(1500),
        coefficient_millis: 2500,
        max_interval: Span(300_000),
        backoff: Backoff::Linear,
        jitter: false,
        non_retryable: vec!["Auth.*".to_owned()],
        on_exhaustion: OnExhaustion::DeadLetter,
    };
    let policy = read(json!({
        "max_attempts": 5, "initial_interval": "PT1.5S", "backoff_coefficient": 2.5,
        "max_interval": "PT5M", "backoff_strategy": "linear", "jitter": false,
        "non_retryable_errors": ["Auth.*"], "on_exhaustion": "dead_letter",
    }));
    assert_eq!(policy, expected);
    let in_millis = json!({"initial_interval_ms": 1500, "max_interval_ms": 10});
    assert_eq!(read(in_millis.clone()).initial_interval, Span(1500));
    assert_eq!(read(in_millis).max_interval, Span(10));
}

#[test]
fn a_policy_without_attempts_still_has_one() {
    assert_eq!(read(json!({"max_attempts": 0})).max_attempts, 1);
}

#[test]
fn a_wrong_field_is_refused_by_name() {
    check_refused(json!({"max_attempts": -1}), "max_attempts");
    check_refused(json!({"max_attempts": 1.5}), "max_attempts");
    check_refused(json!({"max_attempts": "3"}), "max_attempts");
    check_refused(json!({"max_attempts": 4_000_000_000_u64}), "max_attempts");
    check_refused(json!({"backoff_coefficient": 0.5}), "backoff_coefficient");
    check_refused(json!({"backoff_coefficient": 1e300}), "backoff_coefficient");
    check_refused(json!({"initial_interval": "soon"}), "initial_interval");
    check_refused(json!({"max_interval_ms": -5}), "max_interval_ms");
    check_refused(json!({"backoff_strategy": "cubic"}), "backoff_strategy");
    check_refused(json!({"jitter": "yes"}), "jitter");
    check_refused(json!({"non_retryable_errors": [1]}), "non_retryable_errors");
    check_refused(json!({"on_exhaustion": "explode"}), "on_exhaustion");
    check_refused(json!([]), "retry");
}

#[test]
fn a_slip_is_refused_where_slips_are() {
    let slip = json!({"max_atempts": 3});
    let fault = policy(&slip, RetryPolicy::standard(), Unknown::Refused).expect_err("a fault");
    assert!(fault.message.contains("max_atempts"), "{}", fault.message);
}

proptest! {
    #[test]
    fn a_read_policy_keeps_its_bounds(
        attempts in any::<i64>(), coefficient in any::<f64>(), interval in any::<u64>()
    ) {
        let value = json!({
            "max_attempts": attempts, "backoff_coefficient": coefficient,
            "initial_interval_ms": interval,
        });
        if let Ok(policy) = policy(&value, RetryPolicy::standard(), Unknown::Ignored) {
            prop_assert!((1..=10_000).contains(&policy.max_attempts));
            prop_assert!((1000..=1_000_000).contains(&policy.coefficient_millis));
        }
    }
}
