//! Work that time triggers. Safe to run on every server: each write is a compare-and-set.
//!
//! - [`leases`]: declares silent workers dead
//! - [`sweep`]: timers, expiries, visibility timeouts and time limits, at the next deadline
//! - [`unclaimable`]: fails jobs that no live worker can run; revokes jobs that never started
//! - [`arrivals`]: enqueues jobs that programs stored by SQL
//! - [`backoff`]: how soon what failed is tried again
//! - [`lag`]: measures how late the runtime runs its tasks, for the metrics
//! - [`rates`]: notes what this server did in each minute
//! - [`retention`]: deletes old history
//! - [`schedules`]: fires schedules; [`workflows`]: moves workflows on; [`operations`]: takes steps of operations
//! - [`dead_letters`]: enqueues what handles dead letters
//! - [`handlers`]: sends webhooks and starts actions for them
//! - [`audit`]: corrects what limits count
//! - [`looks`]: tasks that look at schedules, workflows and operations side by side
//! - [`leadership`]: work that one server does for all, under a lease in the store

mod arrivals;
mod audit;
mod backoff;
mod dead_letters;
mod handlers;
mod lag;
mod leadership;
mod leases;
mod looks;
mod operations;
mod rates;
mod retention;
mod schedules;
mod sweep;
mod unclaimable;
mod workflows;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Engine;
use crate::engine::vitals::watch;

/// Starts every monitor; they end when `stop` is cancelled.
pub(crate) fn start(engine: &Engine, tasks: &TaskTracker, stop: &CancellationToken) {
    let until_stopped = |token: CancellationToken| async move { token.cancelled().await };
    macro_rules! spawn {
        ($name:literal, $monitor:path) => {{
            let (engine, token) = (engine.clone(), stop.clone());
            let vitals = engine.shared().vitals.clone();
            tasks.spawn(watch(vitals, $name, async move {
                tokio::select! {
                    () = $monitor(engine) => {}
                    () = until_stopped(token) => {}
                }
            }));
        }};
    }
    spawn!("the lease monitor", leases::run);
    spawn!("the sweeper", sweep::run);
    spawn!("the monitor of lag", lag::run);
    spawn!("the monitor of rates", rates::run);
    spawn!("the monitor of arrivals", arrivals::run);
    let retention = retention::run(engine.clone(), stop.clone());
    tasks.spawn(watch(engine.shared().vitals.clone(), "the monitor of retention", retention));
    let handlers = handlers::run(engine.clone(), stop.clone());
    tasks.spawn(watch(engine.shared().vitals.clone(), "the sender of webhooks", handlers));
    spawn!("the monitor of schedules", schedules::run);
    spawn!("the monitor of workflows", workflows::run);
    spawn!("the monitor of operations", operations::run);
    spawn!("the execution timeout monitor", unclaimable::run);
}
