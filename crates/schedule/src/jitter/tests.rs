use super::*;

#[test]
fn a_delay_is_the_same_on_every_server() {
    // Written out, so that a change of the hash is seen: two versions of servers must agree.
    assert_eq!(jitter("report", Timestamp(1_700_000_000_000), Span::from_secs(60)), Span(17_780));
}

#[test]
fn a_delay_is_at_most_what_was_asked_for() {
    for (number, at_most) in [0, 1, 7, 60_000, u64::MAX].into_iter().enumerate() {
        let name = format!("schedule {number}");
        assert!(jitter(&name, Timestamp(i64::MIN), Span(at_most)) <= Span(at_most));
    }
    assert_eq!(jitter("report", Timestamp(0), Span::ZERO), Span::ZERO);
}

#[test]
fn delays_are_spread_over_schedules_and_over_fires() {
    let spread = |delays: Vec<Span>| {
        let early = delays.iter().filter(|delay| delay.as_millis() < 30_000).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    };
    let minute = Span(59_999);
    spread((0..1000).map(|it| jitter(&format!("s{it}"), Timestamp(0), minute)).collect());
    spread((0..1000).map(|it| jitter("s", Timestamp(it * 60_000), minute)).collect());
}
