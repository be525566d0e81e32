//! Which queues plain clients fetch from, and whom to wake when a job arrives.
//!
//! Clients choose queue names freely, so a queue is forgotten when no client waits for it and
//! none has fetched from it for a while.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::time::{BootTime, Span};
use outlast_store::signal::Signal;
use tokio::sync::Notify;

/// How recently a plain client must have fetched from a queue to count as serving it.
const FRESH: Span = Span::from_secs(60);
/// How often the other servers are signalled a queue that clients fetch from.
const SIGNAL_INTERVAL: Span = Span::from_secs(20);
/// For how long a signal counts: a client may have fetched until just before the next was due.
const SIGNAL_FRESH: Span = Span(FRESH.0 + SIGNAL_INTERVAL.0);
/// Most queues signalled in this time; the rest follow later, as clients choose names freely.
const SIGNALS_MAX: usize = 100;
const SIGNALS_WITHIN: Span = Span::from_secs(1);
/// Fewer queues than this are not searched for unused ones.
const SEARCH_MIN: usize = 1_024;

/// The queues that plain clients fetch from.
#[derive(Debug, Default)]
pub(crate) struct LongPolls {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_name: HashMap<Place, Queue>,
    /// How many were left after the last search.
    left: usize,
    /// How many were signalled since when.
    signalled: (usize, BootTime),
}

#[derive(Debug, Default)]
struct Queue {
    /// When a client fetched last, here.
    fetched: Option<BootTime>,
    /// When the other servers were signalled.
    signalled: Option<BootTime>,
    /// When another server signalled that its clients fetch.
    heard: Option<BootTime>,
    /// When a client is woken next because jobs wait for a limit, if a timer is set.
    opens: Option<BootTime>,
    /// Shared with every fetch that waits.
    woken: Arc<Notify>,
}

impl LongPolls {
    /// Records a fetch from these queues; returns what wakes it while it waits.
    pub(crate) fn fetch(
        &self,
        names: &[String],
        tenant: Option<&str>,
        now: BootTime,
    ) -> Vec<Arc<Notify>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.forget_unused(now);
        let fetch = |name: &String| {
            let place = Place::of(name, tenant);
            let queue = queues.by_name.entry(place).or_default();
            queue.fetched = Some(now);
            Arc::clone(&queue.woken)
        };
        names.iter().map(fetch).collect()
    }

    /// Returns signals about these queues for the other servers, unless they got some lately.
    pub(crate) fn signals(
        &self,
        names: &[String],
        tenant: Option<&str>,
        now: BootTime,
    ) -> Vec<Signal> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut signals = Vec::new();
        let mut places: Vec<Place> = names.iter().map(|name| Place::of(name, tenant)).collect();
        // Those that were left out come first.
        places.sort_by_cached_key(|place| queues.by_name.get(place).and_then(|it| it.signalled));
        for place in places {
            if queues.may_signal(&place, now) {
                signals.push(Signal::Fetched(place.queue, place.tenant));
            }
        }
        signals
    }

    /// Returns which queues clients of this server fetch from, for a server that asks.
    pub(crate) fn all(&self, now: BootTime) -> Vec<Signal> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let signalled = queues.by_name.iter().filter(|(_, queue)| {
            queue.signalled.is_some_and(|at| now.since(at) <= FRESH) && queue.is_fresh(now)
        });
        signalled
            .take(SIGNALS_MAX)
            .map(|(place, _)| Signal::Fetched(place.queue.clone(), place.tenant.clone()))
            .collect()
    }

    /// Records a fetch at another server.
    pub(crate) fn elsewhere(&self, name: String, tenant: Option<String>, now: BootTime) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.forget_unused(now);
        queues.by_name.entry(Place { queue: name, tenant }).or_default().heard = Some(now);
    }

    /// Returns the queues whose jobs clients of this server wait for.
    pub(crate) fn waited_for(&self) -> HashSet<String> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let waited_for = queues.by_name.iter().filter(|(_, queue)| queue.waiting() > 0);
        waited_for.map(|(place, _)| place.queue.clone()).collect()
    }

    /// Wakes as many clients that wait for jobs of a queue as there are jobs for them; returns how
    /// many. Jobs of a tenant are also for clients that name no tenant.
    pub(crate) fn wake(&self, name: &str, tenant: Option<&str>, jobs: u64) -> u64 {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = 0;
        let mut place = Place::of(name, tenant);
        loop {
            if let Some(queue) = queues.by_name.get(&place) {
                let waiting = u64::try_from(queue.waiting()).unwrap_or(u64::MAX);
                let some = waiting.min(jobs - woken);
                (0..some).for_each(|_| queue.woken.notify_one());
                woken += some;
            }
            if place.tenant.take().is_none() || woken >= jobs {
                return woken;
            }
        }
    }

    /// Notes that jobs of these queues wait for a limit until `at`; returns for which of the queues
    /// a timer is needed. When it ends, [`LongPolls::opened`] is called with the same time.
    pub(crate) fn open_at(
        &self,
        names: &[String],
        tenant: Option<&str>,
        at: BootTime,
    ) -> Vec<String> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut needed = Vec::new();
        for name in names {
            let place = Place::of(name, tenant);
            let Some(queue) = queues.by_name.get_mut(&place) else { continue };
            if queue.opens.is_none_or(|set| at < set) {
                queue.opens = Some(at);
                needed.push(place.queue);
            }
        }
        needed
    }

    /// A timer that [`LongPolls::open_at`] asked for has ended: one client claims. If it gets a job,
    /// it wakes the next.
    pub(crate) fn opened(&self, name: &str, tenant: Option<&str>, at: BootTime) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place::of(name, tenant);
        if let Some(queue) = queues.by_name.get_mut(&place).filter(|queue| queue.opens == Some(at))
        {
            queue.opens = None;
            // One that does not wait yet finds out by its own claim.
            if queue.waiting() > 0 {
                queue.woken.notify_one();
            }
        }
    }

    /// Returns whether some client serves a queue for a tenant, as far as is known.
    pub(crate) fn serve(&self, name: &str, tenant: Option<&str>, now: BootTime) -> bool {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |tenant: Option<&str>| {
            let place = Place::of(name, tenant);
            queues.by_name.get(&place).is_some_and(|queue| queue.is_fresh(now))
        };
        serves(None) || (tenant.is_some() && serves(tenant))
    }
}

