//! Moves workflows on. Every server may: the first one that writes a workflow has moved it on. Each looks
//! at once at those of which jobs ended in its own transactions; what another one has left for a moment,
//! and what is due, it finds in the store.

use std::time::Duration;

use outlast_core::time::{Span, Timestamp};
use outlast_core::workflow::WorkflowId;
use outlast_store::workflow::DueWorkflows;
use tokio::time::Instant;

use crate::clock::boot_time;
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::monitor::looks::Looks;
use crate::workflows::look::{Ask, look};
use crate::workflows::service::WorkflowError;
use crate::workflows::unnoted;

/// Pause between two looks at the store.
const PAUSE: Duration = Duration::from_secs(1);
/// How long ends are left to the server that noted them.
const STEP_IN: Span = Span(600);
/// How far back a look goes for ends that no server took: most of the rows before them are deleted ones,
/// which would be walked over each time. The first look goes back to the beginning.
const BACK: Span = Span::from_secs(600);
/// How many workflows one look at the store finds.
const AT_ONCE: u32 = 1_000;
/// How many are looked at side by side; their commands share transactions.
const SIDE_BY_SIDE: usize = 64;
/// Pause between two searches for ends that were never noted.
const UNNOTED: Duration = Duration::from_secs(30);
/// How many of them one search finds.
const UNNOTED_MAX: u32 = 200;
/// Longest that a look may take. What it did not do, the next one does.
const LOOK_LIMIT: Duration = Duration::from_secs(120);
/// Who moves workflows on, for the event log.
const BY: &str = "workflows";

/// Looks again and again at workflows.
pub(super) async fn run(engine: Engine) {
    let mut monitor = Monitor {
        looks: Looks::new(),
        ends_from: Timestamp(0),
        next: Instant::now(),
        next_unnoted: Instant::now() + UNNOTED,
        engine,
    };
    loop {
        if monitor.next <= Instant::now() {
            monitor.next = Instant::now() + PAUSE;
            if let Err(error) = monitor.find().await {
                let shared = monitor.engine.shared();
                log_trouble!(warn, shared, error, "failed to look for workflows; retrying");
            }
        }
        monitor.begin();
        monitor.wait().await;
    }
}

struct Monitor {
    engine: Engine,
    looks: Looks<WorkflowId>,
    /// From when on there may be ends that no server took.
    ends_from: Timestamp,
    /// When the store is asked next.
    next: Instant,
    /// When ends are searched for that were never noted.
    next_unnoted: Instant,
}

impl Monitor {
    /// Finds what is due, and what others have left.
    async fn find(&mut self) -> Result<(), WorkflowError> {
        self.engine.shared().workflows.want_later();
        let now = self.engine.now().await?;
        let until = Timestamp(now.0.saturating_sub_unsigned(STEP_IN.0));
        let store = self.engine.store();
        let found = store
            .due_workflows(DueWorkflows { until, ends_from: self.ends_from, max: AT_ONCE })
            .await?;
        let is_all = u32::try_from(found.len()).is_ok_and(|count| count < AT_ONCE);
        let counts = store.workflow_counts().await?;
        self.engine.counters().workflows(&counts, now);
        if is_all {
            let back = Timestamp(now.0.saturating_sub_unsigned(BACK.0));
            self.ends_from = counts.oldest_end.map_or(back, |oldest| oldest.min(back));
        }
        self.engine.shared().workflows.want(found);
        if self.next_unnoted <= Instant::now() {
            self.next_unnoted = Instant::now() + UNNOTED;
            for run in store.unnoted_ends(UNNOTED_MAX).await? {
                unnoted::note(&self.engine, run).await?;
            }
        }
        Ok(())
    }

    /// Begins to look at what is wanted.
    fn begin(&mut self) {
        // A full store takes no jobs; it has better things to write.
        if self.engine.shared().store_health.trouble(boot_time()).is_some() {
            return;
        }
        while let Some(id) = self.engine.shared().workflows.take(SIDE_BY_SIDE) {
            self.looks.begin(id, look_once(self.engine.clone(), id));
        }
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        tokio::select! {
            () = tokio::time::sleep_until(self.next) => {}
            () = self.engine.shared().workflows.any.notified() => {}
            Some(id) = self.looks.ended(), if !self.looks.is_empty() => {
                self.engine.shared().workflows.looked(id);
            }
        }
    }
}

async fn look_once(engine: Engine, id: WorkflowId) {
    match tokio::time::timeout(LOOK_LIMIT, look(&engine, id, Ask::Nothing, BY)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let shared = engine.shared();
            log_trouble!(warn, shared, error, "failed to look at a workflow; retrying");
            shared.workflows.later(id);
        }
        Err(_elapsed) => {
            tracing::warn!(workflow = %id, "a look at the workflow took too long; retrying");
            engine.shared().workflows.later(id);
        }
    }
}
