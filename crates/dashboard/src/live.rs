//! What of a page changes while it is looked at.
//!
//! A page marks it: the text of an element with `data-live="key"`, the rows of a table with
//! `data-rows="key"`, and those of their cells that change with `data-c`. This takes the marked parts out of the HTML of the page, so what a page shows at first
//! and what it shows later are the same by construction. The script writes them as texts.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// What marks a cell that changes.
const CHANGES: &str = " data-c";
/// How many rows are described whole, so that the script can add them: the first ones of a table.
const ROWS_WHOLE: usize = 8;

/// The parts of a page that change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Live {
    /// When they were read, in milliseconds.
    pub now: i64,
    /// Texts by key; of a `time` its instant.
    pub texts: BTreeMap<String, String>,
    /// The keys of rows by table, in order: of tables that have none in `cells`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, Vec<String>>,
    /// The rows by table, in order, each as one short line: its key, and its cells that change. A number of a hundred
    /// rows is mostly zero, which is left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, Vec<String>>,
    /// The first rows, cell by cell, of tables that grow by themselves.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub whole: BTreeMap<String, Vec<Row>>,
    /// Which forms there are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<String>,
}

/// A row of a table that grows by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its key.
    pub key: String,
    /// Its cells.
    pub cells: Vec<Cell>,
}

/// A cell of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Where its text leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub href: Option<String>,
    /// The instant that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

impl Live {
    /// Takes the marked parts out of a page.
    #[must_use]
    pub fn of(html: &str, now: i64) -> Self {
        let mut live = Self { now, ..Self::default() };
        let (mut table, mut grows) = (None::<String>, false);
        let mut rest = html;
        while let Some(tag) = Tag::next(&mut rest) {
            if tag.name == "table" {
                table = tag.attribute("data-rows");
                grows = tag.text.contains(" data-grow");
                if let Some(table) = &table {
                    live.rows.entry(table.clone()).or_default();
                }
            }
            if let (Some(table), Some(key)) = (&table, tag.attribute("data-row")) {
                let whole = live.whole.entry(table.clone()).or_default();
                if grows && whole.len() < ROWS_WHOLE {
                    let end = rest.find("</tr>").unwrap_or(rest.len());
                    whole.push(Row { key: key.clone(), cells: cells(&rest[..end]) });
                }
                live.cells.entry(table.clone()).or_default().push(written(&key));
                live.rows.entry(table.clone()).or_default().push(key);
            }
            if let Some(table) = table.as_ref().filter(|_| tag.text.ends_with(CHANGES))
                && let Some(line) = live.cells.get_mut(table).and_then(|lines| lines.last_mut())
            {
                line.push('|');
                let text = text_of(rest);
                if text != "0" {
                    line.push_str(&written(&text));
                }
            }
            if let Some(form) = tag.attribute("data-form") {
                live.forms.push(form);
            }
            if let Some(key) = tag.attribute("data-live") {
                let text = tag.attribute("datetime").unwrap_or_else(|| text_of(rest));
                live.texts.insert(key, text);
            }
        }
        live.whole.retain(|_, rows| !rows.is_empty());
        live.cells.retain(|_, lines| lines.iter().any(|line| line.contains('|')));
        live.rows.retain(|table, _| !live.cells.contains_key(table));
        live
    }

    /// Writes them as JSON, with a tag that is the same as long as nothing but the time changes.
    #[must_use]
    pub fn document(&self) -> (String, String) {
        let timeless = Self { now: 0, ..self.clone() };
        // Keys and values are texts.
        let of = |live: &Self| serde_json::to_string(live).unwrap_or_default();
        let digest = Sha256::digest(of(&timeless).as_bytes());
        let tag = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
        (of(self), format!("\"{tag}\""))
    }
}

/// A start tag.
struct Tag<'a> {
    name: &'a str,
    text: &'a str,
}

impl<'a> Tag<'a> {
    /// Goes on behind the next start tag.
    fn next(rest: &mut &'a str) -> Option<Self> {
        loop {
            let from = rest.find('<')? + 1;
            let tag = &rest[from..];
            let end = tag.find('>')?;
            let text = &tag[..end];
            *rest = &tag[end + 1..];
            if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
                let name = text.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or(text);
                return Some(Self { name, text });
            }
        }
    }

    /// Returns the value of an attribute. Values are escaped, so none holds a quotation mark.
    fn attribute(&self, name: &str) -> Option<String> {
        let mark = format!(" {name}=\"");
        let from = self.text.find(&mark)? + mark.len();
        let value = &self.text[from..];
        Some(unescaped(&value[..value.find('"')?]))
    }
}

/// Returns the text up to the next tag.
fn text_of(html: &str) -> String {
    unescaped(html[..html.find('<').unwrap_or(html.len())].trim())
}

/// Writes a text as a part of a line; nothing is for a zero.
fn written(text: &str) -> String {
    match text {
        "" => "\\e".to_owned(),
        text => text.replace('\\', "\\\\").replace('|', "\\p"),
    }
}

