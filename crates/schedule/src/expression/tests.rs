use proptest::prelude::*;

use super::*;

/// Checks the text of the error that an expression gets.
fn refuses(text: &str, expected: &str) {
    assert_eq!(Expression::parse(text).unwrap_err().to_string(), expected);
}

fn accepts(text: &str) {
    assert_eq!(Expression::parse(text).unwrap().as_str(), text);
}

fn is_fixed(text: &str) -> bool {
    match Expression::parse(text).unwrap().times() {
        Times::Calendar(calendar) => calendar.is_fixed(),
        Times::Every(_) => panic!("{text} has no fields"),
    }
}

fn every(text: &str) -> Option<u64> {
    match Expression::parse(text).ok()?.times() {
        Times::Every(length) => Some(length.as_secs()),
        Times::Calendar(_) => None,
    }
}

#[test]
fn five_and_six_fields_nicknames_and_lengths_are_expressions() {
    for text in [
        "* * * * *",
        "30 2 * * *",
        "0 30 2 * * *",
        "*/15 8-18 * JAN-MAR,oct mon-fri",
        "0,30 1-5/2 L,15 2 ?",
        "0 9 LW * *",
        "0 9 15W,1 * *",
        "0 9 * * MON#2,FRIL,3#L",
        "0 9 * * FRI-SUN",
        "0 9 * * 5-7",
        "0 9 1-7 * +MON",
        "01 09 05 07 *",
        "@yearly",
        "@Daily",
        "@every 90s",
    ] {
        accepts(text);
    }
}

#[test]
fn an_expression_is_kept_as_given_without_blanks_around_it() {
    let expression = Expression::parse("  0  2 * * mon\t").unwrap();
    assert_eq!(expression.to_string(), "0  2 * * mon");
    assert_eq!(expression, Expression::parse("0  2 * * mon").unwrap());
    assert_ne!(Expression::parse("@daily"), Expression::parse("0 0 * * *"));
}

#[test]
fn errors_name_the_field_its_value_and_what_is_allowed() {
    refuses("0 25 * * *", "hour `25`: 0 to 23");
    refuses("60 * * * *", "minute `60`: 0 to 59");
    refuses("0,15,75 * * * *", "minute `75`: 0 to 59");
    refuses("99 * * * * *", "second `99`: 0 to 59");
    refuses("0 0 * 13 *", "month `13`: 1 to 12, or JAN to DEC");
    refuses("0 0 * JANUARY *", "month `JANUARY`: 1 to 12, or JAN to DEC");
    refuses(
        "0 0 32 * *",
        "day of month `32`: 1 to 31, L for the last day, or 15W for the weekday closest to it",
    );
    refuses(
        "0 0 * * MON#6",
        "weekday `MON#6`: 0 to 7, or SUN to SAT, MON#2 for the second of a month, FRIL for the \
         last",
    );
}

#[test]
fn errors_say_how_to_write_what_was_meant() {
    refuses("0/15 * * * *", "minute `0/15`: a step follows `*` or a range, as in 0-59/15");
    refuses("0 22-2 * * *", "hour `22-2`: a range goes up; write 22-23,0-2");
    refuses("*/90 * * * *", "minute `*/90`: a step of 1 to 59");
    refuses("*/0 * * * *", "minute `*/0`: a step of 1 to 59");
    refuses("*,5 * * * *", "minute `*,5`: `*` stands alone");
    refuses("0 0 L,LW * *", "day of month `L,LW`: L or LW, not both");
}

#[test]
fn the_number_of_fields_is_said() {
    let counts = "an expression has 5 fields (minute, hour, day of month, month, weekday) or 6 \
                  (second first), not ";
    refuses("* * * *", &format!("{counts}4"));
    refuses("* * * * * * * *", &format!("{counts}8"));
    refuses("", "an expression has five fields: minute, hour, day of month, month, weekday");
    refuses(
        "0 0 0 1 1 * 2030",
        "a year field is not supported; a schedule that ends has `until` instead",
    );
}

