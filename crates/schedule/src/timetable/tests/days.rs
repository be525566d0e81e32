//! Days of the month and of the week.

use super::*;

/// Checks the dates on which an expression fires at midnight UTC within 2026, or from `after`.
#[track_caller]
fn dates(expression: &str, after: &str, expected: &[&str]) {
    let table = timetable(expression, "UTC");
    let after = at(&format!("{after}T00:00:00Z"));
    let found: Vec<String> = table
        .upcoming(after, expected.len())
        .into_iter()
        .map(|it| it.local.replace("T00:00:00+00:00", ""))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn leap_days_fire_in_leap_years() {
    dates("0 0 29 2 *", "2026-01-01", &["2028-02-29", "2032-02-29"]);
    dates("0 0 29 2 *", "2096-03-01", &["2104-02-29"]);
}

#[test]
fn a_leap_day_on_a_monday_is_found() {
    dates("0 0 29 2 +MON", "2026-01-01", &["2044-02-29", "2072-02-29", "2112-02-29"]);
}

#[test]
fn l_is_the_last_day_of_the_month() {
    dates("0 0 L * *", "2026-01-15", &["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]);
    dates("0 0 L 2 *", "2026-03-01", &["2027-02-28", "2028-02-29"]);
}

#[test]
fn w_is_the_closest_weekday_of_the_same_month() {
    // 15 February and 15 March 2026 are Sundays, 15 August is a Saturday.
    dates("0 0 15W 2,3,4,8 *", "2026-01-01", &["2026-02-16", "2026-03-16", "2026-04-15"]);
    dates("0 0 15W 8 *", "2026-01-01", &["2026-08-14"]);
    // 1 August 2026 is a Saturday: not in July.
    dates("0 0 1W 8 *", "2026-01-01", &["2026-08-03"]);
    // 31 May 2026 is a Sunday.
    dates("0 0 LW 5 *", "2026-01-01", &["2026-05-29"]);
}

#[test]
fn a_weekday_may_be_the_second_or_the_last_of_a_month() {
    dates("0 0 * * MON#2", "2026-01-01", &["2026-01-12", "2026-02-09", "2026-03-09"]);
    dates("0 0 * * FRIL", "2026-01-01", &["2026-01-30", "2026-02-27", "2026-03-27"]);
    dates("0 0 * * MON#5", "2026-01-01", &["2026-03-30", "2026-06-29"]);
}

#[test]
fn sunday_is_zero_and_seven() {
    for expression in ["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "@weekly"] {
        dates(expression, "2026-01-01", &["2026-01-04", "2026-01-11"]);
    }
    dates("0 0 * * SAT-SUN", "2026-01-01", &["2026-01-03", "2026-01-04", "2026-01-10"]);
}

#[test]
fn a_day_matches_if_day_of_month_or_weekday_does() {
    dates("0 0 13 * FRI", "2026-01-01", &["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]);
}

#[test]
fn a_plus_demands_day_of_month_and_weekday() {
    dates("0 0 13 * +FRI", "2026-01-01", &["2026-02-13", "2026-03-13", "2026-11-13"]);
}

#[test]
fn a_step_over_days_counts_as_given_beside_a_weekday() {
    // Vixie cron would demand both here, because the field begins with `*`.
    dates("0 0 */10 * FRI", "2026-01-01", &["2026-01-02", "2026-01-09", "2026-01-11"]);
}

#[test]
fn nicknames_fire_as_their_fields() {
    dates("@yearly", "2026-01-01", &["2027-01-01"]);
    dates("@annually", "2026-01-01", &["2027-01-01"]);
    dates("@monthly", "2026-01-01", &["2026-02-01", "2026-03-01"]);
    dates("@daily", "2026-01-01", &["2026-01-02", "2026-01-03"]);
    dates("@midnight", "2026-01-01", &["2026-01-02", "2026-01-03"]);
    let hourly = timetable("@hourly", "UTC");
    assert_eq!(hourly.next_after(Timestamp(0)), Some(Timestamp(3_600_000)));
}
