use proptest::prelude::*;

use super::*;
use crate::expression::Expression;
use crate::zone::Zone;

const NOON: Timestamp = Timestamp(1_785_326_400_000);

fn timetable(expression: &str) -> Timetable {
    let expression = Expression::parse(expression).unwrap();
    Timetable { expression, zone: Zone::utc(), anchor: NOON }
}

/// Returns the instant this many seconds after noon.
fn at(seconds: i64) -> Timestamp {
    Timestamp(NOON.0 + seconds * 1000)
}

fn look(expression: &str, oldest_due: Timestamp, now: Timestamp, choice: CatchUp) -> Due {
    catch_up(&timetable(expression), oldest_due, now, None, choice)
}

fn due(fires: &[Timestamp], missed: u64, next: Timestamp) -> Due {
    Due { fires: fires.to_vec(), missed, next: Some(next) }
}

#[test]
fn names_are_read_as_they_are_written() {
    for choice in CatchUp::CHOICES {
        assert_eq!(CatchUp::parse(choice.as_str()), Ok(choice));
    }
    assert_eq!(CatchUp::default(), CatchUp::One);
    let error = CatchUp::parse("some").unwrap_err();
    assert_eq!(error.to_string(), "catch-up is none, one or all, not `some`");
}

#[test]
fn a_fire_that_is_due_fires_whatever_the_choice() {
    for choice in CatchUp::CHOICES {
        let expected = due(&[at(0)], 0, at(3600));
        assert_eq!(look("0 * * * *", at(0), at(0), choice), expected);
        // Ten seconds late is an ordinary tick still.
        assert_eq!(look("0 * * * *", at(0), at(10), choice), expected);
    }
}

#[test]
fn after_an_outage_the_choice_says_what_is_made_up_for() {
    let (first, now) = (at(0), at(3 * 3600 + 60));
    let all = [at(0), at(3600), at(7200), at(10800)];
    let next = at(4 * 3600);
    assert_eq!(look("0 * * * *", first, now, CatchUp::None), due(&[], 4, next));
    assert_eq!(look("0 * * * *", first, now, CatchUp::One), due(&all[3..], 3, next));
    assert_eq!(look("0 * * * *", first, now, CatchUp::All), due(&all, 0, next));
}

#[test]
fn a_timely_fire_stands_for_the_late_ones() {
    let now = at(2 * 3600 + 5);
    let expected = due(&[at(7200)], 2, at(3 * 3600));
    assert_eq!(look("0 * * * *", at(0), now, CatchUp::One), expected);
    assert_eq!(look("0 * * * *", at(0), now, CatchUp::None), expected);
}

// celery/django-celery-beat#459: after a restart every missed run was started.
#[test]
fn a_long_outage_fires_once_by_default() {
    let found = look("* * * * *", at(0), at(86_400 + 30), CatchUp::default());
    assert_eq!(found, due(&[at(86_400)], 1440, at(86_460)));
}

#[test]
fn a_schedule_of_each_second_keeps_its_rhythm_over_a_short_outage() {
    for choice in CatchUp::CHOICES {
        let found = look("* * * * * *", at(0), Timestamp(at(8).0 + 700), choice);
        assert_eq!(found, due(&(0..=8).map(at).collect::<Vec<_>>(), 0, at(9)));
    }
}

#[test]
fn a_schedule_of_each_second_fires_the_timely_ones_after_a_long_outage() {
    let timely: Vec<Timestamp> = (3590..=3600).map(at).collect();
    for choice in [CatchUp::None, CatchUp::One] {
        assert_eq!(look("* * * * * *", at(0), at(3600), choice), due(&timely, 3590, at(3601)));
    }
    let found = look("* * * * * *", at(0), at(3600), CatchUp::All);
    assert_eq!(found.fires, (2601..=3600).map(at).collect::<Vec<_>>());
    assert_eq!(found.missed, 2601);
}

#[test]
fn no_more_are_made_up_for_than_the_bound() {
    let found = look("* * * * *", at(0), at(2000 * 60), CatchUp::All);
    assert_eq!(found.fires.len(), MOST_CAUGHT_UP);
    assert_eq!(found.fires.first(), Some(&at(1001 * 60)));
    assert_eq!(found.missed, 1001);
}

