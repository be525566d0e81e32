//! Operators and functions over values. Each counts the work it does before it does it.

use std::cmp::Ordering;
use std::rc::Rc;

use cel::common::ast::operators;

use super::compare::{equal, order};
use super::evaluate::{Trouble, contains};
use super::value::{List, Term, Text};
use super::work::Work;
use crate::fault::shown;

/// A function that expressions may call.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// Whether it is called on a value, as in `name.startsWith("a")`.
    pub(crate) method: bool,
    /// Values it takes, without the one it is called on.
    pub(crate) takes: usize,
}

const fn function(name: &'static str, takes: usize) -> Known {
    Known { name, method: false, takes }
}

const fn method(name: &'static str, takes: usize) -> Known {
    Known { name, method: true, takes }
}

/// Every function, operators aside.
pub(crate) const KNOWN: [Known; 18] = [
    function("size", 1),
    method("size", 0),
    function("string", 1),
    function("int", 1),
    function("uint", 1),
    function("double", 1),
    method("contains", 1),
    method("startsWith", 1),
    method("endsWith", 1),
    method("lowerAscii", 0),
    method("upperAscii", 0),
    method("trim", 0),
    method("split", 1),
    method("join", 0),
    method("join", 1),
    // The parser makes these.
    function("@in", 2),
    function("-_", 1),
    function("!_", 1),
];

/// Operators of two values.
pub(crate) const OPERATORS: [&str; 11] = [
    operators::ADD,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
];

/// Calls an operator or function on values.
pub(crate) fn call<'a>(
    name: &str,
    values: &[Term<'a>],
    work: &mut Work,
) -> Result<Term<'a>, Trouble> {
    match (name, values) {
        (operators::EQUALS, [one, other]) => equal(one, other, work).map(Term::Bool),
        (operators::NOT_EQUALS, [one, other]) => Ok(Term::Bool(!equal(one, other, work)?)),
        (operators::LESS, [one, other]) => {
            Ok(Term::Bool(order(one, other, work)? == Some(Ordering::Less)))
        }
        (operators::LESS_EQUALS, [one, other]) => {
            Ok(Term::Bool(order(one, other, work)?.is_some_and(Ordering::is_le)))
        }
        (operators::GREATER, [one, other]) => {
            Ok(Term::Bool(order(one, other, work)? == Some(Ordering::Greater)))
        }
        (operators::GREATER_EQUALS, [one, other]) => {
            Ok(Term::Bool(order(one, other, work)?.is_some_and(Ordering::is_ge)))
        }
        (operators::IN, [wanted, of]) => contains(of, wanted, work).map(Term::Bool),
        (operators::ADD, [Term::Text(one), Term::Text(other)]) => concat(one, other, work),
        (operators::ADD, [Term::List(one), Term::List(other)]) => {
            work.spend(one.len() + other.len())?;
            let both = one.iter().chain(other.iter()).collect();
            Ok(Term::List(List::Made(Rc::new(both))))
        }
        (operators::LOGICAL_NOT, [Term::Bool(it)]) => Ok(Term::Bool(!it)),
        (operators::NEGATE, [Term::Int(it)]) => {
            it.checked_neg().map(Term::Int).ok_or_else(overflow)
        }
        (operators::NEGATE, [Term::Double(it)]) => Ok(Term::Double(-it)),
        (name, [one, other]) if OPERATORS.contains(&name) => arithmetic(name, one, other),
        (name, [Term::Text(text), rest @ ..]) => of_text(name, text, rest, work),
        (name, values) => of_value(name, values, work),
    }
}

fn concat<'a>(one: &Text<'a>, other: &Text<'a>, work: &mut Work) -> Result<Term<'a>, Trouble> {
    let (one, other) = (one.as_str(), other.as_str());
    work.grow(one.len() + other.len())?;
    Ok(Term::text([one, other].concat()))
}

fn arithmetic<'a>(name: &str, one: &Term<'_>, other: &Term<'_>) -> Result<Term<'a>, Trouble> {
    let by_zero = matches!(name, operators::DIVIDE | operators::MODULO)
        && matches!(other, Term::Int(0) | Term::Uint(0));
    if by_zero {
        return Err(Trouble::failed("divides by zero"));
    }
    match (one, other) {
        (Term::Int(one), Term::Int(other)) => {
            let value = match name {
                operators::ADD => one.checked_add(*other),
                operators::SUBSTRACT => one.checked_sub(*other),
                operators::MULTIPLY => one.checked_mul(*other),
                operators::DIVIDE => one.checked_div(*other),
                _ => one.checked_rem(*other),
            };
            value.map(Term::Int).ok_or_else(overflow)
        }
        (Term::Uint(one), Term::Uint(other)) => {
            let value = match name {
                operators::ADD => one.checked_add(*other),
                operators::SUBSTRACT => one.checked_sub(*other),
                operators::MULTIPLY => one.checked_mul(*other),
                operators::DIVIDE => one.checked_div(*other),
                _ => one.checked_rem(*other),
            };
            value.map(Term::Uint).ok_or_else(overflow)
        }
        (Term::Double(one), Term::Double(other)) => match name {
            operators::ADD => Ok(Term::Double(one + other)),
            operators::SUBSTRACT => Ok(Term::Double(one - other)),
            operators::MULTIPLY => Ok(Term::Double(one * other)),
            operators::DIVIDE => Ok(Term::Double(one / other)),
            _ => Err(Trouble::failed("`%` takes whole numbers")),
        },
        (one, other) => Err(Trouble::failed(format!(
            "`{}` does not take {} and {}; turn one into the other's type, such as with \
             double(…) or string(…)",
            name.trim_matches('_'),
            one.kind(),
            other.kind()
        ))),
    }
}

