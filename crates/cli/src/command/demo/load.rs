//! The jobs of the demo: many short ones, and some long ones where the disruption will fall.

use std::path::Path;

use outlast_cli_core::client::Client;
use outlast_cli_core::exit::Failure;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::pack;

/// How many jobs are sent at the same time: a store with a slow disk shares its flushes.
const PRODUCERS: usize = 16;
/// How long short jobs sleep, in turn.
const SHORT_SECONDS: [f64; 5] = [0.02, 0.05, 0.1, 0.15, 0.25];
/// How long a long job sleeps: longer than the drain of the demo lasts.
const LONG_SECONDS: f64 = 3.0;
/// In the middle of the load, one job in this many is long.
const LONG_EVERY: u32 = 3;

/// What was accepted.
#[derive(Debug)]
pub(super) struct Load {
    accepted: Vec<String>,
}

impl Load {
    /// Enqueues the jobs, some at a time; a refusal ends the demo.
    pub(super) async fn submit(
        client: &Client,
        ledger: &Path,
        runtimes: &[String],
        jobs: u32,
    ) -> Result<Self, Failure> {
        let numbered: Vec<(u32, &String)> = (0..jobs).zip(runtimes.iter().cycle()).collect();
        let mut accepted = Vec::new();
        for together in numbered.chunks(PRODUCERS) {
            let mut requests = JoinSet::new();
            for (number, runtime) in together {
                let parameters = json!({"ledger": ledger, "seconds": seconds(*number, jobs)});
                let action = pack::action(runtime);
                let body = json!({"action_ref": action, "parameters": parameters});
                requests.spawn(enqueue(client.clone(), body));
            }
            for answer in requests.join_all().await {
                accepted.push(answer?);
            }
        }
        Ok(Self { accepted })
    }

    /// Ids of accepted jobs.
    pub(super) fn accepted(&self) -> &[String] {
        &self.accepted
    }
}

async fn enqueue(client: Client, body: Value) -> Result<String, Failure> {
    let answer = client.post(&["api", "v1", "executions"], &body).await?;
    let id = answer.pointer("/data/id").and_then(Value::as_str).map(ToOwned::to_owned);
    id.ok_or_else(|| Failure::failed("the server accepted a job but did not return its id"))
}

/// Long jobs begin to run shortly before half of all are done, and run for a while: a slow machine
/// reaches the half late.
fn seconds(number: u32, jobs: u32) -> f64 {
    let middle = (jobs * 45 / 100)..(jobs * 65 / 100);
    if middle.contains(&number) && number.is_multiple_of(LONG_EVERY) {
        return LONG_SECONDS;
    }
    let turn = usize::try_from(number).unwrap_or(0) % SHORT_SECONDS.len();
    SHORT_SECONDS.get(turn).copied().unwrap_or(0.1)
}
