//! Who changed something by a request, and where the request came from, as one text: the log, and what
//! remembers who set it, keep it as it is.

use std::fmt;
use std::net::IpAddr;

/// The ways in which an author can be known. The text of an author begins with one of them.
const WAYS: [&str; 3] = ["api", "dashboard", "certificate"];
/// Separates the author from the address.
const FROM: &str = " from ";

/// Who changed something by a request. Workers, servers and the configuration are no authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author<'a> {
    /// How they are known, as whom, and by which program: `api: alice (curl/8)`.
    pub who: &'a str,
    /// The address that the request came from; behind a proxy, the proxy's.
    pub from: IpAddr,
}

impl<'a> Author<'a> {
    /// Reads who did something; `None` if it was no author.
    ///
    /// The address is the last thing in the text, so what a program calls itself cannot stand in its
    /// place.
    #[must_use]
    pub fn parse(by: &'a str) -> Option<Self> {
        let (who, from) = by.rsplit_once(FROM)?;
        let (way, _name) = who.split_once(": ")?;
        let from = from.parse().ok().filter(|_| WAYS.contains(&way))?;
        Some(Self { who, from })
    }
}

impl fmt::Display for Author<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{FROM}{}", self.who, self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_an_author_is_read_back() {
        for (who, from) in [
            ("api: alice (curl/8)", "192.0.2.7"),
            ("dashboard: alice", "2001:db8::7"),
            ("certificate: ops (a client from 198.51.100.1)", "::1"),
            ("api: anonymous (x) from 198.51.100.1)", "192.0.2.7"),
        ] {
            let author = Author { who, from: from.parse().expect("an address") };
            assert_eq!(Author::parse(&author.to_string()), Some(author));
        }
    }

    #[test]
    fn nobody_else_is_an_author() {
        for by in [
            "",
            "alice",
            "lease monitor",
            "api: alice (curl/8)",
            "api: alice (curl/8 from 192.0.2.7)",
            "worker shell-1 from 192.0.2.7",
            "worker: shell-1 from 192.0.2.7",
            "api: alice (curl/8) from here",
            "192.0.2.7",
        ] {
            assert_eq!(Author::parse(by), None, "{by}");
        }
    }
}