#[test]
fn a_clock_that_went_back_fires_nothing_twice() {
    let found = look("0 * * * *", at(3600), at(-7200), CatchUp::All);
    assert_eq!(found, due(&[], 0, at(3600)));
}

#[test]
fn the_end_of_a_schedule_bounds_fires_and_next() {
    let until = |until, oldest, now, choice| {
        catch_up(&timetable("0 * * * *"), oldest, now, Some(until), choice)
    };
    // The end itself still fires, also if it is looked at late.
    let found = until(at(3600), at(3600), at(3605), CatchUp::None);
    assert_eq!(found, Due { fires: vec![at(3600)], missed: 0, next: None });
    let found = until(at(3600), at(0), at(9000), CatchUp::One);
    assert_eq!(found, Due { fires: vec![at(3600)], missed: 1, next: None });
    let found = until(at(3599), at(3600), at(9000), CatchUp::All);
    assert_eq!(found, Due { fires: vec![], missed: 0, next: None });
    let found = until(at(3599), at(3600), at(0), CatchUp::All);
    assert_eq!(found, Due { fires: vec![], missed: 0, next: None });
    assert_eq!(until(at(3600), at(0), at(0), CatchUp::One).next, Some(at(3600)));
}

// sibson/redbeat#81, celery/celery#4806: a schedule that is new, or whose last run is long ago, fired at
// once although nothing was due.
#[test]
fn creation_and_resume_never_fire_by_themselves() {
    for expression in ["0 0 1 1 *", "@every 24h"] {
        let made = at(7);
        let oldest_due = timetable(expression).next_after(made).unwrap();
        for choice in CatchUp::CHOICES {
            assert_eq!(look(expression, oldest_due, made, choice), due(&[], 0, oldest_due));
        }
    }
}

#[test]
fn a_stored_time_that_is_no_fire_any_more_does_not_fire() {
    let found = look("0 * * * *", at(60), at(120), CatchUp::All);
    assert_eq!(found, due(&[], 0, at(3600)));
}

#[test]
fn absurd_times_do_no_harm() {
    for expression in ["* * * * * *", "@every 1s", "0 0 29 2 +MON"] {
        for (oldest, now) in [(i64::MIN, i64::MAX), (i64::MIN, i64::MIN), (i64::MAX, i64::MAX)] {
            let found = look(expression, Timestamp(oldest), Timestamp(now), CatchUp::All);
            assert!(found.next.is_none_or(|next| next > Timestamp(now)), "{found:?}");
        }
    }
}

proptest! {
    /// Looks at random times, by servers that know only the stored `next`, and that may look early
    /// or with a clock that went back.
    #[test]
    fn no_fire_comes_twice_and_none_is_lost(
        expression in prop::sample::select(vec!["* * * * * *", "*/7 * * * *", "@every 13s"]),
        steps in prop::collection::vec(-20_000..90_000_i64, 1..40),
    ) {
        let table = timetable(expression);
        let first = table.next_after(NOON).unwrap();
        let (mut next, mut now, mut last, mut fires) = (first, NOON, NOON, Vec::new());
        for step in steps {
            now = Timestamp(now.0 + step);
            let due = catch_up(&table, next, now, None, CatchUp::All);
            prop_assert_eq!(due.missed, 0);
            fires.extend(due.fires);
            next = due.next.unwrap();
            prop_assert!(next > now);
            last = last.max(now);
        }
        prop_assert_eq!(fires, table.latest(first, last, usize::MAX));
    }

    #[test]
    fn short_outages_lose_nothing_whatever_the_choice(
        choice in prop::sample::select(CatchUp::CHOICES.to_vec()),
        steps in prop::collection::vec(0..10_000_i64, 1..40),
    ) {
        let table = timetable("* * * * * *");
        let (mut next, mut now, mut fires) = (at(1), NOON, Vec::new());
        for step in steps {
            now = Timestamp(now.0 + step);
            let due = catch_up(&table, next, now, None, choice);
            fires.extend(due.fires);
            next = due.next.unwrap();
        }
        prop_assert_eq!(fires, table.latest(at(1), now, usize::MAX));
    }
}
