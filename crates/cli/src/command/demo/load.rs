//! The jobs of the demo: many short ones, and some long ones where the strike will fall.

use std::path::Path;

use serde_json::{Value, json};

use super::pack;
use crate::client::Client;
use crate::exit::Failure;

/// How long short jobs sleep, in turn.
const SHORT_SECONDS: [f64; 5] = [0.02, 0.05, 0.1, 0.15, 0.25];
/// How long a long job sleeps: longer than the drain of the demo lasts.
const LONG_SECONDS: f64 = 3.0;
/// Every so many jobs in the middle of the load, one is long.
const LONG_EVERY: u32 = 3;

/// What was accepted.
#[derive(Debug)]
pub(super) struct Load {
    accepted: Vec<String>,
}

impl Load {
    /// Enqueues the jobs one by one; a refusal ends the demo.
    pub(super) async fn submit(
        client: &Client,
        ledger: &Path,
        runtimes: &[String],
        jobs: u32,
    ) -> Result<Self, Failure> {
        let mut accepted = Vec::new();
        for (number, runtime) in (0..jobs).zip(runtimes.iter().cycle()) {
            let parameters = json!({"ledger": ledger, "seconds": seconds(number, jobs)});
            let body = json!({"action_ref": pack::action(runtime), "parameters": parameters});
            let answer = client.post(&["api", "v1", "executions"], &body).await?;
            match answer.pointer("/data/id").and_then(Value::as_str) {
                Some(id) => accepted.push(id.to_owned()),
                None => return Err(Failure::failed("the server accepted a job without an id")),
            }
        }
        Ok(Self { accepted })
    }

    /// Ids of accepted jobs.
    pub(super) fn accepted(&self) -> &[String] {
        &self.accepted
    }
}

/// Long jobs begin to run shortly before half of all are done.
fn seconds(number: u32, jobs: u32) -> f64 {
    let middle = (jobs * 45 / 100)..(jobs * 55 / 100);
    if middle.contains(&number) && number.is_multiple_of(LONG_EVERY) {
        return LONG_SECONDS;
    }
    let turn = usize::try_from(number).unwrap_or(0) % SHORT_SECONDS.len();
    SHORT_SECONDS.get(turn).copied().unwrap_or(0.1)
}
