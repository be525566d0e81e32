//! Web pages of others give no orders to a server without tokens.
//!
//! Whoever reaches such a server may use it, and on loopback that is meant to be the users of
//! this machine. Their browsers reach it too, on behalf of any page that they look at: a page
//! may post without asking first. Browsers say which page it is, programs say nothing.

use std::net::IpAddr;

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, header};

use super::error::Failure;
use crate::access::Denied;

/// Refuses a page that this server did not serve itself. A page of a name may be anybody's,
/// whatever address the name stands for at the moment; so only addresses and `localhost` are
/// known to be ours.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let host = headers.get(header::HOST);
    let own = text(origin)
        .split_once("://")
        .and_then(|(_scheme, page)| page.parse::<Authority>().ok())
        .is_some_and(|page| is_address(page.host()) && host.is_some_and(|host| page == text(host)));
    if own {
        return Ok(());
    }
    Err(Failure::Denied(Denied::Forbidden(format!(
        "a web page of {:?} may change nothing here: this server has no tokens, and its orders \
         come from programs",
        text(origin)
    ))))
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

fn is_address(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}
