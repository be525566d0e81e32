//! Rare events: those that people look for in a log that is full of others. Each batch is stored with which it
//! holds, and batches that hold some are in an index of their own. So a look at them takes as long as there are
//! some, however busy the store is.
//!
//! What a bit means never changes, and one that is added later is not in batches that were stored before: it needs
//! a migration that forgets what they hold.

use outlast_store::event::{Event, EventName, EventQuery};

/// A change by a request, whatever it is called.
const AUDIT: i64 = 1;
/// The others, by name.
const NAMED: [(EventName, i64); 3] =
    [(EventName::JobLost, 2), (EventName::JobDeadLettered, 4), (EventName::CronSkipped, 8)];

/// Returns which rare events there are among these: a bit for each sort, and none for a batch without.
#[must_use]
pub fn rare_of(events: &[Event]) -> i64 {
    let bits = |event: &Event| {
        let named = NAMED.iter().find(|(name, _)| *name == event.kind).map_or(0, |(_, bit)| *bit);
        if event.author().is_some() { named | AUDIT } else { named }
    };
    events.iter().fold(0, |all, event| all | bits(event))
}

/// Returns of which rare events a batch must hold one, for a query that asks for no others.
#[must_use]
pub fn rare_wanted(query: &EventQuery) -> Option<i64> {
    if query.audit {
        return Some(AUDIT);
    }
    let bit =
        |word: &String| NAMED.iter().find(|(name, _)| name.word() == *word).map(|(_, bit)| *bit);
    let bits = query.names.iter().map(bit).try_fold(0, |all, bit| Some(all | bit?));
    bits.filter(|bits| *bits != 0)
}

#[cfg(test)]
mod tests {
    use outlast_core::time::Timestamp;

    use super::*;

    fn wanted(names: &[&str], audit: bool) -> Option<i64> {
        rare_wanted(&EventQuery {
            after: None,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            queues: Vec::new(),
            job: None,
            worker: None,
            audit,
            limit: 1,
        })
    }

    #[test]
    fn every_event_that_a_query_for_rare_ones_matches_is_in_a_batch_with_its_bit() {
        let event = |kind, by| Event::new(Timestamp(1), kind, by, "");
        let order = "api: ops (curl/8) from 192.0.2.7";
        let cases: [(EventName, &str, &[&str], bool); 5] = [
            (EventName::JobLost, "lease monitor", &["job.lost"], false),
            (EventName::JobDeadLettered, "w", &["job.lost", "job.dead_lettered"], false),
            (EventName::CronSkipped, "scheduler", &["cron.skipped"], false),
            (EventName::JobCancelled, order, &[], true),
            (EventName::JobCancelled, order, &["job.cancelled", "job.lost"], true),
        ];
        for (kind, by, names, audit) in cases {
            let batch = [event(EventName::JobEnqueued, "alice"), event(kind, by)];
            let bits = wanted(names, audit).expect("only rare ones are asked for");
            assert_ne!(rare_of(&batch) & bits, 0, "{kind:?}");
            assert_eq!(rare_of(&batch[..1]), 0);
        }
    }

    #[test]
    fn query_that_may_match_others_reads_all_batches() {
        for names in [&[][..], &["job.*"], &["job.lost", "job.enqueued"], &["job.lost", "*"]] {
            assert_eq!(wanted(names, false), None, "{names:?}");
        }
    }
}
