//! Waiting for the end of something that the server knows: a job, a workflow.

use std::time::Duration;

use outlast_cli_core::client::{Client, Query};
use outlast_cli_core::clock::{self, Moment};
use outlast_cli_core::exit::{Exit, Failure};
use outlast_cli_core::output::{escape, say};
use serde_json::Value;

use super::follow::{AWAY_MAX, PAUSE_MAX, has_ended};
use crate::output;

/// Longest that one request waits; below the limit of a request, and of most proxies.
pub(super) const REQUEST_WAIT: Duration = Duration::from_secs(20);

/// A job or workflow whose end a command waits for.
#[derive(Debug)]
pub(super) struct Awaited<'a> {
    /// The server that knows it.
    pub(super) client: &'a Client,
    /// Where it is.
    pub(super) path: &'a [&'a str],
    /// Query parameters of each request, besides `wait`.
    pub(super) query: &'a [Query<'a>],
    /// How often it is looked at, at least.
    pub(super) look: Duration,
}

impl Awaited<'_> {
    /// Returns it once it has ended, or as it is when the time is over. Each look is `seen`. A
    /// server that is away for a moment is waited for, but for the first answer.
    pub(super) async fn end(
        &self,
        limit: Option<Duration>,
        mut seen: impl FnMut(&Value) -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        let begun = clock::moment();
        let left = || limit.map(|limit| limit.saturating_sub(clock::moment().since(begun)));
        let mut last = None;
        let mut away: Option<Moment> = None;
        loop {
            let asked = clock::moment();
            // The first answer comes at once, and says whether there is such a thing.
            let longest = if last.is_some() { self.look } else { Duration::ZERO };
            let wait = left().unwrap_or(longest).min(longest);
            let mut query = self.query.to_vec();
            query.push(("wait", Some(format!("{}ms", wait.as_millis()))));
            match self.client.get(self.path, &query).await {
                Ok(answer) => {
                    away = None;
                    let it = last.insert(output::data(answer));
                    seen(it)?;
                    if has_ended(it) {
                        return Ok(last.unwrap_or_default());
                    }
                }
                Err(failure) if failure.exit == Exit::Unreachable && last.is_some() => {
                    let now = clock::moment();
                    if away.is_none() {
                        say(&format!("{}; waiting for the server\n", escape(&failure.message)));
                    }
                    if now.since(*away.get_or_insert(now)) > AWAY_MAX {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
            if left() == Some(Duration::ZERO) {
                return Ok(last.unwrap_or_default());
            }
            // A server that stops answers early.
            if clock::moment().since(asked) < wait {
                tokio::time::sleep(left().unwrap_or(PAUSE_MAX).min(PAUSE_MAX)).await;
            }
        }
    }
}
