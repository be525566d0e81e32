//! Lengths and instants, as people and the standard write them.

use outlast_core::time::{Span, Timestamp};
use outlast_wire::duration;
use outlast_wire::time::{Rfc3339, When};
use proptest::prelude::*;

fn check(text: &str, millis: Option<u64>) {
    assert_eq!(duration::iso(text), millis.map(Span), "{text}");
}

#[test]
fn iso_durations_of_fixed_length_are_read() {
    check("PT1S", Some(1000));
    check("PT0.5S", Some(500));
    check("PT1,25S", Some(1250));
    check("PT1H30M", Some(5_400_000));
    check("P1DT12H", Some(129_600_000));
    check("P2W", Some(1_209_600_000));
    check("PT0S", Some(0));
}

#[test]
fn what_is_no_iso_duration_of_fixed_length_is_refused() {
    for text in [
        "", "P", "PT", "1S", "PT1", "P1Y", "P1M", "PT1S1M", "PT-1S", "PT1.S", "PT.5S", "P1DT",
        "pt1s",
    ] {
        check(text, None);
    }
    check("PT99999999999999999999S", None);
    check("P999999999W", None);
}

#[test]
fn configuration_style_durations_are_read() {
    let read = |text| duration::plain(text).map(|span| span.0);
    assert_eq!(read("90"), Some(90_000));
    assert_eq!(read("1.5"), Some(1500));
    assert_eq!(read("200ms"), Some(200));
    assert_eq!(read("30s"), Some(30_000));
    assert_eq!(read("5m"), Some(300_000));
    assert_eq!(read("PT2S"), Some(2000));
    for wrong in ["", "s", "-1", "5 weeks", "1.5ms", "1e3", "NaN", "5mm"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
}

#[test]
fn times_are_absolute_or_relative() {
    assert_eq!(When::parse("+PT2S"), Some(When::In(Span(2000))));
    assert_eq!(
        When::parse("1970-01-01T01:00:00.5+01:00"),
        Some(When::At(Timestamp(500))),
        "offsets are taken into account"
    );
    for wrong in ["", "+", "+2S", "tomorrow", "2030-01-01", "2030-01-01T00:00:00"] {
        assert_eq!(When::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn instants_show_milliseconds_only_where_there_are_some() {
    assert_eq!(Rfc3339(Timestamp(0)).to_string(), "1970-01-01T00:00:00Z");
    assert_eq!(Rfc3339(Timestamp(1500)).to_string(), "1970-01-01T00:00:01.5Z");
}

#[test]
fn a_duration_that_is_too_long_is_told_from_what_is_none() {
    let problem = |value: serde_json::Value| duration::problem(&value, "a duration");
    for long in ["1000000d", "36600.5d", "99999999999999999999999s", "3162240000001ms"] {
        assert_eq!(problem(long.into()), "a duration of at most a hundred years", "{long}");
    }
    assert_eq!(problem(4_000_000_000_u64.into()), "a duration of at most a hundred years");
    for none in ["soon", "", "d", "1.5ms", "1.5.5d", "1w", "-1s", "0"] {
        assert_eq!(problem(none.into()), "a duration", "{none}");
    }
}

proptest! {
    #[test]
    fn a_length_survives_iso_and_back(millis in 0_u64..3_000_000_000_000) {
        prop_assert_eq!(duration::iso(&duration::to_iso(Span(millis))), Some(Span(millis)));
    }

    #[test]
    fn an_instant_survives_text_and_back(millis in 0_i64..250_000_000_000_000) {
        let at = Timestamp(millis);
        prop_assert_eq!(When::parse(&Rfc3339(at).to_string()), Some(When::At(at)));
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "\\PC{0,24}") {
        for span in [duration::iso(&text), duration::plain(&text)].into_iter().flatten() {
            prop_assert!(span.as_secs() <= 100 * 366 * 24 * 3600, "{text}");
        }
        if let Some(When::In(span)) = When::parse(&text) {
            prop_assert!(text.starts_with('+'), "{text} means {span:?}");
        }
    }

    #[test]
    fn no_mix_of_duration_letters_makes_the_reader_panic(text in "[PT0-9.,YMWDHS+-]{0,24}") {
        for span in [duration::iso(&text), duration::plain(&text)].into_iter().flatten() {
            prop_assert!(span.as_secs() <= 100 * 366 * 24 * 3600, "{text}");
        }
        if let Some(When::In(span)) = When::parse(&text) {
            prop_assert!(text.starts_with('+'), "{text} means {span:?}");
        }
    }
}
