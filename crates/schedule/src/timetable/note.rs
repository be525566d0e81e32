//! What is special about a fire near a change of the clock.

use std::fmt;

use super::stretch::Stretch;
use crate::expression::{Calendar, DAY, date_of};

/// What a change of the clock does to a fire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The clock skips its time, so it fires at the first instant after the gap.
    AfterGap {
        /// The first time of the schedule that is skipped, such as `02:30`; with the date if the
        /// fire has another one.
        skipped: String,
    },
    /// The clock shows its time twice, and it is a fixed time: it fires the first time only.
    FirstOfTwo,
    /// The clock shows its time twice, and this is the first of two fires.
    FirstOfBoth,
    /// The clock shows its time twice, and this is the second of two fires.
    SecondOfBoth,
}

impl Note {
    /// Returns what is special about the fire at `second` of this stretch.
    pub(super) fn of(stretch: &Stretch, calendar: &Calendar, second: i64) -> Option<Self> {
        let civil = second + stretch.offset;
        if second == stretch.begin()
            && let Some(skipped) = stretch.skipped(calendar)
        {
            return Some(Self::AfterGap { skipped: shown(skipped, civil) });
        }
        if stretch.comes_again(civil) {
            return Some(if calendar.is_fixed() { Self::FirstOfTwo } else { Self::FirstOfBoth });
        }
        stretch.came_before(civil).then_some(Self::SecondOfBoth)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterGap { skipped } => {
                write!(f, "the clock skips {skipped} that day; fires right after the gap")
            }
            Self::FirstOfTwo => {
                f.write_str("the clock shows this time twice; fires the first time only")
            }
            Self::FirstOfBoth => {
                f.write_str("the clock shows this time twice; the first of both fires")
            }
            Self::SecondOfBoth => {
                f.write_str("the clock shows this time twice; the second of both fires")
            }
        }
    }
}

/// Returns a civil time as a clock shows it, with the date if it is not that of `fire`.
fn shown(civil: i64, fire: i64) -> String {
    let (day, time) = (civil.div_euclid(DAY), civil.rem_euclid(DAY));
    let date = if day == fire.div_euclid(DAY) { None } else { date_of(day) };
    let date = date.map(|date| format!("{date} ")).unwrap_or_default();
    let (hour, minute) = (time / 3600, time / 60 % 60);
    match time % 60 {
        0 => format!("{date}{hour:02}:{minute:02}"),
        second => format!("{date}{hour:02}:{minute:02}:{second:02}"),
    }
}
