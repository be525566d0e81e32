//! A small HTTP/1.1 client that costs next to nothing, so that the server is measured.

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One kept-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    head: String,
}

impl Connection {
    /// Connects to `address`.
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("failed to connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 * 1024), head: address.to_owned() })
    }

    /// Posts `body` and returns the status and the body of the answer.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/openjobspec+json\r\ncontent-length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> anyhow::Result<(u16, Vec<u8>)> {
        self.buffer.clear();
        let head_end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            anyhow::ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "connection closed");
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?.to_ascii_lowercase();
        let status = head.get(9..12).context("no status line")?.parse()?;
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .context("answer has no content-length")?
            .trim()
            .parse()?;
        while self.buffer.len() < head_end + length {
            anyhow::ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "connection closed");
        }
        Ok((status, self.buffer[head_end..head_end + length].to_vec()))
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
