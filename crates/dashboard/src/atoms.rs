//! What pages show again and again, as HTML.
//!
//! These types write HTML by themselves, so each of them escapes what it is given.

use std::fmt;

use askama::filters::HtmlSafe;
use outlast_core::time::{Span, Timestamp};
use outlast_core::words;
pub use outlast_core::words::counted;
use outlast_wire::time::Rfc3339;

/// A text inside HTML.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

impl HtmlSafe for Escaped<'_> {}

/// An instant: the absolute time, and how long ago it was when the page was made. The script keeps both
/// up to date.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The instant.
    pub at: Timestamp,
    /// When the page was made.
    pub now: Timestamp,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Rfc3339(self.at).to_string();
        let ago = Ago(*self);
        write!(f, r#"<time datetime="{at}">{}</time> <small>{ago}</small>"#, readable(&at))
    }
}

impl HtmlSafe for Moment {}

/// An instant that may change while it is looked at.
#[derive(Clone, Debug)]
pub struct LiveMoment {
    /// The instant.
    pub moment: Moment,
    /// What its updates are called.
    pub key: String,
}

impl fmt::Display for LiveMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, at) = (Escaped(&self.key), Rfc3339(self.moment.at).to_string());
        let (shown, ago) = (readable(&at), Ago(self.moment));
        write!(f, r#"<time data-live="{key}" datetime="{at}">{shown}</time> <small>{ago}</small>"#)
    }
}

impl HtmlSafe for LiveMoment {}

/// How long ago an instant was, or how far away it is.
#[derive(Clone, Copy, Debug)]
pub struct Ago(pub Moment);

impl fmt::Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { at, now } = self.0;
        if at > now {
            write!(f, "in {}", Lasting(at.since(now)))
        } else {
            write!(f, "{} ago", Lasting(now.since(at)))
        }
    }
}

/// Returns an instant to the second.
fn readable(rfc3339: &str) -> String {
    let (day, time) = rfc3339.split_once('T').unwrap_or((rfc3339, ""));
    let seconds = time.get(..8).unwrap_or(time);
    format!("{day} {seconds}Z")
}

/// How long something took, in the two largest units.
#[derive(Clone, Copy, Debug)]
pub struct Lasting(pub Span);

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&words::Lasting(self.0), f)
    }
}

impl HtmlSafe for Lasting {}

/// A number, with its thousands apart.
#[derive(Clone, Copy, Debug)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&words::Grouped(self.0), f)
    }
}

impl HtmlSafe for Count {}

/// Numbers as bars of text, the highest for the largest; a blank for none.
#[derive(Clone, Copy, Debug)]
pub struct Bars<'a>(pub &'a [u64]);

impl fmt::Display for Bars<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHAPES: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let most = self.0.iter().copied().max().unwrap_or(0).max(1);
        for &number in self.0 {
            let eighths = u128::from(number) * 8;
            let height = usize::try_from(eighths.div_ceil(u128::from(most))).unwrap_or(8);
            let shape = height.checked_sub(1).and_then(|at| SHAPES.get(at));
            // As wide as a bar.
            write!(f, "{}", shape.unwrap_or(&'\u{2007}'))?;
        }
        Ok(())
    }
}

impl HtmlSafe for Bars<'_> {}

/// A state, as a word and a shape: colour alone says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a>(pub &'a str);

impl Status<'_> {
    /// The shape beside the word.
    #[must_use]
    pub fn shape(&self) -> char {
        match self.0 {
            "running" | "active" | "live" => '▶',
            "completed" | "healthy" | "stopped" | "drained" | "done" => '✓',
            "failed" | "timeout" | "abandoned" | "lost" | "lapsed" | "dead" | "discarded"
            | "killed" | "unhealthy" | "damaged" => '✗',
            "cancelled" | "skipped" | "gone" => '⊘',
            "paused" | "quiet" | "draining" => '⏸',
            "suspect" => '?',
            _ => '○',
        }
    }
}

impl fmt::Display for Status<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape(), Escaped(self.0))
    }
}

impl HtmlSafe for Status<'_> {}

/// A size in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: u64 = 1024;
        match self.0 {
            0..=1023 => write!(f, "{} bytes", self.0),
            1024..=1_048_575 => write!(f, "{}.{} KiB", self.0 / KIB, self.0 % KIB * 10 / KIB),
            bytes => {
                let tenths = bytes * 10 / (KIB * KIB);
                write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
            }
        }
    }
}

impl HtmlSafe for Bytes {}

#[cfg(test)]
mod tests {
    use outlast_core::time::{Span, Timestamp};

    use super::{Ago, Bars, Bytes, Count, Escaped, Lasting, Moment, Status, counted};

    #[test]
    fn texts_are_escaped() {
        let hostile = r#"<script>alert("&'")</script>"#;
        let escaped = "&lt;script&gt;alert(&quot;&amp;&#39;&quot;)&lt;/script&gt;";
        assert_eq!(Escaped(hostile).to_string(), escaped);
        assert_eq!(Escaped("żółw").to_string(), "żółw");
        assert_eq!(Status("<b>").to_string(), "○ &lt;b&gt;");
    }

    #[test]
    fn numbers_have_units_and_are_readable() {
        let last = |ms| Lasting(Span(ms)).to_string();
        assert_eq!(
            [0, 999, 1_250, 59_999, 61_000, 600_000, 3_661_000, 90_000_000].map(last),
            ["0 ms", "999 ms", "1.2 s", "59 s", "1 min 1 s", "10 min", "1 h 1 min", "1 d 1 h"]
        );
        let count = |n| Count(n).to_string();
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let jobs = |n| counted(n, "job", "jobs");
        assert_eq!([0, 1, 1_000].map(jobs), ["0 jobs", "1 job", "1,000 jobs"]);
        assert_eq!(Bars(&[0, 1, 50, 100]).to_string(), "\u{2007}▁▄█");
        assert_eq!(Bars(&[u64::MAX, 0]).to_string(), "█\u{2007}");
        let size = |n| Bytes(n).to_string();
        assert_eq!([7, 1_536, 3_145_728].map(size), ["7 bytes", "1.5 KiB", "3.0 MiB"]);
    }

    #[test]
    fn an_instant_is_absolute_and_relative() {
        let at = Timestamp(1_767_225_600_500);
        let moment = Moment { at, now: at.after(Span(2_400)) };
        assert_eq!(
            moment.to_string(),
            "<time datetime=\"2026-01-01T00:00:00.5Z\">2026-01-01 00:00:00Z</time> <small>2.4 s ago</small>"
        );
        let ahead = Ago(Moment { at: at.after(Span(5_000)), now: at });
        assert_eq!(ahead.to_string(), "in 5.0 s");
    }
}
