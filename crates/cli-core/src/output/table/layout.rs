//! Where the cells of a table go: as wide as its terminal, or as wide as its text.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Columns that are never cut, because their text is copied or compared.
const WHOLE: &[&str] = &[
    "ID", "KEY", "VALUE", "ORIGIN", "STATUS", "STATE", "JOB", "WHAT", "OUTCOME", "VERDICT",
    "CHECK", "TIME", "EXAMPLE",
];
/// Columns of text, which a terminal shows whole on several lines.
const TEXT: &[&str] =
    &["ERROR", "EVIDENCE", "WAIT", "FACT", "DESCRIPTION", "MEANING", "SETTINGS", "LABEL"];
/// Blanks between two columns.
pub(super) const GAP: usize = 2;
/// A column is not cut below this.
const COLUMN_MIN: usize = 8;
/// Text in a narrower column would be hard to read: it is shown below its row.
const TEXT_MIN: usize = 24;
/// Lines of one cell on a terminal; JSON and a pipe have the rest.
const LINES_MAX: usize = 8;
/// Blanks before what is shown below a row.
const INDENT: &str = "    ";

/// Where a cell is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a column of this width.
    Column(usize),
    /// Below its row, on lines of its own.
    Below,
}

/// The place of each column.
#[derive(Debug)]
pub(super) struct Layout {
    places: Vec<Place>,
    /// Which of them are text.
    is_text: Vec<bool>,
    width: Option<usize>,
}

impl Layout {
    /// Lays a table out for a width, or for any.
    pub(super) fn of(headers: &[String], rows: &[Vec<String>], width: Option<usize>) -> Self {
        let natural = natural(headers, rows);
        let is_one_of = |names: &[&str], at: usize| {
            headers.get(at).is_some_and(|it| names.contains(&it.as_str()))
        };
        let is_text: Vec<bool> = (0..natural.len()).map(|at| is_one_of(TEXT, at)).collect();
        let places = match width.filter(|_| !headers.is_empty()) {
            None => natural.iter().map(|width| Place::Column(*width)).collect(),
            Some(limit) => {
                let is_whole = |at: usize| is_one_of(WHOLE, at);
                placed(&natural, &is_text, is_whole, limit)
            }
        };
        Self { places, is_text, width }
    }

    pub(super) fn place(&self, at: usize) -> Place {
        self.places.get(at).copied().unwrap_or(Place::Column(0))
    }

    /// The lines of a cell in its column.
    pub(super) fn lines(&self, at: usize, cell: &str) -> Vec<String> {
        match self.place(at) {
            Place::Column(most) if width(cell) > most && self.is_text.get(at) == Some(&true) => {
                wrapped(cell, most)
            }
            Place::Column(most) if self.width.is_some() && !self.places.is_empty() => {
                vec![cut(cell, most)]
            }
            Place::Column(_) | Place::Below => vec![cell.to_owned()],
        }
    }

    /// The lines of what is shown below a row.
    pub(super) fn below(&self, text: &str) -> Vec<String> {
        let most = self.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let lines = wrapped(text, most.max(COLUMN_MIN));
        lines.into_iter().map(|line| format!("{INDENT}{line}")).collect()
    }
}

/// How many columns of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The widths that leave every cell whole.
fn natural(headers: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let all = || rows.iter().map(Vec::as_slice).chain([headers]);
    let columns = all().map(<[String]>::len).max().unwrap_or(0);
    let widest =
        |at: usize| all().filter_map(|row| row.get(at)).map(|cell| width(cell)).max().unwrap_or(0);
    (0..columns).map(widest).collect()
}

/// Places columns on lines that are `limit` wide.
fn placed(
    natural: &[usize],
    is_text: &[bool],
    is_whole: impl Fn(usize) -> bool,
    limit: usize,
) -> Vec<Place> {
    let texts: Vec<usize> =
        (0..natural.len()).filter(|at| is_text.get(*at) == Some(&true)).collect();
    let of_text = |most: usize| -> Vec<usize> {
        let narrowed = |(at, width): (usize, &usize)| {
            if texts.contains(&at) { (*width).min(most) } else { *width }
        };
        natural.iter().enumerate().map(narrowed).collect()
    };
    // The widest that text may be: what is short leaves its room to what is long.
    let fits = |widths: &[usize]| total(widths) <= limit;
    let widest = texts.iter().filter_map(|at| natural.get(*at)).max().copied().unwrap_or(0);
    let room = (TEXT_MIN.min(widest)..=widest.min(limit.max(TEXT_MIN))).rev();
    if let Some(widths) = room.map(of_text).find(|widths| fits(widths)) {
        return widths.into_iter().map(Place::Column).collect();
    }
    let mut places: Vec<Place> = natural.iter().map(|width| Place::Column(*width)).collect();
    for at in texts {
        // The first column stays: what is below a row belongs to it.
        if let Some(place) = places.get_mut(at).filter(|_| at > 0) {
            *place = Place::Below;
        }
    }
    narrow(&mut places, is_whole, limit);
    places
}

/// Cuts the widest columns until a line fits.
fn narrow(places: &mut [Place], is_whole: impl Fn(usize) -> bool, limit: usize) {
    let column = |place: &Place| match place {
        Place::Column(width) => Some(*width),
        Place::Below => None,
    };
    loop {
        let widths: Vec<usize> = places.iter().filter_map(column).collect();
        if total(&widths) <= limit {
            return;
        }
        let all = places.iter().enumerate().filter(|(at, _)| !is_whole(*at));
        let widest = all.filter_map(|(at, place)| Some((column(place)?, at))).max();
        let Some((width, at)) = widest.filter(|(width, _)| *width > COLUMN_MIN) else { return };
        if let Some(place) = places.get_mut(at) {
            *place = Place::Column(width - 1);
        }
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * GAP
}

/// Cuts a cell to the width of its column, with an ellipsis.
fn cut(cell: &str, most: usize) -> String {
    if width(cell) <= most {
        return cell.to_owned();
    }
    let (shown, _) = split(cell, most.saturating_sub(1));
    format!("{shown}…")
}

/// Splits a text behind as many characters as `most` columns have room for.
fn split(text: &str, most: usize) -> (&str, &str) {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > most {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// Breaks a text into lines, between words where that is possible.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let (fitting, over) = split(rest, most.max(1));
        // A character that is wider than the column still has to go somewhere.
        let (fitting, over) = if fitting.is_empty() {
            rest.split_at(rest.chars().next().map_or(0, char::len_utf8))
        } else {
            (fitting, over)
        };
        let at_blank = if over.is_empty() || over.starts_with(' ') {
            None
        } else {
            fitting.rfind(' ').filter(|at| !fitting[..*at].trim().is_empty())
        };
        let end = at_blank.unwrap_or(fitting.len());
        if lines.len() + 1 == LINES_MAX && !rest[end..].trim().is_empty() {
            lines.push(format!("{}…", split(&rest[..end], most.saturating_sub(1)).0));
            break;
        }
        lines.push(rest[..end].trim_end().to_owned());
        rest = rest[end..].trim_start();
    }
    if lines.is_empty() { vec![String::new()] } else { lines }
}
