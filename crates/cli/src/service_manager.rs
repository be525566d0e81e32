//! What a service manager (systemd) is told: ready, stopping, and at intervals that we still go.
//!
//! ```text
//! started ──store open, listening; or registered──▶ READY=1 ──▶ WATCHDOG=1 … ──▶ STOPPING=1
//! ```
//!
//! A worker speaks through its engine, since that is what may get stuck; so its unit wants
//! `NotifyAccess=all`. Jobs are not given the socket. Without a service manager there is nobody
//! to tell, and that is no fault.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::config::Environment;

/// Says that we are at work.
pub(crate) fn ready() {
    sd_notify::notify(&[NotifyState::Ready]).unwrap_or_default();
}

/// Says that we are on our way out.
pub(crate) fn stopping() {
    sd_notify::notify(&[NotifyState::Stopping]).unwrap_or_default();
}

/// Says twice in every watchdog interval that this runtime still turns, if there is one.
///
/// Only that: a store that does not answer or a server that is away is not mended by a restart.
pub(crate) fn keep_watchdog(environment: &Environment) {
    let Some(interval) = interval(environment) else { return };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            sd_notify::notify(&[NotifyState::Watchdog]).unwrap_or_default();
        }
    });
}

/// `WATCHDOG_PID` is not asked: an engine speaks for the guardian, which that names.
fn interval(environment: &Environment) -> Option<Duration> {
    let micros = environment.get("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|interval| !interval.is_zero())
}
