//! The servers that a command may ask: the first one that can be reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Request, Url};

/// Addresses, at least one; clones share which one is used.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    all: Arc<[String]>,
    used: Arc<AtomicUsize>,
}

impl Servers {
    /// Reads addresses that commas separate.
    pub(super) fn of(addresses: &str) -> Self {
        let all = addresses.split(',').map(str::to_owned).collect();
        Self { all, used: Arc::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The address that is used.
    pub(super) fn used(&self) -> &str {
        let used = self.used.load(Ordering::Relaxed) % self.all.len();
        self.all.get(used).map_or("", String::as_str)
    }

    /// Uses the next server from now on; returns the request to it.
    pub(super) fn move_on(&self, mut request: Request) -> Request {
        let from = Url::parse(self.used());
        self.used.fetch_add(1, Ordering::Relaxed);
        if let (Ok(from), Ok(to)) = (from, Url::parse(self.used())) {
            *request.url_mut() = moved(request.url(), &from, to);
        }
        request
    }
}

/// The same path and query below another base address.
fn moved(url: &Url, from: &Url, mut to: Url) -> Url {
    let path =
        url.path().strip_prefix(from.path().trim_end_matches('/')).unwrap_or_else(|| url.path());
    let path = format!("{}{path}", to.path().trim_end_matches('/'));
    to.set_path(&path);
    to.set_query(url.query());
    to
}

#[cfg(test)]
mod tests {
    use reqwest::Method;

    use super::*;

    #[test]
    fn a_request_goes_to_the_next_server_below_its_own_base() {
        let servers = Servers::of("http://a:1/base,https://b:2,http://u:p@c/x/");
        let url = Url::parse("http://a:1/base/api/v1/jobs?limit=5&id=a%2Fb").unwrap();
        let mut request = Request::new(Method::GET, url);
        for expected in [
            "https://b:2/api/v1/jobs?limit=5&id=a%2Fb",
            "http://u:p@c/x/api/v1/jobs?limit=5&id=a%2Fb",
            "http://a:1/base/api/v1/jobs?limit=5&id=a%2Fb",
        ] {
            request = servers.move_on(request);
            assert_eq!(request.url().as_str(), expected);
        }
    }
}
