//! Waiting for a job's end.
//!
//! ```text
//! look ─▶ ended: done
//!  ▲  └─▶ not yet: follow its events until one says so, or the stream is lost
//!  └── pause, where there is no stream ◀──┘
//! ```

use std::time::Duration;

use outlast_core::id::JobId;
use outlast_core::job::State;

use super::events::EventFilter;
use super::{Client, ClientError, Job};
use crate::session::backoff::Backoff;

pub(super) async fn wait(
    client: &Client,
    id: JobId,
    patience: Duration,
) -> Result<Job, ClientError> {
    let mut last = None;
    match tokio::time::timeout(patience, look_and_follow(client, id, &mut last)).await {
        Ok(ended) => ended,
        Err(_) => Err(ClientError::WaitTimedOut { waited: patience, job: last.map(Box::new) }),
    }
}

async fn look_and_follow(
    client: &Client,
    id: JobId,
    last: &mut Option<Job>,
) -> Result<Job, ClientError> {
    let mut events = client.events(EventFilter::default().job(id));
    let mut backoff = Backoff::default();
    let mut streams = true;
    loop {
        match client.get(id).await {
            Ok(job) if job.has_ended() => return Ok(job),
            Ok(job) => *last = Some(job),
            // The caller has set a limit: until then the server may come back.
            Err(ClientError::Unreachable { .. }) => {}
            Err(error) if error.status().is_some_and(|status| status >= 500) => {}
            Err(error) => return Err(error),
        }
        while streams {
            match events.next_or_failed().await {
                // The job may have begun another life since: it is looked at again.
                Ok(event) if event.data.state.is_some_and(State::is_terminal) => break,
                Ok(_) => backoff.reset(),
                Err(failed) => {
                    streams = failed.is_for_now();
                    tracing::debug!(job = %id, ?failed, "no events, polling the job instead");
                    tokio::time::sleep(failed.pause(&mut backoff)).await;
                    break;
                }
            }
        }
        if !streams {
            let jitter = rand::random_range(0.0..1.0);
            tokio::time::sleep(backoff.next(jitter)).await;
        }
    }
}
