//! Requests that are refused first of all: those for another host name, and those of ordinary
//! clients on connections that are reserved for workers.
//!
//! A web page may point its own host name at a loopback address (DNS rebinding). A browser then
//! takes requests to this server for requests to the page's server. They still carry that name.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, header};

use super::error::ApiError;
use super::responder::Responder;
use crate::access::Denied;
use crate::connections::Peer;
use crate::engine::Unavailable;
use crate::session;

/// Host names that a server accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Whether they are checked.
    checked: bool,
    address: Option<IpAddr>,
    names: BTreeSet<String>,
}

impl Hosts {
    /// Returns the names of a server without tokens that listens on `address`: those of this
    /// machine and those configured. A server on a network address without configured names
    /// accepts any.
    pub(crate) fn of_open_server(address: SocketAddr, configured: &[String]) -> Self {
        let ip = address.ip();
        let names = configured.iter().map(|name| name.to_ascii_lowercase()).collect();
        let checked = ip.is_loopback() || !configured.is_empty();
        Self { checked, address: (!ip.is_unspecified()).then_some(ip), names }
    }

    fn know(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if self.names.contains(&host) || host == "localhost" || host.ends_with(".localhost") {
            return true;
        }
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback() || Some(address) == self.address)
    }
}

/// Returns the response to a request that is refused.
pub(crate) fn refuse<B>(
    request: &Request<B>,
    hosts: &Hosts,
    peer: &Peer,
) -> Option<Response<Body>> {
    let failure = if peer.is_reserved() && !may_use_reserve(request.uri().path()) {
        ApiError::Unavailable(Unavailable::new(
            "too many connections are open; the rest is reserved for workers",
        ))
    } else {
        wrong_host(request, hosts)?
    };
    let mut response = Responder::of(request).respond(Err(failure));
    if request.version() < http::Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Returns whether a request is a worker's or a probe.
fn may_use_reserve(path: &str) -> bool {
    path.starts_with(session::PATH)
        || path.starts_with("/ojs/v1/workers/")
        || path.starts_with("/health/")
}

fn wrong_host<B>(request: &Request<B>, hosts: &Hosts) -> Option<ApiError> {
    if !hosts.checked {
        return None;
    }
    let named = match request.uri().authority() {
        Some(authority) => Some(authority.host().to_owned()),
        // Browsers always send it.
        None => {
            let host = request.headers().get(header::HOST)?.to_str().unwrap_or_default();
            host.parse::<Authority>().ok().map(|host| host.host().to_owned())
        }
    };
    if named.as_deref().is_some_and(|host| hosts.know(host)) {
        return None;
    }
    Some(ApiError::Denied(Denied::Forbidden(format!(
        "this server is not known as {:?}: without tokens it answers to localhost and loopback \
         addresses, and to the names in `server.hosts`",
        named.unwrap_or_default()
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(listen: &str, configured: &[&str], host: &str) -> bool {
        let names: Vec<String> = configured.iter().map(|&name| name.to_owned()).collect();
        let hosts = Hosts::of_open_server(listen.parse().unwrap(), &names);
        let request = Request::get("/health/live").header("host", host).body(()).unwrap();
        wrong_host(&request, &hosts).is_some()
    }

    #[test]
    fn a_server_on_loopback_answers_to_its_own_names_only() {
        let listen = "127.0.0.1:8080";
        for own in
            ["localhost", "LocalHost:8080", "127.0.0.1:8080", "[::1]:9", "127.9.9.9", "a.localhost"]
        {
            assert!(!refused(listen, &[], own), "{own}");
        }
        for foreign in
            ["evil.example", "evil.example:8080", "10.0.0.1", "", "localhost.evil.example"]
        {
            assert!(refused(listen, &[], foreign), "{foreign}");
        }
        assert!(!refused(listen, &["Jobs.example"], "jobs.EXAMPLE:443"));
    }

    #[test]
    fn a_network_address_is_checked_only_against_configured_names() {
        assert!(!refused("0.0.0.0:8080", &[], "anything.example"));
        assert!(refused("0.0.0.0:8080", &["jobs.example"], "anything.example"));
        assert!(!refused("10.0.0.7:8080", &["jobs.example"], "10.0.0.7:8080"));
    }

    #[test]
    fn a_request_of_http_2_names_its_host_in_its_target() {
        let hosts = Hosts::of_open_server("127.0.0.1:1".parse().unwrap(), &[]);
        let of = |uri: &str| wrong_host(&Request::get(uri).body(()).unwrap(), &hosts).is_some();
        assert!(of("http://evil.example/") && !of("http://localhost:1/") && !of("/"));
    }
}
