//! JSON with expressions in its texts.
//!
//! | Text | Value |
//! |---|---|
//! | `"${{ parameters.n }}"` | what the expression gives, with its type |
//! | `"n is ${{ parameters.n }}"` | text; what is no text is written as JSON |
//! | `"costs $5"` | as it is |
//!
//! Keys are not rendered. A value that contains `${{` is data and is not rendered again.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::expression::{
    Expression, ExpressionError, References, Scope, Work, end_of_expression, value_as_text,
};
use crate::fault::{Fault, Place, shown};
use crate::limits::{DEPTH_MAX, VALUE_BYTES_MAX};

const OPEN: &str = "${{";
const CLOSE: &str = "}}";

/// JSON that becomes other JSON once the names in its expressions have values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// Without any expression.
    Plain(Value),
    Alone(Expression),
    Text(Vec<Piece>),
    List(Vec<Self>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Expression(Expression),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    key: String,
    node: Node,
}

impl Template {
    /// Takes JSON as it is, whatever its texts look like.
    pub(crate) const fn plain(value: Value) -> Self {
        Self(Node::Plain(value))
    }

    /// Reads JSON with expressions and checks them.
    pub(crate) fn read(value: &Value, place: &Place<'_>) -> Result<Self, Fault> {
        node(value, place, DEPTH_MAX).map(Self)
    }

    /// Returns the JSON it was read from.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.0.to_json()
    }

    /// Says whether it has no expressions.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!(self.0, Node::Plain(_))
    }

    /// Says whether it is one expression, whose value it becomes.
    pub(crate) const fn is_alone(&self) -> bool {
        matches!(self.0, Node::Alone(_))
    }

    /// Returns what its expressions read.
    #[must_use]
    pub fn references(&self) -> References {
        let mut found = References::default();
        self.0.each(&mut |expression| found.merge(expression.references()));
        found
    }

    /// Returns the JSON with the values of its expressions.
    ///
    /// # Errors
    ///
    /// Says which expression has no value, and why.
    pub fn render(&self, scope: &Scope<'_>, work: &mut Work) -> Result<Value, ExpressionError> {
        let mut bytes = 0;
        self.0.render(scope, work, &mut bytes)
    }
}

fn node(value: &Value, place: &Place<'_>, deepest: usize) -> Result<Node, Fault> {
    let Some(deepest) = deepest.checked_sub(1) else {
        return Err(Fault::at(place, format!("nests deeper than {DEPTH_MAX}")));
    };
    match value {
        Value::String(text) if text.contains(OPEN) => of_text(text, place),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Ok(Node::Plain(value.clone()))
        }
        Value::Array(list) => {
            let mut nodes = Vec::with_capacity(list.len());
            for (index, item) in list.iter().enumerate() {
                nodes.push(node(item, &place.index(index), deepest)?);
            }
            let plain = nodes.iter().all(|node| matches!(node, Node::Plain(_)));
            Ok(if plain { Node::Plain(value.clone()) } else { Node::List(nodes) })
        }
        Value::Object(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for (key, item) in map {
                let place = place.key(key);
                if key.contains(OPEN) {
                    return Err(Fault::at(&place, "a key cannot be an expression; write its name"));
                }
                entries.push(Entry { key: key.clone(), node: node(item, &place, deepest)? });
            }
            let plain = entries.iter().all(|entry| matches!(entry.node, Node::Plain(_)));
            Ok(if plain { Node::Plain(value.clone()) } else { Node::Map(entries) })
        }
    }
}

fn of_text(text: &str, place: &Place<'_>) -> Result<Node, Fault> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(OPEN) {
        let inner = &rest[open + OPEN.len()..];
        let Some(end) = end_of_expression(inner) else {
            return Err(Fault::at(place, "`${{` is not closed; end the expression with `}}`"));
        };
        let expression = Expression::new(&inner[..end]).map_err(|error| {
            Fault::at(place, format!("`{}`: {error}", shown(inner[..end].trim())))
        })?;
        if open > 0 {
            pieces.push(Piece::Plain(rest[..open].to_owned()));
        }
        pieces.push(Piece::Expression(expression));
        rest = &inner[end + CLOSE.len()..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Plain(rest.to_owned()));
    }
    Ok(match pieces.pop() {
        Some(Piece::Expression(expression)) if pieces.is_empty() => Node::Alone(expression),
        last => {
            pieces.extend(last);
            Node::Text(pieces)
        }
    })
}

impl Node {
    fn to_json(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Alone(expression) => Value::String(expression.to_string()),
            Self::Text(pieces) => {
                let texts = pieces.iter().map(|piece| match piece {
                    Piece::Plain(text) => text.clone(),
                    Piece::Expression(expression) => expression.to_string(),
                });
                Value::String(texts.collect())
            }
            Self::List(nodes) => Value::Array(nodes.iter().map(Self::to_json).collect()),
            Self::Map(entries) => {
                let made = entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(made.collect())
            }
        }
    }

    fn each(&self, act: &mut impl FnMut(&Expression)) {
        match self {
            Self::Plain(_) => {}
            Self::Alone(expression) => act(expression),
            Self::Text(pieces) => pieces.iter().for_each(|piece| match piece {
                Piece::Plain(_) => {}
                Piece::Expression(expression) => act(expression),
            }),
            Self::List(nodes) => nodes.iter().for_each(|node| node.each(act)),
            Self::Map(entries) => entries.iter().for_each(|entry| entry.node.each(act)),
        }
    }

    fn render(
        &self,
        scope: &Scope<'_>,
        work: &mut Work,
        bytes: &mut usize,
    ) -> Result<Value, ExpressionError> {
        let value = match self {
            Self::Plain(value) => return Ok(value.clone()),
            Self::Alone(expression) => {
                let value = evaluate(expression, scope, work)?;
                *bytes += size(&value);
                value
            }
            Self::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        Piece::Plain(plain) => text.push_str(plain),
                        Piece::Expression(expression) => {
                            text.push_str(&value_as_text(&evaluate(expression, scope, work)?));
                        }
                    }
                    if text.len() > VALUE_BYTES_MAX {
                        return Err(too_large());
                    }
                }
                *bytes += text.len();
                Value::String(text)
            }
            Self::List(nodes) => {
                let values = nodes.iter().map(|node| node.render(scope, work, bytes));
                Value::Array(values.collect::<Result<_, _>>()?)
            }
            Self::Map(entries) => {
                let mut made = Map::new();
                for entry in entries {
                    made.insert(entry.key.clone(), entry.node.render(scope, work, bytes)?);
                }
                Value::Object(made)
            }
        };
        if *bytes > VALUE_BYTES_MAX {
            return Err(too_large());
        }
        Ok(value)
    }
}

fn too_large() -> ExpressionError {
    ExpressionError(format!("is rendered to more than {VALUE_BYTES_MAX} bytes"))
}

fn evaluate(
    expression: &Expression,
    scope: &Scope<'_>,
    work: &mut Work,
) -> Result<Value, ExpressionError> {
    let named = |error| ExpressionError(format!("{expression}: {error}"));
    expression.evaluate(scope, work).map_err(named)
}

/// Returns about how long a value is as text.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => 2 + list.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(map) => {
            2 + map.iter().map(|(key, item)| key.len() + 4 + size(item)).sum::<usize>()
        }
    }
}
