//! Whether every essential task of the server still runs: the event loop, the heartbeat writer and
//! the monitors. If one panicked or hung unnoticed, the server would accept requests and do nothing.
//!
//! A task that waits, for the store for example, does not hang: one does that computes, or blocks its
//! thread, for a long time without a pause.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::FutureExt as _;
use outlast_core::time::{BootTime, Span};
use tokio_util::sync::CancellationToken;

use crate::clock::boot_time;

/// Which task has died, if any. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vitals {
    dead: Arc<Mutex<Option<String>>>,
    died: CancellationToken,
    /// Why the server must start again, if it must.
    replaced: Arc<OnceLock<String>>,
    was_replaced: CancellationToken,
    tasks: Arc<Mutex<Vec<Task>>>,
}

/// An essential task.
#[derive(Debug)]
struct Task {
    name: String,
    /// Since when it has run without a pause, by the time since the host started; 0 while it waits.
    busy_since: Arc<AtomicU64>,
}

impl Vitals {
    /// Returns which task has died, and why.
    pub(crate) fn dead(&self) -> Option<String> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a task has died.
    pub(crate) async fn died(&self) -> String {
        self.died.cancelled().await;
        self.dead().unwrap_or_default()
    }

    /// Returns which task has run without a pause for longer than `most`.
    pub(crate) fn hung(&self, most: Span) -> Option<String> {
        let now = boot_time();
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().find_map(|task| {
            let since = BootTime(task.busy_since.load(Ordering::Relaxed));
            let busy = now.since(since);
            let hangs = since != BootTime::default() && busy > most;
            hangs.then(|| format!("{} has not paused for {} s", task.name, busy.as_secs()))
        })
    }

    /// Notes that the store went back in time: what this process remembers is void.
    pub(crate) fn store_was_replaced(&self, why: &str) {
        self.replaced.get_or_init(|| why.to_owned());
        self.was_replaced.cancel();
    }

    /// Waits until the store has gone back in time.
    pub(crate) async fn replaced(&self) -> String {
        self.was_replaced.cancelled().await;
        self.replaced.get().cloned().unwrap_or_default()
    }

    fn enter(&self, name: &str) -> Arc<AtomicU64> {
        let busy_since = Arc::new(AtomicU64::new(0));
        let task = Task { name: name.to_owned(), busy_since: Arc::clone(&busy_since) };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        busy_since
    }

    fn die(&self, why: String) {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.died.cancel();
    }
}

/// Runs an essential task, and records its panic, and when it hangs.
pub(crate) async fn watch(vitals: Vitals, name: &str, task: impl Future<Output = ()>) {
    let busy_since = vitals.enter(name);
    let mut task = pin!(AssertUnwindSafe(task).catch_unwind());
    let ended = poll_fn(|context| {
        busy_since.store(boot_time().0.max(1), Ordering::Relaxed);
        let polled = task.as_mut().poll(context);
        busy_since.store(0, Ordering::Relaxed);
        polled
    });
    if let Err(panic) = ended.await {
        let words = panic
            .downcast_ref::<&str>()
            .map(|words| (*words).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        tracing::error!(task = name, panic = words, "an essential task has panicked");
        vitals.die(format!("{name} has panicked: {words}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use outlast_core::time::{Span, Timestamp};
    use outlast_packs::PackSet;
    use outlast_store::store::ManualClock;
    use outlast_store_testkit::model::ModelStore;

    use super::{Vitals, watch};
    use crate::settings::Settings;
    use crate::{Reserved, ServeError, Server};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_hangs_that_does_not_pause_and_not_one_that_waits() {
        let vitals = Vitals::default();
        let waits = watch(vitals.clone(), "one that waits", std::future::pending());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocks = watch(vitals.clone(), "one that blocks", async move {
            released.recv().unwrap_or_default();
        });
        let tasks = [tokio::spawn(waits), tokio::spawn(blocks)];
        let hung = loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(hung) = vitals.hung(Span(20)) {
                break hung;
            }
        };
        assert_eq!(hung, "one that blocks has not paused for 0 s");
        assert_eq!(vitals.hung(Span(600_000)), None);
        release.send(()).unwrap();
        let [waits, blocks] = tasks;
        blocks.await.unwrap();
        assert_eq!(vitals.hung(Span(20)), None);
        waits.abort();
    }

    #[tokio::test]
    async fn server_whose_loop_has_panicked_is_not_ready_and_ends_with_the_reason() {
        let settings = Settings::with_packs(Arc::new(PackSet::default()));
        let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
        let address = "127.0.0.1:0".parse().unwrap();
        let server =
            Server::bind(Arc::new(store), settings, Reserved::new(address).unwrap()).await.unwrap();
        let engine = server.engine();
        let vitals = engine.shared().vitals.clone();
        assert!(engine.health().ready, "{:?}", engine.health());
        watch(vitals.clone(), "a part that is done", async {}).await;
        assert!(engine.health().ready);
        watch(vitals, "the engine loop", async { panic!("out of luck") }).await;
        let health = engine.health();
        assert!(!health.ready && health.dead.is_some(), "{health:?}");
        let ended = server.run(std::future::pending()).await;
        let Err(ServeError::Dead(why)) = ended else { panic!("{ended:?}") };
        assert_eq!(why, "the engine loop has panicked: out of luck");
    }
}