/// Where clients wait: a queue, for all of its jobs or for one tenant's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    queue: String,
    tenant: Option<String>,
}

impl Place {
    fn of(queue: &str, tenant: Option<&str>) -> Self {
        Self { queue: queue.to_owned(), tenant: tenant.map(ToOwned::to_owned) }
    }
}

impl Queues {
    fn may_signal(&mut self, place: &Place, now: BootTime) -> bool {
        if now.since(self.signalled.1) > SIGNALS_WITHIN {
            self.signalled = (0, now);
        }
        let Some(queue) = self.by_name.get_mut(place) else { return false };
        let lately = queue.signalled.is_some_and(|at| now.since(at) < SIGNAL_INTERVAL);
        if lately || self.signalled.0 >= SIGNALS_MAX {
            return false;
        }
        queue.signalled = Some(now);
        self.signalled.0 += 1;
        true
    }

    /// Searches only when the number has doubled, so that the cost per fetch is negligible.
    fn forget_unused(&mut self, now: BootTime) {
        if self.by_name.len() < SEARCH_MIN.max(self.left.saturating_mul(2)) {
            return;
        }
        self.by_name.retain(|_, queue| queue.is_fresh(now) || queue.waiting() > 0);
        self.left = self.by_name.len();
    }
}

impl Queue {
    /// Returns how many clients wait: each holds a clone.
    fn waiting(&self) -> usize {
        Arc::strong_count(&self.woken).saturating_sub(1)
    }

