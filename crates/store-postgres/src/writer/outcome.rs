//! The outcome of a batch whose commit was sent and not confirmed.
//!
//! ```text
//! commit sent, connection lost ─▶ look for its number ─there──▶ it took effect
//!                                       │ not there              (or it is unknown which try did)
//!                                       ▼
//!                                  try again; the number lets one try take effect
//! not to be found out now ─▶ ambiguous ─▶ resolved before the next batch: its number is taken, so
//!                                         that nothing of it takes effect later
//! ```

use std::time::Duration;

use outlast_store::error::SlowStatement;
use outlast_store::reply::Resolved;
use outlast_store::{Batch, BatchId, StoreError};

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{self, int};
use crate::writer::commit::Done;
use crate::writer::patience::Tried;
use crate::writer::{SHORT_LIMIT, Writer};

/// Takes a batch's number unless it is taken; returns whether it was.
const FENCE_OFF: &str = "select outlast.fence_off($1, $2)";

/// The latest batch, if its outcome is unknown.
#[derive(Debug)]
pub(super) struct Unresolved {
    pub(super) id: BatchId,
    /// The effects of its tries whose commits were sent. At most one took effect.
    pub(super) sent: Vec<Done>,
    /// Its number was taken to keep it from taking effect, without an answer: it says no longer
    /// whether the batch did.
    pub(super) number_spent: bool,
}

/// How a try of a batch ended otherwise than well.
pub(super) enum Miss {
    /// It did not take effect.
    Failed(Failure),
    /// The commit was sent and its result is unknown. If it took effect, this is what it did.
    Unconfirmed(Box<Done>, String),
}

impl From<Failure> for Miss {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for Miss {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl Writer {
    /// Notes that a statement of a batch took too long.
    pub(super) fn was_slow(
        &mut self,
        batch: &Batch,
        brief: Option<Duration>,
        words: String,
    ) -> StoreError {
        let chosen = std::mem::take(&mut self.cache.chosen);
        self.patience.was_slow(&Tried { batch, chosen: &chosen }, brief);
        StoreError::Slow(SlowStatement { words, chosen })
    }

    /// Finds out what became of the latest batch, if that is unknown.
    pub(crate) async fn resolve(&mut self, id: BatchId) -> Result<Resolved, StoreError> {
        if self.unresolved.as_ref().is_none_or(|unresolved| unresolved.id != id) {
            return Ok(Resolved::Unknown);
        }
        let resolving = tokio::time::timeout(SHORT_LIMIT, Box::pin(self.fence_off(id))).await;
        let silent = |_elapsed| StoreError::Unavailable("no answer in time".into());
        let (is_taken, was_spent) = resolving.map_err(silent)??;
        let mut sent = self.unresolved.take().map(|it| it.sent).unwrap_or_default();
        Ok(match (is_taken, sent.pop()) {
            (false, _) => Resolved::NotApplied,
            (true, Some(done)) if sent.is_empty() && !was_spent => Resolved::Applied(done.applied),
            (true, _) => Resolved::Unknown,
        })
    }

    /// Takes the number of a batch, so that none of its tries can, which may still be on its way;
    /// returns whether it was taken already, and whether that may have been done here before.
    async fn fence_off(&mut self, id: BatchId) -> Result<(bool, bool), StoreError> {
        let mut connection = self.connect().await?;
        let was_spent = self.spend_number(true);
        let values = values![id.server, int(id.n)];
        let found = match connection.run(&[Statement::new(FENCE_OFF, values)]).await {
            Ok(found) => found,
            Err(failure) => {
                // What PostgreSQL itself refuses, it has rolled back.
                let error = StoreError::from(failure);
                if matches!(error, StoreError::Locked(_) | StoreError::Slow(_)) {
                    self.spend_number(was_spent);
                }
                return Err(error);
            }
        };
        self.connection = Some(connection);
        let row = found.first().and_then(|rows| rows.first());
        let is_taken = row.map_or(Ok(false), |row| row::get(row, 0))?;
        Ok((is_taken, was_spent))
    }

    /// Notes whether the number of the unresolved batch may have been taken; returns whether it
    /// was so before.
    fn spend_number(&mut self, may_be: bool) -> bool {
        let noted = self.unresolved.as_mut().map(|it| &mut it.number_spent);
        noted.is_some_and(|spent| std::mem::replace(spent, may_be))
    }

    /// Looks up a batch whose outcome is unknown, on a new connection.
    pub(super) async fn took_effect(
        &mut self,
        id: BatchId,
        words: &str,
    ) -> Result<bool, StoreError> {
        let looking = tokio::time::timeout(SHORT_LIMIT, Box::pin(self.look_up(id))).await;
        match looking {
            Ok(Ok(took)) => Ok(took),
            Ok(Err(_)) | Err(_) => {
                Err(StoreError::Ambiguous(format!("connection lost while committing: {words}")))
            }
        }
    }

    /// The batch locks its server's slot until it commits or rolls back, so the slot's lock means
    /// that it is decided. A batch that begins later is refused if another try was faster.
    async fn look_up(&mut self, id: BatchId) -> Result<bool, StoreError> {
        let mut connection = self.connect().await?;
        let looked = connection
            .run(&[
                Statement::plain("begin"),
                Statement::new("select outlast.latest_batch($1)", values![id.server]),
                Statement::plain("commit"),
            ])
            .await?;
        self.connection = Some(connection);
        let Some(row) = looked.get(1).and_then(|rows| rows.first()) else { return Ok(false) };
        Ok(row::get::<Option<i64>>(row, 0)?.is_some_and(|latest| latest >= int(id.n)))
    }
}

/// Returns what a batch did that took effect. If several tries may have, it is unknown which did, and
/// their claims may have got different jobs.
pub(super) fn the_only<T>(sent: &mut Vec<T>, words: String) -> Result<T, StoreError> {
    match sent.pop() {
        Some(done) if sent.is_empty() => Ok(done),
        Some(done) => {
            sent.push(done);
            Err(StoreError::Ambiguous(words))
        }
        None => Err(StoreError::Corrupt(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The replies of the latest try were once returned, whichever had taken effect: workers got
    /// jobs that the store had not given to them.
    #[test]
    fn replies_are_known_only_if_one_try_was_sent() {
        let only = |sent: &[u8]| the_only(&mut sent.to_vec(), "lost".into());
        assert!(matches!(only(&[1]), Ok(1)));
        assert!(matches!(only(&[1, 2]), Err(StoreError::Ambiguous(_))));
        assert!(matches!(only(&[]), Err(StoreError::Corrupt(_))));
    }
}
