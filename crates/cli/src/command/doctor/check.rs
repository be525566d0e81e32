//! One check: a fact, a verdict, and what would help.

use outlast_cli_core::output::{Table, escape};
use serde_json::{Value, json};

/// The verdict on a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// It was not checked; the fact says why.
    Skipped,
    /// All is well.
    Ok,
    /// It works, but needs attention.
    Warn,
    /// Something does not work.
    Fail,
}

impl Level {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    /// What, in one or two words that do not change.
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// What was found.
    pub(super) fact: String,
    /// The number in it, and its unit.
    pub(super) number: Option<(f64, &'static str)>,
    /// What would help.
    pub(super) fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, level: Level, fact: impl Into<String>) -> Self {
        Self { name, level, fact: fact.into(), number: None, fix: None }
    }

    pub(super) fn ok(name: &'static str, fact: impl Into<String>) -> Self {
        Self::new(name, Level::Ok, fact)
    }

    pub(super) fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Level::Skipped, why)
    }

    /// Something is not right: `level` says how bad, `fix` what would help.
    pub(super) fn wrong(
        name: &'static str,
        level: Level,
        fact: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { fix: Some(fix.into()), ..Self::new(name, level, fact) }
    }

    pub(super) fn warn(
        name: &'static str,
        fact: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::wrong(name, Level::Warn, fact, fix)
    }

    pub(super) fn fail(
        name: &'static str,
        fact: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::wrong(name, Level::Fail, fact, fix)
    }

    pub(super) fn with_number(mut self, value: f64, unit: &'static str) -> Self {
        self.number = Some((value, unit));
        self
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "check": self.name,
            "verdict": self.level.word(),
            "fact": self.fact,
            "value": self.number.map(|(value, _)| value),
            "unit": self.number.map(|(_, unit)| unit),
            "fix": self.fix,
        })
    }
}

/// All checks as text, each fix below its fact.
pub(super) fn page(checks: &[Check]) -> String {
    let mut table = Table::new(&["VERDICT", "CHECK", "FACT"]);
    for check in checks {
        let (word, name) = (check.level.word().to_owned(), check.name.to_owned());
        table.row(vec![word, name, escape(&check.fact)]);
        if let Some(fix) = &check.fix {
            table.row(vec![String::new(), String::new(), format!("fix: {}", escape(fix))]);
        }
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::{Check, Level, page};

    #[test]
    fn a_fix_stands_below_its_fact_and_nothing_reaches_the_terminal_raw() {
        let checks = [Check::ok("reach", "1 ms"), Check::fail("queue", "\u{1b}[2J", "start one")];
        let page = page(&checks);
        assert!(page.contains("\\u{1b}[2J"), "{page}");
        assert!(page.lines().last().unwrap().trim_start().starts_with("fix: start one"), "{page}");
    }

    #[test]
    fn the_worst_verdict_is_the_greatest() {
        assert!(Level::Fail > Level::Warn && Level::Warn > Level::Ok);
        assert!(Level::Ok > Level::Skipped);
    }
}
