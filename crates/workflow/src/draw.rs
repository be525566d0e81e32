//! A workflow as text for a terminal.
//!
//! ```text
//! nightly  running  2 of 4 steps ended
//!
//! ✓ load    completed
//! │
//! ● each    running    12/100  ◀ load
//! │
//! ○ send    waiting            ◀ each
//! │
//! ○ report  waiting            ◀ send (always)
//! ```
//!
//! Steps of the same depth stand together: they may run at the same time. Every edge is named at its
//! lower end, since lines that cross cannot be read.

#[cfg(test)]
mod tests;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::definition::{Definition, StepDefinition, When};
use crate::state::{StepState, StepStatus, WorkflowState};

/// Narrowest drawing. Less has no room for a name and a status.
pub const WIDTH_MIN: usize = 40;
/// Most columns of a name; longer ones are cut in their middle.
const NAME_MAX: usize = 32;

/// Draws a workflow in lines of at most `width` columns.
#[must_use]
pub fn draw(definition: &Definition, state: &WorkflowState, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let rows: Vec<_> =
        in_order(definition).into_iter().map(|step| row(definition, state, step)).collect();
    let columns = Columns::of(&rows, width);
    let mut drawn = headline(definition, state, width);
    let mut depth = None;
    for row in &rows {
        match depth {
            None => drawn.push('\n'),
            Some(last) if last != row.depth => drawn.push_str("│\n"),
            Some(_) => {}
        }
        depth = Some(row.depth);
        drawn.push_str(&columns.line(row, width));
        drawn.push('\n');
    }
    drawn
}

fn headline(definition: &Definition, state: &WorkflowState, width: usize) -> String {
    let ended = state.steps.iter().filter(|step| step.status.is_ended()).count();
    let name = definition.name.as_deref().unwrap_or("workflow");
    let stop = if !state.status.is_ended() && state.stop.is_some() { " (ending)" } else { "" };
    let line =
        format!("{name}  {}{stop}  {ended} of {} steps ended", state.status, state.steps.len());
    cut(&line, width) + "\n"
}

/// Returns the steps by depth, those of one depth as they were written.
fn in_order(definition: &Definition) -> Vec<usize> {
    let mut steps: Vec<_> = (0..definition.steps().len()).collect();
    steps.sort_by_key(|step| definition.depth(*step));
    steps
}

/// One line before it is laid out.
struct Row {
    depth: usize,
    mark: char,
    name: String,
    status: &'static str,
    count: String,
    after: Vec<String>,
    /// What stands behind the edges: when it runs, or why it failed.
    note: String,
}

fn row(definition: &Definition, state: &WorkflowState, step: usize) -> Row {
    let (described, known) = (&definition.steps()[step], &state.steps[step]);
    let after = described.after.iter().map(|parent| &definition.steps()[*parent].name);
    Row {
        depth: definition.depth(step),
        mark: mark(known.status),
        name: cut_middle(&described.name, NAME_MAX),
        status: known.status.as_str(),
        count: count(described, known),
        after: after.map(|name| cut_middle(name, NAME_MAX)).collect(),
        note: note(described, known),
    }
}

const fn mark(status: StepStatus) -> char {
    match status {
        StepStatus::Waiting => '○',
        StepStatus::Running => '●',
        StepStatus::Completed => '✓',
        StepStatus::Failed | StepStatus::TimedOut | StepStatus::Abandoned => '✗',
        StepStatus::Cancelled => '⊘',
        StepStatus::Skipped => '·',
    }
}

/// Returns how many items ended, of how many, and how many of these without success.
fn count(described: &StepDefinition, known: &StepState) -> String {
    if described.for_each.is_none() {
        return String::new();
    }
    if known.total == 0 && known.status != StepStatus::Completed {
        return "0/?".to_owned();
    }
    match known.unsuccessful() {
        0 => format!("{}/{}", known.ended(), known.total),
        bad => format!("{}/{} ({bad} ✗)", known.ended(), known.total),
    }
}

fn note(described: &StepDefinition, known: &StepState) -> String {
    if let Some(reason) = &known.reason {
        let item = reason.item.filter(|_| described.for_each.is_some());
        let item = item.map(|item| format!("item {item}: ")).unwrap_or_default();
        return format!("{item}{}", reason.text.escape_debug());
    }
    match &described.when {
        When::Success => String::new(),
        When::Expression(expression) => format!("(if {})", expression.source().escape_debug()),
        other => format!("({})", other.as_text()),
    }
}

/// How wide the columns are.
struct Columns {
    name: usize,
    status: usize,
    count: usize,
}

impl Columns {
    fn of(rows: &[Row], width: usize) -> Self {
        let widest =
            |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).width()).max().unwrap_or(0);
        let (status, count) = (widest(|row| row.status), widest(|row| &row.count));
        // The mark and the gaps take five columns; a name gets what is left, but half at most.
        let name =
            widest(|row| &row.name).min(width / 2).min(width.saturating_sub(status + count + 5));
        Self { name, status, count }
    }

    fn line(&self, row: &Row, width: usize) -> String {
        let mut line = format!("{} ", row.mark);
        let mut column = |text: &str, columns: usize| {
            line.push_str(text);
            line.extend(std::iter::repeat_n(' ', columns.saturating_sub(text.width()) + 2));
        };
        column(&cut_middle(&row.name, self.name), self.name);
        column(row.status, self.status);
        if self.count > 0 {
            column(&row.count, self.count);
        }
        let left = width.saturating_sub(line.width());
        line.push_str(&edges(&row.after, left));
        if !row.note.is_empty() {
            // A condition is in brackets; a reason stands by itself.
            let gap = if row.note.starts_with('(') { " " } else { ": " };
            line.push_str(if row.after.is_empty() { "" } else { gap });
            line.push_str(&row.note);
        }
        cut(line.trim_end(), width)
    }
}

/// Names as many steps as there is room for.
fn edges(after: &[String], columns: usize) -> String {
    let Some(first) = after.first() else { return String::new() };
    let mut named = format!("◀ {first}");
    for (index, name) in after.iter().enumerate().skip(1) {
        let more = format!(" +{}", after.len() - index);
        let is_last = index + 1 == after.len();
        let room = columns.saturating_sub(if is_last { 0 } else { more.width() });
        if named.width() + 2 + name.width() > room {
            return named + &more;
        }
        named.push_str(", ");
        named.push_str(name);
    }
    named
}

/// Cuts the end of a line that is too long.
fn cut(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut kept = String::new();
    let mut columns = 1;
    for letter in line.chars() {
        columns += letter.width().unwrap_or(0);
        if columns > width {
            break;
        }
        kept.push(letter);
    }
    kept + "…"
}

/// Cuts the middle of a name: its end often says more than what is before.
fn cut_middle(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let letters: Vec<char> = name.chars().collect();
    let head = width.saturating_sub(1) / 2;
    let tail = width.saturating_sub(1) - head;
    let start: String = letters.iter().take(head).collect();
    let end: String = letters.iter().skip(letters.len().saturating_sub(tail)).collect();
    format!("{start}…{end}")
}
