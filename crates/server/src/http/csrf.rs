//! Protection against cross-site request forgery, for clients that show no token.
//!
//! Every user of this machine may use a server without tokens on loopback. So may their browsers,
//! on behalf of any page that they show: a page may post to other sites without asking. A browser
//! with a client certificate shows it for any page, too. Browsers send the page's origin; programs
//! send none.

use std::net::IpAddr;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, header};

use super::error::ApiError;
use crate::access::Denied;

/// How a client without a token is identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// Not at all: the server has no tokens.
    Anybody,
    /// By the certificate of its connection.
    Certificate,
}

/// Refuses requests of web pages that this server did not serve. Anybody can point a host name
/// at this server, so only pages of addresses and `localhost` are known to be its own, unless the
/// server's certificate proves the name.
pub(super) fn check(request: &Parts, sender: Sender) -> Result<(), ApiError> {
    let site = request.headers.get("sec-fetch-site").map(text);
    let origin = request.headers.get(header::ORIGIN).map(text);
    let own_site =
        sender == Sender::Anybody || site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    if own_site && origin.is_none_or(|origin| is_own(origin, request, sender)) {
        return Ok(());
    }
    let page = origin.unwrap_or("another site");
    let why = match sender {
        Sender::Anybody => "this server has no tokens, so it takes commands from programs only",
        Sender::Certificate => {
            "a browser shows its client certificate for any page, so only pages of this server's \
             own origin may use it; a program that sends such headers may show a token"
        }
    };
    Err(ApiError::Denied(Denied::Forbidden(format!(
        "a web page of {page:?} may not change anything here: {why}"
    ))))
}

/// Refuses an order that a page of another site has a browser send, however the client is identified.
/// Programs send neither header.
pub(super) fn check_page(request: &Parts) -> Result<(), ApiError> {
    let site = request.headers.get("sec-fetch-site").map(text);
    let origin = request.headers.get(header::ORIGIN).map(text);
    let is_ours = match (site, origin) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => is_own(origin, request, Sender::Certificate),
        (None, None) => true,
    };
    if is_ours {
        return Ok(());
    }
    let page = origin.unwrap_or("another site");
    Err(ApiError::Denied(Denied::Forbidden(format!(
        "a page of {page:?} may not press the buttons of this one"
    ))))
}

/// Whether a server without tokens takes orders from pages that were asked for by this host name.
pub(super) fn is_known_host(request: &Parts) -> bool {
    let named = match request.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers.get(header::HOST).map(text),
    };
    let named = named.and_then(|named| named.parse::<Authority>().ok());
    named.is_none_or(|named| is_address(named.host()))
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
