//! Values while an expression is evaluated: borrowed from JSON as long as nothing is made of them.

use std::borrow::Cow;
use std::rc::Rc;

use serde_json::{Map as JsonMap, Number, Value};

use super::evaluate::Trouble;
use super::work::Work;
use crate::limits::VALUE_BYTES_MAX;

/// A value. A copy is cheap: what is large is borrowed or shared.
#[derive(Clone, Debug)]
pub(crate) enum Term<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Map(Map<'a>),
}

#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Made(Rc<str>),
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Borrowed(&'a [Value]),
    Made(Rc<Vec<Term<'a>>>),
}

#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Borrowed(&'a JsonMap<String, Value>),
    /// In the order it was written; keys differ.
    Made(Rc<Vec<Entry<'a>>>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Text<'a>,
    pub(crate) value: Term<'a>,
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Borrowed(list) => list.len(),
            Self::Made(list) => list.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Term<'a>> {
        match self {
            Self::Borrowed(list) => list.get(index).map(Term::from),
            Self::Made(list) => list.get(index).cloned(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Term<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Borrowed(map) => map.len(),
            Self::Made(map) => map.len(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Term<'a>> {
        match self {
            Self::Borrowed(map) => map.get(key).map(Term::from),
            Self::Made(map) => {
                map.iter().find(|entry| entry.key.as_str() == key).map(|entry| entry.value.clone())
            }
        }
    }

    pub(crate) fn keys(&self) -> Vec<Text<'a>> {
        match self {
            Self::Borrowed(map) => map.keys().map(|key| Text::Borrowed(key)).collect(),
            Self::Made(map) => map.iter().map(|entry| entry.key.clone()).collect(),
        }
    }
}

impl<'a> From<&'a Value> for Term<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(it) => Self::Bool(*it),
            Value::Number(number) => number
                .as_i64()
                .map(Self::Int)
                .or_else(|| number.as_u64().map(Self::Uint))
                .unwrap_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::NAN))),
            Value::String(text) => Self::Text(Text::Borrowed(text)),
            Value::Array(list) => Self::List(List::Borrowed(list)),
            Value::Object(map) => Self::Map(Map::Borrowed(map)),
        }
    }
}

impl Term<'_> {
    pub(crate) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Made(text.into()))
    }

    /// Returns the name of its type, as error messages say it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Map(_) => "map",
        }
    }

    /// Returns the value as JSON. What was borrowed is copied as it is, whatever its numbers.
    pub(crate) fn into_json(self, work: &mut Work) -> Result<Value, Trouble> {
        let mut bytes = 0;
        self.to_json(&mut bytes, work)
    }

    fn to_json(&self, bytes: &mut usize, work: &mut Work) -> Result<Value, Trouble> {
        work.spend(1)?;
        // About what it takes as text; every node takes some.
        *bytes += 4;
        let value = match self {
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(*it),
            Self::Int(it) => Value::from(*it),
            Self::Uint(it) => Value::from(*it),
            Self::Double(it) => Value::Number(
                Number::from_f64(*it).ok_or_else(|| Trouble::failed("is no finite number"))?,
            ),
            Self::Text(text) => {
                *bytes += text.as_str().len();
                work.look(text.as_str().len())?;
                Value::String(text.as_str().to_owned())
            }
            Self::List(list) => {
                let items = list.iter().map(|item| item.to_json(bytes, work));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Map(map) => {
                let mut made = JsonMap::new();
                for key in map.keys() {
                    *bytes += key.as_str().len();
                    let value = map.get(key.as_str()).unwrap_or(Term::Null);
                    made.insert(key.as_str().to_owned(), value.to_json(bytes, work)?);
                }
                Value::Object(made)
            }
        };
        if *bytes > VALUE_BYTES_MAX {
            return Err(Trouble::TooLarge);
        }
        Ok(value)
    }

    /// Returns a number as text the way JSON writes it.
    pub(crate) fn scalar(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bool(it) => Some(it.to_string().into()),
            Self::Int(it) => Some(it.to_string().into()),
            Self::Uint(it) => Some(it.to_string().into()),
            Self::Double(it) => Some(it.to_string().into()),
            Self::Text(text) => Some(text.as_str().into()),
            Self::Null | Self::List(_) | Self::Map(_) => None,
        }
    }
}
