//! Days on which the clock changes.

use super::*;

const GAP_NEW_YORK: [&str; 2] = ["2026-03-08T05:00:00Z", "2026-03-09T03:59:00Z"];
const FOLD_NEW_YORK: [&str; 2] = ["2026-11-01T04:00:00Z", "2026-11-02T04:59:00Z"];

fn skipped(time: &str) -> Option<Note> {
    Some(Note::AfterGap { skipped: time.to_owned() })
}

/// Checks the fires of the New York day on which the clock goes forward.
#[track_caller]
fn forward(expression: &str, expected: &[&str]) {
    let [after, until] = GAP_NEW_YORK;
    fires(&timetable(expression, "America/New_York"), after, until, expected);
}

/// Checks the fires of the New York day on which the clock goes back.
#[track_caller]
fn back(expression: &str, expected: &[&str]) {
    let [after, until] = FOLD_NEW_YORK;
    fires(&timetable(expression, "America/New_York"), after, until, expected);
}

// robfig/cron#541, rundeck/rundeck#6879, netresearch/go-cron#41: 02:00 and 02:30 New York were skipped.
#[test]
fn a_fixed_time_that_is_skipped_fires_once_right_after_the_gap() {
    forward("0 2 * * *", &["2026-03-08T03:00:00-04:00"]);
    forward("30 2 * * *", &["2026-03-08T03:00:00-04:00"]);
    forward("0,30 2 * * *", &["2026-03-08T03:00:00-04:00"]);
    forward("15 30 2 * * *", &["2026-03-08T03:00:00-04:00"]);
}

#[test]
fn a_fixed_time_at_the_end_of_the_gap_is_one_with_what_was_skipped() {
    forward("0,30 2,3 * * *", &["2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"]);
    forward(
        "30 1-3 * * *",
        &["2026-03-08T01:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"],
    );
}

#[test]
fn a_skipped_time_fires_on_its_days_only() {
    // 8 March 2026 is a Sunday.
    forward("30 2 * * MON", &[]);
    forward("30 2 * * SUN", &["2026-03-08T03:00:00-04:00"]);
    forward("30 2 9 * *", &[]);
}

// kelektiv/node-cron#563: 01:30 fired twice when the clock went back.
#[test]
fn a_fixed_time_that_comes_twice_fires_the_first_time() {
    back("30 1 * * *", &["2026-11-01T01:30:00-04:00"]);
    back("0 1 * * *", &["2026-11-01T01:00:00-04:00"]);
    back("0 2 * * *", &["2026-11-01T02:00:00-05:00"]);
}

#[test]
fn lists_and_ranges_are_fixed_times_too() {
    back("0 1,2 * * *", &["2026-11-01T01:00:00-04:00", "2026-11-01T02:00:00-05:00"]);
    back(
        "0,30 0-2 * * *",
        &[
            "2026-11-01T00:30:00-04:00",
            "2026-11-01T01:00:00-04:00",
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T02:00:00-05:00",
            "2026-11-01T02:30:00-05:00",
        ],
    );
}

#[test]
fn wildcards_and_steps_have_nothing_extra_in_the_gap() {
    forward("*/30 2 * * *", &[]);
    forward(
        "*/30 1-3 * * *",
        &[
            "2026-03-08T01:00:00-05:00",
            "2026-03-08T01:30:00-05:00",
            "2026-03-08T03:00:00-04:00",
            "2026-03-08T03:30:00-04:00",
        ],
    );
    let [after, until] = GAP_NEW_YORK;
    let hourly = timetable("0 * * * *", "America/New_York");
    assert_eq!(hourly.count(Timestamp(at(after).0 + 1), at(until)), 22);
}

#[test]
fn wildcards_and_steps_fire_in_both_passes() {
    back(
        "*/30 1 * * *",
        &[
            "2026-11-01T01:00:00-04:00",
            "2026-11-01T01:30:00-04:00",
            "2026-11-01T01:00:00-05:00",
            "2026-11-01T01:30:00-05:00",
        ],
    );
}

// Steve-Mcl/node-red-contrib-cron-plus#108: schedules of 15 seconds stood still for the repeated hour.
#[test]
fn a_rhythm_goes_on_through_the_repeated_hour_of_london() {
    let table = timetable("*/15 * * * * *", "Europe/London");
    let mut time = at("2026-10-24T23:00:00Z");
    let end = at("2026-10-25T04:00:00Z");
    let mut count = 0;
    while time < end {
        let next = table.next_after(time).unwrap();
        assert_eq!(next.since(time), Span::from_secs(15));
        time = next;
        count += 1;
    }
    assert_eq!(count, 5 * 240);
}

