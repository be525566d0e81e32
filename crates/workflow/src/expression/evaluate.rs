//! From nodes to a value, counting each step.

use std::rc::Rc;

use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, operators,
};
use serde_json::Value;

use super::compare::equal;
use super::functions;
use super::value::{Entry, List, Map, Term, Text};
use super::work::Work;
use super::{Scope, VARIABLES};
use crate::fault::{nearest, shown};
use crate::limits::VALUE_BYTES_MAX;

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// The values do not allow it. `false && …` and `true || …` do not mind.
    #[error("{0}")]
    Failed(String),
    #[error("takes more than {0} steps of work; let a step compute it")]
    TooMuchWork(u64),
    #[error("makes a value of more than {VALUE_BYTES_MAX} bytes; let a step compute it")]
    TooLarge,
}

impl Trouble {
    pub(crate) fn failed(problem: impl Into<String>) -> Self {
        Self::Failed(problem.into())
    }
}

type Evaluated<'a> = Result<Term<'a>, Trouble>;

/// Evaluates checked nodes.
pub(crate) fn run<'a>(root: &'a IdedExpr, scope: &Scope<'a>, work: &mut Work) -> Evaluated<'a> {
    Evaluation { scope: *scope, work, locals: Vec::new() }.value(root)
}

pub(crate) struct Evaluation<'a, 'w> {
    scope: Scope<'a>,
    pub(crate) work: &'w mut Work,
    /// Variables of macros, the innermost last.
    locals: Vec<Local<'a>>,
}

struct Local<'a> {
    name: &'a str,
    value: Term<'a>,
}

