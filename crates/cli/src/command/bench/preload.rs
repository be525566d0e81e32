//! A store that is not empty: jobs that wait where no worker looks, and jobs that have ended.

use serde_json::{Value, json};

use super::place::Place;
use super::{enqueue, hands};
use crate::client::Client;
use crate::exit::Failure;
use crate::output::say;

/// How many jobs are put in beforehand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preload {
    pub(super) waiting: usize,
    pub(super) finished: usize,
}

impl Preload {
    /// Puts them in, and returns how many the server itself counts afterwards.
    pub(super) async fn fill(self, place: &Place) -> Result<Value, Failure> {
        let mut counted = json!({"waiting": 0, "finished": 0});
        if self.finished > 0 {
            say(&format!("{} jobs are run beforehand\n", self.finished));
            let queue = place.queue("finished");
            enqueue::fill(place, &queue, self.finished).await?;
            hands::drain(place, &queue, self.finished).await?;
            counted["finished"] = count(place, &queue, "completed").await?;
        }
        if self.waiting > 0 {
            say(&format!("{} jobs are left waiting\n", self.waiting));
            let queue = place.queue("waiting");
            enqueue::fill(place, &queue, self.waiting).await?;
            counted["waiting"] = count(place, &queue, "available").await?;
        }
        Ok(counted)
    }

    /// Runs the waiting ones, so that nothing of ours is left on somebody's server.
    pub(super) async fn clear(self, place: &Place) -> Result<(), Failure> {
        if place.is_embedded() {
            return Ok(());
        }
        hands::drain(place, &place.queue("waiting"), self.waiting).await?;
        Ok(())
    }
}

async fn count(place: &Place, queue: &str, state: &str) -> Result<Value, Failure> {
    let client = Client::new(place.config().clone())?;
    let answer = client.get(&["ojs", "v1", "queues", queue, "stats"], &[]).await?;
    let found = answer.get("stats").and_then(|stats| stats.get(state));
    Ok(found.cloned().unwrap_or(Value::Null))
}
