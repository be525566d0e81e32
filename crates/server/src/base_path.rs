//! The path below which a server is, for proxies that pass a prefix on instead of taking it away.

use std::fmt;
use std::str::FromStr;

use axum::body::Body;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request, Response, StatusCode, header};

use crate::http::outside;
use crate::session;

/// A path without a slash at its end; empty for a server that is at the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(String);

/// The text is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a path such as /outlast: letters, digits, `-`, `_`, `.` and `~` between slashes")]
pub struct InvalidBasePath;

impl FromStr for BasePath {
    type Err = InvalidBasePath;

    fn from_str(text: &str) -> Result<Self, InvalidBasePath> {
        let path = text.trim_end_matches('/');
        if path.is_empty() {
            return Ok(Self::default());
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~".contains(c);
        let is_part = |part: &str| {
            !part.is_empty() && part != "." && part != ".." && part.chars().all(is_plain)
        };
        let parts = path.strip_prefix('/').ok_or(InvalidBasePath)?;
        if path.len() <= PATH_MAX && parts.split('/').all(is_part) {
            return Ok(Self(path.to_owned()));
        }
        Err(InvalidBasePath)
    }
}

/// Longest path.
const PATH_MAX: usize = 255;

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl BasePath {
    /// Returns the path, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes the path off a request. Workers' sessions have none: gRPC knows no paths of servers.
    ///
    /// # Errors
    /// Returns the response to a request that is not below the path.
    pub(crate) fn strip<B>(&self, request: Request<B>) -> Result<Request<B>, Box<Response<Body>>> {
        if self.0.is_empty() || request.uri().path().starts_with(session::PATH) {
            return Ok(request);
        }
        let rest = request.uri().path().strip_prefix(self.0.as_str());
        match rest {
            Some("") => Err(Box::new(self.with_slash(request.uri()))),
            Some(rest) if rest.starts_with('/') => {
                let rest = match request.uri().query() {
                    Some(query) => format!("{rest}?{query}"),
                    None => rest.to_owned(),
                };
                let (mut parts, body) = request.into_parts();
                let mut uri = parts.uri.clone().into_parts();
                // What follows a path is a path.
                uri.path_and_query = PathAndQuery::try_from(rest).ok();
                parts.uri = Uri::from_parts(uri).unwrap_or_default();
                Ok(Request::from_parts(parts, body))
            }
            Some(_) | None => Err(Box::new(outside(&request, self))),
        }
    }

    /// Sends a browser into the folder: from there, relative links lead on.
    fn with_slash(&self, uri: &Uri) -> Response<Body> {
        let folder = self.0.rsplit('/').next().unwrap_or_default();
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        if let Ok(location) = HeaderValue::try_from(format!("{folder}/{query}")) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }

    /// Puts the path before the one at which a new resource is.
    pub(crate) fn put_before_location(&self, response: &mut Response<Body>) {
        if self.0.is_empty() {
            return;
        }
        let location = response.headers().get(header::LOCATION).and_then(|it| it.to_str().ok());
        let location = location.filter(|location| location.starts_with('/'));
        let location = location.map(|location| HeaderValue::try_from(format!("{self}{location}")));
        if let Some(Ok(location)) = location {
            response.headers_mut().insert(header::LOCATION, location);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> BasePath {
        "/a/outlast".parse().unwrap()
    }

    fn stripped(uri: &str) -> Result<String, (u16, String)> {
        let request = Request::get(uri).body(()).unwrap();
        let of = |response: Box<Response<Body>>| {
            let location = response.headers().get("location").map(|it| it.to_str().unwrap());
            (response.status().as_u16(), location.unwrap_or_default().to_owned())
        };
        base().strip(request).map(|request| request.uri().to_string()).map_err(of)
    }

    #[test]
    fn path_is_taken_off_and_its_query_stays() {
        assert_eq!(stripped("/a/outlast/jobs?a=b").as_deref(), Ok("/jobs?a=b"));
        assert_eq!(stripped("/a/outlast/").as_deref(), Ok("/"));
        assert_eq!(stripped("http://h:1/a/outlast/x").as_deref(), Ok("http://h:1/x"));
        let session = format!("{}Attach", session::PATH);
        assert_eq!(stripped(&session), Ok(session));
    }

    #[test]
    fn folder_has_its_slash_and_other_paths_are_outside() {
        assert_eq!(stripped("/a/outlast?x=1"), Err((308, "outlast/?x=1".to_owned())));
        for outside in ["/", "/a", "/a/outlasting", "/health/live", "/a/b/outlast/", "//a/outlast/"]
        {
            assert_eq!(stripped(outside), Err((404, String::new())), "{outside}");
        }
    }

    #[test]
    fn new_resources_are_below_it() {
        let mut response = Response::new(Body::empty());
        response.headers_mut().insert("location", HeaderValue::from_static("/api/v1/x"));
        base().put_before_location(&mut response);
        assert_eq!(response.headers()["location"], "/a/outlast/api/v1/x");
        response.headers_mut().insert("location", HeaderValue::from_static("../jobs"));
        base().put_before_location(&mut response);
        assert_eq!(response.headers()["location"], "../jobs");
    }

    #[test]
    fn only_plain_paths_are_taken() {
        for (text, path) in [("", ""), ("/", ""), ("/a/", "/a"), ("/a/b-c_d.e~f", "/a/b-c_d.e~f")] {
            assert_eq!(text.parse::<BasePath>().map(|it| it.to_string()), Ok(path.to_owned()));
        }
        for wrong in ["a", "/a//b", "/../a", "/a/.", "/a b", "/a?b", "/a%20b", "http://h/a", "/ż"]
        {
            assert_eq!(wrong.parse::<BasePath>(), Err(InvalidBasePath), "{wrong}");
        }
    }
}