impl<'a> Evaluation<'a, '_> {
    pub(crate) fn value(&mut self, node: &'a IdedExpr) -> Evaluated<'a> {
        self.work.spend(1)?;
        match &node.expr {
            Expr::Literal(literal) => literal_value(literal),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items = list.elements.iter().map(|item| self.value(item));
                Ok(Term::List(List::Made(Rc::new(items.collect::<Result<_, _>>()?))))
            }
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => Err(Trouble::failed("is no value")),
        }
    }

    fn variable(&self, name: &str) -> Evaluated<'a> {
        if let Some(local) = self.locals.iter().rev().find(|local| local.name == name) {
            return Ok(local.value.clone());
        }
        let item = || {
            self.scope.item.ok_or_else(|| {
                Trouble::failed(format!("`{name}` is there only in steps with `for_each`"))
            })
        };
        match name {
            "parameters" => Ok(self.scope.parameters.into()),
            "steps" => Ok(self.scope.steps.into()),
            "workflow" => Ok(self.scope.workflow.into()),
            "item" => Ok(item()?.value.into()),
            "index" => Ok(Term::Int(item()?.index.into())),
            _ => Err(Trouble::failed(unknown_variable(name))),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> Evaluated<'a> {
        match self.value(&select.operand)? {
            Term::Map(map) if select.test => Ok(Term::Bool(map.get(&select.field).is_some())),
            Term::Map(map) => map.get(&select.field).ok_or_else(|| no_key(&select.field, &map)),
            other => Err(Trouble::failed(format!(
                "{} has no keys, so no `{}`",
                other.kind(),
                shown(&select.field)
            ))),
        }
    }

    fn map(&mut self, map: &'a MapExpr) -> Evaluated<'a> {
        let mut entries: Vec<Entry<'a>> = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = match self.value(&entry.key)? {
                Term::Text(text) => text,
                other => {
                    let problem = format!("a key of a map is text, not {}", other.kind());
                    return Err(Trouble::failed(problem));
                }
            };
            if entries.iter().any(|known| known.key.as_str() == key.as_str()) {
                let problem = format!("the key `{}` is there twice", shown(key.as_str()));
                return Err(Trouble::failed(problem));
            }
            entries.push(Entry { key, value: self.value(&entry.value)? });
        }
        Ok(Term::Map(Map::Made(Rc::new(entries))))
    }

    fn call(&mut self, call: &'a CallExpr) -> Evaluated<'a> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [one, other]) => self.decided_by(false, one, other),
            (operators::LOGICAL_OR, [one, other]) => self.decided_by(true, one, other),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let branch = if self.condition(condition)? { yes } else { no };
                self.value(branch)
            }
            (operators::INDEX, [of, at]) => {
                let (of, at) = (self.value(of)?, self.value(at)?);
                index(&of, &at)
            }
            (name, args) => {
                let mut values = Vec::with_capacity(args.len() + 1);
                for arg in call.target.as_deref().into_iter().chain(args) {
                    values.push(self.value(arg)?);
                }
                functions::call(name, &values, self.work)
            }
        }
    }

    fn condition(&mut self, node: &'a IdedExpr) -> Result<bool, Trouble> {
        match self.value(node)? {
            Term::Bool(it) => Ok(it),
            other => Err(Trouble::failed(format!("{} is neither true nor false", other.kind()))),
        }
    }

    /// Evaluates `&&` or `||`: either side may decide, also if the other fails.
    fn decided_by(
        &mut self,
        deciding: bool,
        one: &'a IdedExpr,
        other: &'a IdedExpr,
    ) -> Evaluated<'a> {
        match self.condition(one) {
            Ok(it) if it == deciding => Ok(Term::Bool(deciding)),
            Ok(_) => self.condition(other).map(Term::Bool),
            Err(Trouble::Failed(problem)) => match self.condition(other)? {
                it if it == deciding => Ok(Term::Bool(deciding)),
                _ => Err(Trouble::Failed(problem)),
            },
            Err(trouble) => Err(trouble),
        }
    }

    fn comprehension(&mut self, over: &'a ComprehensionExpr) -> Evaluated<'a> {
        let range = match self.value(&over.iter_range)? {
            Term::List(list) => list,
            Term::Map(map) => List::Made(Rc::new(map.keys().into_iter().map(Term::Text).collect())),
            other => {
                let problem =
                    format!("goes over a list or the keys of a map, not {}", other.kind());
                return Err(Trouble::failed(problem));
            }
        };
        let start = self.value(&over.accu_init)?;
        match Fold::of(over) {
            Fold::Append(append) => self.append(over, &range, append),
            Fold::Until { deciding, condition } => self.until(over, &range, deciding, condition),
            Fold::Count { condition } => {
                let Term::Int(mut count) = start else {
                    return Err(Trouble::failed("is no count"));
                };
                for item in range.iter() {
                    count += i64::from(self.with(over, item, |it| it.condition(condition))?);
                }
                Ok(Term::Bool(count == 1))
            }
            Fold::Unknown => Err(Trouble::failed("uses an unknown macro")),
        }
    }

    /// Evaluates something with the macro's variable set to an item.
    fn with<T>(
        &mut self,
        over: &'a ComprehensionExpr,
        item: Term<'a>,
        act: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.locals.push(Local { name: &over.iter_var, value: item });
        let outcome = act(self);
        self.locals.pop();
        outcome
    }

    /// `map` and `filter`: the values of the items that meet the condition, in order.
    fn append(
        &mut self,
        over: &'a ComprehensionExpr,
        range: &List<'a>,
        append: Append<'a>,
    ) -> Evaluated<'a> {
        let mut made = Vec::new();
        for item in range.iter() {
            let kept = self.with(over, item, |it| match append.condition {
                Some(condition) if !it.condition(condition)? => Ok(None),
                _ => it.value(append.item).map(Some),
            })?;
            made.extend(kept);
        }
        Ok(Term::List(List::Made(Rc::new(made))))
    }

    /// `all` and `exists`: until an item decides. An item that fails counts only if none decides.
    fn until(
        &mut self,
        over: &'a ComprehensionExpr,
        range: &List<'a>,
        deciding: bool,
        condition: &'a IdedExpr,
    ) -> Evaluated<'a> {
        let mut failed = None;
        for item in range.iter() {
            match self.with(over, item, |it| it.condition(condition)) {
                Ok(it) if it == deciding => return Ok(Term::Bool(deciding)),
                Ok(_) => {}
                Err(Trouble::Failed(problem)) => failed = failed.or(Some(problem)),
                Err(trouble) => return Err(trouble),
            }
        }
        failed.map_or(Ok(Term::Bool(!deciding)), |problem| Err(Trouble::Failed(problem)))
    }
}

/// What `map` and `filter` add to a list.
#[derive(Clone, Copy)]
pub(crate) struct Append<'a> {
    condition: Option<&'a IdedExpr>,
    item: &'a IdedExpr,
}

