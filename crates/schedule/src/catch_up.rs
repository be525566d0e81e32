//! Which fires are made up for, and when to look again.
//!
//! A server looks at a schedule when its next fire is due, and a little later than that: ticks are
//! late, servers restart, leaders change. What is at most [`GRACE`] late is not missed and always
//! fires. So a schedule of each second keeps its rhythm over short pauses, whatever it says about
//! catching up. What is later was missed in an outage:
//!
//! ```text
//!                       now - GRACE            now
//!  oldest_due ──────────────┼───────────────────┼──────────▶
//!         late: `CatchUp`   │  timely: fires    │  next
//! ```
//!
//! `one` fires only the latest of all that are due: if anything is timely, that stands for what is
//! late.

#[cfg(test)]
mod tests;

use std::fmt;

use outlast_core::time::{Span, Timestamp};

use crate::timetable::Timetable;

/// How late a fire may be and still be an ordinary one. Longer than a late tick or a quick restart,
/// shorter than what users notice as an outage.
pub const GRACE: Span = Span::from_secs(10);

/// Most fires that are made up for at once, a day and more of a rhythm of two minutes.
pub const MOST_CAUGHT_UP: usize = 1000;

/// What becomes of fires that were missed in an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// They are lost.
    None,
    /// One fire stands for all of them.
    #[default]
    One,
    /// Each fires, up to [`MOST_CAUGHT_UP`].
    All,
}

impl CatchUp {
    /// Every choice.
    pub const CHOICES: [Self; 3] = [Self::None, Self::One, Self::All];

    /// Returns the choice with this name.
    ///
    /// # Errors
    ///
    /// Refuses every other word; names are in lower case.
    pub fn parse(name: &str) -> Result<Self, CatchUpError> {
        let known = Self::CHOICES.into_iter().find(|known| known.as_str() == name);
        known.ok_or_else(|| CatchUpError { given: name.chars().take(40).collect() })
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::One => "one",
            Self::All => "all",
        }
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that is no choice for catching up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("catch-up is none, one or all, not `{}`", .given.escape_debug())]
pub struct CatchUpError {
    /// The beginning of the word.
    pub given: String,
}

/// What a look at a schedule asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The fires to carry out now, in order.
    pub fires: Vec<Timestamp>,
    /// How many other fires were due and are lost.
    pub missed: u64,
    /// When to look again: the next fire, strictly after now. `None` if there is no more.
    pub next: Option<Timestamp>,
}

/// Decides what fires at `now`.
///
/// `oldest_due` is the `next` of the last look, or the first fire after the schedule was made or
/// resumed; so neither fires by itself. If it is in the future, because the clock went back, nothing
/// is due and it stays the next. `until` is the schedule's end: what is later does not fire. A
/// stored `oldest_due` that the timetable no longer has, since the rules of a zone changed, does not
/// fire either.
#[must_use]
pub fn catch_up(
    timetable: &Timetable,
    oldest_due: Timestamp,
    now: Timestamp,
    until: Option<Timestamp>,
    choice: CatchUp,
) -> Due {
    let within = |time: &Timestamp| until.is_none_or(|until| *time <= until);
    if oldest_due > now {
        return Due { fires: Vec::new(), missed: 0, next: Some(oldest_due).filter(within) };
    }
    let last = until.map_or(now, |until| until.min(now));
    let graceful = Timestamp(now.0.saturating_sub_unsigned(GRACE.as_millis()));
    // At most one fire each second, so this is all of them.
    let timely = timetable.latest(oldest_due.max(graceful), last, MOST_CAUGHT_UP);
    let due = DueTimes { timetable, oldest: oldest_due, last, timely };
    Due { next: timetable.next_after(now).filter(within), ..due.choose(choice) }
}

/// The times of a timetable that are due.
pub(crate) struct DueTimes<'a> {
    pub(crate) timetable: &'a Timetable,
    pub(crate) oldest: Timestamp,
    pub(crate) last: Timestamp,
    /// Those of them that are not late.
    pub(crate) timely: Vec<Timestamp>,
}

impl DueTimes<'_> {
    /// Decides which of them fire. It does not say what is next.
    pub(crate) fn choose(self, choice: CatchUp) -> Due {
        let Self { timetable, oldest, last, timely } = self;
        let fires = match choice {
            CatchUp::All => timetable.latest(oldest, last, MOST_CAUGHT_UP),
            CatchUp::One if timely.is_empty() => timetable.latest(oldest, last, 1),
            CatchUp::One | CatchUp::None => timely,
        };
        let due = timetable.count(oldest, last);
        let missed = due.saturating_sub(u64::try_from(fires.len()).unwrap_or(u64::MAX));
        Due { fires, missed, next: None }
    }
}
