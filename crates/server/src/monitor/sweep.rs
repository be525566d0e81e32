//! Carries out what is due: at the next deadline, not on a tick.

use outlast_core::time::Span;
use outlast_store::command::Sweep;
use outlast_store::reply::Swept;

use crate::clock::{boot_time, millis, precise};
use crate::engine::Engine;
use crate::engine::store_health::OwnRead;
use crate::engine::trouble_log::log_trouble;
use crate::metrics::Check;

/// Most jobs that one sweep touches, of each kind.
const SWEEP_MAX: u32 = 1_000;
/// What became due less than this ago may be due by the estimated time only: look again soon.
const JUST_DUE: Span = Span::from_secs(1);
const JUST_DUE_WAIT: Span = Span::from_millis(20);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let interval = engine.settings().check_interval;
    // Look at once: something may have come due while no server ran.
    let mut wait = Span::ZERO;
    loop {
        let woken = engine.shared().next_due.changed();
        // Woken early by a nearer deadline, or not: look either way.
        drop(tokio::time::timeout(millis(wait), woken).await);
        wait = sweep(&engine, interval).await.min(interval);
    }
}

/// Sweeps if something is due; returns how long nothing will be, as far as is known.
async fn sweep(engine: &Engine, interval: Span) -> Span {
    let known = engine.shared().next_due.take();
    let Some(now) = engine.shared().store_time() else {
        return first_look(engine).await;
    };
    let due = match engine.read_own(OwnRead::Due, engine.store().next_due()).await {
        Ok(due) => due.map_or(known, |due| due.min(known)),
        Err(error) => {
            log_trouble!(warn, engine.shared(), error, "failed to read what is due next");
            return interval;
        }
    };
    if due > now {
        engine.shared().next_due.put_back(due);
        return due.since(now).max(Span(1));
    }
    let Some(swept) = submit(engine).await else { return interval };
    if swept.more || !swept.moved.is_empty() {
        return Span(1);
    }
    // Nothing moved although something is due. Either the store's clock is a moment behind the
    // estimate, or this server has not watched a silent client for long enough (I8).
    if now.since(due) < JUST_DUE { JUST_DUE_WAIT } else { interval }
}

async fn first_look(engine: &Engine) -> Span {
    match engine.store().now().await {
        Ok(now) => engine.shared().set_store_time(now),
        Err(error) => {
            log_trouble!(warn, engine.shared(), error, "failed to read the store's time");
            return engine.settings().check_interval;
        }
    }
    Span(100)
}

async fn submit(engine: &Engine) -> Option<Swept> {
    let watched = engine.shared().store_health.watched(boot_time());
    let begun = precise();
    let answer = engine.submit(Sweep { limit: SWEEP_MAX, watched }).await;
    engine.counters().checked(Check::Due, precise().saturating_sub(begun));
    match answer {
        Ok(swept) => {
            for moved in &swept.moved {
                tracing::debug!(job = %moved.job, epoch = %moved.epoch, from = %moved.from,
                    to = %moved.state, "sweep moved jobs");
            }
            Some(swept)
        }
        Err(error) => {
            log_trouble!(warn, engine.shared(), error, "sweep failed");
            None
        }
    }
}
