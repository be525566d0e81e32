//! Rate-limits handing out jobs again after most workers died together, so that neither the store
//! nor the remaining workers are overrun. Other classes are handed out as usual.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use outlast_core::bucket::Bucket;
use outlast_core::job::State;
use outlast_core::limits;
use outlast_core::time::BootTime;
use outlast_store::command::ClassId;
use outlast_store::reply::WorkerMoved;

use super::{EventLoop, Planning};
use crate::clock::{boot_time, millis};
use crate::engine::dispatch::{self, Planned};
use crate::engine::estimate::Estimate;
use crate::engine::input::Input;

/// How many tokens to wait for before claiming.
const TOKENS_MIN: u64 = 64;
/// Spreads out servers that lost the same workers.
const JITTER_MAX: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Redispatch {
    /// How many jobs of each class are still to be handed out at the limited rate.
    lost: BTreeMap<ClassId, u64>,
    bucket: Bucket,
    /// Whether the loop will be woken when there are tokens.
    waking: bool,
}

impl Redispatch {
    pub(super) const fn new(now: BootTime) -> Self {
        let bucket = Bucket::full(limits::REDISPATCH, now);
        Self { lost: BTreeMap::new(), bucket, waking: false }
    }

    /// Adds jobs that came back.
    pub(super) fn lost(&mut self, class: ClassId, count: u64) {
        let lost = self.lost.entry(class).or_default();
        *lost = lost.saturating_add(count);
    }

    /// Counts jobs that were handed out; lost jobs are at the front of their queue. A claim gives
    /// back the tokens of what it did not get.
    pub(super) fn claimed(&mut self, got: &[ClassId], tokens: u32) {
        let got_all = u64::try_from(got.len()).unwrap_or(u64::MAX);
        self.bucket.give_back(u64::from(tokens).saturating_sub(got_all));
        if self.lost.is_empty() {
            return;
        }
        for class in got {
            let Some(lost) = self.lost.get_mut(class) else { continue };
            *lost = lost.saturating_sub(1);
            if *lost == 0 {
                self.lost.remove(class);
            }
        }
    }

    pub(super) const fn woken(&mut self) {
        self.waking = false;
    }
}

impl EventLoop {
    /// Adds the jobs of a worker that died together with most others.
    pub(super) fn lost_with_many(&mut self, moved: &WorkerMoved) {
        let mut counts: HashMap<ClassId, u64> = HashMap::new();
        for job in moved.moved.iter().filter(|job| job.state == State::Available) {
            *counts.entry(job.class).or_default() += 1;
        }
        for (class, count) in counts {
            self.planning.redispatch.lost(class, count);
            self.peers.lost(class, count);
        }
    }

    /// Plans claims, of classes with rate-limited jobs no more than the rate allows.
    pub(super) fn plan(&mut self) -> Vec<Planned> {
        self.keep_workers_free();
        self.mark_avoided();
        let Self { sessions, planning: Planning { classes, redispatch, .. }, .. } = self;
        // A worker that was kept free for a job that must run alone is not to wait for tokens.
        redispatch.lost.retain(|class, _| {
            classes.is_claimable(*class)
                && classes.get(*class).is_some_and(|class| !class.key.isolated)
        });
        if redispatch.lost.is_empty() {
            return dispatch::plan(sessions, classes);
        }
        let held_back: Vec<(ClassId, Estimate)> = redispatch
            .lost
            .keys()
            .filter_map(|class| Some((*class, classes.get(*class)?.ready)))
            .collect();
        let others = classes.claimable().filter(|(id, _)| !redispatch.lost.contains_key(id));
        let others: Vec<(ClassId, Estimate)> =
            others.map(|(id, class)| (id, class.ready)).collect();
        for (class, _) in &others {
            classes.set_ready(*class, Estimate::None);
        }
        let now = boot_time();
        let mut tokens = redispatch.bucket.tokens(now);
        let mut is_limited = false;
        for (class, ready) in &held_back {
            let some = ready.wanted().min(tokens);
            tokens -= some;
            is_limited |= some < ready.wanted();
            classes.set_ready(*class, Estimate::of(some));
        }
        // They are paid for at once: the next plan may come before these claims are made.
        let mut planned = dispatch::plan(sessions, classes);
        for claim in &mut planned {
            claim.tokens = claim.max;
            redispatch.bucket.take(u64::from(claim.max), now);
            claim.begin(sessions);
        }
        for (class, _) in &held_back {
            classes.set_ready(*class, Estimate::None);
        }
        for (class, ready) in &others {
            classes.set_ready(*class, *ready);
        }
        // The others may take all the room that there is, so they come last.
        let rest = dispatch::plan(sessions, classes);
        for claim in &planned {
            claim.end(sessions);
        }
        planned.extend(rest);
        for (class, ready) in held_back {
            classes.set_ready(class, ready);
        }
        if is_limited {
            self.wake_for_tokens();
        }
        planned
    }

    /// Wakes the loop when there are tokens again.
    fn wake_for_tokens(&mut self) {
        if self.planning.redispatch.waking {
            return;
        }
        self.planning.redispatch.waking = true;
        let wait = millis(self.planning.redispatch.bucket.wait(TOKENS_MIN));
        let jitter = JITTER_MAX.mul_f64(rand::random());
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait + jitter).await;
            if let Some(inputs) = inputs.upgrade() {
                // A loop that has ended hands out no more.
                drop(inputs.send(Input::Redispatch).await);
            }
        });
    }
}
