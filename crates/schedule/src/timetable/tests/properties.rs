//! Random expressions around changes of clocks, compared with a reference that walks the clock.
//!
//! The reference asks croner about each minute that a clock shows, and remembers the latest time
//! it has shown. It shares nothing with the search but croner's reading of the fields.

use std::str::FromStr as _;

use croner::Cron;
use jiff::ToSpan as _;
use jiff::civil::DateTime;
use proptest::prelude::*;

use super::*;

/// Zones whose clocks change in many ways.
const ZONES: &[&str] = &[
    "UTC",
    "Europe/Vienna",
    "Europe/London",
    "Europe/Dublin",
    "America/New_York",
    "America/Havana",
    "America/St_Johns",
    "America/Sao_Paulo",
    "America/Santiago",
    "America/Asuncion",
    "America/Godthab",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Asia/Pyongyang",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Africa/Juba",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kiritimati",
    "Pacific/Chatham",
    "Pacific/Norfolk",
    "Antarctica/Troll",
    "Antarctica/Casey",
];

/// A walk of the reference: seconds, the end not included.
struct Walk {
    from: i64,
    until: i64,
    step: i64,
    /// How long before `from` the clock is watched already, to know what it has shown.
    before: i64,
}

impl Walk {
    /// Returns the fires, found by looking at each step of the clock.
    fn fires(&self, table: &Timetable) -> Vec<Timestamp> {
        let cron = Cron::from_str(table.expression.as_str()).unwrap();
        let fixed = {
            let fields: Vec<&str> = table.expression.as_str().split(' ').collect();
            !fields[..fields.len() - 3].iter().any(|field| field.contains(['*', '/']))
        };
        let shows = |second| table.zone.rules().to_datetime(Instant::from_second(second).unwrap());
        let matches = |civil: &DateTime| cron.is_time_matching(civil).unwrap();
        let mut second = self.from - self.before;
        let mut latest = shows(second - self.step);
        let mut found = Vec::new();
        while second < self.until {
            let civil = shows(second);
            let expected = latest.checked_add(self.step.seconds()).unwrap();
            let mut fires = matches(&civil) && !(fixed && civil <= latest);
            let mut skipped = expected;
            while fixed && !fires && skipped < civil {
                fires = matches(&skipped);
                skipped = skipped.checked_add(self.step.seconds()).unwrap();
            }
            if fires && second >= self.from {
                found.push(timestamp(second));
            }
            latest = latest.max(civil);
            second += self.step;
        }
        found
    }
}

/// Returns a field: mostly few values, near those at which clocks change.
fn field(values: std::ops::Range<u32>, wild: bool) -> BoxedStrategy<String> {
    let value = values;
    let list = prop::collection::vec(value.clone(), 1..4)
        .prop_map(|values| values.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
    let range = (value.clone(), value).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let step = (range.clone(), 1..9_u32).prop_map(|(range, step)| format!("{range}/{step}"));
    if wild {
        prop_oneof![4 => list, 2 => range, 1 => step, 2 => Just("*".to_owned()),
            1 => (1..20_u32).prop_map(|step| format!("*/{step}"))]
        .boxed()
    } else {
        prop_oneof![3 => list, 1 => range].boxed()
    }
}

fn day_fields() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just("* * *".to_owned()),
        1 => (0..7_u32).prop_map(|day| format!("* * {day}")),
        1 => (1..29_u32).prop_map(|day| format!("{day} * *")),
        1 => (1..29_u32, 0..7_u32).prop_map(|(date, day)| format!("{date} * {day}")),
        1 => (1..5_u32, 0..7_u32).prop_map(|(nth, day)| format!("* * {day}#{nth}")),
        1 => Just("L * *".to_owned()),
        1 => (1..29_u32).prop_map(|day| format!("{day}W * *")),
    ]
}

fn hours(wild: bool) -> impl Strategy<Value = String> {
    prop_oneof![3 => field(0..5, wild), 1 => field(0..24, wild)]
}

fn five_fields() -> impl Strategy<Value = String> {
    any::<bool>().prop_flat_map(|wild| {
        (field(0..60, wild), hours(wild), day_fields())
            .prop_map(|(minute, hour, days)| format!("{minute} {hour} {days}"))
    })
}

fn six_fields() -> impl Strategy<Value = String> {
    any::<bool>().prop_flat_map(|wild| {
        (field(0..60, wild), field(0..60, wild), hours(wild))
            .prop_map(|(second, minute, hour)| format!("{second} {minute} {hour} * * *"))
    })
}

/// Returns a zone, and a second at which its clock changes; in UTC any second.
fn change() -> impl Strategy<Value = (&'static str, i64)> {
    // From 1980 to 2040: offsets are whole minutes there, as the reference needs.
    (prop::sample::select(ZONES), 315_532_800..2_208_988_800_i64).prop_map(|(name, second)| {
        let zone = Zone::named(name).unwrap();
        let change = zone.rules().following(Instant::from_second(second).unwrap()).next();
        (name, change.map_or(second - second % 60, |it| it.timestamp().as_second()))
    })
}