/// Reads the cells of a row.
fn cells(row: &str) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut rest = row;
    while let Some(tag) = Tag::next(&mut rest) {
        if matches!(tag.name, "td" | "th") {
            cells.push(Cell::default());
        }
        let Some(cell) = cells.last_mut() else { continue };
        if tag.name == "a" {
            cell.href = tag.attribute("href");
        }
        if tag.name == "time" {
            cell.time = tag.attribute("datetime");
        }
        let text = text_of(rest);
        // The script writes beside an instant how long ago it was.
        if !text.is_empty() && tag.name != "small" {
            if !cell.text.is_empty() {
                cell.text.push(' ');
            }
            cell.text.push_str(&text);
        }
    }
    cells
}

fn unescaped(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [("&amp;", "&"), ("&#38;", "&"), ("&lt;", "<"), ("&#60;", "<")];
        let more =
            [("&gt;", ">"), ("&#62;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'")];
        let found = known.iter().chain(&more).find(|(name, _)| rest.starts_with(name));
        match found {
            Some((name, character)) => {
                out.push_str(character);
                rest = &rest[name.len()..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Cell, Live, unescaped};
    use crate::atoms::Escaped;

    #[test]
    fn marked_parts_are_taken_out() {
        let page = r#"<body data-now="5"><p>a <b data-live="count">1,234</b></p>
            <time data-live="next" datetime="2026-01-01T00:00:00Z">2026</time>
            <form data-form="cancel" method="post"></form>
            <table data-rows="jobs"><tr><th>ID</th></tr>
            <tr data-row="k&quot;1"><td><a href="jobs/1">1</a></td></tr><tr data-row="k2"></tr></table>
            <table><tr data-row="none"></tr></table>"#;
        let live = Live::of(page, 7);
        assert_eq!(live.texts["count"], "1,234");
        assert_eq!(live.texts["next"], "2026-01-01T00:00:00Z");
        assert_eq!(live.rows["jobs"], ["k\"1", "k2"]);
        assert_eq!(live.forms, ["cancel"]);
        assert!(live.whole.is_empty(), "it does not grow by itself");
        assert_eq!(live.rows.len(), 1);
    }

    #[test]
    fn table_that_grows_describes_its_first_rows() {
        let row = |n: u32| {
            format!(
                r#"<tr data-row="{n}"><td><a href="w/{n}">w{n}</a> on h</td><td><time datetime="T">t</time> <small>1 s ago</small></td><td></td></tr>"#
            )
        };
        let rows: String = (0..20).map(row).collect();
        let live = Live::of(&format!("<table data-rows=\"a\" data-grow>{rows}</table>"), 0);
        assert_eq!((live.rows["a"].len(), live.whole["a"].len()), (20, 8));
        let of = |text: &str, href: Option<&str>, time: Option<&str>| Cell {
            text: text.into(),
            href: href.map(Into::into),
            time: time.map(Into::into),
        };
        let cells = [of("w0", Some("w/0"), None), of("t", None, Some("T")), of("", None, None)];
        assert_eq!(live.whole["a"][0].cells, cells);
    }

    /// The list of a hundred queues once took 16 KB a second.
    #[test]
    fn cells_that_change_are_a_line_for_each_row() {
        let page = r#"<table data-rows="queues"><tr data-row="mail"><td>mail</td>
            <td class="state" data-state="open" data-c>○ open</td><td class=n data-c>0</td>
            <td class=n data-c>1,204</td></tr><tr data-row="a|b\c"><td data-c></td></tr></table>
            <table data-rows="others"><tr data-row="x"><td>1</td></tr></table>"#;
        let live = Live::of(page, 7);
        assert_eq!(live.cells["queues"], ["mail|○ open||1,204", "a\\pb\\\\c|\\e"]);
        assert_eq!((live.cells.len(), live.rows.len()), (1, 1));
        assert_eq!(live.rows["others"], ["x"]);
        assert!(live.texts.is_empty());
    }

    #[test]
    fn tag_is_the_same_while_only_time_goes_by() {
        let at = |page: &str, now| Live::of(page, now).document();
        let (first, tag) = at("<b data-live=\"a\">1</b>", 1);
        let (second, same) = at("<b data-live=\"a\">1</b>", 2);
        assert_ne!(first, second);
        assert_eq!(tag, same);
        assert_ne!(tag, at("<b data-live=\"a\">2</b>", 2).1);
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_it_was(text in "\\PC*") {
            let text = text.trim();
            prop_assert_eq!(unescaped(&Escaped(text).to_string()), text);
            let page = format!("<b data-live=\"a\">{0}</b><i data-live=\"{0}\">x</i>", Escaped(text));
            let live = Live::of(&page, 0);
            prop_assert_eq!(live.texts.get("a").map(String::as_str).unwrap_or_default(), if text == "a" { "x" } else { text });
            prop_assert!(live.texts.contains_key(text));
        }
    }
}
