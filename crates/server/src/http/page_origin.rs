//! Web pages of others give no orders to a server that knows their sender by nothing that a page
//! has to know: not at all, or by a client certificate.
//!
//! Whoever reaches a server without tokens may use it, and on loopback that is meant to be the
//! users of this machine. Their browsers reach it too, on behalf of any page that they look at: a
//! page may post without asking first. A browser that has a client certificate shows it for any
//! page, too. Browsers say which page it is, programs say nothing.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, header};

use super::error::Failure;
use crate::access::Denied;

/// How the sender of a request is known that shows no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// Not at all: everybody may do everything.
    Anybody,
    /// By the certificate of its connection.
    Certificate,
}

/// Refuses a page that this server did not serve itself. A page of a name may be anybody's,
/// whatever address the name stands for at the moment; so only addresses and `localhost` are
/// known to be ours, unless a certificate of ours proves the name.
pub(super) fn check(request: &Parts, sender: Sender) -> Result<(), Failure> {
    let site = request.headers.get("sec-fetch-site").map(text);
    let origin = request.headers.get(header::ORIGIN).map(text);
    let own_site =
        sender == Sender::Anybody || site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    if own_site && origin.is_none_or(|origin| is_own(origin, request, sender)) {
        return Ok(());
    }
    let page = origin.unwrap_or("another site");
    let why = match sender {
        Sender::Anybody => "this server has no tokens, and its orders come from programs",
        Sender::Certificate => {
            "a browser shows its client certificate for any page, so only pages of this server's \
             own origin may use it; a program that sends such headers may show a token"
        }
    };
    Err(Failure::Denied(Denied::Forbidden(format!(
        "a web page of {page:?} may change nothing here: {why}"
    ))))
}

fn is_own(origin: &str, request: &Parts, sender: Sender) -> bool {
    let page = origin.split_once("://").and_then(|(_scheme, page)| page.parse::<Authority>().ok());
    let Some(page) = page else { return false };
    // A request of HTTP/2 names its host in its target.
    let named = match request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers.get(header::HOST).map(text),
    };
    let is_named = named.is_some_and(|named| page == named);
    is_named && (sender == Sender::Certificate || is_address(page.host()))
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

fn is_address(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}
