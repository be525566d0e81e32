//! What happens by time alone. Safe to run on every server: each act is a compare-and-set.
//!
//! - [`leases`]: gives up workers that this server has watched being silent
//! - [`sweep`]: timers, expiries, visibilities and time limits, at the next deadline
//! - [`stranded`]: executions that no live worker can run; attempts that never started
//! - [`arrivals`]: enqueues jobs that programs stored by SQL
//! - [`lag`]: how late the event loop turns, for the metrics
//! - [`retention`]: what need not be kept any longer
//! - [`duty`]: what only one server does, held by a lease in the store

mod arrivals;
mod duty;
mod lag;
mod leases;
mod retention;
mod stranded;
mod sweep;

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
            let board = engine.shared_board();
            tasks.spawn(watch(board, $name, async move {
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
    spawn!("the monitor of arrivals", arrivals::run);
    let retention = retention::run(engine.clone(), stop.clone());
    tasks.spawn(watch(engine.shared_board(), "the monitor of retention", retention));
    spawn!("the execution timeout monitor", stranded::run);
}
