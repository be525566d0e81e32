//! From which queues plain clients fetch: since when not any more, and whom to wake when
//! something comes.
//!
//! Clients name queues as they like, so a queue is forgotten when nobody waits for it and
//! nobody has fetched from it for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};
use tokio::sync::Notify;

/// How recently a plain client must have fetched from a queue to count as serving it.
const FRESH: Span = Span::from_secs(60);
/// Fewer queues than this are not looked through for what can be forgotten.
const LOOK_THROUGH_MIN: usize = 1_024;

/// The queues that plain clients fetch from.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_name: HashMap<String, Queue>,
    /// How many were left when they were last looked through.
    left: usize,
}

#[derive(Debug)]
struct Queue {
    fetched: BootTime,
    /// Shared with every fetch that waits.
    woken: Arc<Notify>,
}

impl Fetchers {
    /// Notes a fetch from these queues, and returns what wakes it while it waits.
    pub(crate) fn fetch(&self, names: &[String], now: BootTime) -> Vec<Arc<Notify>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.forget_unused(now);
        let fetch = |name: &String| {
            let new = || Queue { fetched: now, woken: Arc::default() };
            let queue = queues.by_name.entry(name.clone()).or_insert_with(new);
            queue.fetched = now;
            Arc::clone(&queue.woken)
        };
        names.iter().map(fetch).collect()
    }

    /// Wakes whoever waits for a queue.
    pub(crate) fn wake(&self, name: &str) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.by_name.get(name) {
            queue.woken.notify_waiters();
        }
    }

    /// Returns whether somebody serves a queue, as far as that can be seen.
    pub(crate) fn serve(&self, name: &str, now: BootTime) -> bool {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.by_name.get(name).is_some_and(|queue| queue.is_fresh(now))
    }
}

impl Queues {
    /// Each time there are twice as many, so that it costs next to nothing a fetch.
    fn forget_unused(&mut self, now: BootTime) {
        if self.by_name.len() < LOOK_THROUGH_MIN.max(self.left.saturating_mul(2)) {
            return;
        }
        self.by_name.retain(|_, queue| queue.is_fresh(now) || Arc::strong_count(&queue.woken) > 1);
        self.left = self.by_name.len();
    }
}

impl Queue {
    fn is_fresh(&self, now: BootTime) -> bool {
        now.since(self.fetched) <= FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> BootTime {
        BootTime(0).after(Span::from_secs(secs))
    }

    #[test]
    fn a_queue_is_served_for_a_while_after_a_fetch() {
        let fetchers = Fetchers::default();
        fetchers.fetch(&["q".into()], at(0));
        assert!(fetchers.serve("q", at(60)) && !fetchers.serve("q", at(61)));
        assert!(!fetchers.serve("other", at(0)));
    }

    /// A client with a queue of its own for every request once filled the memory.
    #[test]
    fn queues_that_nobody_fetches_from_any_more_are_forgotten_and_those_waited_for_are_not() {
        let fetchers = Fetchers::default();
        let waiting = fetchers.fetch(&["waited for".into()], at(0));
        for n in 0..LOOK_THROUGH_MIN * 4 {
            fetchers.fetch(&[format!("reply-{n}")], at(u64::try_from(n).unwrap()));
        }
        let queues = fetchers.queues.lock().unwrap();
        assert!(queues.by_name.len() <= LOOK_THROUGH_MIN, "{}", queues.by_name.len());
        assert!(Arc::ptr_eq(&queues.by_name["waited for"].woken, &waiting[0]));
    }
}
