//! What happened in the last minutes. Rare events are kept from look to look, so that a look reads what is
//! new and not the log of all these minutes; and so are counters of this server, as they stood then.

use std::collections::{BTreeMap, VecDeque};

use outlast_core::finding::Recent;
use outlast_core::time::{BootTime, Span, Timestamp};
use outlast_store::event::{Event, EventName, EventQuery, NewestQuery};
use outlast_store::{Store, StoreError};
use tokio::sync::Mutex;

use super::event_log;
use crate::clock::boot_time;

/// How far back they are counted.
pub(super) const RECENT: Span = Span::from_secs(600);
/// How far before the last look a look begins: what another server wrote then may be here now.
const OVERLAP: Span = Span::from_secs(10);
/// Most events that are kept; of more, the latest ones.
const KEPT_MAX: usize = 10_000;
/// How often the counters are noted.
const STOOD_EVERY: Span = Span::from_secs(10);
/// What is counted.
const RARE: [EventName; 3] =
    [EventName::JobLost, EventName::JobDeadLettered, EventName::CronSkipped];

/// The rare events of this server's store, shared by all who look.
#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    kept: Mutex<Kept>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    /// When the log was looked at last.
    looked: Option<Timestamp>,
    /// Since when none is missing, if some before may be.
    whole_since: Option<Timestamp>,
    /// By time and place in the log.
    events: BTreeMap<(Timestamp, String), (EventName, String)>,
    /// The counters at some times, the oldest first: not all of them before what is counted.
    stood: VecDeque<(BootTime, Counters)>,
}

/// Fires of schedules that were late, counts of limits that were wrong, and heartbeats that were refused.
type Counters = [u64; 3];

/// What happened lately.
pub(super) struct Happenings {
    pub(super) lost: Recent,
    pub(super) letters: Recent,
    pub(super) skips: Recent,
    pub(super) late_fires: Recent,
    pub(super) recounts: Recent,
    pub(super) refused_beats: Recent,
}

impl RecentEvents {
    /// Looks at what is new in the log and in the counters, and returns what happened lately. The server has
    /// counted since it `started`.
    pub(super) async fn look(
        &self,
        store: &dyn Store,
        now: Timestamp,
        counters: Counters,
        started: BootTime,
    ) -> Result<Happenings, StoreError> {
        let mut kept = self.kept.lock().await;
        let query = NewestQuery {
            of: EventQuery {
                names: RARE.map(EventName::word).to_vec(),
                ..EventQuery::all(u32::try_from(KEPT_MAX).unwrap_or(u32::MAX))
            },
            since: Some(kept.since(now)),
            until: None,
            before: None,
        };
        let found = event_log::newest(store, query).await?;
        kept.add(found.events, found.earlier.is_none(), now);
        let [lost, letters, skips] = RARE.map(|name| kept.count(name, now));
        let [late_fires, recounts, refused_beats] = kept.rise(counters, boot_time(), started);
        Ok(Happenings { lost, letters, skips, late_fires, recounts, refused_beats })
    }
}

/// When what is counted at `now` begins.
const fn begin(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub_unsigned(RECENT.0))
}

impl Kept {
    /// From when on there may be events that are not kept.
    fn since(&self, now: Timestamp) -> Timestamp {
        let begin = begin(now);
        self.looked.map_or(begin, |looked| {
            begin.max(Timestamp(looked.0.saturating_sub_unsigned(OVERLAP.0)))
        })
    }

    fn add(&mut self, events: Vec<(String, Event)>, is_whole: bool, now: Timestamp) {
        if !is_whole {
            // How far it was looked back is not known.
            self.whole_since = Some(now);
        }
        self.looked = Some(now);
        let events = events.into_iter();
        self.events
            .extend(events.map(|(place, it)| ((it.at, place), (it.kind, it.evidence.to_string()))));
        let begin = begin(now);
        self.events.retain(|(at, _), _| *at >= begin);
        while self.events.len() > KEPT_MAX {
            if let Some(((at, _), _)) = self.events.pop_first() {
                self.whole_since = self.whole_since.max(Some(Timestamp(at.0.saturating_add(1))));
            }
        }
        self.whole_since = self.whole_since.filter(|since| *since > begin);
    }

    fn count(&self, name: EventName, now: Timestamp) -> Recent {
        let of_name = || self.events.values().filter(|(kind, _)| *kind == name);
        Recent {
            count: of_name().count() as u64,
            last: of_name().next_back().map(|(_, evidence)| evidence.clone()),
            is_whole: self.whole_since.is_none_or(|since| since <= begin(now)),
            over: RECENT,
        }
    }

