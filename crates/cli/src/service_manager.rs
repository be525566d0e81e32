//! Notifications to a service manager (systemd): ready, stopping, and watchdog pings.
//!
//! ```text
//! started ──store open, listening; or registered──▶ READY=1 ──▶ WATCHDOG=1 … ──▶ STOPPING=1
//! ```
//!
//! A worker's engine sends them, since that is the process that may hang: its unit needs
//! `NotifyAccess=all`. Jobs do not get the socket. Without a service manager they do nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::config::Environment;

/// Reports that this process is ready.
pub(crate) fn ready() {
    sd_notify::notify(&[NotifyState::Ready]).unwrap_or_default();
}

/// Reports that this process is stopping.
pub(crate) fn stopping() {
    sd_notify::notify(&[NotifyState::Stopping]).unwrap_or_default();
}

/// Pings the watchdog twice per interval as long as this runtime makes progress.
///
/// Nothing else is checked: a restart would not help against a slow store or an absent server.
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

/// `WATCHDOG_PID` is ignored: it names the guardian, for which the engine answers.
fn interval(environment: &Environment) -> Option<Duration> {
    let micros = environment.get("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|interval| !interval.is_zero())
}
