//! The servers of one deployment: any of them will do, and one at a time is used.
//!
//! A worker begins with one of them at random, so that a fleet spreads over all. It moves on to the next
//! one when its session ends or cannot be made, and stays there: a server that comes back gets its
//! share from workers that start, and from those that lose another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::transport::Endpoint;

use super::secure::Secure;
use super::{BadAddress, STREAM_WINDOW, without_credentials};
use crate::tls::Tls;

/// One server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) endpoint: Endpoint,
    /// Set for `https://`.
    pub(super) secure: Option<Secure>,
}

/// All servers, at least one; clones share which one is used.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    all: Arc<[Server]>,
    used: Arc<AtomicUsize>,
}

/// Which of the servers, from the first one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerNumber(usize);

impl Servers {
    /// Reads addresses that commas separate.
    pub(super) fn new(urls: &str, tls: &Tls) -> Result<Self, BadAddress> {
        let all = urls.split(',').map(|url| Server::new(url.trim(), tls));
        let all: Vec<Server> = all.collect::<Result<_, _>>()?;
        let first = rand::random_range(0..all.len().max(1));
        Ok(Self { all: all.into(), used: Arc::new(AtomicUsize::new(first)) })
    }

    /// The one that is used.
    pub(crate) fn used(&self) -> ServerNumber {
        ServerNumber(self.used.load(Ordering::Relaxed))
    }

    /// The one so many places after this one, around the end.
    pub(crate) fn after(&self, number: ServerNumber, places: usize) -> ServerNumber {
        ServerNumber(number.0.wrapping_add(places) % self.all.len())
    }

    /// Uses the next one from now on, unless another one than this is used by now.
    pub(crate) fn move_on(&self, from: ServerNumber) {
        let next = self.after(from, 1).0;
        let _ = self.used.compare_exchange(from.0, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn server(&self, number: ServerNumber) -> &Server {
        #[expect(clippy::indexing_slicing, reason = "numbers are made here, modulo the length")]
        &self.all[number.0 % self.all.len()]
    }

    /// Says of which server a sentence is, if there are several.
    pub(super) fn about(&self, number: ServerNumber, sentence: String) -> String {
        match self.all.len() {
            1 => sentence,
            _ => format!("{}: {sentence}", self.server(number).shown()),
        }
    }
}

impl Server {
    fn new(url: &str, tls: &Tls) -> Result<Self, BadAddress> {
        let bad = |reason: String| BadAddress { what: without_credentials(url), reason };
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|error| bad(error.to_string()))?
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .keep_alive_while_idle(true);
        let secure = match endpoint.uri().scheme_str() {
            Some("http") => None,
            Some("https") => Some(Secure::new(tls).map_err(|error| bad(error.to_string()))?),
            _ => return Err(bad("it begins with neither http:// nor https://".to_owned())),
        };
        Ok(Self { endpoint, secure })
    }

    /// Its address, as it may be shown.
    fn shown(&self) -> String {
        without_credentials(self.endpoint.uri().to_string().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_used_in_turn_and_two_that_move_on_from_one_move_once() {
        let servers = Servers::new("http://a:1, http://b:2,http://c:3", &Tls::new()).unwrap();
        let first = servers.used();
        servers.move_on(first);
        servers.move_on(first);
        assert_eq!(servers.used(), servers.after(first, 1));
        servers.move_on(servers.used());
        servers.move_on(servers.used());
        assert_eq!(servers.used(), first);
        let third = servers.about(ServerNumber(2), "away".to_owned());
        assert_eq!(third, "http://c:3: away");
        let only = Servers::new("http://a:1", &Tls::new()).unwrap();
        only.move_on(only.used());
        assert_eq!(
            (only.used(), only.about(only.used(), "away".to_owned())),
            (ServerNumber(0), "away".to_owned())
        );
    }

    #[test]
    fn an_address_that_cannot_be_used_is_named() {
        let bad = Servers::new("http://a:1,ftp://u:pw@b", &Tls::new()).unwrap_err();
        assert_eq!(bad.what, "ftp://b");
        assert!(Servers::new("http://a:1,", &Tls::new()).is_err());
    }
}
