//! The cookie of a session.
//!
//! Its name has the port that the browser asked for: cookies are of a host, whatever the port, and two
//! servers of one host would sign each other's users out. It has no path, so browsers send it where the
//! page that signs in is, and below: a proxy may have put that anywhere.

use http::HeaderValue;
use http::header;
use http::request::Parts;
use http::uri::Authority;
use outlast_core::limits::SESSION_LIFE_MAX;
use outlast_store::idempotency::Fingerprint;
use sha2::{Digest as _, Sha256};

/// How many cookies of one name are looked at: there is one, unless paths overlap.
const COOKIES_MAX: usize = 3;
/// What the names of cookies begin with that browsers keep and send over TLS only.
const SECURE: &str = "__Secure-";

/// What a browser shows: 64 hexadecimal digits of chance.
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new() -> Self {
        let random: [u8; 32] = rand::random();
        Self(random.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let is_secret = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_secret.then(|| Self(text.to_owned()))
    }

    /// The hash that a session is stored under.
    pub(super) fn hash(&self) -> Fingerprint {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// Returns the name of the cookie: of the one that goes over TLS only, or of the other.
fn name(request: &Parts, is_secure: bool) -> String {
    let named = match request.uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => request.headers.get(header::HOST).and_then(|it| it.to_str().ok()?.parse().ok()),
    };
    let port = named.as_ref().and_then(Authority::port_u16);
    let port = port.map(|port| format!("-{port}")).unwrap_or_default();
    format!("{}outlast{port}", if is_secure { SECURE } else { "" })
}

/// Returns the secrets that a request shows. Where the server itself has TLS, only cookies count that no
/// page without TLS can have set.
pub(super) fn shown(request: &Parts, has_tls: bool) -> Vec<Secret> {
    let mut names = vec![name(request, true)];
    if !has_tls {
        names.push(name(request, false));
    }
    let all = request.headers.get_all(header::COOKIE).iter().filter_map(|it| it.to_str().ok());
    let pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|it| it.split_once('='));
    let pairs: Vec<(&str, &str)> = pairs.map(|(name, value)| (name.trim(), value.trim())).collect();
    let of = |name: &String| {
        let named = pairs.iter().filter(move |(it, _)| it == name);
        named.filter_map(|(_, value)| Secret::parse(value)).collect::<Vec<_>>()
    };
    names.iter().flat_map(of).take(COOKIES_MAX).collect()
}

/// Whether a browser reached the page that signs in over TLS: this server's, or a proxy's.
pub(super) fn is_secure(request: &Parts, has_tls: bool) -> bool {
    let origin = request.headers.get(header::ORIGIN).and_then(|it| it.to_str().ok());
    has_tls || origin.is_some_and(|origin| origin.starts_with("https://"))
}

/// Returns the header that has a browser keep a secret.
pub(super) fn keep(request: &Parts, secret: &Secret, is_secure: bool) -> Option<HeaderValue> {
    let age = SESSION_LIFE_MAX.as_millis() / 1000;
    cookie(&name(request, is_secure), &secret.0, age, is_secure)
}

/// Returns the headers that have a browser forget what it keeps.
pub(super) fn forget(request: &Parts) -> Vec<HeaderValue> {
    let both = [true, false];
    both.iter().filter_map(|it| cookie(&name(request, *it), "", 0, *it)).collect()
}

/// `Lax`: the link in a pager's message finds its reader signed in, and no other site's form does.
fn cookie(name: &str, value: &str, age: u64, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(host: &str, cookies: &[&str]) -> Parts {
        let mut request = Request::get("/login").header("host", host);
        for cookie in cookies {
            request = request.header("cookie", *cookie);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn text(header: &HeaderValue) -> &str {
        header.to_str().unwrap()
    }

    #[test]
    fn name_has_the_port_and_what_goes_over_tls_only_says_so() {
        let secret = Secret::new();
        let plain = keep(&parts("localhost:8080", &[]), &secret, false).unwrap();
        let rest = "; Max-Age=604800; HttpOnly; SameSite=Lax";
        assert_eq!(text(&plain), format!("outlast-8080={}{rest}", secret.0));
        let secure = keep(&parts("jobs.example", &[]), &secret, true).unwrap();
        assert_eq!(text(&secure), format!("__Secure-outlast={}{rest}; Secure", secret.0));
        assert!(secure.is_sensitive());
        let gone = forget(&parts("[::1]:81", &[]));
        let names: Vec<&str> = gone.iter().map(|it| text(it).split(';').next().unwrap()).collect();
        assert_eq!(names, ["__Secure-outlast-81=", "outlast-81="]);
    }

    #[test]
    fn secret_is_shown_by_the_cookie_of_this_server_only() {
        let (one, two) = (Secret::new(), Secret::new());
        let cookies = [
            format!("a=b; outlast-8080={}; outlast-9090={}", one.0, two.0),
            format!("outlast={}; outlast-8080=short; outlast-8080=", two.0),
        ];
        let request = parts("localhost:8080", &[&cookies[0], &cookies[1]]);
        let hashes = |tls| shown(&request, tls).iter().map(Secret::hash).collect::<Vec<_>>();
        assert_eq!(hashes(false), [one.hash()]);
        assert!(hashes(true).is_empty(), "a page without TLS may have set it");
        let secure = format!("outlast-8080={}; __Secure-outlast-8080={}", one.0, two.0);
        let request = parts("localhost:8080", &[&secure]);
        let first = |tls| shown(&request, tls)[0].hash();
        assert_eq!([first(true), first(false)], [two.hash(), two.hash()]);
        assert_ne!(one.hash(), two.hash());
    }

    #[test]
    fn cookie_is_secure_behind_a_proxy_with_tls() {
        let with = |origin: &str| {
            let mut request = parts("jobs.example", &[]);
            request.headers.insert("origin", origin.parse().unwrap());
            is_secure(&request, false)
        };
        assert_eq!([with("https://jobs.example"), with("http://jobs.example")], [true, false]);
        assert!(is_secure(&parts("h", &[]), true) && !is_secure(&parts("h", &[]), false));
    }
}
