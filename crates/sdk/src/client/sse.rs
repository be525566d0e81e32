//! Server-Sent Events: bytes as they come in, events as they are complete.
//!
//! Only what is needed of the standard: `id` and `data`; names and comments are passed over.

use bytes::BytesMut;

/// Longest event that is read: the server's are far shorter.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One message of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Where to go on after it, if the stream has said.
    pub(super) id: Option<String>,
    /// Empty where only the id moves on.
    pub(super) data: String,
}

/// What was received and is not told yet.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: BytesMut,
    /// How much of it holds no line's end.
    looked_at: usize,
    id: Option<String>,
    data: String,
}

/// An event is longer than any that the server sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Reader {
    /// Takes bytes in. What was complete before must have been taken out.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.bytes.len() + self.data.len() > EVENT_BYTES_MAX {
            return Err(TooLong);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the next message that is complete.
    pub(super) fn next(&mut self) -> Option<Message> {
        loop {
            let rest = self.bytes.get(self.looked_at..)?;
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                self.looked_at = self.bytes.len();
                return None;
            };
            let line = self.bytes.split_to(self.looked_at + end + 1);
            self.looked_at = 0;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                self.take(&String::from_utf8_lossy(line));
            } else if let Some(message) = self.complete() {
                return Some(message);
            }
        }
    }

    fn take(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // Comments, names, and how long to wait before coming back.
            _ => {}
        }
    }

    fn complete(&mut self) -> Option<Message> {
        let (id, data) = (self.id.take(), std::mem::take(&mut self.data));
        (id.is_some() || !data.is_empty()).then_some(Message { id, data })
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, Reader, TooLong};

    fn read(pieces: &[&str]) -> Vec<(Option<String>, String)> {
        let mut reader = Reader::default();
        let mut all = Vec::new();
        for piece in pieces {
            reader.feed(piece.as_bytes()).unwrap();
            while let Some(Message { id, data }) = reader.next() {
                all.push((id, data));
            }
        }
        all
    }

    #[test]
    fn events_are_the_same_however_their_bytes_are_cut() {
        let text = "retry: 1000\n\nid: a\ndata: {\"n\":1}\n\n: still here\n\nid: b\r\ndata: é\r\n\r\nid: c\n\n";
        let whole = read(&[text]);
        let expected = [(Some("a"), "{\"n\":1}"), (Some("b"), "é"), (Some("c"), "")];
        let expected: Vec<_> =
            expected.map(|(id, data)| (id.map(str::to_owned), data.to_owned())).into();
        assert_eq!(whole, expected);
        let mut reader = Reader::default();
        let mut one_by_one = Vec::new();
        for byte in text.bytes() {
            reader.feed(&[byte]).unwrap();
            while let Some(Message { id, data }) = reader.next() {
                one_by_one.push((id, data));
            }
        }
        assert_eq!(one_by_one, expected);
    }

    #[test]
    fn what_is_not_complete_is_not_emitted() {
        assert_eq!(read(&["id: a\ndata: 1\n"]), []);
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 1024 * 1024];
        for _ in 0..5 {
            assert_eq!(reader.feed(&piece), Ok(()));
            assert_eq!(reader.next(), None);
        }
        assert_eq!(reader.feed(&piece), Err(TooLong));
    }
}
