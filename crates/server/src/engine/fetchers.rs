//! From which queues plain clients fetch: since when not any more, and whom to wake when
//! something comes.
//!
//! Clients name queues as they like, so a queue is forgotten when nobody waits for it and
//! nobody has fetched from it for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};
use outlast_store::signal::Signal;
use tokio::sync::Notify;

/// How recently a plain client must have fetched from a queue to count as serving it.
const FRESH: Span = Span::from_secs(60);
/// How often the other servers are told of a queue that is fetched from.
const TOLD_EVERY: Span = Span::from_secs(20);
/// Of so many queues in so long, of the rest later: clients name queues as they like.
const TOLD_MAX: usize = 100;
const TOLD_WITHIN: Span = Span::from_secs(1);
/// Fewer queues than this are not looked through for what can be forgotten.
const LOOK_THROUGH_MIN: usize = 1_024;

/// The queues that plain clients fetch from.
#[derive(Debug, Default)]
pub(crate) struct Fetchers {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_name: HashMap<(String, Option<String>), Queue>,
    /// How many were left when they were last looked through.
    left: usize,
    /// Of how many the others were told since when.
    told: (usize, BootTime),
}

#[derive(Debug)]
struct Queue {
    /// Here, or at another server.
    fetched: BootTime,
    /// When the others were told.
    told: Option<BootTime>,
    /// Shared with every fetch that waits.
    woken: Arc<Notify>,
}

impl Fetchers {
    /// Notes a fetch from these queues, and returns what wakes it while it waits.
    pub(crate) fn fetch(
        &self,
        names: &[String],
        tenant: Option<&str>,
        now: BootTime,
    ) -> Vec<Arc<Notify>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.forget_unused(now);
        let fetch = |name: &String| {
            let new = || Queue { fetched: now, told: None, woken: Arc::default() };
            let place = (name.clone(), tenant.map(ToOwned::to_owned));
            let queue = queues.by_name.entry(place).or_insert_with(new);
            queue.fetched = now;
            Arc::clone(&queue.woken)
        };
        names.iter().map(fetch).collect()
    }

    /// Returns what the other servers are to be told of these queues, if they were not lately.
    pub(crate) fn news(
        &self,
        names: &[String],
        tenant: Option<&str>,
        now: BootTime,
    ) -> Vec<Signal> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = Vec::new();
        for name in names {
            let place = (name.clone(), tenant.map(ToOwned::to_owned));
            if queues.may_tell(&place, now) {
                news.push(Signal::Fetched(place.0, place.1));
            }
        }
        news
    }

    /// Returns from which queues clients of this server fetch, for a server that asks.
    pub(crate) fn all(&self, now: BootTime) -> Vec<Signal> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let told = queues.by_name.iter().filter(|(_, queue)| {
            queue.told.is_some_and(|told| now.since(told) <= FRESH) && queue.is_fresh(now)
        });
        told.take(TOLD_MAX)
            .map(|((name, tenant), _)| Signal::Fetched(name.clone(), tenant.clone()))
            .collect()
    }

    /// Notes a fetch at another server.
    pub(crate) fn elsewhere(&self, name: String, tenant: Option<String>, now: BootTime) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.forget_unused(now);
        let new = || Queue { fetched: now, told: None, woken: Arc::default() };
        queues.by_name.entry((name, tenant)).or_insert_with(new).fetched = now;
    }

    /// Wakes as many of those who wait for jobs of a queue as there are jobs for them; returns
    /// how many that was. Jobs of a tenant are also for those who name none.
    pub(crate) fn wake(&self, name: &str, tenant: Option<&str>, jobs: u64) -> u64 {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = 0;
        let mut place = (name.to_owned(), tenant.map(ToOwned::to_owned));
        loop {
            if let Some(queue) = queues.by_name.get(&place) {
                // Each that waits has a share in it.
                let waiting = Arc::strong_count(&queue.woken).saturating_sub(1);
                let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
                let some = waiting.min(jobs - woken);
                (0..some).for_each(|_| queue.woken.notify_one());
                woken += some;
            }
            if place.1.take().is_none() || woken >= jobs {
                return woken;
            }
        }
    }

    /// Returns whether somebody serves a queue for a tenant, as far as that can be seen.
    pub(crate) fn serve(&self, name: &str, tenant: Option<&str>, now: BootTime) -> bool {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |tenant: Option<&str>| {
            let place = (name.to_owned(), tenant.map(ToOwned::to_owned));
            queues.by_name.get(&place).is_some_and(|queue| queue.is_fresh(now))
        };
        serves(None) || (tenant.is_some() && serves(tenant))
    }
}

