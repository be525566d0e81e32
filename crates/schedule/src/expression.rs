//! What users write for the times of a schedule.
//!
//! Five fields are `minute hour day-of-month month weekday`; with six, a second comes first. There
//! are also nicknames such as `@daily`, and `@every 90s`, a rhythm that follows no calendar.
//!
//! A year is refused: a schedule that ends has an end time, and a field that is off by one would
//! read the whole expression wrongly. If day of month and weekday are both given, a day matches if
//! either does, as in Vixie cron; a `+` before the weekday demands both. Unlike there, `*/2` counts
//! as given.
//!
//! Croner reads the fields and knows which days match. It is lenient, and its errors name no field,
//! so `field.rs` checks each one first.

mod calendar;
mod every;
mod field;

#[cfg(test)]
mod tests;

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use outlast_core::time::Span;

pub(crate) use self::calendar::{Calendar, DAY, date_of};
pub use self::every::{EVERY_MAX, EVERY_MIN};
pub use self::field::Field;

/// Longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 256;

/// Words that stand for five fields.
const NICKNAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The times of a schedule, in no zone yet.
///
/// Two expressions are equal if they are written alike.
#[derive(Clone)]
pub struct Expression {
    text: String,
    times: Times,
}

/// What an expression means.
#[derive(Clone)]
pub(crate) enum Times {
    /// Times of a clock on the wall.
    Calendar(Box<Calendar>),
    /// One fire each span.
    Every(Span),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// Refuses what is not understood, naming the field, and an expression that never matches.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ExpressionError::Empty);
        }
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(ExpressionError::TooLong);
        }
        let times = match text.strip_prefix('@') {
            Some(_) => nickname(text)?,
            None => Times::Calendar(Box::new(calendar(text)?)),
        };
        Ok(Self { text: text.to_owned(), times })
    }

    /// Returns the expression as it was given, without blanks around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns what it means.
    pub(crate) const fn times(&self) -> &Times {
        &self.times
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({})", self.text)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpressionError {
    /// There is nothing.
    #[error("an expression has five fields: minute, hour, day of month, month, weekday")]
    Empty,
    /// It has too many bytes.
    #[error("an expression has at most {EXPRESSION_BYTES_MAX} bytes")]
    TooLong,
    /// It has too few or too many fields.
    #[error(
        "an expression has 5 fields (minute, hour, day of month, month, weekday) or 6 (second \
         first), not {given}"
    )]
    FieldCount {
        /// How many there are.
        given: usize,
    },
    /// It has a seventh field.
    #[error("a year field is not supported; a schedule that ends has `until` instead")]
    Year,
    /// It starts with `@` and is none of the known words.
    #[error(
        "`{given}` is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly \
         and @every, as in `@every 90s`"
    )]
    Nickname {
        /// The word.
        given: String,
    },
    /// What follows `@every` is no length.
    #[error(
        "`@every {given}`: a length in whole hours, minutes and seconds, such as 90s or 1h30m, from \
         1s to 3660 days"
    )]
    Every {
        /// What follows.
        given: String,
    },
    /// A field is wrong.
    #[error("{field} `{value}`: {allowed}")]
    Field {
        /// Which field.
        field: Field,
        /// The part that is wrong.
        value: String,
        /// What may be there.
        allowed: String,
    },
    /// No day has such a date.
    #[error("the expression never matches: no year has such a day")]
    Never,
}

fn nickname(text: &str) -> Result<Times, ExpressionError> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if word.eq_ignore_ascii_case("@every") {
        return every::length(rest.trim())
            .map(Times::Every)
            .ok_or_else(|| ExpressionError::Every { given: shown(rest.trim()) });
    }
    NICKNAMES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(text))
        .ok_or_else(|| ExpressionError::Nickname { given: shown(text) })
        .and_then(|(_, fields)| Ok(Times::Calendar(Box::new(calendar(fields)?))))
}

/// Reads five or six fields.
fn calendar(text: &str) -> Result<Calendar, ExpressionError> {
    let mut fields: Vec<String> = text.split_whitespace().map(str::to_ascii_uppercase).collect();
    match fields.len() {
        5 => fields.insert(0, "0".to_owned()),
        6 => {}
        7 => return Err(ExpressionError::Year),
        given => return Err(ExpressionError::FieldCount { given }),
    }
    for (field, text) in Field::ALL.into_iter().zip(&fields) {
        field.check(text)?;
    }
    let parsed = parser().parse(&fields.join(" ")).map_err(|_unclear| alone(&fields))?;
    let fixed = !fields.iter().take(3).any(|field| field.contains(['*', '/']));
    let calendar = Calendar::new(parsed.pattern, fixed);
    if calendar.ever_matches() { Ok(calendar) } else { Err(ExpressionError::Never) }
}

/// Says which field croner refuses although [`Field::check`] does not: the one that it also refuses
/// among fields that allow everything.
fn alone(fields: &[String]) -> ExpressionError {
    let refused = Field::ALL.into_iter().zip(fields).enumerate().find(|(at, (_, text))| {
        let mut others = ["*"; 6];
        others[*at] = text;
        parser().parse(&others.join(" ")).is_err()
    });
    let (field, text) = refused.map_or((Field::Second, ""), |(_, (field, text))| (field, text));
    field.refuse(text, "is not supported")
}

fn parser() -> CronParser {
    CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build()
}

/// Returns a part of an expression as errors show it.
fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}
