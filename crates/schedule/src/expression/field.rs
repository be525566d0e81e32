//! One field of an expression: what may be in it.

use std::fmt;

use super::{ExpressionError, shown};

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A field of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// 0 to 59; the first of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31, `L`, `LW`, `15W`.
    DayOfMonth,
    /// 1 to 12, or JAN to DEC.
    Month,
    /// 0 to 7, or SUN to SAT; 0 and 7 are Sunday. Also `MON#2` and `FRIL`.
    Weekday,
}

impl Field {
    /// All six, in the order of an expression.
    pub(super) const ALL: [Self; 6] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::Weekday];

    /// Refuses a field, in upper case, that has something else than may be there.
    pub(super) fn check(self, text: &str) -> Result<(), ExpressionError> {
        let text = match self {
            Self::Weekday => text.strip_prefix('+').unwrap_or(text),
            _ => text,
        };
        if text == "?" && matches!(self, Self::DayOfMonth | Self::Weekday) {
            return Ok(());
        }
        let items: Vec<&str> = text.split(',').collect();
        if items.contains(&"L") && items.contains(&"LW") {
            return Err(self.refuse(text, "L or LW, not both"));
        }
        if items.len() > 1 && items.contains(&"*") {
            return Err(self.refuse(text, "`*` stands alone"));
        }
        items.into_iter().try_for_each(|item| self.check_item(item))
    }

    /// Checks what stands between two commas.
    fn check_item(self, item: &str) -> Result<(), ExpressionError> {
        if let Some((values, step)) = item.split_once('/') {
            return self.check_step(item, values, step);
        }
        if item == "*" || self.is_special(item) {
            return Ok(());
        }
        match item.split_once('-') {
            Some((first, last)) => self.check_range(item, first, last),
            None => self.value(item).map(drop).ok_or_else(|| self.refuse(item, self.allowed())),
        }
    }

    fn check_step(self, item: &str, values: &str, step: &str) -> Result<(), ExpressionError> {
        let most = self.last();
        if !number(step).is_some_and(|step| (1..=most).contains(&step)) {
            return Err(self.refuse(item, &format!("a step of 1 to {most}")));
        }
        match values.split_once('-') {
            Some((first, last)) => self.check_range(item, first, last),
            None if values == "*" => Ok(()),
            None if self.value(values).is_some() => {
                let range = format!("a step follows `*` or a range, as in {values}-{most}/{step}");
                Err(self.refuse(item, &range))
            }
            None => Err(self.refuse(item, self.allowed())),
        }
    }

    fn check_range(self, item: &str, first: &str, last: &str) -> Result<(), ExpressionError> {
        let (Some(from), Some(to)) = (self.value(first), self.value(last)) else {
            return Err(self.refuse(item, self.allowed()));
        };
        // A week may end with Sunday.
        let to = if self == Self::Weekday && last == "SUN" { 7 } else { to };
        if from <= to {
            return Ok(());
        }
        let (begin, end) = (self.first(), self.last());
        let split = format!("a range goes up; write {first}-{end},{begin}-{last}");
        Err(self.refuse(item, &split))
    }

    /// Whether this is one of the words of days that depend on the month.
    fn is_special(self, item: &str) -> bool {
        match self {
            Self::DayOfMonth => {
                let closest = |day| self.value(day).is_some();
                matches!(item, "L" | "LW") || item.strip_suffix('W').is_some_and(closest)
            }
            Self::Weekday => {
                if let Some((day, which)) = item.split_once('#') {
                    return self.value(day).is_some()
                        && matches!(which, "1" | "2" | "3" | "4" | "5" | "L");
                }
                item.strip_suffix('L').is_some_and(|day| self.value(day).is_some())
            }
            Self::Second | Self::Minute | Self::Hour | Self::Month => false,
        }
    }

    /// Returns the value that a number or a name stands for, if it is one of this field.
    fn value(self, text: &str) -> Option<u32> {
        let named = |names: &[&str]| names.iter().position(|name| *name == text);
        let name = match self {
            Self::Month => named(MONTHS).map(|at| at + 1),
            Self::Weekday => named(WEEKDAYS),
            Self::Second | Self::Minute | Self::Hour | Self::DayOfMonth => None,
        };
        let value = name.map_or_else(|| number(text), |at| u32::try_from(at).ok())?;
        (self.first()..=self.last()).contains(&value).then_some(value)
    }

    const fn first(self) -> u32 {
        match self {
            Self::Second | Self::Minute | Self::Hour | Self::Weekday => 0,
            Self::DayOfMonth | Self::Month => 1,
        }
    }

    const fn last(self) -> u32 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::Weekday => 7,
        }
    }

    const fn allowed(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "0 to 59",
            Self::Hour => "0 to 23",
            Self::DayOfMonth => "1 to 31, L for the last day, or 15W for the weekday closest to it",
            Self::Month => "1 to 12, or JAN to DEC",
            Self::Weekday => {
                "0 to 7, or SUN to SAT, MON#2 for the second of a month, FRIL for the last"
            }
        }
    }

    /// Returns the error for a part of this field.
    pub(super) fn refuse(self, value: &str, allowed: &str) -> ExpressionError {
        let allowed = allowed.to_owned();
        ExpressionError::Field { field: self, value: shown(value), allowed }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::Weekday => "weekday",
        })
    }
}

/// Returns a number of one to three digits.
fn number(text: &str) -> Option<u32> {
    let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}
