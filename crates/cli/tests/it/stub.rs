//! A tiny HTTP server with scripted responses that records its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request: `METHOD /path?query`, and its body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) body: String,
    pub(crate) token: Option<String>,
}

/// A status and a body.
pub(crate) type Answer = (u16, String);

pub(crate) struct Stub {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Stub {
    /// Answers each request by `answer`, which also gets its number, from 0.
    pub(crate) fn start(answer: impl Fn(&Asked, usize) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = Arc::clone(&asked);
        // The thread ends with the test's process; every answer closes its connection.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read(&stream);
                let number = seen.lock().unwrap().len();
                let (status, body) = answer(&request, number);
                seen.lock().unwrap().push(request);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n\
                     content-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        Self { url, asked }
    }

    /// Answers everything the same.
    pub(crate) fn always(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self::start(move |_, _| (status, body.clone()))
    }

    /// Answers paths that begin so; everything else is not found.
    pub(crate) fn routes(routes: &[(&'static str, &'static str)]) -> Self {
        let routes = routes.to_vec();
        Self::start(move |asked, _| {
            let found = routes.iter().find(|(start, _)| asked.line.starts_with(start));
            found.map_or((404, String::new()), |(_, body)| (200, (*body).to_owned()))
        })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let (mut length, mut token) = (0, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => token = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let line = first.trim().trim_end_matches(" HTTP/1.1").to_owned();
    Asked { line, body: String::from_utf8(body).unwrap(), token }
}
