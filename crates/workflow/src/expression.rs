//! What users write between `${{` and `}}`: CEL, checked when a workflow is stored.
//!
//! ```text
//!  text ──scan──▶ parse (crate cel) ──check──▶ nodes ──evaluate (ours, over JSON)──▶ value
//!       size, brackets       names, functions,        steps of work, bytes
//!                            which steps it reads
//! ```
//!
//! The crate `cel` reads the text. We evaluate it, because its evaluator counts no steps: an
//! expression of a line may take hours or all memory there. Here each node, each element and each
//! 64 bytes looked at are counted, and what exceeds [`limits::WORK_MAX`] fails. Values are data: an
//! expression never sees text that a value became part of.
//!
//! What is left out of CEL: bytes, messages, time, `matches` and macros over two variables. Keys
//! of maps are text, as in JSON. A whole JSON number is an int, or a uint beyond the ints.

mod check;
mod compare;
mod evaluate;
mod functions;
mod scan;
#[cfg(test)]
mod tests;
mod value;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cel::IdedExpr;
use cel::parser::PrattParser;
use serde_json::Value;

use crate::limits;

pub(crate) use evaluate::as_text as value_as_text;
pub(crate) use scan::end_of_expression;
pub use work::Work;

/// The names that an expression may use.
pub const VARIABLES: [&str; 5] = ["parameters", "steps", "item", "index", "workflow"];

/// What an expression reads of a step.
pub const STEP_FIELDS: [&str; 6] = ["status", "result", "error", "total", "completed", "failed"];

/// A checked expression. Copies share its nodes.
#[derive(Clone)]
pub struct Expression {
    source: String,
    parsed: Arc<Parsed>,
}

/// An expression as its nodes, and what it reads.
struct Parsed {
    root: IdedExpr,
    references: References,
}

/// What an expression reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Steps by name, and whether their results are wanted, which may be large.
    pub steps: BTreeMap<String, bool>,
    /// Whether it reads `item` or `index`.
    pub item: bool,
}

impl References {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.item |= other.item;
        for (name, result) in &other.steps {
            *self.steps.entry(name.clone()).or_default() |= result;
        }
    }
}

/// Why an expression is refused, or has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExpressionError(pub String);

/// The values of the names in an expression.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The parameters of the workflow.
    pub parameters: &'a Value,
    /// An object of steps by name, with the fields [`STEP_FIELDS`].
    pub steps: &'a Value,
    /// The item and its index, in what is rendered for each item.
    pub item: Option<ItemScope<'a>>,
    /// What the workflow says of itself: at least `id` and `name`.
    pub workflow: &'a Value,
}

/// One item of a `for_each` step.
#[derive(Clone, Copy, Debug)]
pub struct ItemScope<'a> {
    /// The item.
    pub value: &'a Value,
    /// Its place in the list, from zero.
    pub index: u32,
}

impl Expression {
    /// Reads and checks an expression, without `${{` and `}}`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it. Whether the steps it reads are there, the definition checks.
    pub fn new(source: &str) -> Result<Self, ExpressionError> {
        let source = source.trim().to_owned();
        let parsed = Arc::new(parse(&source)?);
        Ok(Self { source, parsed })
    }

    /// Returns the text, without `${{` and `}}`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns what it reads.
    #[must_use]
    pub fn references(&self) -> &References {
        &self.parsed.references
    }

    /// Returns the value, as one of its own or as a copy of part of what it read.
    ///
    /// # Errors
    ///
    /// Says why there is none: a missing key, other types than an operator takes, too much work.
    pub fn evaluate(&self, scope: &Scope<'_>, work: &mut Work) -> Result<Value, ExpressionError> {
        let trouble = |trouble: evaluate::Trouble| ExpressionError(trouble.to_string());
        let value = evaluate::run(&self.parsed.root, scope, work).map_err(trouble)?;
        value.into_json(work).map_err(trouble)
    }
}

fn parse(source: &str) -> Result<Parsed, ExpressionError> {
    scan::check(source)?;
    let root = PrattParser::new()
        .max_expression_node_count(limits::EXPRESSION_NODES_MAX)
        .parse(source)
        .map_err(|errors| ExpressionError(unreadable(&errors)))?;
    let references = check::check(&root)?;
    Ok(Parsed { root, references })
}

/// Returns the first error of the parser as one line.
fn unreadable(errors: &cel::ParseErrors) -> String {
    // Those without a place say that the parser gave up, after it met the others.
    let placed = errors.errors.iter().find(|error| error.pos.0 > 0);
    let Some(first) = placed.or_else(|| errors.errors.first()) else {
        return "is no CEL".to_owned();
    };
    let problem = first.msg.trim_start_matches("Syntax error: ");
    match first.pos {
        (1, column) => format!("is no CEL at character {column}: {problem}"),
        (line, column) => format!("is no CEL at line {line}, character {column}: {problem}"),
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({})", self.source)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{{ {} }}}}", self.source)
    }
}
