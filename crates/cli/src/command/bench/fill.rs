//! A store that is not empty: jobs that wait, jobs that nobody can run, jobs that have ended.
//!
//! All of them are in the queue that is measured, so that nothing but their type and their
//! state keeps them out of the way.

use serde_json::{Value, json};

use super::enqueue::{self, NOOP, PROMPT, UNSERVED};
use super::hands;
use super::place::Place;
use crate::client::Client;
use crate::exit::Failure;
use crate::output::say;

/// How many jobs are put in beforehand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    /// Of the type that drain and enqueue are measured with, before them in the queue.
    pub(super) waiting: usize,
    /// Of a type that no worker takes.
    pub(super) unserved: usize,
    /// Run beforehand.
    pub(super) finished: usize,
}

impl Fill {
    pub(super) const fn is_nothing(self) -> bool {
        self.waiting == 0 && self.unserved == 0 && self.finished == 0
    }

    pub(super) fn to_json(self) -> Value {
        json!({"waiting": self.waiting, "unserved": self.unserved, "finished": self.finished})
    }

    /// Puts them in. The server itself must count as many.
    pub(super) async fn put_into(self, place: &Place) -> Result<(), Failure> {
        let Self { waiting, unserved, finished } = self;
        say(&format!("store to be filled: {waiting} waiting, {unserved} unserved, "));
        say(&format!("{finished} finished\n"));
        enqueue::fill(place, NOOP, finished).await?;
        hands::drain(place, &[NOOP], finished).await?;
        enqueue::fill(place, UNSERVED, unserved).await?;
        enqueue::fill(place, NOOP, waiting).await?;
        let counted = (count(place, "available").await?, count(place, "completed").await?);
        if counted == (waiting + unserved, finished) {
            return Ok(());
        }
        let (available, completed) = counted;
        let what = format!("the server counts {available} jobs waiting and {completed} finished");
        Err(Failure::failed(what).with_hint("is another worker serving the same queue?"))
    }

    /// Runs what waits, so that nothing of ours is left on somebody's server.
    pub(super) async fn clear(self, place: &Place) -> Result<(), Failure> {
        if place.is_embedded() {
            return Ok(());
        }
        let left = count(place, "available").await?;
        hands::drain(place, &[NOOP, UNSERVED, PROMPT], left).await?;
        Ok(())
    }
}

async fn count(place: &Place, state: &str) -> Result<usize, Failure> {
    let client = Client::new(place.config().clone())?;
    let answer = client.get(&["ojs", "v1", "queues", place.queue(), "stats"], &[]).await?;
    let found = answer.get("stats").and_then(|stats| stats.get(state)).and_then(Value::as_u64);
    let found = found.and_then(|found| usize::try_from(found).ok());
    found.ok_or_else(|| Failure::failed(format!("the server does not count {state} jobs")))
}
