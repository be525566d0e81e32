//! Handing out again what was lost together with most workers: at a rate, so that neither the
//! store nor the workers that are left are run down by everything at once. Other classes are
//! handed out as ever.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use outlast_core::bucket::Bucket;
use outlast_core::job::State;
use outlast_core::limits;
use outlast_core::time::BootTime;
use outlast_store::command::ClassId;
use outlast_store::reply::WorkerMoved;

use super::Turn;
use crate::clock::boot_time;
use crate::engine::dispatch::{self, Planned};
use crate::engine::estimate::Estimate;
use crate::engine::input::Input;
use crate::engine::millis;

/// How many tokens are waited for, so that a claim is worth its while.
const WORTH: u64 = 64;
/// Servers that lost the same workers do not all claim in the same moment.
const JITTER_MAX: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Redispatch {
    /// How many jobs of each class are still to be handed out at the rate.
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

    /// Notes jobs that came back.
    pub(super) fn lost(&mut self, class: ClassId, count: u64) {
        let lost = self.lost.entry(class).or_default();
        *lost = lost.saturating_add(count);
    }

    /// Notes jobs that were handed out: what was lost is in front of its queue.
    pub(super) fn claimed(&mut self, got: &[ClassId], now: BootTime) {
        if self.lost.is_empty() {
            return;
        }
        for class in got {
            let Some(lost) = self.lost.get_mut(class) else { continue };
            *lost = lost.saturating_sub(1);
            if *lost == 0 {
                self.lost.remove(class);
            }
            self.bucket.take(1, now);
        }
    }

    pub(super) const fn woken(&mut self) {
        self.waking = false;
    }
}

impl Turn {
    /// Notes what a worker gave back that was lost together with most others.
    pub(super) fn note_mass_loss(&mut self, moved: &WorkerMoved) {
        let mut counts: HashMap<ClassId, u64> = HashMap::new();
        for job in moved.moved.iter().filter(|job| job.state == State::Available) {
            *counts.entry(job.class).or_default() += 1;
        }
        for (class, count) in counts {
            self.redispatch.lost(class, count);
            self.others.lost(class, count);
        }
    }

    /// Plans claims; of classes that lost jobs together, no more than the rate allows.
    pub(super) fn plan(&mut self) -> Vec<Planned> {
        let Self { roster, redispatch, .. } = self;
        redispatch.lost.retain(|class, _| roster.waiting.contains(class));
        if redispatch.lost.is_empty() {
            return dispatch::plan(roster);
        }
        let held_back: Vec<(ClassId, Estimate)> = redispatch
            .lost
            .keys()
            .filter_map(|class| Some((*class, roster.classes.get(class)?.ready)))
            .collect();
        for (class, _) in &held_back {
            roster.set_ready(*class, Estimate::None);
        }
        let mut planned = dispatch::plan(roster);
        for claim in &planned {
            if let Some(session) = roster.current(claim.worker, claim.session) {
                session.pending = session.pending.saturating_add(claim.max);
            }
        }
        let others: Vec<(ClassId, Estimate)> = roster
            .waiting
            .iter()
            .filter_map(|class| Some((*class, roster.classes.get(class)?.ready)))
            .collect();
        for (class, _) in &others {
            roster.set_ready(*class, Estimate::None);
        }
        let mut tokens = redispatch.bucket.tokens(boot_time());
        for (class, ready) in &held_back {
            let some = ready.wanted().min(tokens);
            tokens -= some;
            roster.set_ready(*class, Estimate::of(some));
        }
        let limited = dispatch::plan(roster);
        for claim in &planned {
            if let Some(session) = roster.current(claim.worker, claim.session) {
                session.pending = session.pending.saturating_sub(claim.max);
            }
        }
        planned.extend(limited);
        for (class, ready) in held_back.into_iter().chain(others) {
            roster.set_ready(class, ready);
        }
        self.wake_for_tokens();
        planned
    }

    /// Has the loop woken when there are tokens again.
    fn wake_for_tokens(&mut self) {
        if self.redispatch.waking {
            return;
        }
        self.redispatch.waking = true;
        let wait = millis(self.redispatch.bucket.wait(WORTH));
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
