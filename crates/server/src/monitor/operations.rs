//! Goes on with operations. The server that began one takes its steps; if it has written nothing for a
//! while, any other server does. Of two that take the same step, one is refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::operation::OperationId;
use outlast_core::time::Span;
use outlast_store::StoreError;
use outlast_store::operation::OperationRecord;
use tokio::time::Instant;

use crate::clock::boot_time;
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::monitor::looks::Looks;
use crate::operations::pace::Pace;
use crate::operations::service::{Operation, read};
use crate::operations::steps::go_on;

/// Pause between two looks at which operations run.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an operation is left to the server that took its last step.
const STEP_IN: Span = Span::from_secs(3);

/// Looks again and again at which operations run.
pub(super) async fn run(engine: Engine) {
    let mut monitor =
        Monitor { pace: Arc::default(), looks: Looks::new(), unreadable: HashSet::new(), engine };
    loop {
        if let Err(error) = monitor.begin().await {
            let shared = monitor.engine.shared();
            log_trouble!(warn, shared, error, "failed to look for operations; retrying");
        }
        monitor.wait().await;
    }
}

struct Monitor {
    engine: Engine,
    pace: Arc<Pace>,
    looks: Looks<OperationId>,
    /// Those that cannot be read, which the log has named.
    unreadable: HashSet<OperationId>,
}

impl Monitor {
    /// Begins to take steps of the operations that are this server's to go on with.
    async fn begin(&mut self) -> Result<(), StoreError> {
        // A full store has better things to write.
        if self.engine.shared().store_health.trouble(boot_time()).is_some() {
            return Ok(());
        }
        let running = self.engine.store().running_operations().await?;
        if running.is_empty() {
            return Ok(());
        }
        let now = self.engine.now().await?;
        for record in running {
            let is_left = now.since(record.updated) > STEP_IN;
            let is_ours = record.runner == Some(self.engine.server_id());
            if (is_left || is_ours) && !self.looks.are_about(&record.id) {
                self.go_on(record, is_ours);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, record: OperationRecord, is_ours: bool) {
        let id = record.id;
        let operation = match read(record) {
            Ok(operation) => operation,
            Err(error) => {
                if self.unreadable.insert(id) {
                    tracing::warn!(%error, "operation cannot be read, and does not go on here");
                }
                return;
            }
        };
        if !is_ours {
            tracing::info!(operation = %id, "goes on with an operation that another server left");
        }
        let (engine, pace) = (self.engine.clone(), Arc::clone(&self.pace));
        self.looks.begin(id, take_steps(engine, operation, pace));
    }

    /// Waits until there is something to do, and takes in which operations have ended.
    async fn wait(&mut self) {
        let end = Instant::now() + PAUSE;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(end) => return,
                () = self.engine.shared().operations_wanted.notified() => return,
                // It may be begun again.
                Some(_) = self.looks.ended(), if !self.looks.is_empty() => {}
            }
        }
    }
}

async fn take_steps(engine: Engine, operation: Operation, pace: Arc<Pace>) {
    if let Err(error) = go_on(&engine, operation, &pace).await {
        let shared = engine.shared();
        log_trouble!(warn, shared, error, "failed to take a step of an operation; retrying");
    }
}
