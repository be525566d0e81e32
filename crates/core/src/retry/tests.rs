use super::*;

fn policy(backoff: Backoff) -> RetryPolicy {
    RetryPolicy { backoff, jitter: false, ..RetryPolicy::standard() }
}

fn waits(policy: &RetryPolicy) -> Vec<u64> {
    (1..=5).map(|failures| wait(policy, failures, Jitter::NONE).as_secs()).collect()
}

#[test]
fn exponential_wait_doubles() {
    assert_eq!(waits(&policy(Backoff::Exponential)), [1, 2, 4, 8, 16]);
}

#[test]
fn linear_wait_grows_by_the_initial_interval() {
    assert_eq!(waits(&policy(Backoff::Linear)), [1, 2, 3, 4, 5]);
}

#[test]
fn constant_wait_stays() {
    assert_eq!(waits(&policy(Backoff::Constant)), [1, 1, 1, 1, 1]);
}

#[test]
fn wait_is_capped_even_after_very_many_failures() {
    let policy = RetryPolicy { max_interval: Span::from_secs(3), ..policy(Backoff::Exponential) };
    assert_eq!(waits(&policy), [1, 2, 3, 3, 3]);
    assert_eq!(wait(&policy, u32::MAX, Jitter::NONE), Span::from_secs(3));
}

#[test]
fn jitter_spreads_between_half_and_one_and_a_half() {
    let policy = RetryPolicy { jitter: true, ..policy(Backoff::Constant) };
    assert_eq!(wait(&policy, 1, Jitter::from_thousandths(0)), Span(500));
    assert_eq!(wait(&policy, 1, Jitter::NONE), Span(1000));
    assert_eq!(wait(&policy, 1, Jitter::from_thousandths(999)), Span(1499));
}

#[test]
fn non_retryable_types_match_exactly_or_by_dotted_prefix() {
    let policy = RetryPolicy {
        non_retryable: vec!["auth.*".into(), "validation".into()],
        ..RetryPolicy::standard()
    };
    for (error_type, ends) in [
        ("auth.expired", true),
        ("auth", true),
        ("authority", false),
        ("validation", true),
        ("validation.field", false),
    ] {
        assert_eq!(policy.forbids_retry_of(error_type), ends, "{error_type}");
    }
}

#[test]
fn polynomial_waits_are_those_of_the_standards_table() {
    let policy = |coefficient_millis| RetryPolicy {
        initial_interval: Span::from_secs(1),
        max_interval: Span::from_secs(300),
        coefficient_millis,
        backoff: Backoff::Polynomial,
        jitter: false,
        ..RetryPolicy::standard()
    };
    let waits = |policy: &RetryPolicy| -> Vec<u64> {
        (1..=5).map(|failures| wait(policy, failures, Jitter::NONE).0).collect()
    };
    assert_eq!(waits(&policy(4000)), [1_000, 16_000, 81_000, 256_000, 300_000]);
    // 1, 2.83, 5.2, 8, 11.18 seconds: the exponent need not be whole.
    let waits = waits(&policy(1500));
    for (found, expected) in waits.iter().zip([1_000, 2_828, 5_196, 8_000, 11_180]) {
        assert!(found.abs_diff(expected) <= 2, "{waits:?}");
    }
    assert_eq!(wait(&policy(1_000_000), u32::MAX, Jitter::NONE), Span::from_secs(300));
}
