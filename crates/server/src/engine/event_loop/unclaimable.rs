//! Fails jobs of classes that no live worker can run.
//!
//! The clock of a class starts when no live worker of any server is eligible, and resets when one
//! is. It also restarts with the server, when the store was unreachable, and when the workers could
//! not be read: unobserved time does not count.

use std::collections::HashMap;

use outlast_core::time::{Span, Timestamp};
use outlast_store::Command;
use outlast_store::command::{ClassId, Strand};

use super::EventLoop;
use crate::clock::boot_time;
use crate::engine::batcher::{Op, ReplyTo};
use crate::engine::estimate::Estimate;
use crate::engine::wait_reason::{Eligible, eligible, lack};

/// Most jobs that one command fails; the next one takes the rest.
const FAIL_MAX: u32 = 500;

#[derive(Debug, Default)]
pub(super) struct Unclaimable {
    classes: HashMap<ClassId, Since>,
}

#[derive(Debug)]
struct Since {
    since: Timestamp,
    /// No job is due before this, as far as the last check saw.
    next: Option<Timestamp>,
    /// The estimate of waiting jobs at the last check.
    ready: Estimate,
    checking: bool,
}

impl Unclaimable {
    /// Records when the next job of a class is due.
    pub(super) fn checked(&mut self, class: ClassId, next: Option<Timestamp>) {
        if let Some(since) = self.classes.get_mut(&class) {
            (since.next, since.checking) = (next, false);
        }
    }
}

impl EventLoop {
    /// Checks every class that has claimable jobs and no eligible worker, unless the workers that
    /// are known were read longer than `fleet_age_max` ago.
    pub(super) fn check_unclaimable(&mut self, fleet_age_max: Span) {
        let Some(now) = self.shared.store_time() else { return };
        let fleet_age = self.shared.fleet.age(boot_time());
        let knows_fleet = fleet_age.is_some_and(|age| age <= fleet_age_max);
        // No worker can register while the store takes no writes.
        if !knows_fleet || !self.shared.store_health.is_writable(boot_time()) {
            return self.unclaimable.classes.clear();
        }
        let mut unclaimable: HashMap<ClassId, Estimate> = HashMap::new();
        for (id, class) in self.planning.classes.claimable() {
            if eligible(&class.key, &self.shared) == Eligible::No {
                unclaimable.insert(id, class.ready);
            }
        }
        self.unclaimable.classes.retain(|id, _| unclaimable.contains_key(id));
        for (class, ready) in unclaimable {
            let new = Since { since: now, next: Some(now), ready, checking: false };
            let entry = self.unclaimable.classes.entry(class).or_insert(new);
            // A newer job may have a shorter limit.
            let due = entry.next.is_some_and(|next| next <= now) || entry.ready != ready;
            if entry.checking || !due {
                continue;
            }
            (entry.checking, entry.ready) = (true, ready);
            let since = entry.since;
            let Some(known) = self.planning.classes.get(class) else { continue };
            let reason = lack(&known.key, &self.shared);
            let command = Command::Strand(Strand { class, since, reason, limit: FAIL_MAX });
            self.batcher.push(Op { command, reply_to: ReplyTo::Unclaimable(class) });
        }
    }
}
