//! Addresses, URLs and databases.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;

use super::text;

const LISTEN: &str = "an address with a port such as 127.0.0.1:8080 or [::1]:8080";
const SERVER_URL: &str = "an http:// or https:// address such as http://127.0.0.1:8080";
const DATABASE: &str = "sqlite:PATH or postgres://USER@HOST/NAME";

/// Where jobs are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file of the embedded store.
    Sqlite(PathBuf),
    /// A PostgreSQL server.
    Postgres(String),
}

pub(crate) fn listen(value: &Value) -> Result<SocketAddr, &'static str> {
    let given = text(value).unwrap_or_default();
    if let Ok(address) = given.parse() {
        return Ok(address);
    }
    // A name is not looked up: only the one that means the same everywhere is known.
    let port = given.strip_prefix("localhost:").ok_or(LISTEN)?;
    let port = port.parse().map_err(|_digits| LISTEN)?;
    Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

/// A server's base address, without a slash at its end. `HOST:PORT` is taken as http.
pub(crate) fn url(value: &Value) -> Result<String, &'static str> {
    let given = text(value).unwrap_or_default();
    let full = if given.contains("://") { given } else { format!("http://{given}") };
    let parsed = reqwest::Url::parse(&full).map_err(|_parse| SERVER_URL)?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none_or(str::is_empty) {
        return Err(SERVER_URL);
    }
    // OJS clients are given the address with the path of the standard.
    let base = full.trim_end_matches('/').trim_end_matches("/ojs/v1").trim_end_matches('/');
    Ok(base.to_owned())
}

/// The base addresses of the servers of one deployment, with commas between them.
pub(crate) fn servers(value: &Value) -> Result<String, &'static str> {
    let given = text(value).unwrap_or_default();
    let urls = given.split(',').map(|part| url(&Value::String(part.trim().to_owned())));
    Ok(urls.collect::<Result<Vec<_>, _>>()?.join(","))
}

pub(crate) fn database(value: &Value) -> Result<Database, &'static str> {
    let given = text(value).unwrap_or_default();
    if given.starts_with("postgres://") || given.starts_with("postgresql://") {
        return Ok(Database::Postgres(given));
    }
    let path = given.strip_prefix("sqlite:").ok_or(DATABASE)?;
    let path = path.strip_prefix("//").unwrap_or(path);
    match path {
        "" => Err(DATABASE),
        // A store in memory would break the promise that an accepted job is durable.
        ":memory:" => Err("durable: name a file, sqlite:PATH"),
        path => Ok(Database::Sqlite(PathBuf::from(path))),
    }
}
