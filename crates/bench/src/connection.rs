//! A kept-alive HTTP/1.1 connection that costs next to nothing: client and server share the
//! machine, and the server is what is measured.
//!
//! Requests are bytes made beforehand. Of an answer only the status and the length are read.

use std::sync::Arc;

use outlast_cli_core::client::ClientConfig;
use outlast_cli_core::exit::{Exit, Failure};
use reqwest::Url;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How much of an unexpected answer is shown.
const SHOWN_BYTES_MAX: usize = 300;

/// Where to connect, and what every request says.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Name in the certificate, and what judges it, for `https://`.
    secure: Option<(ServerName<'static>, Arc<rustls::ClientConfig>)>,
    authority: String,
    prefix: String,
    token: Option<String>,
}

impl Address {
    pub(crate) fn of(config: &ClientConfig) -> Result<Self, Failure> {
        let server = &config.server;
        let wrong = |what: &str| Failure::usage(format!("cannot measure {server}: {what}"));
        let url = Url::parse(server).map_err(|_parse| wrong("it is not a server address"))?;
        let host = url.host_str().ok_or_else(|| wrong("it has no host"))?;
        let secure = match url.scheme() {
            "https" => {
                let tls = config.tls.config().map_err(|error| wrong(&error.to_string()))?;
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(name).map_err(|_name| wrong("it has no name"))?;
                Some((name, Arc::new(tls)))
            }
            _ => None,
        };
        let authority = format!("{host}:{}", url.port_or_known_default().unwrap_or(80));
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { secure, authority, prefix, token: config.token.clone() })
    }

    /// The bytes of a request.
    pub(crate) fn post(&self, path: &str, body: &str) -> Arc<[u8]> {
        let Self { authority, prefix, token, .. } = self;
        let bearer = token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n"));
        let bearer = bearer.unwrap_or_default();
        let length = body.len();
        let request = format!(
            "POST {prefix}{path} HTTP/1.1\r\nhost: {authority}\r\n{bearer}\
             content-type: application/openjobspec+json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        request.into_bytes().into()
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let unreachable = |error: std::io::Error| {
            let what = format!("server {} cannot be reached: {error}", self.authority);
            Failure::new(Exit::Unreachable, what)
        };
        let stream = TcpStream::connect(&self.authority).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream: Box<dyn Io> = match &self.secure {
            None => Box::new(stream),
            Some((name, tls)) => {
                let connector = TlsConnector::from(Arc::clone(tls));
                Box::new(connector.connect(name.clone(), stream).await.map_err(unreachable)?)
            }
        };
        Ok(Connection { stream, buffer: Vec::with_capacity(HEAD_BYTES_MAX) })
    }
}

/// Bytes that come and go, encrypted or not.
trait Io: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + std::fmt::Debug> Io for T {}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Box<dyn Io>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and waits for its answer, which must be 201.
    pub(crate) async fn create(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(request).await.map_err(|error| broken(&error.to_string()))?;
        self.buffer.clear();
        let head = loop {
            if let Some(head) = Head::parse(&self.buffer)? {
                break head;
            }
            self.read().await?;
        };
        while self.buffer.len() < head.bytes + head.body_bytes {
            self.read().await?;
        }
        if head.status == 201 {
            return Ok(());
        }
        let body = self.buffer.get(head.bytes..).unwrap_or_default();
        let shown = body.get(..SHOWN_BYTES_MAX).unwrap_or(body);
        let shown = outlast_cli_core::output::escape(&String::from_utf8_lossy(shown));
        let exit = if matches!(head.status, 401 | 403) { Exit::NotAllowed } else { Exit::Failed };
        Err(Failure::new(exit, format!("enqueue was answered with {}: {shown}", head.status)))
    }

    async fn read(&mut self) -> Result<(), Failure> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err(broken("closed by the server")),
            Ok(_) => Ok(()),
            Err(error) => Err(broken(&error.to_string())),
        }
    }
}

fn broken(reason: &str) -> Failure {
    Failure::new(Exit::Unreachable, format!("connection to the server broke: {reason}"))
}

/// What is read of an answer's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Its own length, up to where the body begins.
    bytes: usize,
    body_bytes: usize,
}

impl Head {
    /// `None` while it is not whole yet.
    fn parse(buffer: &[u8]) -> Result<Option<Self>, Failure> {
        let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
            let too_long = buffer.len() > HEAD_BYTES_MAX;
            return if too_long {
                Err(broken("the head of its response is too long"))
            } else {
                Ok(None)
            };
        };
        let head = buffer.get(..end).and_then(|head| std::str::from_utf8(head).ok());
        let head = head.ok_or_else(|| broken("its response is not HTTP"))?;
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken("its response has no status"))?;
        let length = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let body_bytes = length.ok_or_else(|| broken("its response has no content-length"))?;
        Ok(Some(Self { status, bytes: end + 4, body_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, Head};
    use outlast_cli_core::client::ClientConfig;

    fn address(server: &str) -> Result<Address, outlast_cli_core::exit::Failure> {
        Address::of(&ClientConfig {
            token: Some("t".to_owned()),
            ..ClientConfig::plain(server.to_owned())
        })
    }

    #[test]
    fn request_carries_host_path_token_and_length() {
        let request = address("http://127.0.0.1:1/base/").unwrap().post("/ojs/v1/jobs", "{}");
        let request = String::from_utf8(request.to_vec()).unwrap();
        assert!(request.starts_with("POST /base/ojs/v1/jobs HTTP/1.1\r\nhost: 127.0.0.1:1\r\n"));
        assert!(request.contains("\r\nauthorization: Bearer t\r\n"), "{request}");
        assert!(request.ends_with("\r\ncontent-length: 2\r\n\r\n{}"), "{request}");
    }

    #[test]
    fn head_is_read_once_it_is_whole() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 12\r\n\r\n{";
        assert_eq!(Head::parse(&whole[..20]).unwrap(), None);
        let expected = Head { status: 201, bytes: 44, body_bytes: 12 };
        assert_eq!(Head::parse(whole).unwrap(), Some(expected));
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