/// Checks that each way to look finds what the reference finds, from any start within the walk.
fn agrees(table: &Timetable, walk: &Walk, offset: i64) -> Result<(), TestCaseError> {
    let expected = walk.fires(table);
    let (first, until) = (timestamp(walk.from), Timestamp(walk.until * 1000 - 1));
    let mut walked = Vec::new();
    let mut last = Timestamp(first.0 - 1);
    while let Some(next) = table.next_after(last)
        && next <= until
    {
        prop_assert!(next > last);
        walked.push(next);
        last = next;
    }
    prop_assert_eq!(&walked, &expected, "{} {}", &table.expression, &table.zone);
    prop_assert_eq!(&table.latest(first, until, usize::MAX), &expected);
    prop_assert_eq!(table.count(first, until), u64::try_from(expected.len()).unwrap());
    // From any instant none is lost and none comes twice.
    let start = Timestamp(first.0 + offset.rem_euclid(until.0 - first.0));
    let later = expected.iter().filter(|fire| **fire > start).copied().collect::<Vec<_>>();
    if let Some(next) = later.first() {
        prop_assert_eq!(table.next_after(start), Some(*next));
    }
    let most = later.len() / 2;
    let tail = later[later.len() - most..].to_vec();
    prop_assert_eq!(table.latest(Timestamp(start.0 + 1), until, most), tail);
    prop_assert_eq!(
        table.count(Timestamp(start.0 + 1), until),
        u64::try_from(later.len()).unwrap()
    );
    Ok(())
}

#[test]
fn every_zone_lists_all_changes_of_its_clock() {
    for name in crate::zone::names() {
        let Ok(zone) = Zone::named(&name) else { continue };
        let mut second = 0;
        while second < 4_102_444_800 {
            let stretch = Stretch::around(&zone, second);
            let until = stretch.end();
            let shown = |second| {
                i64::from(zone.rules().to_offset(Instant::from_second(second).unwrap()).seconds())
            };
            assert_eq!(shown(until - 1), stretch.offset, "{name} {until}");
            assert_eq!(shown(second), stretch.offset, "{name} {second}");
            assert!(stretch.begin() == second || second == 0, "{name} {second}");
            second = until;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn minutes_fire_as_on_a_clock_that_is_watched(
        expression in five_fields(),
        (zone, change) in change(),
        offset in any::<i64>(),
    ) {
        let walk = Walk { from: change - 30 * 3600, until: change + 30 * 3600, step: 60, before: 2 * DAY };
        agrees(&timetable(&expression, zone), &walk, offset)?;
    }

    #[test]
    fn seconds_fire_as_on_a_clock_that_is_watched(
        expression in six_fields(),
        (zone, change) in change(),
        offset in any::<i64>(),
    ) {
        let from = change - 2 * 3600 - 600;
        let walk = Walk { from, until: change + 2 * 3600 + 600, step: 1, before: 7200 };
        agrees(&timetable(&expression, zone), &walk, offset)?;
    }

    #[test]
    fn notes_agree_with_fires(expression in five_fields(), (zone, change) in change()) {
        let table = timetable(&expression, zone);
        for fire in table.upcoming(timestamp(change - 2 * 3600), 40) {
            prop_assert_eq!(at(&fire.local), fire.time);
            let stretch = Stretch::around(&table.zone, fire.time.0 / 1000);
            let is_first = matches!(fire.note, Some(Note::AfterGap { .. }));
            prop_assert!(!is_first || stretch.begin() * 1000 == fire.time.0);
        }
    }

    #[test]
    fn every_fires_at_multiples(anchor in -9_000_000_000_000..9_000_000_000_000_i64,
        length in 1..100_000_u64, after in 0..9_000_000_000_000_i64) {
        let anchor = Timestamp(anchor);
        let table = Timetable { anchor, ..timetable(&format!("@every {length}s"), "UTC") };
        let first = anchor.0.max(after) + 1;
        let fires = table.upcoming(Timestamp(first), 5);
        for (fire, before) in fires.iter().zip([Timestamp(first)].into_iter()
            .chain(fires.iter().map(|it| it.time))) {
            let length = i64::try_from(length * 1000).unwrap();
            prop_assert_eq!((fire.time.0 - anchor.0) % length, 0);
            prop_assert!(fire.time > before && fire.time.0 - before.0 <= length);
        }
        let times: Vec<Timestamp> = fires.iter().map(|it| it.time).collect();
        prop_assert_eq!(table.latest(times[0], times[4], 3), times[2..].to_vec());
        prop_assert_eq!(table.count(times[0], times[4]), 5);
    }
}