impl Queues {
    fn may_tell(&mut self, place: &(String, Option<String>), now: BootTime) -> bool {
        if now.since(self.told.1) > TOLD_WITHIN {
            self.told = (0, now);
        }
        let Some(queue) = self.by_name.get_mut(place) else { return false };
        let lately = queue.told.is_some_and(|told| now.since(told) < TOLD_EVERY);
        if lately || self.told.0 >= TOLD_MAX {
            return false;
        }
        queue.told = Some(now);
        self.told.0 += 1;
        true
    }

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
        fetchers.fetch(&["q".into()], None, at(0));
        assert!(fetchers.serve("q", None, at(60)) && !fetchers.serve("q", None, at(61)));
        assert!(!fetchers.serve("other", None, at(0)));
    }

    /// A client with a queue of its own for every request once filled the memory.
    #[test]
    fn queues_that_nobody_fetches_from_any_more_are_forgotten_and_those_waited_for_are_not() {
        let fetchers = Fetchers::default();
        let waiting = fetchers.fetch(&["waited for".into()], None, at(0));
        for n in 0..LOOK_THROUGH_MIN * 4 {
            fetchers.fetch(&[format!("reply-{n}")], None, at(u64::try_from(n).unwrap()));
        }
        let queues = fetchers.queues.lock().unwrap();
        assert!(queues.by_name.len() <= LOOK_THROUGH_MIN, "{}", queues.by_name.len());
        assert!(Arc::ptr_eq(&queues.by_name[&("waited for".to_owned(), None)].woken, &waiting[0]));
    }

    /// A job that a client of another server would fetch was once said to have no worker.
    #[test]
    fn other_servers_are_told_now_and_then_of_queues_that_are_fetched_from() {
        let (here, there) = (Fetchers::default(), Fetchers::default());
        let names = ["q".to_owned()];
        let told = Signal::Fetched("q".into(), Some("a".into()));
        for (second, tells) in [(0, true), (1, false), (19, false), (20, true)] {
            here.fetch(&names, Some("a"), at(second));
            let news = here.news(&names, Some("a"), at(second));
            assert_eq!(!news.is_empty(), tells, "second {second}");
            assert!(news.iter().all(|signal| *signal == told));
        }
        assert_eq!(here.all(at(30)), [told]);
        there.elsewhere("q".into(), Some("a".into()), at(20));
        assert!(there.serve("q", Some("a"), at(80)) && !there.serve("q", Some("a"), at(81)));
        assert_eq!(there.all(at(30)), []);
        let many: Vec<String> = (0..1_000).map(|n| format!("reply-{n}")).collect();
        here.fetch(&many, None, at(100));
        assert_eq!(here.news(&many, None, at(100)).len(), TOLD_MAX);
        assert_eq!(here.news(&many, None, at(102)).len(), TOLD_MAX);
    }

    /// Each job once woke everybody, and all but one asked the store in vain.
    #[test]
    fn as_many_are_woken_as_there_are_jobs_for_them_tenants_apart() {
        let fetchers = Fetchers::default();
        let names = ["q".to_owned()];
        let _anyone = [fetchers.fetch(&names, None, at(0)), fetchers.fetch(&names, None, at(0))];
        let _one = fetchers.fetch(&names, Some("a"), at(0));
        assert_eq!(fetchers.wake("q", None, 1), 1);
        assert_eq!(fetchers.wake("q", None, 9), 2);
        assert_eq!(fetchers.wake("q", Some("a"), 9), 3);
        assert_eq!(fetchers.wake("q", Some("b"), 9), 2);
        assert_eq!(fetchers.wake("other", None, 1), 0);
    }
}
