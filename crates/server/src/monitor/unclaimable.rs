//! Fails jobs that no live worker can run, and revokes jobs that were not started in time.

use outlast_core::time::{BootTime, Span};
use tokio::sync::oneshot;

use crate::clock::{boot_time, millis, precise};
use crate::engine::Engine;
use crate::engine::input::Input;
use crate::engine::trouble_log::log_trouble;
use crate::metrics::Check;

/// What a read of the workers may take.
const FLEET_READ: Span = Span::from_secs(2);

/// How often the backlog is read, whatever the interval of the checks.
const LOOK_INTERVAL: Span = Span(1000);

/// Runs until dropped.
pub(super) async fn run(engine: Engine) {
    let settings = engine.settings().clone();
    let interval = settings.check_interval.max(Span(10));
    if settings.timeout_monitor {
        let as_seconds = |span: Span| millis(span).as_secs_f64();
        tracing::info!("Starting execution timeout monitor");
        tracing::info!(
            "Execution timeout monitor started (check interval: {}s, scheduled timeout: {}s)",
            as_seconds(interval),
            as_seconds(settings.scheduled_timeout)
        );
    }
    // The lease monitor reads the workers once each interval; a read and the checks between take
    // a while.
    let fleet_age_max = Span(interval.0.saturating_mul(2).saturating_add(FLEET_READ.0));
    let mut ticks = tokio::time::interval(millis(interval.min(LOOK_INTERVAL)));
    let mut check_at = precise();
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A safety net for dispatch: the loop learns here of claimable jobs that it missed.
        match engine.look_for_claimable().await {
            Ok(look) => {
                engine.shared().trouble_log.went_well("failed to read the backlog");
                drop(engine.send(Input::Backlog(look)).await);
            }
            Err(error) => log_trouble!(warn, engine.shared(), error, "failed to read the backlog"),
        }
        if precise() < check_at {
            continue;
        }
        check_at =
            precise().saturating_add(millis(Span(interval.0 - interval.min(LOOK_INTERVAL).0 / 2)));
        let before = boot_time().0.saturating_sub(settings.start_timeout.0);
        if engine.send(Input::RevokeOverdue { before: BootTime(before) }).await.is_err() {
            return;
        }
        if settings.timeout_monitor {
            let (begun, (reply, looked)) = (precise(), oneshot::channel());
            drop(engine.send(Input::CheckUnclaimable { fleet_age_max, reply }).await);
            drop(looked.await);
            engine.counters().checked(Check::Stranded, precise().saturating_sub(begun));
        }
    }
}
