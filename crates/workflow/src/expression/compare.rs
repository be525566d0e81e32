//! Which values are equal, and which is less. Numbers compare by value, whatever their type.

use std::cmp::Ordering;

use super::evaluate::Trouble;
use super::value::Term;
use super::work::Work;

/// Says whether two values are equal. Values of different kinds are not.
pub(crate) fn equal(one: &Term<'_>, other: &Term<'_>, work: &mut Work) -> Result<bool, Trouble> {
    work.spend(1)?;
    match (one, other) {
        (Term::Null, Term::Null) => Ok(true),
        (Term::Bool(one), Term::Bool(other)) => Ok(one == other),
        (Term::Text(one), Term::Text(other)) => {
            let (one, other) = (one.as_str(), other.as_str());
            work.look(one.len().min(other.len()))?;
            Ok(one == other)
        }
        (Term::List(one), Term::List(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            for (one, other) in one.iter().zip(other.iter()) {
                if !equal(&one, &other, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Term::Map(one), Term::Map(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            for key in one.keys() {
                // A made map is searched from its start.
                work.spend(other.len().min(8))?;
                let (Some(one), Some(other)) = (one.get(key.as_str()), other.get(key.as_str()))
                else {
                    return Ok(false);
                };
                if !equal(&one, &other, work)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (one, other) => Ok(numbers(one, other) == Some(Ordering::Equal)),
    }
}

/// Returns which of two values comes first; `None` if they have no order, such as with NaN.
pub(crate) fn order(
    one: &Term<'_>,
    other: &Term<'_>,
    work: &mut Work,
) -> Result<Option<Ordering>, Trouble> {
    match (one, other) {
        (Term::Bool(one), Term::Bool(other)) => Ok(Some(one.cmp(other))),
        (Term::Text(one), Term::Text(other)) => {
            let (one, other) = (one.as_str(), other.as_str());
            work.look(one.len().min(other.len()))?;
            Ok(Some(one.cmp(other)))
        }
        (one, other) if is_number(one) && is_number(other) => Ok(numbers(one, other)),
        (one, other) => Err(Trouble::failed(format!(
            "{} and {} have no order; compare numbers with numbers, text with text",
            one.kind(),
            other.kind()
        ))),
    }
}

pub(crate) const fn is_number(term: &Term<'_>) -> bool {
    matches!(term, Term::Int(_) | Term::Uint(_) | Term::Double(_))
}

fn numbers(one: &Term<'_>, other: &Term<'_>) -> Option<Ordering> {
    match (one, other) {
        (Term::Double(one), Term::Double(other)) => one.partial_cmp(other),
        (Term::Double(one), other) => whole(other).and_then(|other| mixed(*one, other)),
        (one, Term::Double(other)) => {
            whole(one).and_then(|one| mixed(*other, one)).map(Ordering::reverse)
        }
        (one, other) => Some(whole(one)?.cmp(&whole(other)?)),
    }
}

fn whole(term: &Term<'_>) -> Option<i128> {
    match term {
        Term::Int(it) => Some(i128::from(*it)),
        Term::Uint(it) => Some(i128::from(*it)),
        _ => None,
    }
}

/// Compares without rounding the whole number.
fn mixed(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "saturates; the range of i128 is larger")]
    let floor = double.floor() as i128;
    let fraction = double - double.floor();
    Some(floor.cmp(&whole).then(if fraction > 0.0 { Ordering::Greater } else { Ordering::Equal }))
}
