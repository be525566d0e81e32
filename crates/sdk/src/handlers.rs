//! Typed handlers: one for each job type, as functions of their arguments.
//!
//! ```text
//! delivery ─▶ handler of its type ─▶ args as its type ─▶ run: a task, or a thread of its own
//!               └─ none: handed back    └─ do not fit: fails for good      │
//!                        result or error as JSON ◀─────────────────────────┘
//! ```

mod args;
mod blocking;
mod error;
mod job_context;
mod outcome;
mod progress;

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument as _;

pub use self::error::{BoxError, HandlerError};
pub use self::job_context::JobContext;
use crate::attempt::context::AttemptContext;
use crate::delivery::Delivery;
use crate::handler::Handler;
use crate::outcome::Outcome;
use crate::worker::summary::BuildError;

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Run = dyn Fn(Bytes, JobContext) -> Running + Send + Sync;

/// The handlers of a worker, by job type.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    by_type: BTreeMap<String, Entry>,
    /// Types that were given two handlers.
    doubled: Vec<String>,
    forbidding: Vec<String>,
}

#[derive(Clone)]
struct Entry {
    run: Arc<Run>,
    forbids_overlap: bool,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_type.keys()).finish()
    }
}

impl Handlers {
    pub(crate) fn add_async<A, R, E, F, Fut>(&mut self, job_type: String, handler: F)
    where
        A: DeserializeOwned + 'static,
        R: Serialize,
        E: Into<BoxError>,
        F: Fn(A, JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
    {
        self.add(job_type, move |args, context| match args::read::<A>(&args, &context) {
            Ok(args) => {
                let stop = context.stop_seen();
                let work = handler(args, context);
                Box::pin(async move { outcome::of_handler(work.await, &stop) })
            }
            Err(outcome) => Box::pin(ready(*outcome)),
        });
    }

    pub(crate) fn add_blocking<A, R, E, F>(&mut self, job_type: String, handler: F)
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
        E: Into<BoxError>,
        F: Fn(A, JobContext) -> Result<R, E> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        self.add(job_type, move |args, context| match args::read::<A>(&args, &context) {
            Ok(args) => {
                let handler = Arc::clone(&handler);
                let stop = context.stop_seen();
                let name = context.job_type().to_owned();
                // The thread is the attempt's for as long as it lives, whatever the handler
                // does with its context.
                let in_flight = context.clone();
                let work = move || {
                    let outcome = outcome::of_handler(handler(args, context), &stop);
                    drop(in_flight);
                    outcome
                };
                Box::pin(blocking::run(name, work))
            }
            Err(outcome) => Box::pin(ready(*outcome)),
        });
    }

    fn add(
        &mut self,
        job_type: String,
        run: impl Fn(Bytes, JobContext) -> Running + Send + Sync + 'static,
    ) {
        let entry = Entry { run: Arc::new(run), forbids_overlap: false };
        if self.by_type.insert(job_type.clone(), entry).is_some() {
            self.doubled.push(job_type);
        }
    }

    pub(crate) fn forbid_overlap(&mut self, job_type: String) {
        self.forbidding.push(job_type);
    }

    /// Checks and applies what was said about handlers, in any order.
    pub(crate) fn validate(&mut self) -> Result<(), BuildError> {
        if let Some(doubled) = self.doubled.pop() {
            return Err(BuildError::TwoHandlers(doubled));
        }
        for job_type in std::mem::take(&mut self.forbidding) {
            match self.by_type.get_mut(&job_type) {
                Some(entry) => entry.forbids_overlap = true,
                None => return Err(BuildError::NoHandler(job_type)),
            }
        }
        Ok(())
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = &String> {
        self.by_type.keys()
    }

    /// A type whose handler wants jobs that forbid overlap, if there is one.
    pub(crate) fn forbids_overlap(&self) -> Option<&str> {
        let mut all = self.by_type.iter();
        all.find(|(_, entry)| entry.forbids_overlap).map(|(job_type, _)| job_type.as_str())
    }
}

impl Handler for Handlers {
    async fn run(&self, mut delivery: Delivery, context: AttemptContext) -> Outcome {
        let Some(entry) = self.by_type.get(&delivery.job_type) else {
            return Outcome::not_started(format!("no handler for {:?} here", delivery.job_type));
        };
        if entry.forbids_overlap && !delivery.overlap_forbidden {
            let message = format!(
                "the handler of {:?} must not overlap, and the job allows it: enqueue it with \
                 option `overlap` = `forbidden`",
                delivery.job_type
            );
            return Outcome::failed("overlap_allowed", message).permanently().unrun();
        }
        let span = tracing::info_span!(
            "attempt",
            job = %delivery.attempt.job,
            epoch = %delivery.attempt.epoch,
            job_type = delivery.job_type,
            queue = delivery.queue,
            attempt = delivery.attempt_number,
        );
        let args = std::mem::take(&mut delivery.args_json);
        let context = JobContext::new(delivery, context);
        let work = span.in_scope(|| (entry.run)(args, context));
        work.instrument(span).await
    }
}