fn overflow() -> Trouble {
    Trouble::failed("is a number that does not fit into 64 bits")
}

fn of_text<'a>(
    name: &str,
    text: &Text<'a>,
    rest: &[Term<'a>],
    work: &mut Work,
) -> Result<Term<'a>, Trouble> {
    let whole = text;
    let text = text.as_str();
    work.look(text.len())?;
    match (name, rest) {
        ("size", []) => count(text.chars().count()),
        ("string", []) => Ok(Term::Text(whole.clone())),
        ("int", []) => text.parse().map(Term::Int).map_err(|_bad| not_a("whole number", text)),
        ("uint", []) => text.parse().map(Term::Uint).map_err(|_bad| not_a("whole number", text)),
        ("double", []) => text.parse().map(Term::Double).map_err(|_bad| not_a("number", text)),
        ("lowerAscii", []) => Ok(Term::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Term::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Term::text(text.trim())),
        ("contains", [Term::Text(part)]) => Ok(Term::Bool(text.contains(part.as_str()))),
        ("startsWith", [Term::Text(part)]) => Ok(Term::Bool(text.starts_with(part.as_str()))),
        ("endsWith", [Term::Text(part)]) => Ok(Term::Bool(text.ends_with(part.as_str()))),
        ("split", [Term::Text(part)]) => {
            // At most one part more than the text has characters.
            work.spend(text.len() + 1)?;
            let parts = match part.as_str() {
                "" => text.chars().map(|letter| Term::text(letter.to_string())).collect(),
                part => text.split(part).map(Term::text).collect(),
            };
            Ok(Term::List(List::Made(Rc::new(parts))))
        }
        (name, rest) => Err(untaken(name, "string", rest)),
    }
}

fn of_value<'a>(name: &str, values: &[Term<'a>], work: &mut Work) -> Result<Term<'a>, Trouble> {
    match (name, values) {
        ("size", [Term::List(list)]) => count(list.len()),
        ("size", [Term::Map(map)]) => count(map.len()),
        ("string", [value]) => match value.scalar() {
            Some(text) => Ok(Term::text(text)),
            None => Err(Trouble::failed(format!("string(…) does not take {}", value.kind()))),
        },
        ("int", [Term::Int(it)]) => Ok(Term::Int(*it)),
        ("int", [Term::Uint(it)]) => i64::try_from(*it).map(Term::Int).map_err(|_bad| overflow()),
        ("int", [Term::Double(it)]) => truncated(*it)
            .and_then(|whole| i64::try_from(whole).ok())
            .map(Term::Int)
            .ok_or_else(overflow),
        ("uint", [Term::Uint(it)]) => Ok(Term::Uint(*it)),
        ("uint", [Term::Int(it)]) => u64::try_from(*it).map(Term::Uint).map_err(|_bad| overflow()),
        ("uint", [Term::Double(it)]) => truncated(*it)
            .and_then(|whole| u64::try_from(whole).ok())
            .map(Term::Uint)
            .ok_or_else(overflow),
        ("double", [Term::Double(it)]) => Ok(Term::Double(*it)),
        #[expect(clippy::cast_precision_loss, reason = "it is what double(…) asks for")]
        ("double", [Term::Int(it)]) => Ok(Term::Double(*it as f64)),
        #[expect(clippy::cast_precision_loss, reason = "it is what double(…) asks for")]
        ("double", [Term::Uint(it)]) => Ok(Term::Double(*it as f64)),
        ("join", [Term::List(list)]) => join(list, "", work),
        ("join", [Term::List(list), Term::Text(between)]) => join(list, between.as_str(), work),
        (name, [first, rest @ ..]) => Err(untaken(name, first.kind(), rest)),
        (name, []) => Err(Trouble::failed(format!("{name}() needs a value"))),
    }
}

fn join<'a>(list: &List<'a>, between: &str, work: &mut Work) -> Result<Term<'a>, Trouble> {
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        work.spend(1)?;
        let Term::Text(text) = item else {
            let problem = format!("join(…) takes a list of text, not of {}", item.kind());
            return Err(Trouble::failed(problem));
        };
        if index > 0 {
            joined.push_str(between);
        }
        joined.push_str(text.as_str());
        work.look(between.len() + text.as_str().len())?;
        if joined.len() > crate::limits::VALUE_BYTES_MAX {
            return Err(Trouble::TooLarge);
        }
    }
    Ok(Term::text(joined))
}

fn count<'a>(count: usize) -> Result<Term<'a>, Trouble> {
    i64::try_from(count).map(Term::Int).map_err(|_bad| overflow())
}

/// Returns the whole part; `None` for infinity and what is no number.
fn truncated(double: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "saturates far beyond 64 bits")]
    double.is_finite().then(|| double.trunc() as i128)
}

fn not_a(wanted: &str, text: &str) -> Trouble {
    Trouble::failed(format!("`{}` is no {wanted}", shown(text)))
}

fn untaken(name: &str, first: &str, rest: &[Term<'_>]) -> Trouble {
    let kinds: Vec<&str> = std::iter::once(first).chain(rest.iter().map(|it| it.kind())).collect();
    let name = name.trim_start_matches('@').trim_matches('_');
    Trouble::failed(format!("`{name}` does not take {}", kinds.join(" and ")))
}
