//! Making text from jobs and servers harmless to a terminal.

use std::fmt::Write;

/// One line: every control character and every mark that reorders text becomes visible.
pub fn escape(text: &str) -> String {
    escaped(text, |_| false)
}

/// Many lines: as [`escape`], but line ends and tabs stay.
pub fn escape_lines(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, keep: fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if keep(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if c.is_control() || reorders(c) => {
                // Writing to a String cannot fail.
                write!(safe, "\\u{{{:x}}}", u32::from(c)).unwrap_or_default();
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Bidirectional controls can make a line read differently from what it says.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{escape, escape_lines};

    #[test]
    fn escape_sequences_of_a_terminal_become_visible() {
        assert_eq!(escape("\x1b[2Jgone\x07"), "\\u{1b}[2Jgone\\u{7}");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
    }

    #[test]
    fn a_table_cell_is_one_line_while_output_keeps_its_lines() {
        assert_eq!(escape("a\nb\tc"), "a\\nb\\tc");
        assert_eq!(escape_lines("a\nb\tc\r"), "a\nb\tc\\r");
    }

    #[test]
    fn ordinary_text_of_any_language_stays() {
        assert_eq!(escape("naïve 漢字 ✓"), "naïve 漢字 ✓");
    }
}
