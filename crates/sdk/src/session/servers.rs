//! The servers of a worker.
//!
//! It begins with one of them at random, so that a fleet spreads over all. It moves on to the next
//! one when its session ends or cannot be made, and stays there: a server that comes back gets its
//! share from workers that start, and from those that lose another one.

use tonic::transport::Endpoint;

use super::secure::Secure;
use super::{BadAddress, STREAM_WINDOW, without_credentials};
use crate::servers::{ServerNumber, Servers};
use crate::tls::Tls;

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(super) endpoint: Endpoint,
    /// Set for `https://`.
    pub(super) secure: Option<Secure>,
}

impl Servers<Server> {
    /// Reads addresses that commas separate.
    pub(super) fn read(urls: &str, tls: &Tls) -> Result<Self, BadAddress> {
        let all = urls.split(',').map(|url| Server::new(url.trim(), tls));
        let none = || BadAddress { what: urls.to_owned(), reason: "it names no server".to_owned() };
        Self::new(all.collect::<Result<_, _>>()?).map(Self::at_random).ok_or_else(none)
    }

    /// Says of which server a sentence is, if there are several.
    pub(super) fn about(&self, number: ServerNumber, sentence: String) -> String {
        match self.count() {
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
    fn a_sentence_says_of_which_of_several_servers_it_is() {
        let read = |urls| Servers::read(urls, &Tls::new()).unwrap();
        let about = |servers: Servers<Server>, number| {
            servers.about(ServerNumber(number), "away".to_owned())
        };
        assert_eq!(about(read("http://a:1, http://b:2,http://c:3"), 2), "http://c:3: away");
        assert_eq!(about(read("http://a:1"), 0), "away");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_named() {
        let bad = Servers::read("http://a:1,ftp://u:pw@b", &Tls::new()).unwrap_err();
        assert_eq!(bad.what, "ftp://b");
        assert!(Servers::read("http://a:1,", &Tls::new()).is_err());
    }
}
