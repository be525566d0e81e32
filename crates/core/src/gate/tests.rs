use proptest::prelude::*;

use super::*;

fn rate(starts: u32, period: u64) -> Rate {
    Rate::new(starts, Span(period)).unwrap()
}

fn unlimited() -> Gate {
    Gate { concurrency: None, in_flight: 0, rate: None, used_until: 0 }
}

#[test]
fn a_gate_without_bounds_admits_everything() {
    let admission = admit(&[unlimited()], 7, Timestamp(1));
    assert_eq!(admission, Admission { take: 7, shut: None });
    assert_eq!(admit(&[], 7, Timestamp(1)).take, 7);
}

#[test]
fn concurrency_admits_what_is_free_and_nothing_while_more_is_held_than_a_lowered_limit() {
    let gate = |in_flight| Gate { concurrency: Some(5), in_flight, ..unlimited() };
    assert_eq!(admit(&[gate(3)], 9, Timestamp(1)).take, 2);
    assert_eq!(
        admit(&[gate(5)], 1, Timestamp(1)),
        Admission { take: 0, shut: Some((0, Shut::Full)) }
    );
    assert_eq!(admit(&[gate(8)], 1, Timestamp(1)).take, 0);
    assert_eq!(gate(3).after(2, Timestamp(1)).in_flight, 5);
}

#[test]
fn the_narrowest_of_several_gates_decides_and_is_named() {
    let wide = Gate { concurrency: Some(9), ..unlimited() };
    let narrow = Gate { concurrency: Some(2), ..unlimited() };
    assert_eq!(
        admit(&[wide, narrow, wide], 4, Timestamp(1)),
        Admission { take: 2, shut: Some((1, Shut::Full)) }
    );
}

#[test]
fn a_rate_says_when_it_opens_and_opens_then() {
    let mut gate = Gate { rate: Some(rate(1, 60_000)), ..unlimited() };
    let now = Timestamp(1_000_000);
    assert_eq!(admit(&[gate], 5, now).take, 1);
    gate = gate.after(1, now);
    let Admission { take: 0, shut: Some((0, Shut::Until(opens))) } = admit(&[gate], 1, now) else {
        panic!("open at once")
    };
    assert_eq!(opens, Timestamp(1_060_000));
    assert_eq!(admit(&[gate], 1, Timestamp(opens.0 - 1)).take, 0);
    assert_eq!(admit(&[gate], 1, opens).take, 1);
}

#[test]
fn a_rate_that_rested_for_a_day_admits_one_burst_and_no_more() {
    let mut gate = Gate { rate: Some(rate(100, 60_000)), ..unlimited() };
    gate = gate.after(10, Timestamp(0));
    assert_eq!(admit(&[gate], 1_000, Timestamp(86_400_000)).take, 10);
}

#[test]
fn a_gate_that_another_rate_used_opens_as_if_the_new_one_were_used_up() {
    let now = Timestamp(1_000_000);
    let day = Gate { rate: Some(rate(1, 86_400_000)), ..unlimited() }.after(1, now);
    let new = rate(100, 60_000);
    let used_until = day.used_until.min(micros(now) + new.used_ahead());
    let gate = Gate { rate: Some(new), used_until, ..day };
    let Admission { take: 0, shut: Some((0, Shut::Until(opens))) } = admit(&[gate], 1, now) else {
        panic!("a start is forgotten")
    };
    assert!(opens.since(now) <= Span(1_000), "{opens:?}");
    // As many as are due, so that none is added to those of the burst.
    assert_eq!(admit(&[gate], 1_000, now.after(Span(60_000))).take, 10);
}

#[test]
fn rates_out_of_bounds_are_none() {
    assert_eq!(Rate::new(0, Span(1)), None);
    assert_eq!(Rate::new(1, Span(0)), None);
    assert_eq!(Rate::new(STARTS_MAX + 1, Span(1)), None);
    assert_eq!(Rate::new(1, Span(PERIOD_MAX.0 + 1)), None);
    // More starts than microseconds: one a microsecond is the most.
    assert_eq!(rate(STARTS_MAX, 1).interval(), 1);
}

proptest! {
    /// Asks at random times, also with a clock that goes back, and takes all that is offered.
    #[test]
    fn in_no_window_of_the_period_more_start_than_the_rate_allows(
        starts in 1_u32..200,
        period in 1_u64..5_000,
        asks in prop::collection::vec((0_u64..700, 1_u32..50, prop::bool::weighted(0.05)), 1..200),
    ) {
        let mut gate = Gate { rate: Some(rate(starts, period)), ..unlimited() };
        let (mut now, mut real) = (1_000_000_i64, Vec::new());
        for (pause, wanted, back) in asks {
            let pause = i64::try_from(pause).unwrap();
            now += if back { -pause } else { pause };
            let take = admit(&[gate], wanted, Timestamp(now)).take;
            gate = gate.after(take, Timestamp(now));
            real.extend((0..take).map(|_| now));
        }
        real.sort_unstable();
        for (first, at) in real.iter().enumerate() {
            let end = at + i64::try_from(period).unwrap();
            let within = real[first..].iter().take_while(|other| **other < end).count();
            prop_assert!(within <= usize::try_from(starts).unwrap(), "{within} of {starts}");
        }
    }

    /// Who always asks gets nine tenths of the rate at least.
    #[test]
    fn a_rate_is_used_by_those_who_wait_for_it(starts in 1_u32..100, period in 100_u64..10_000) {
        let mut gate = Gate { rate: Some(rate(starts, period)), ..unlimited() };
        let (mut now, mut taken) = (Timestamp(1_000_000), 0_u32);
        let end = now.after(Span(period * 20));
        while now < end {
            let admission = admit(&[gate], 1, now);
            gate = gate.after(admission.take, now);
            taken += admission.take;
            if let Some((_, Shut::Until(opens))) = admission.shut {
                prop_assert!(opens > now);
                now = opens;
            }
        }
        let least = starts * 20 * 9 / 10;
        prop_assert!(taken >= least.saturating_sub(starts), "{taken} of {least}");
    }
}
