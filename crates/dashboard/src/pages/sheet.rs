//! A page of sections, one below the other: what most pages are made of.

use askama::Template;
use outlast_core::time::{Span, Timestamp};

use super::Text;
use crate::Frame;
use crate::atoms::{Bars, Bytes, Count, Lasting, Status};

/// A page of sections.
#[derive(Debug, Template)]
#[template(path = "sheet.html")]
pub struct SheetPage {
    /// What stands around it.
    pub frame: Frame,
    /// What it consists of.
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Clone, Debug)]
pub enum Section {
    /// The one sentence that matters.
    Why(Why),
    /// A heading.
    Heading(String),
    /// A paragraph.
    Note(String),
    /// Numbers.
    Cards(Vec<Card>),
    /// Something that needs someone.
    Finding(Finding),
    /// Fields that choose what a page lists.
    Filter(Form),
    /// Buttons, side by side.
    Buttons(Vec<Form>),
    /// A table.
    Table(Table),
    /// Names and values.
    Facts(Vec<(&'static str, Cell)>),
    /// A text with a title.
    Text(String, Text),
    /// A drawing of steps.
    Graph(super::graph::Graph),
}

/// The one sentence that matters.
#[derive(Clone, Debug)]
pub struct Why {
    /// The state, if there is one.
    pub status: Option<String>,
    /// The sentence.
    pub text: String,
    /// What tests find it by.
    pub testid: &'static str,
}

/// A number with its name.
#[derive(Clone, Debug)]
pub struct Card {
    /// What is counted.
    pub label: String,
    /// The number, with its unit.
    pub value: String,
    /// What tests find it by, and what its updates are called.
    pub testid: String,
    /// Where it leads, from the page.
    pub href: Option<String>,
}

/// Something that needs someone.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it is called among rules.
    pub name: String,
    /// Whether work is lost or stands still.
    pub is_worst: bool,
    /// What is so.
    pub what: String,
    /// On what evidence, and since when.
    pub evidence: String,
    /// What to do.
    pub remedy: String,
    /// Where to look, from the page.
    pub href: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What its updates are called.
    pub name: &'static str,
    /// What it shows.
    pub caption: String,
    /// The names of its columns; those of numbers end with `#`.
    pub columns: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// What to say if there are none.
    pub empty: &'static str,
    /// What tests find its rows by, if rows are added by themselves.
    pub grows: Option<&'static str>,
    /// Where the next page is, from the page, and what that is called.
    pub next: Option<(String, &'static str)>,
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What tells it from others: short, since it is part of each update.
    pub key: String,
    /// What tests find it by.
    pub testid: Option<String>,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// What a cell shows.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Text.
    Text(String),
    /// Text that may change.
    Live(String),
    /// A link, from the page.
    Link(String, String),
    /// A state.
    State(String),
    /// A number.
    Count(u64),
    /// An instant.
    At(Timestamp),
    /// An instant that may change.
    LiveAt(Timestamp),
    /// How long something takes.
    Lasting(Span),
    /// A size in bytes.
    Bytes(u64),
    /// Buttons.
    Buttons(Vec<Form>),
    /// Numbers as a line of small bars, one for each; the row says in words what they mean.
    Bars(Vec<u64>),
    /// Text that tests find.
    Marked(&'static str, String),
}

impl Cell {
    /// Whether there is nothing to show, and never will be.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    /// Text, if there is some.
    #[must_use]
    pub fn text(text: Option<impl Into<String>>) -> Self {
        Self::Text(text.map(Into::into).unwrap_or_default())
    }

    /// An instant, if there is one.
    #[must_use]
    pub fn at(at: Option<Timestamp>) -> Self {
        at.map_or_else(|| Self::Text(String::new()), Self::At)
    }
}

/// Something that can be sent.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// What it is called among the forms of a page.
    pub name: String,
    /// Where it goes, from the page.
    pub action: String,
    /// What its button says.
    pub label: String,
    /// Whether it is hard to undo.
    pub is_dangerous: bool,
    /// What is asked before it is sent.
    pub confirm: Option<String>,
    /// What it asks for.
    pub fields: Vec<Field>,
}

/// What a form asks for.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an attribute of an element")]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it is called; none for one that the reader does not see.
    pub label: Option<String>,
    /// Its value.
    pub value: String,
    /// An example.
    pub placeholder: String,
    /// What may be chosen, if not everything.
    pub choices: Vec<String>,
    /// Whether it is a text of several lines.
    pub is_long: bool,
    /// Whether it must be there.
    pub is_required: bool,
    /// Whether what is typed is not to be seen.
    pub is_secret: bool,
}

impl Field {
    /// A field that the reader does not see.
    #[must_use]
    pub fn hidden(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), ..Self::default() }
    }

    /// A field for a word.
    #[must_use]
    pub fn word(name: &str, label: &str, value: impl Into<String>) -> Self {
        let label = Some(label.to_owned());
        Self { name: name.to_owned(), label, value: value.into(), ..Self::default() }
    }

    /// The same with an example.
    #[must_use]
    pub fn such_as(mut self, example: &str) -> Self {
        example.clone_into(&mut self.placeholder);
        self
    }

    /// The same with what may be chosen.
    #[must_use]
    pub fn of(mut self, choices: &[&str]) -> Self {
        self.choices = choices.iter().map(|it| (*it).to_owned()).collect();
        self
    }
}

impl Form {
    /// A button with fields that the reader does not see.
    #[must_use]
    pub fn button(name: &str, action: impl Into<String>, label: &str) -> Self {
        Self {
            name: name.to_owned(),
            action: action.into(),
            label: label.to_owned(),
            ..Self::default()
        }
    }

    /// The same, but it asks first.
    #[must_use]
    pub fn asks(mut self, words: impl Into<String>) -> Self {
        self.is_dangerous = true;
        self.confirm = Some(words.into());
        self
    }

    /// The same with a field.
    #[must_use]
    pub fn with(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }
}

/// Whether the cells of a column are numbers.
fn is_number(column: &str) -> bool {
    column.ends_with('#')
}

/// The name of a column as the reader sees it.
fn shown(column: &str) -> &str {
    column.trim_end_matches('#')
}