#[test]
fn what_croner_would_read_leniently_is_refused() {
    for text in [
        "1,,2 * * * *",
        ",1 * * * *",
        "MON * * * *",
        "0 0 * 1JAN *",
        "0 0 * * 1MON",
        "0 0 * MON *",
        "0 0 * * L",
        "0 0 * * 1-5#2",
        "0 0 L-3 * *",
        "0 ? * * *",
        "0 0 ?/2 * *",
        "0 0 +1 * *",
        "0 0 * * ++1",
        "-1 * * * *",
        "1- * * * *",
        "1-2-3 * * * *",
        "*/5/5 * * * *",
        "* * * * ſun",
        "٣ * * * *",
    ] {
        assert!(Expression::parse(text).is_err(), "{text}");
    }
}

#[test]
fn unknown_nicknames_are_refused() {
    for text in ["@reboot", "@fortnightly", "@daily 5", "@", "@every", "@everyday"] {
        assert!(Expression::parse(text).is_err(), "{text}");
    }
    refuses(
        "@reboot",
        "`@reboot` is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly \
         and @every, as in `@every 90s`",
    );
}

#[test]
fn lengths_are_written_as_go_writes_them() {
    for (text, seconds) in [
        ("@every 90s", 90),
        ("@every 1h30m", 5400),
        ("@EVERY  1h0m5s", 3605),
        ("@every 1s", 1),
        ("@every 87840h", 3660 * 24 * 60 * 60),
    ] {
        assert_eq!(every(text), Some(seconds), "{text}");
    }
    for text in [
        "0s",
        "5",
        "s",
        "h5",
        "-5s",
        "1.5h",
        "500ms",
        "1d",
        "1h 30m",
        "87841h",
        "3660d",
        "1hé",
        "99999999999999999999s",
        "9999999999999999999h",
    ] {
        assert_eq!(every(&format!("@every {text}")), None, "{text}");
    }
    refuses(
        "@every 500ms",
        "`@every 500ms`: a length in whole hours, minutes and seconds, such as 90s or 1h30m, from \
         1s to 3660 days",
    );
}

#[test]
fn an_expression_that_never_matches_is_refused() {
    for text in ["0 0 31 2 *", "0 0 30 FEB *", "0 0 31 4,6,9,11 ?", "0 0 29 * +MON#1"] {
        refuses(text, "the expression never matches: no year has such a day");
    }
    accepts("0 0 29 2 *");
    accepts("0 0 31 2,3 *");
    accepts("0 0 29 2 +MON");
}

#[test]
fn long_expressions_are_refused() {
    let minutes = ["0"; 130].join(",");
    refuses(&format!("{minutes} * * * *"), "an expression has at most 256 bytes");
}

#[test]
fn listed_times_are_fixed_and_wildcards_and_steps_are_not() {
    for text in ["0 2 * * *", "0,30 1,2 * * *", "0-5 1-3 * * *", "0 0 2 */2 * *", "@daily"] {
        assert!(is_fixed(text), "{text}");
    }
    for text in ["* 2 * * *", "0 * * * *", "*/30 2 * * *", "0 1-5/2 * * *", "* 0 2 * * *"] {
        assert!(!is_fixed(text), "{text}");
    }
    assert!(!is_fixed("@hourly"));
}

proptest! {
    #[test]
    fn no_text_makes_parsing_panic(text in "\\PC{0,60}") {
        let _ = Expression::parse(&text);
    }

    /// What the fields' own check lets through, croner reads; so no error lacks its field.
    #[test]
    fn what_passes_the_check_is_read(
        fields in prop::collection::vec("[0-9LW#,*/?+-]{1,4}|MON|JAN|SUN-[A-Z]{3}", 6),
    ) {
        if let Err(error) = Expression::parse(&fields.join(" ")) {
            prop_assert!(!error.to_string().contains("not supported"), "{error}");
        }
    }
}
