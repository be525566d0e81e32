//! An HTTP server that answers what the test tells it to, and shows what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What is done with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A whole response.
    Says(u16, &'static str, &'static [(&'static str, &'static str)]),
    /// Pieces of a stream of events; then the connection is closed.
    Streams(String),
    /// The connection is closed without a word, after the request was read.
    HangsUp,
}

/// One request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Method and path with its query.
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) struct ScriptedHttp {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl ScriptedHttp {
    /// Answers requests with these, in order; then hangs up on everybody.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
                tokio::spawn(serve(stream, seen, answers));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<Asked>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
) {
    let Some(asked) = read(&mut stream).await else { return };
    seen.lock().unwrap().push(asked);
    let answer = answers.lock().unwrap().pop_front().unwrap_or(Answer::HangsUp);
    let text = match answer {
        Answer::Says(status, body, headers) => {
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let length = body.len();
            format!(
                "HTTP/1.1 {status} Scripted\r\n{headers}content-length: {length}\r\n\
                 connection: close\r\n\r\n{body}"
            )
        }
        Answer::Streams(text) => format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{text}"
        ),
        Answer::HangsUp => String::new(),
    };
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let (line, head) = head.split_once("\r\n")?;
            let line = line.trim_end_matches(" HTTP/1.1").to_owned();
            let asked = Asked { line, head: head.to_owned(), body: body.to_owned() };
            let length = asked.header("content-length").map_or(0, |text| text.parse().unwrap());
            if asked.body.len() >= length {
                return Some(asked);
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
