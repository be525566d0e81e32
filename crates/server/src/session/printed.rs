//! A session's output on its way into the store.

use std::collections::VecDeque;

use outlast_store::Reply;
use tokio::sync::oneshot;

use crate::engine::Unavailable;

/// Most chunks of output of one session that wait for a batch.
const UNSTORED_MAX: usize = 64;

type Stored = oneshot::Receiver<Result<Reply, Unavailable>>;

/// Output that was handed to the engine and is not known to be stored.
#[derive(Debug, Default)]
pub(super) struct Printed {
    chunks: VecDeque<Chunk>,
    /// Messages of which all chunks are stored.
    messages: u64,
}

#[derive(Debug)]
struct Chunk {
    stored: Stored,
    /// The last one of its message.
    is_last: bool,
}

impl Printed {
    /// Takes in the chunks of one message.
    pub(super) fn push(&mut self, chunks: Vec<Stored>) {
        let Some(last) = chunks.len().checked_sub(1) else {
            // Nothing in it could be read, so there is nothing to wait for; the count goes on.
            let (stored, waits) = oneshot::channel();
            drop(stored.send(Ok(Reply::Done)));
            self.chunks.push_back(Chunk { stored: waits, is_last: true });
            return;
        };
        let chunk = |(n, stored)| Chunk { stored, is_last: n == last };
        self.chunks.extend(chunks.into_iter().enumerate().map(chunk));
    }

    /// Says whether more may be taken in. A job that prints faster than the disk can store
    /// waits for the disk.
    pub(super) fn has_room(&self) -> bool {
        self.chunks.len() <= UNSTORED_MAX
    }

    /// Waits until another message is stored, and returns how many are; forever while there is
    /// none to wait for. Safe to drop while waiting.
    pub(super) async fn stored(&mut self) -> Result<u64, Unavailable> {
        while let Some(chunk) = self.chunks.front_mut() {
            let outcome = (&mut chunk.stored).await;
            let is_last = chunk.is_last;
            self.chunks.pop_front();
            match outcome {
                Ok(Ok(_)) => self.messages += u64::from(is_last),
                Ok(Err(error)) => return Err(error),
                Err(_gone) => return Err(Unavailable::stopping()),
            }
            if is_last {
                return Ok(self.messages);
            }
        }
        std::future::pending().await
    }
}