    /// Whether clients fetch from it, as all servers see it: they know when the last signal was.
    /// A fetch here counts by itself if the signal that was due for it was left out.
    fn is_fresh(&self, now: BootTime) -> bool {
        let is_due = |fetched: &BootTime| {
            self.signalled.is_none_or(|signalled| fetched.since(signalled) >= SIGNAL_INTERVAL)
        };
        let unsignalled = self.fetched.filter(is_due);
        unsignalled.is_some_and(|fetched| now.since(fetched) <= FRESH)
            || self.signalled.max(self.heard).is_some_and(|at| now.since(at) <= SIGNAL_FRESH)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn at(secs: u64) -> BootTime {
        BootTime(0).after(Span::from_secs(secs))
    }

    #[test]
    fn a_queue_is_served_for_a_while_after_a_fetch() {
        let long_polls = LongPolls::default();
        long_polls.fetch(&["q".into()], None, at(0));
        assert!(long_polls.serve("q", None, at(60)) && !long_polls.serve("q", None, at(61)));
        assert!(!long_polls.serve("other", None, at(0)));
    }

    /// A client with a queue of its own for every request once filled the memory.
    #[test]
    fn queues_that_nobody_fetches_from_any_more_are_forgotten_and_those_waited_for_are_not() {
        let long_polls = LongPolls::default();
        let waiting = long_polls.fetch(&["waited for".into()], None, at(0));
        for n in 0..SEARCH_MIN * 4 {
            long_polls.fetch(&[format!("reply-{n}")], None, at(u64::try_from(n).unwrap()));
        }
        let queues = long_polls.queues.lock().unwrap();
        assert!(queues.by_name.len() <= SEARCH_MIN, "{}", queues.by_name.len());
        assert!(Arc::ptr_eq(&queues.by_name[&Place::of("waited for", None)].woken, &waiting[0]));
    }

    /// Plain clients were woken by the next look at the backlog, and not when a rate opened.
    #[test]
    fn one_client_is_woken_when_a_limit_opens_by_one_timer() {
        let long_polls = LongPolls::default();
        let names = ["q".to_owned(), "r".to_owned()];
        let clients =
            [long_polls.fetch(&names, None, at(0)), long_polls.fetch(&names, None, at(0))];
        assert_eq!(long_polls.open_at(&names, None, at(5)), names);
        assert_eq!(long_polls.open_at(&names[..1], None, at(5)), [""; 0]);
        assert_eq!(long_polls.open_at(&names[..1], None, at(3)), names[..1]);
        let is_woken = || clients[0][0].notified().now_or_never().is_some();
        // The timer that the earlier one replaces.
        long_polls.opened("q", None, at(5));
        assert!(!is_woken());
        long_polls.opened("q", None, at(3));
        assert!(is_woken() && !is_woken(), "one client, once");
    }

    /// A job that a client of another server would fetch was once said to have no worker.
    #[test]
    fn other_servers_are_signalled_now_and_then_which_queues_are_fetched_from() {
        let (here, there) = (LongPolls::default(), LongPolls::default());
        let names = ["q".to_owned()];
        let fetched = Signal::Fetched("q".into(), Some("a".into()));
        for (second, expected) in [(0, true), (1, false), (19, false), (20, true)] {
            here.fetch(&names, Some("a"), at(second));
            let signals = here.signals(&names, Some("a"), at(second));
            assert_eq!(!signals.is_empty(), expected, "second {second}");
            assert!(signals.iter().all(|signal| *signal == fetched));
        }
        assert_eq!(here.all(at(30)), [fetched]);
        there.elsewhere("q".into(), Some("a".into()), at(20));
        assert!(there.serve("q", Some("a"), at(100)) && !there.serve("q", Some("a"), at(101)));
        assert_eq!(there.all(at(30)), []);
        let many: Vec<String> = (0..1_000).map(|n| format!("reply-{n}")).collect();
        here.fetch(&many, None, at(100));
        assert_eq!(here.signals(&many, None, at(100)).len(), SIGNALS_MAX);
        assert_eq!(here.signals(&many, None, at(102)).len(), SIGNALS_MAX);
        // The first of them are due again, and come after those that were left out.
        let later = here.signals(&many, None, at(130));
        assert_eq!(later.len(), SIGNALS_MAX);
        let again = Signal::Fetched("reply-0".into(), None);
        assert!(!later.contains(&again), "{later:?}");
    }

    /// Servers once disagreed for up to 20 s when clients went away: one counted from the last
    /// fetch, the others from the last signal.
    #[test]
    fn all_servers_forget_a_queue_at_the_same_moment() {
        let (here, there) = (LongPolls::default(), LongPolls::default());
        let names = ["q".to_owned()];
        for second in [0, 19] {
            here.fetch(&names, None, at(second));
            if !here.signals(&names, None, at(second)).is_empty() {
                there.elsewhere("q".into(), None, at(second));
            }
        }
        for (second, expected) in [(80, true), (81, false)] {
            for server in [&here, &there] {
                assert_eq!(server.serve("q", None, at(second)), expected, "second {second}");
            }
        }
    }

    /// Each job once woke every client, and all but one queried the store for nothing.
    #[test]
    fn as_many_are_woken_as_there_are_jobs_for_them_tenants_apart() {
        let long_polls = LongPolls::default();
        let names = ["q".to_owned()];
        let _anyone =
            [long_polls.fetch(&names, None, at(0)), long_polls.fetch(&names, None, at(0))];
        let _one = long_polls.fetch(&names, Some("a"), at(0));
        assert_eq!(long_polls.wake("q", None, 1), 1);
        assert_eq!(long_polls.wake("q", None, 9), 2);
        assert_eq!(long_polls.wake("q", Some("a"), 9), 3);
        assert_eq!(long_polls.wake("q", Some("b"), 9), 2);
        assert_eq!(long_polls.wake("other", None, 1), 0);
        drop(long_polls.fetch(&["other".into()], None, at(0)));
        assert_eq!(long_polls.waited_for(), ["q".to_owned()].into());
    }
}
