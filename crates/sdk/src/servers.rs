//! The servers of one deployment: any of them will do, and one at a time is used, until it is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Url;

/// All servers, at least one; clones share which one is used.
#[derive(Debug)]
pub struct Servers<T> {
    all: Arc<[T]>,
    used: Arc<AtomicUsize>,
}

/// Which of the servers, from the first one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerNumber(pub(crate) usize);

impl<T> Clone for Servers<T> {
    fn clone(&self) -> Self {
        Self { all: Arc::clone(&self.all), used: Arc::clone(&self.used) }
    }
}

impl<T> Servers<T> {
    /// Uses the first of these; `None` if there are none.
    #[must_use]
    pub fn new(all: Vec<T>) -> Option<Self> {
        (!all.is_empty()).then(|| Self { all: all.into(), used: Arc::default() })
    }

    /// Uses one at random, so that many clients spread over all.
    pub(crate) fn at_random(self) -> Self {
        self.used.store(rand::random_range(0..self.all.len()), Ordering::Relaxed);
        self
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter()
    }

    /// The one that is used.
    #[must_use]
    pub fn used(&self) -> ServerNumber {
        ServerNumber(self.used.load(Ordering::Relaxed))
    }

    /// The one so many places after this one, around the end.
    #[must_use]
    pub fn after(&self, number: ServerNumber, places: usize) -> ServerNumber {
        ServerNumber(number.0.wrapping_add(places) % self.all.len())
    }

    /// Uses the next one from now on, unless another one than this is used by now: of two that find
    /// the same server away, one moves on.
    pub fn move_on(&self, from: ServerNumber) {
        let next = self.after(from, 1).0;
        let _ = self.used.compare_exchange(from.0, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The server of this number.
    #[must_use]
    pub fn server(&self, number: ServerNumber) -> &T {
        #[expect(clippy::indexing_slicing, reason = "numbers are made here, modulo the length")]
        &self.all[number.0 % self.all.len()]
    }
}

/// Returns the same path and query below another base address.
#[must_use]
pub fn moved(url: &Url, from: &Url, to: &Url) -> Url {
    let mut moved = to.clone();
    let path =
        url.path().strip_prefix(from.path().trim_end_matches('/')).unwrap_or_else(|| url.path());
    moved.set_path(&format!("{}{path}", to.path().trim_end_matches('/')));
    moved.set_query(url.query());
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_used_in_turn_and_two_that_move_on_from_one_move_once() {
        let servers = Servers::new(vec!["a", "b", "c"]).unwrap().at_random();
        let first = servers.used();
        servers.move_on(first);
        servers.move_on(first);
        assert_eq!(servers.used(), servers.after(first, 1));
        servers.move_on(servers.used());
        servers.clone().move_on(servers.used());
        assert_eq!(servers.used(), first);
        let only = Servers::new(vec!["a"]).unwrap();
        only.move_on(only.used());
        assert_eq!((only.used(), *only.server(only.used())), (ServerNumber(0), "a"));
        assert!(Servers::<&str>::new(Vec::new()).is_none());
    }

    #[test]
    fn a_request_goes_to_another_server_below_its_own_base() {
        let of = |url: &str| Url::parse(url).unwrap();
        let url = of("http://a:1/base/api/v1/jobs?limit=5&id=a%2Fb");
        for (to, expected) in [
            ("http://a:1/base", "http://a:1/base/api/v1/jobs?limit=5&id=a%2Fb"),
            ("https://b:2", "https://b:2/api/v1/jobs?limit=5&id=a%2Fb"),
            ("http://u:p@c/x/", "http://u:p@c/x/api/v1/jobs?limit=5&id=a%2Fb"),
        ] {
            assert_eq!(moved(&url, &of("http://a:1/base"), &of(to)).as_str(), expected);
        }
    }
}