/// What a macro does with each item. The parser has turned it into a fold; we turn it back, since
/// a fold that copies its list at each step takes the square of its length.
pub(crate) enum Fold<'a> {
    Append(Append<'a>),
    Until { deciding: bool, condition: &'a IdedExpr },
    Count { condition: &'a IdedExpr },
    Unknown,
}

impl<'a> Fold<'a> {
    pub(crate) fn of(over: &'a ComprehensionExpr) -> Self {
        let is_result =
            |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if *name == over.accu_var);
        let Expr::Call(step) = &over.loop_step.expr else { return Self::Unknown };
        match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::LOGICAL_AND, [result, condition]) if is_result(result) => {
                Self::Until { deciding: false, condition }
            }
            (operators::LOGICAL_OR, [result, condition]) if is_result(result) => {
                Self::Until { deciding: true, condition }
            }
            (operators::ADD, [result, added]) if is_result(result) => only_item(added)
                .map_or(Self::Unknown, |item| Self::Append(Append { condition: None, item })),
            (operators::CONDITIONAL, [condition, yes, no]) if is_result(no) => match &yes.expr {
                Expr::Call(CallExpr { func_name, args, .. }) if func_name == operators::ADD => {
                    match args.as_slice() {
                        [result, added] if is_result(result) => match only_item(added) {
                            Some(item) => Self::Append(Append { condition: Some(condition), item }),
                            None => Self::Count { condition },
                        },
                        _ => Self::Unknown,
                    }
                }
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Returns the nodes that are evaluated for each item.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &'a IdedExpr> {
        let (one, other) = match self {
            Self::Append(append) => (append.condition, Some(append.item)),
            Self::Until { condition, .. } | Self::Count { condition } => (Some(*condition), None),
            Self::Unknown => (None, None),
        };
        one.into_iter().chain(other)
    }
}

fn only_item(node: &IdedExpr) -> Option<&IdedExpr> {
    match &node.expr {
        Expr::List(list) if list.elements.len() == 1 => list.elements.first(),
        _ => None,
    }
}

fn literal_value(literal: &LiteralValue) -> Evaluated<'_> {
    match literal {
        LiteralValue::Boolean(it) => Ok(Term::Bool(*it.inner())),
        LiteralValue::Double(it) => Ok(Term::Double(*it.inner())),
        LiteralValue::Int(it) => Ok(Term::Int(*it.inner())),
        LiteralValue::UInt(it) => Ok(Term::Uint(*it.inner())),
        LiteralValue::Null => Ok(Term::Null),
        LiteralValue::String(it) => Ok(Term::Text(Text::Borrowed(it.inner()))),
        LiteralValue::Bytes(_) => Err(Trouble::failed("has bytes; write text")),
    }
}

/// Says that a variable is not known, and which one may be meant.
pub(crate) fn unknown_variable(name: &str) -> String {
    let known = VARIABLES.join(", ");
    match nearest(name, VARIABLES) {
        Some(near) => format!("there is no `{}`; did you mean `{near}`?", shown(name)),
        None => format!(
            "there is no `{}`; an expression reads {known}; text is written in quotes",
            shown(name)
        ),
    }
}

fn no_key(key: &str, map: &Map<'_>) -> Trouble {
    // A map may be large; this is said once.
    let keys = map.keys();
    let near = nearest(key, keys.iter().take(100).map(Text::as_str));
    let hint = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
    Trouble::failed(format!("there is no key `{}`{hint}", shown(key)))
}

fn index<'a>(of: &Term<'a>, at: &Term<'a>) -> Evaluated<'a> {
    let position = match at {
        Term::Int(at) => usize::try_from(*at).ok(),
        Term::Uint(at) => usize::try_from(*at).ok(),
        _ => None,
    };
    match (of, at) {
        (Term::Map(map), Term::Text(key)) => {
            map.get(key.as_str()).ok_or_else(|| no_key(key.as_str(), map))
        }
        (Term::List(list), Term::Int(_) | Term::Uint(_)) => {
            position.and_then(|at| list.get(at)).ok_or_else(|| {
                let at = at.scalar().unwrap_or_default();
                Trouble::failed(format!("a list of {} has no item {at}", list.len()))
            })
        }
        (of, at) => Err(Trouble::failed(format!("{} has no index of {}", of.kind(), at.kind()))),
    }
}

/// Says whether a list has an item, or a map a key.
pub(crate) fn contains(of: &Term<'_>, wanted: &Term<'_>, work: &mut Work) -> Result<bool, Trouble> {
    match (of, wanted) {
        (Term::List(list), wanted) => {
            for item in list.iter() {
                if equal(&item, wanted, work)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Term::Map(map), Term::Text(key)) => Ok(map.get(key.as_str()).is_some()),
        // Keys are text, so no other value is one.
        (Term::Map(_), wanted) if !matches!(wanted, Term::List(_) | Term::Map(_) | Term::Null) => {
            Ok(false)
        }
        (of, wanted) => {
            let problem =
                format!("`in` asks a list or a map, not {} in {}", wanted.kind(), of.kind());
            Err(Trouble::failed(problem))
        }
    }
}

/// Returns a value as text within a longer text: text as it is, all else as JSON.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
