//! A store that is not empty: jobs that wait, jobs that no worker can run, jobs that have ended.
//!
//! All of them are in the queue that is measured, so that only their type and their
//! state keep them out of the way.

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::say;
use serde_json::{Value, json};

use crate::enqueue;
use crate::jobs::{NOOP, PROMPT, UNSERVED};
use crate::target::Target;
use crate::workers;

/// How many jobs are put in beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Of the type that drain and enqueue are measured with, before them in the queue.
    pub waiting: usize,
    /// Of a type that no worker takes.
    pub unserved: usize,
    /// Run beforehand.
    pub finished: usize,
}

impl Fill {
    pub(crate) const fn is_nothing(self) -> bool {
        self.waiting == 0 && self.unserved == 0 && self.finished == 0
    }

    pub(crate) fn to_json(self) -> Value {
        json!({"waiting": self.waiting, "unserved": self.unserved, "finished": self.finished})
    }

    /// Puts them in. The server itself must count as many.
    pub(crate) async fn put_into(self, target: &Target) -> Result<(), Failure> {
        let Self { waiting, unserved, finished } = self;
        say(&format!("store to be filled: {waiting} waiting, {unserved} unserved, "));
        say(&format!("{finished} finished\n"));
        enqueue::fill(target, NOOP, finished).await?;
        workers::drain(target, &[NOOP], finished).await?;
        enqueue::fill(target, UNSERVED, unserved).await?;
        enqueue::fill(target, NOOP, waiting).await?;
        let counted = (count(target, "available").await?, count(target, "completed").await?);
        if counted == (waiting + unserved, finished) {
            return Ok(());
        }
        let (available, completed) = counted;
        let what = format!("the server counts {available} jobs waiting and {completed} finished");
        Err(Failure::failed(what).with_hint("is another worker serving the same queue?"))
    }

    /// Runs what waits, so that nothing is left on a server that was named.
    pub(crate) async fn clear(self, target: &Target) -> Result<(), Failure> {
        if target.is_own() {
            return Ok(());
        }
        let left = count(target, "available").await?;
        workers::drain(target, &[NOOP, UNSERVED, PROMPT], left).await?;
        Ok(())
    }
}

async fn count(target: &Target, state: &str) -> Result<usize, Failure> {
    let client = Client::new(target.config().clone())?;
    let answer = client.get(&["ojs", "v1", "queues", target.queue(), "stats"], &[]).await?;
    let found = answer.get("stats").and_then(|stats| stats.get(state)).and_then(Value::as_u64);
    let found = found.and_then(|found| usize::try_from(found).ok());
    found.ok_or_else(|| Failure::failed(format!("the server does not count {state} jobs")))
}
