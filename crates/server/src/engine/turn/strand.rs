//! Which classes nobody live can run, since when, and when to look at their jobs.
//!
//! The clock of a class starts when no live worker of any server is eligible and resets when
//! one is. It also starts anew with the server, and when the store was out of reach: no time
//! is counted while nobody watched.

use std::collections::HashMap;

use outlast_core::time::Timestamp;
use outlast_store::Command;
use outlast_store::command::{ClassId, Strand};

use crate::clock::boot_time;
use crate::engine::estimate::Estimate;
use crate::engine::gather::{Op, Sink};
use crate::engine::turn::Turn;
use crate::engine::waiting::{Eligible, eligible, lack};

/// How many jobs one look fails at most; the next look takes the rest.
const STRAND_MAX: u32 = 500;

#[derive(Debug, Default)]
pub(super) struct Stranded {
    classes: HashMap<ClassId, Since>,
}

#[derive(Debug)]
struct Since {
    since: Timestamp,
    /// Looks before this find nothing, as far as the last one saw.
    next: Option<Timestamp>,
    /// How many jobs were thought to wait at the last look.
    ready: Estimate,
    asked: bool,
}

impl Stranded {
    /// Notes what a look at a class found.
    pub(super) fn looked(&mut self, class: ClassId, next: Option<Timestamp>) {
        if let Some(since) = self.classes.get_mut(&class) {
            (since.next, since.asked) = (next, false);
        }
    }
}

impl Turn {
    /// Looks at every class with claimable jobs that nobody live can run.
    pub(super) fn look_for_stranded(&mut self) {
        let Some(now) = self.board.store_time() else { return };
        // No worker can register while the store takes no writes.
        if !self.board.contact.is_well(boot_time()) {
            return self.stranded.classes.clear();
        }
        let mut nobody: HashMap<ClassId, Estimate> = HashMap::new();
        for id in &self.roster.waiting {
            let Some(class) = self.roster.classes.get(id) else { continue };
            if eligible(&class.key, &self.board) == Eligible::No {
                nobody.insert(*id, class.ready);
            }
        }
        self.stranded.classes.retain(|id, _| nobody.contains_key(id));
        for (class, ready) in nobody {
            let new = Since { since: now, next: Some(now), ready, asked: false };
            let entry = self.stranded.classes.entry(class).or_insert(new);
            // A job that came since may have a shorter limit than those seen.
            let due = entry.next.is_some_and(|next| next <= now) || entry.ready != ready;
            if entry.asked || !due {
                continue;
            }
            (entry.asked, entry.ready) = (true, ready);
            let since = entry.since;
            let Some(known) = self.roster.classes.get(&class) else { continue };
            let reason = lack(&known.key, &self.board);
            let command = Command::Strand(Strand { class, since, reason, limit: STRAND_MAX });
            self.gather.push(Op { command, sink: Sink::Strand(class) });
        }
    }
}
