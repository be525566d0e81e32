//! What the nodes of an expression may be, and which steps they read.

use std::collections::BTreeMap;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators};

use super::evaluate::{Fold, unknown_variable};
use super::functions::{KNOWN, OPERATORS};
use super::scan::too_many_nodes;
use super::{ExpressionError, References, STEP_FIELDS, VARIABLES};
use crate::fault::{instead, nearest, shown};
use crate::limits::{EXPRESSION_NODES_MAX, NODES_DEPTH_MAX};

type Checked = Result<(), ExpressionError>;

/// Checks an expression and returns what it reads.
pub(crate) fn check(root: &IdedExpr) -> Result<References, ExpressionError> {
    let mut check = Check { nodes: 0, depth: 0, locals: Vec::new(), found: References::default() };
    check.node(root)?;
    Ok(check.found)
}

struct Check<'a> {
    nodes: usize,
    depth: usize,
    locals: Vec<&'a str>,
    found: References,
}

impl<'a> Check<'a> {
    fn node(&mut self, node: &'a IdedExpr) -> Checked {
        self.nodes += 1;
        self.depth += 1;
        if self.nodes > EXPRESSION_NODES_MAX {
            return Err(too_many_nodes());
        }
        if self.depth > NODES_DEPTH_MAX {
            return wrong(format!(
                "nests deeper than {NODES_DEPTH_MAX}; let a step compute it, or join a list"
            ));
        }
        self.within(node)?;
        self.depth -= 1;
        Ok(())
    }

    fn within(&mut self, node: &'a IdedExpr) -> Checked {
        match &node.expr {
            Expr::Literal(LiteralValue::Bytes(_)) => wrong("has bytes; write text, without the b"),
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.node(item)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.node(&entry.key)?;
                    self.node(&entry.value)
                }
                EntryExpr::StructField(_) => wrong("has a message; write a map"),
            }),
            Expr::Comprehension(over) => {
                self.node(&over.iter_range)?;
                if VARIABLES.contains(&over.iter_var.as_str()) {
                    let name = &over.iter_var;
                    return wrong(format!("`{name}` is taken; give the macro another variable"));
                }
                let fold = Fold::of(over);
                if over.iter_var2.is_some() || matches!(fold, Fold::Unknown) {
                    return wrong("uses a macro over two variables; use one");
                }
                self.locals.push(&over.iter_var);
                fold.bodies().try_for_each(|body| self.node(body))?;
                self.locals.pop();
                Ok(())
            }
            Expr::Struct(_) => wrong("has a message; write a map such as {\"name\": item}"),
            Expr::Unspecified => wrong("is no CEL"),
        }
    }

    fn variable(&mut self, name: &str) -> Checked {
        if self.locals.contains(&name) {
            return Ok(());
        }
        match name {
            "item" | "index" => {
                self.found.item = true;
                Ok(())
            }
            "steps" => wrong("reads all `steps`; name one: steps.NAME or steps[\"NAME\"]"),
            name if VARIABLES.contains(&name) => Ok(()),
            name => wrong(unknown_variable(name)),
        }
    }

    fn select(&mut self, select: &'a SelectExpr) -> Checked {
        if self.is_steps(&select.operand) {
            return self.step(&select.field, true);
        }
        match self.step_name(&select.operand)? {
            Some(step) => self.step_field(step, &select.field),
            None => self.node(&select.operand),
        }
    }

    fn is_steps(&self, node: &IdedExpr) -> bool {
        matches!(&node.expr, Expr::Ident(name) if name == "steps")
            && !self.locals.contains(&"steps")
    }

    /// Returns the name of the step, if the node is `steps.NAME` or `steps["NAME"]`.
    fn step_name(&self, node: &'a IdedExpr) -> Result<Option<&'a str>, ExpressionError> {
        match &node.expr {
            Expr::Select(select) if self.is_steps(&select.operand) => Ok(Some(&select.field)),
            Expr::Call(call) => self.step_index(call),
            _ => Ok(None),
        }
    }

    fn step_index(&self, call: &'a CallExpr) -> Result<Option<&'a str>, ExpressionError> {
        let [of, at] = call.args.as_slice() else { return Ok(None) };
        if call.func_name != operators::INDEX || !self.is_steps(of) {
            return Ok(None);
        }
        match &at.expr {
            Expr::Literal(LiteralValue::String(name)) => Ok(Some(name.inner())),
            _ => Err(ExpressionError(
                "chooses a step while it runs; name it: steps.NAME or steps[\"NAME\"]".into(),
            )),
        }
    }

    fn step(&mut self, name: &str, result: bool) -> Checked {
        *self.found.steps.entry(name.to_owned()).or_default() |= result;
        Ok(())
    }

    fn step_field(&mut self, step: &str, field: &str) -> Checked {
        if !STEP_FIELDS.contains(&field) {
            let end = instead(field, &STEP_FIELDS);
            return wrong(format!("a step has no `{}`; {end}", shown(field)));
        }
        self.step(step, field == "result")
    }

    fn call(&mut self, call: &'a CallExpr) -> Checked {
        if let Some(step) = self.step_index(call)? {
            return self.step(step, true);
        }
        if let ([of, at], operators::INDEX) = (call.args.as_slice(), call.func_name.as_str())
            && let Some(step) = self.step_name(of)?
            && let Expr::Literal(LiteralValue::String(field)) = &at.expr
        {
            return self.step_field(step, field.inner());
        }
        self.function(call)?;
        call.target.as_deref().into_iter().chain(&call.args).try_for_each(|node| self.node(node))
    }

    #[expect(clippy::unused_self, reason = "reads as the other checks")]
    fn function(&self, call: &CallExpr) -> Checked {
        let name = call.func_name.as_str();
        let operator = OPERATORS.contains(&name)
            || [operators::LOGICAL_AND, operators::LOGICAL_OR, operators::CONDITIONAL]
                .contains(&name)
            || name == operators::INDEX;
        if operator {
            return Ok(());
        }
        let of_name = || KNOWN.iter().filter(|known| known.name == name);
        let fits = of_name()
            .any(|known| known.method == call.target.is_some() && known.takes == call.args.len());
        if fits {
            return Ok(());
        }
        if let Some(known) = of_name().next() {
            let form = if known.method { format!("x.{name}(…)") } else { format!("{name}(…)") };
            return wrong(format!(
                "calls `{name}` in another way than {form} with {} values",
                known.takes
            ));
        }
        if name == "matches" {
            return wrong(
                "calls `matches`, whose time has no bound; use startsWith, endsWith, contains",
            );
        }
        if matches!(name, "has" | "all" | "exists" | "exists_one" | "map" | "filter") {
            return wrong(format!("calls `{name}` with other values than it takes"));
        }
        let known: BTreeMap<_, _> = KNOWN
            .iter()
            .filter(|known| known.name.starts_with(|letter: char| letter.is_ascii_alphabetic()))
            .map(|known| (known.name, ()))
            .collect();
        let end = match nearest(name, known.keys().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}", known.into_keys().collect::<Vec<_>>().join(", ")),
        };
        wrong(format!("there is no function `{}`; {end}", shown(name)))
    }
}

fn wrong(problem: impl Into<String>) -> Checked {
    Err(ExpressionError(problem.into()))
}