#[test]
fn a_fixed_time_of_london_and_vienna_fires_once_on_both_days() {
    for (zone, gap, fold) in [
        ("Europe/London", "2026-03-29T02:00:00+01:00", "2026-10-25T01:30:00+01:00"),
        ("Europe/Vienna", "2026-03-29T03:00:00+02:00", "2026-10-25T02:30:00+02:00"),
    ] {
        let hour = if zone == "Europe/London" { 1 } else { 2 };
        let table = timetable(&format!("30 {hour} * * *"), zone);
        fires(&table, "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", &[gap]);
        fires(&table, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", &[fold]);
    }
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    let table = timetable("15 2 * * *", "Australia/Lord_Howe");
    let gap = "2026-10-04T02:30:00+11:00";
    fires(&table, "2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z", &[gap]);
    let fold = timetable("45 1 * * *", "Australia/Lord_Howe");
    let first = "2026-04-05T01:45:00+11:00";
    fires(&fold, "2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z", &[first]);
    let rhythm = timetable("*/15 1 * * *", "Australia/Lord_Howe");
    fires(
        &rhythm,
        "2026-04-04T12:00:00Z",
        "2026-04-05T12:00:00Z",
        &[
            "2026-04-05T01:00:00+11:00",
            "2026-04-05T01:15:00+11:00",
            "2026-04-05T01:30:00+11:00",
            "2026-04-05T01:45:00+11:00",
            "2026-04-05T01:30:00+10:30",
            "2026-04-05T01:45:00+10:30",
        ],
    );
}

#[test]
fn a_day_that_a_place_skips_fires_as_the_next_one_begins() {
    // Apia went from 29 to 31 December 2011.
    let table = timetable("0 12 * * *", "Pacific/Apia");
    let expected =
        ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"];
    fires(&table, "2011-12-29T12:00:00Z", "2011-12-31T00:00:00Z", &expected);
    notes(&table, "2011-12-30T00:00:00Z", &[(expected[1], skipped("2011-12-30 12:00"))]);
    let midnight = timetable("@daily", "Pacific/Apia");
    let expected = ["2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"];
    fires(&midnight, "2011-12-29T00:00:00Z", "2011-12-30T23:00:00Z", &expected);
    let friday = timetable("0 12 * * FRI", "Pacific/Apia");
    fires(&friday, "2011-12-29T12:00:00Z", "2012-01-01T00:00:00Z", &[expected[1]]);
}

#[test]
fn midnight_that_is_skipped_fires_at_one() {
    for (zone, after, until, expected) in [
        ("America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T12:00:00Z", "01:00:00-04:00"),
        ("Asia/Beirut", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", "01:00:00+03:00"),
    ] {
        for expression in ["0 0 * * *", "@daily", "@midnight"] {
            let all = timetable(expression, zone).latest(at(after), at(until), 10);
            assert_eq!(all.len(), 1, "{zone}");
            let found = timetable(expression, zone).upcoming(at(after), 1).remove(0);
            assert!(found.local.ends_with(expected), "{}", found.local);
            assert_eq!(found.note, skipped("00:00"));
        }
    }
}

#[test]
fn midnight_that_comes_twice_fires_the_first_time() {
    // Havana's clock shows 00:00 to 00:59 twice; Beirut's goes from 00:00 back to 23:00.
    let havana = timetable("0 0 * * *", "America/Havana");
    let first = "2024-11-03T00:00:00-04:00";
    fires(&havana, "2024-11-02T12:00:00Z", "2024-11-03T12:00:00Z", &[first]);
    notes(&havana, "2024-11-02T12:00:00Z", &[(first, Some(Note::FirstOfTwo))]);
    let beirut = timetable("30 23 * * *", "Asia/Beirut");
    let first = "2026-10-24T23:30:00+03:00";
    fires(&beirut, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", &[first]);
    let midnight = timetable("@daily", "Asia/Beirut");
    let only = "2026-10-25T00:00:00+02:00";
    fires(&midnight, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", &[only]);
    notes(&midnight, "2026-10-24T12:00:00Z", &[(only, None)]);
}

#[test]
fn notes_say_what_a_change_does() {
    let fixed = timetable("30 2 * * *", "Europe/Vienna");
    notes(
        &fixed,
        "2026-03-28T12:00:00Z",
        &[("2026-03-29T03:00:00+02:00", skipped("02:30")), ("2026-03-30T02:30:00+02:00", None)],
    );
    notes(
        &fixed,
        "2026-10-24T12:00:00Z",
        &[
            ("2026-10-25T02:30:00+02:00", Some(Note::FirstOfTwo)),
            ("2026-10-26T02:30:00+01:00", None),
        ],
    );
    let rhythm = timetable("30 * * * *", "Europe/Vienna");
    notes(
        &rhythm,
        "2026-10-24T23:00:00Z",
        &[
            ("2026-10-25T01:30:00+02:00", None),
            ("2026-10-25T02:30:00+02:00", Some(Note::FirstOfBoth)),
            ("2026-10-25T02:30:00+01:00", Some(Note::SecondOfBoth)),
            ("2026-10-25T03:30:00+01:00", None),
        ],
    );
    let gap = Note::AfterGap { skipped: "02:30".to_owned() };
    let text = "the clock skips 02:30 that day; fires right after the gap";
    assert_eq!(gap.to_string(), text);
}

#[test]
fn a_rhythm_of_a_length_does_not_see_changes() {
    let table = timetable("@every 1h", "America/New_York");
    let [after, until] = GAP_NEW_YORK;
    assert_eq!(table.count(Timestamp(at(after).0 + 1), at(until)), 22);
    let fold = timetable("@every 30m", "America/New_York").upcoming(at(FOLD_NEW_YORK[0]), 5);
    assert!(fold.iter().all(|it| it.note.is_none()));
}
