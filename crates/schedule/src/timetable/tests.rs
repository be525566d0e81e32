mod clock_changes;
mod days;
mod properties;

use outlast_core::time::Span;

use super::*;

fn timetable(expression: &str, zone: &str) -> Timetable {
    let expression = Expression::parse(expression).unwrap();
    Timetable { expression, zone: Zone::named(zone).unwrap(), anchor: Timestamp(0) }
}

/// Returns the instant that RFC 3339 text names.
fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<Instant>().unwrap().as_millisecond())
}

/// Checks the fires strictly after `after` up to `until`, as a clock of the zone shows them.
#[track_caller]
fn fires(timetable: &Timetable, after: &str, until: &str, expected: &[&str]) {
    let all = timetable.upcoming(at(after), 1000);
    let found: Vec<&str> =
        all.iter().filter(|it| it.time <= at(until)).map(|it| it.local.as_str()).collect();
    assert_eq!(found, expected);
    let after = Timestamp(at(after).0 + 1);
    let times: Vec<Timestamp> = expected.iter().map(|it| at(it)).collect();
    assert_eq!(timetable.latest(after, at(until), 1000), times);
    assert_eq!(timetable.count(after, at(until)), u64::try_from(times.len()).unwrap());
}

/// Checks what is said about the fires after `after`: `local` and note.
#[track_caller]
fn notes(timetable: &Timetable, after: &str, expected: &[(&str, Option<Note>)]) {
    let all = timetable.upcoming(at(after), expected.len());
    let found: Vec<_> = all.iter().map(|it| (it.local.as_str(), it.note.clone())).collect();
    assert_eq!(found, expected);
}

#[test]
fn next_is_strictly_later_also_within_a_second() {
    let table = timetable("* * * * * *", "UTC");
    assert_eq!(table.next_after(Timestamp(5_000)), Some(Timestamp(6_000)));
    assert_eq!(table.next_after(Timestamp(4_999)), Some(Timestamp(5_000)));
    assert_eq!(table.next_after(Timestamp(5_001)), Some(Timestamp(6_000)));
    assert_eq!(table.next_after(Timestamp(-1)), Some(Timestamp(0)));
    assert_eq!(table.latest(Timestamp(5_001), Timestamp(6_999), 9), [Timestamp(6_000)]);
}

// celery/django-celery-beat#319, celery/celery#9715: a schedule whose zone is behind the program's fired
// eight hours early as well, or continuously.
#[test]
fn a_schedule_fires_by_the_clock_of_its_zone_only() {
    let table = timetable("0 9 * * *", "America/Los_Angeles");
    fires(
        &table,
        "2026-01-10T00:00:00Z",
        "2026-01-12T00:00:00Z",
        &["2026-01-10T09:00:00-08:00", "2026-01-11T09:00:00-08:00"],
    );
}

// riverqueue/river#791: an interval of a week never elapsed, because each restart began the count.
#[test]
fn a_rhythm_counts_from_its_anchor() {
    let anchor = at("2026-07-01T10:00:00.250Z");
    let table = Timetable { anchor, ..timetable("@every 168h", "Europe/Vienna") };
    let week = Span::from_secs(168 * 3600);
    let first = anchor.after(week);
    for restart in [anchor.0, anchor.0 + 1, anchor.0 + 600_000_000, first.0 - 1] {
        assert_eq!(table.next_after(Timestamp(restart)), Some(first));
    }
    assert_eq!(table.next_after(first), Some(first.after(week)));
    // Nothing fires before the anchor, nor at it.
    assert_eq!(table.next_after(Timestamp(0)), Some(first));
    assert_eq!(table.count(Timestamp(i64::MIN), first), 1);
    assert_eq!(table.latest(Timestamp(0), first.after(week), 1), [first.after(week)]);
    let shown = table.upcoming(anchor, 1).remove(0);
    assert_eq!(shown.local, "2026-07-08T12:00:00.25+02:00");
    assert_eq!(shown.note, None);
}

#[test]
fn latest_is_the_end_of_the_walk() {
    let table = timetable("0 0 * * *", "UTC");
    let (first, until) = (at("2026-01-01T00:00:00Z"), at("2026-01-31T00:00:00Z"));
    assert_eq!(table.count(first, until), 31);
    assert_eq!(table.latest(first, until, 1), [until]);
    assert_eq!(table.latest(first, until, 31).first(), Some(&first));
    assert_eq!(table.latest(first, until, 0), []);
    assert_eq!(table.latest(until, first, 5), []);
    assert_eq!(table.count(until, first), 0);
}

#[test]
fn counting_needs_no_walk_over_fires() {
    let table = timetable("* * * * * *", "Europe/Vienna");
    let (first, until) = (at("2000-01-01T00:00:00Z"), at("2099-12-31T23:59:59Z"));
    assert_eq!(table.count(first, until), (until.since(first).as_secs()) + 1);
}

#[test]
fn what_fires_in_gaps_alone_and_is_no_fixed_time_never_fires() {
    // The second Sunday of March, 02:00 to 02:59: New York's clock has skipped it since 2007.
    let table = timetable("* 2 8-14 3 +SUN", "America/New_York");
    assert_eq!(table.next_after(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(table.upcoming(at("2026-01-01T00:00:00Z"), 5), []);
}

#[test]
fn the_end_of_time_ends_a_timetable() {
    for expression in ["* * * * * *", "@every 1s"] {
        let table = timetable(expression, "Europe/Vienna");
        assert_eq!(table.next_after(Timestamp(i64::MAX)), None);
        assert!(table.next_after(Timestamp(i64::MIN)).is_some());
    }
}
