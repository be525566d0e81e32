//! A session's output on its way into the store.

use std::collections::VecDeque;

use outlast_store::{Command, Reply};
use tokio::sync::oneshot;

use crate::engine::Unavailable;

/// Most chunks of output of one session that wait for a batch.
const UNSTORED_MAX: usize = 64;

type Stored = oneshot::Receiver<Result<(Reply, Command), Unavailable>>;

/// Output that was handed to the engine and is not known to be stored.
#[derive(Debug, Default)]
pub(super) struct Printed {
    chunks: VecDeque<Chunk>,
    /// Messages of which all chunks are stored.
    messages: u64,
}

#[derive(Debug)]
struct Chunk {
    /// Not set for a message in which nothing could be read: there is nothing to wait for.
    stored: Option<Stored>,
    /// The last one of its message.
    is_last: bool,
}

impl Printed {
    /// Takes in the chunks of one message.
    pub(super) fn push(&mut self, chunks: Vec<Stored>) {
        let Some(last) = chunks.len().checked_sub(1) else {
            // The count goes on.
            self.chunks.push_back(Chunk { stored: None, is_last: true });
            return;
        };
        let chunk = |(n, stored)| Chunk { stored: Some(stored), is_last: n == last };
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
            let outcome = match &mut chunk.stored {
                Some(stored) => {
                    stored.await.unwrap_or_else(|_gone| Err(Unavailable::stopping())).map(drop)
                }
                None => Ok(()),
            };
            let is_last = chunk.is_last;
            self.chunks.pop_front();
            outcome?;
            if is_last {
                self.messages += 1;
                return Ok(self.messages);
            }
        }
        std::future::pending().await
    }
}
