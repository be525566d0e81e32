//! Which civil times match: what a clock on the wall shows, in no zone.
//!
//! A civil time is counted in seconds since 1970-01-01T00:00:00 on that clock, as if it never
//! changed. A day is a number of days since then. Times of a day have ranks, so that counting needs
//! no walk: the n-th time of a day is found by division.

use croner::CronPattern;
use croner::time::Weekday;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

/// A day of a clock that does not change, in seconds.
pub(crate) const DAY: i64 = 24 * 60 * 60;

/// Days after which dates and weekdays repeat.
const DAYS_OF_CYCLE: i64 = 146_097;

/// The times that an expression with fields matches.
#[derive(Clone)]
pub(crate) struct Calendar {
    pattern: CronPattern,
    seconds: Vec<i64>,
    minutes: Vec<i64>,
    hours: Vec<i64>,
    months: Vec<u16>,
    every_day: bool,
    fixed: bool,
}

impl Calendar {
    /// Takes a pattern; it is `fixed` if its times of day are listed, without wildcards and steps.
    pub(super) fn new(pattern: CronPattern, fixed: bool) -> Self {
        let values = |of: Vec<u16>| of.into_iter().map(i64::from).collect();
        let months = pattern.months.values();
        let every_day =
            pattern.is_dom_wildcard() && pattern.is_dow_wildcard() && months.len() == 12;
        Self {
            seconds: values(pattern.seconds.values()),
            minutes: values(pattern.minutes.values()),
            hours: values(pattern.hours.values()),
            months,
            every_day,
            fixed,
            pattern,
        }
    }

    /// Whether times of day are listed: each then fires once a day, also where the clock changes.
    pub(crate) const fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Whether some day of the calendar matches.
    pub(super) fn ever_matches(&self) -> bool {
        self.day_from(0, DAYS_OF_CYCLE).is_some()
    }

    /// Returns the earliest match in `from..until`.
    pub(crate) fn first_in(&self, from: i64, until: i64) -> Option<i64> {
        let earliest = from.div_euclid(DAY);
        let day = self.day_from(earliest, last_day(until))?;
        let rank = if day == earliest { self.rank(from.rem_euclid(DAY)) } else { 0 };
        let found = match self.time(rank) {
            Some(time) => day * DAY + time,
            // All times of the first day are over.
            None => self.day_from(day + 1, last_day(until))? * DAY + self.time(0)?,
        };
        (found < until).then_some(found)
    }

    /// Returns the latest match in `from..until`.
    pub(crate) fn last_in(&self, from: i64, until: i64) -> Option<i64> {
        let (earliest, latest) = (from.div_euclid(DAY), last_day(until));
        let day = self.day_back(latest, earliest)?;
        let times = if day == latest { self.rank(until - day * DAY) } else { self.times() };
        let found = match times.checked_sub(1) {
            Some(rank) => day * DAY + self.time(rank)?,
            None => self.day_back(day - 1, earliest)? * DAY + self.time(self.times() - 1)?,
        };
        (found >= from).then_some(found)
    }

    /// Returns how many matches there are in `from..until`. A century of days takes milliseconds.
    pub(crate) fn count_in(&self, from: i64, until: i64) -> u64 {
        if from >= until {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY), last_day(until));
        let all = self.days_in(first, last) * count(self.times());
        let of_day = |day, times| if self.matches(day) { count(times) } else { 0 };
        let before = of_day(first, self.rank(from.rem_euclid(DAY)));
        let after = of_day(last, self.times() - self.rank(until - last * DAY));
        all - before - after
    }

    /// Returns how many days in `first..=last` match.
    fn days_in(&self, first: i64, last: i64) -> u64 {
        if self.every_day {
            return u64::try_from(last - first + 1).unwrap_or(0);
        }
        let mut days = 0;
        let mut from = first;
        while let Some(day) = self.day_from(from, last) {
            days += 1;
            from = day + 1;
        }
        days
    }

    /// Returns the first day in `from..=until` that matches.
    fn day_from(&self, from: i64, until: i64) -> Option<i64> {
        let mut day = from;
        while day <= until {
            let date = date_of(day)?;
            if !self.has_month(date) {
                day += i64::from(date.days_in_month() - date.day()) + 1;
            } else if self.matches_date(date) {
                return Some(day);
            } else {
                day += 1;
            }
        }
        None
    }

    /// Returns the last day in `until..=from` that matches.
    fn day_back(&self, from: i64, until: i64) -> Option<i64> {
        let mut day = from;
        while day >= until {
            let date = date_of(day)?;
            if !self.has_month(date) {
                day -= i64::from(date.day());
            } else if self.matches_date(date) {
                return Some(day);
            } else {
                day -= 1;
            }
        }
        None
    }

    fn matches(&self, day: i64) -> bool {
        date_of(day).is_some_and(|date| self.has_month(date) && self.matches_date(date))
    }

    fn has_month(&self, date: Date) -> bool {
        u16::try_from(date.month()).is_ok_and(|month| self.months.contains(&month))
    }

    /// Whether day of month and weekday match; the month is looked at elsewhere.
    fn matches_date(&self, date: Date) -> bool {
        if self.every_day {
            return true;
        }
        let (Ok(month), Ok(day)) = (u32::try_from(date.month()), u32::try_from(date.day())) else {
            return false;
        };
        let from_sunday = u32::try_from(date.weekday().to_sunday_zero_offset()).unwrap_or(0);
        let weekday = Weekday::from_days_from_sunday(from_sunday);
        self.pattern.day_match(date.year().into(), month, day, weekday).unwrap_or(false)
    }

    /// Returns how many times of day match.
    const fn times(&self) -> usize {
        self.hours.len() * self.minutes.len() * self.seconds.len()
    }

    /// Returns how many times of day match before `time`, in seconds since midnight.
    fn rank(&self, time: i64) -> usize {
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        let before = |values: &[i64], value| values.partition_point(|it| *it < value);
        let mut rank = before(&self.hours, hour) * self.minutes.len() * self.seconds.len();
        if self.hours.contains(&hour) {
            rank += before(&self.minutes, minute) * self.seconds.len();
            if self.minutes.contains(&minute) {
                rank += before(&self.seconds, second);
            }
        }
        rank
    }

    /// Returns the time of day that has `rank` others before it, in seconds since midnight.
    fn time(&self, rank: usize) -> Option<i64> {
        let (minutes, second) = (rank / self.seconds.len(), rank % self.seconds.len());
        let (hours, minute) = (minutes / self.minutes.len(), minutes % self.minutes.len());
        let hour = self.hours.get(hours)?;
        Some(hour * 3600 + self.minutes.get(minute)? * 60 + self.seconds.get(second)?)
    }
}

/// Returns the date of a day, if it has one that can be written.
pub(crate) fn date_of(day: i64) -> Option<Date> {
    let midnight = Timestamp::from_second(day.checked_mul(DAY)?).ok()?;
    Some(Offset::UTC.to_datetime(midnight).date())
}

/// Returns the day of the last second before `until`.
const fn last_day(until: i64) -> i64 {
    (until - 1).div_euclid(DAY)
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}