    /// Returns by how much counters rose lately: since a look before that, if no one has looked for longer.
    fn rise(&mut self, counters: Counters, now: BootTime, started: BootTime) -> [Recent; 3] {
        if self.stood.is_empty() {
            self.stood.push_back((started, [0; 3]));
        }
        while self.stood.get(1).is_some_and(|(at, _)| now.since(*at) >= RECENT) {
            self.stood.pop_front();
        }
        let (since, before) = self.stood.front().copied().unwrap_or((started, [0; 3]));
        if self.stood.back().is_none_or(|(at, _)| now.since(*at) >= STOOD_EVERY) {
            self.stood.push_back((now, counters));
        }
        let (over, mut before) = (now.since(since), before.into_iter());
        counters.map(|stands| {
            let count = stands.saturating_sub(before.next().unwrap_or(0));
            Recent { count, last: None, is_whole: true, over }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(10_000_000);

    fn event(place: &str, at: i64, kind: EventName) -> (String, Event) {
        (place.to_owned(), Event::new(Timestamp(at), kind, "test", format!("{kind:?} at {at}")))
    }

    #[test]
    fn event_that_is_read_twice_counts_once_and_an_old_one_no_more() {
        let mut kept = Kept::default();
        assert_eq!(kept.since(NOW), begin(NOW), "the first look goes all the way back");
        let first = event("1", NOW.0 - 5_000, EventName::JobLost);
        kept.add(vec![first.clone()], true, NOW);
        let later = NOW.after(Span::from_secs(1));
        assert_eq!(kept.since(later).0, NOW.0 - 10_000);
        kept.add(vec![first, event("2", later.0, EventName::JobLost)], true, later);
        let lost = kept.count(EventName::JobLost, later);
        let last = Some(format!("JobLost at {}", later.0));
        assert_eq!(lost, Recent { count: 2, last, is_whole: true, over: RECENT });
        assert_eq!(kept.count(EventName::CronSkipped, later).count, 0);
        let much_later = later.after(RECENT);
        assert_eq!(kept.since(much_later), begin(much_later));
        kept.add(Vec::new(), true, much_later);
        assert_eq!(kept.count(EventName::JobLost, much_later).count, 1, "one of just ten minutes");
        kept.add(Vec::new(), true, much_later.after(Span(1)));
        assert_eq!(kept.count(EventName::JobLost, much_later.after(Span(1))).count, 0);
    }

    #[test]
    fn look_that_did_not_go_far_enough_is_not_whole_until_that_time_has_passed() {
        let mut kept = Kept::default();
        kept.add(Vec::new(), false, NOW);
        assert!(!kept.count(EventName::JobLost, NOW).is_whole);
        let soon = NOW.after(Span::from_secs(300));
        kept.add(Vec::new(), true, soon);
        assert!(!kept.count(EventName::JobLost, soon).is_whole);
        let passed = NOW.after(RECENT);
        kept.add(Vec::new(), true, passed);
        assert!(kept.count(EventName::JobLost, passed).is_whole);
    }

    #[test]
    fn of_very_many_the_latest_are_kept_and_some_are_missing() {
        let mut kept = Kept::default();
        let all = (0_i64..)
            .take(KEPT_MAX + 1)
            .map(|n| event(&n.to_string(), NOW.0 - 100_000 + n, EventName::JobLost));
        kept.add(all.collect(), true, NOW);
        let lost = kept.count(EventName::JobLost, NOW);
        assert_eq!((lost.count, lost.is_whole), (KEPT_MAX as u64, false));
    }

    #[test]
    fn counters_rise_over_the_last_minutes_or_since_someone_looked() {
        let mut kept = Kept::default();
        let at = |seconds: u64| BootTime::default().after(Span::from_secs(seconds));
        let mut late = |counter: u64, seconds: u64| {
            let [late, ..] = kept.rise([counter, 0, 0], at(seconds), at(100));
            (late.count, late.over.as_secs())
        };
        assert_eq!(late(2, 130), (2, 30), "since the server started");
        assert_eq!(late(5, 400), (5, 300));
        assert_eq!(late(5, 730), (3, 600), "two of them were before");
        assert_eq!(late(5, 1_001), (0, 601));
        assert_eq!(late(9, 9_000), (4, 7_999), "no one has looked for long");
        assert_eq!(late(9, 9_601), (0, 601));
    }
}
