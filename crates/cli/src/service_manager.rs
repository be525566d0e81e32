//! Notifications to a service manager (systemd): ready, stopping, and watchdog pings.
//!
//! ```text
//! started ──store open, listening; or registered──▶ READY=1 ──▶ WATCHDOG=1 …
//!         ──▶ STOPPING=1, EXTEND_TIMEOUT_USEC=… for as long as it drains
//! ```
//!
//! A worker's engine sends them, since that is the process that may hang: its unit needs
//! `NotifyAccess=all`. Jobs do not get the socket. Without a service manager they do nothing.

use std::sync::LazyLock;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::MissedTickBehavior;

use crate::config::Environment;

/// How often a stop asks for more time.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// How much it asks for, from then on.
const EXTENSION: Duration = Duration::from_secs(20);

/// Reports that this process is ready.
pub(crate) fn ready() {
    notify(NotifyState::Ready);
}

/// Reports that this process is stopping, and asks for more time for as long as this runtime makes
/// progress: how long a stop takes is bounded by its own settings, which the service manager does
/// not know. Call it on the runtime.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
    tokio::spawn(async {
        let mut ticks = tokio::time::interval(EXTEND_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let micros = u32::try_from(EXTENSION.as_micros()).unwrap_or(u32::MAX);
            notify(NotifyState::ExtendTimeoutUsec(micros));
        }
    });
}

/// Reports that this process makes progress.
pub(crate) fn alive() {
    notify(NotifyState::Watchdog);
}

/// Pings the watchdog twice per interval for as long as `makes_progress` says so.
///
/// A slow store or an absent server is no lack of progress: a restart would not help.
pub(crate) fn keep_watchdog(
    environment: &Environment,
    makes_progress: impl Fn() -> bool + Send + 'static,
) {
    let Some(interval) = watchdog_interval(environment) else { return };
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(interval / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if makes_progress() {
                alive();
            }
        }
    });
}

/// How often the watchdog must be fed at least. `WATCHDOG_PID` is ignored: it names the guardian, for
/// which the engine answers.
pub(crate) fn watchdog_interval(environment: &Environment) -> Option<Duration> {
    let micros = environment.get("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|interval| !interval.is_zero())
}

/// How many notifications may wait for a service manager that does not read them; more are dropped.
const WAITING_MAX: usize = 64;

static NOTIFICATIONS: LazyLock<Option<SyncSender<NotifyState<'static>>>> = LazyLock::new(|| {
    let (sender, waiting) = mpsc::sync_channel(WAITING_MAX);
    let send_all = move || {
        for state in waiting {
            // An error means that the service manager has closed the socket.
            sd_notify::notify(&[state]).unwrap_or_default();
        }
    };
    let thread = std::thread::Builder::new().name("notify".into()).spawn(send_all);
    thread.ok().map(|_running| sender)
});

/// Sends a notification on a thread of its own: a service manager that does not read holds up no
/// runtime. Nothing is sent, and no thread is started, where there is none.
fn notify(state: NotifyState<'static>) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    if let Some(notifications) = &*NOTIFICATIONS {
        // The queue is full of pings; one more says nothing new.
        let _ = notifications.try_send(state);
    }
}
