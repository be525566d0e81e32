//! The attempts that are held, from their delivery to the answer to their report.
//!
//! ```text
//! waiting ──start──▶ running ──end──▶ ended ──answered──▶ (gone)
//!    └──hand back──────────────────────┘
//! ```
//!
//! What the heartbeat says about them follows from here and nowhere else.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use outlast_core::time::BootTime;
use outlast_proto::v1;

use crate::attempt::run::AttemptHandle;
use crate::clock::Stopwatch;
use crate::delivery::{AttemptId, Delivery};
use crate::outcome::StopReason;
use crate::worker::slots::Busy;
use crate::worker_state::WorkerState;

#[derive(Debug)]
pub(crate) struct InFlight {
    entries: HashMap<AttemptId, Entry>,
    /// In order of delivery. May name attempts that were handed back meanwhile.
    waiting: VecDeque<AttemptId>,
    waiting_count: usize,
    busy: Busy,
    unanswered: usize,
    state: Arc<WorkerState>,
}

#[derive(Debug)]
pub(crate) enum Entry {
    Waiting(Box<Waiting>),
    Running(Box<Running>),
    /// Its report, until it is answered.
    Ended(Box<v1::Finished>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) delivery: Delivery,
    pub(crate) since: BootTime,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) handle: AttemptHandle,
    pub(crate) watch: Stopwatch,
    pub(crate) announcement: Announcement,
    pub(crate) isolated: bool,
    pub(crate) overlap_forbidden: bool,
    /// When it is dropped, once it has been ordered to stop.
    pub(crate) drop_at: Option<BootTime>,
    /// When its end is reported, once the worker leaves, although its work may go on.
    pub(crate) give_up_at: Option<BootTime>,
    /// The newest it has stored; empty if it has none.
    pub(crate) checkpoint: Bytes,
    /// Digest of the pack that it runs.
    pub(crate) pack_digest: Option<Arc<str>>,
}

/// What the server knows of a running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announcement {
    /// It may not know that it started.
    Unannounced,
    Announced,
    /// The claim is void: the attempt only has to end, and its end is not reported.
    Void,
}

impl InFlight {
    pub(crate) fn new(state: Arc<WorkerState>) -> Self {
        Self {
            entries: HashMap::new(),
            waiting: VecDeque::new(),
            waiting_count: 0,
            busy: Busy::default(),
            unanswered: 0,
            state,
        }
    }

    pub(crate) fn get_mut(&mut self, attempt: AttemptId) -> Option<&mut Entry> {
        self.entries.get_mut(&attempt)
    }

    pub(crate) fn running_mut(&mut self, attempt: AttemptId) -> Option<&mut Running> {
        match self.entries.get_mut(&attempt) {
            Some(Entry::Running(running)) => Some(running),
            Some(Entry::Waiting(_) | Entry::Ended(_)) | None => None,
        }
    }

    pub(crate) fn all_running(&mut self) -> impl Iterator<Item = (AttemptId, &mut Running)> {
        self.entries.iter_mut().filter_map(|(attempt, entry)| match entry {
            Entry::Running(running) => Some((*attempt, running.as_mut())),
            Entry::Waiting(_) | Entry::Ended(_) => None,
        })
    }

    pub(crate) fn reports(&self) -> impl Iterator<Item = (AttemptId, &v1::Finished)> {
        self.entries.iter().filter_map(|(attempt, entry)| match entry {
            Entry::Ended(report) => Some((*attempt, report.as_ref())),
            Entry::Waiting(_) | Entry::Running(_) => None,
        })
    }

    pub(crate) const fn busy(&self) -> Busy {
        self.busy
    }

    pub(crate) const fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Results that no server has taken yet.
    pub(crate) fn results(&self) -> usize {
        let is_result = |entry: &&Entry| match entry {
            Entry::Ended(report) => matches!(
                report.ending(),
                v1::Ending::Completed | v1::Ending::Failed | v1::Ending::TimedOut
            ),
            Entry::Waiting(_) | Entry::Running(_) => false,
        };
        self.entries.values().filter(is_result).count()
    }

    /// Attempts that have not ended.
    pub(crate) fn remaining(&self) -> usize {
        self.waiting_count + usize::try_from(self.busy.running).unwrap_or(usize::MAX)
    }

    /// Takes a delivery in; false if it is held already.
    pub(crate) fn deliver(&mut self, delivery: Delivery, now: BootTime) -> bool {
        let attempt = delivery.attempt;
        if self.entries.contains_key(&attempt) {
            return false;
        }
        let waiting = Waiting { delivery, since: now };
        self.entries.insert(attempt, Entry::Waiting(Box::new(waiting)));
        self.waiting.push_back(attempt);
        self.waiting_count += 1;
        self.state.reported().hold(attempt);
        true
    }

    /// Looks at the attempt whose turn it is.
    pub(crate) fn next_waiting(&mut self) -> Option<&Waiting> {
        while let Some(attempt) = self.waiting.front() {
            if matches!(self.entries.get(attempt), Some(Entry::Waiting(_))) {
                break;
            }
            self.waiting.pop_front();
        }
        match self.entries.get(self.waiting.front()?) {
            Some(Entry::Waiting(waiting)) => Some(waiting),
            Some(Entry::Running(_) | Entry::Ended(_)) | None => None,
        }
    }

    /// Takes the attempt whose turn it is, to start it; [`Self::started`] must follow.
    pub(crate) fn take_waiting(&mut self) -> Option<Delivery> {
        self.next_waiting()?;
        let attempt = self.waiting.pop_front()?;
        match self.entries.remove(&attempt) {
            Some(Entry::Waiting(waiting)) => {
                self.waiting_count -= 1;
                Some(waiting.delivery)
            }
            Some(Entry::Running(_) | Entry::Ended(_)) | None => None,
        }
    }

    pub(crate) fn started(&mut self, attempt: AttemptId, running: Running) {
        self.busy.running += 1;
        self.busy.isolated += u32::from(running.isolated);
        self.busy.forbidden += u32::from(running.overlap_forbidden);
        self.state.forbidden_run(self.busy.forbidden);
        self.entries.insert(attempt, Entry::Running(Box::new(running)));
    }

    /// Keeps the report of an attempt that was taken to be started and was not.
    pub(crate) fn refused(&mut self, attempt: AttemptId, report: v1::Finished) {
        self.entries.insert(attempt, Entry::Ended(Box::new(report)));
        self.unanswered += 1;
    }

    /// Every attempt that waits.
    pub(crate) fn all_waiting(&self) -> Vec<AttemptId> {
        let waits =
            |attempt: &&AttemptId| matches!(self.entries.get(attempt), Some(Entry::Waiting(_)));
        self.waiting.iter().filter(waits).copied().collect()
    }

    /// Keeps the report of an attempt that ended. Returns what it was, if it was running;
    /// one whose claim is void is gone and keeps none.
    pub(crate) fn finish(
        &mut self,
        attempt: AttemptId,
        report: v1::Finished,
    ) -> Option<Box<Running>> {
        let before = self.entries.remove(&attempt)?;
        let running = match before {
            Entry::Waiting(_) => {
                self.waiting_count -= 1;
                None
            }
            Entry::Running(running) => {
                self.busy.running -= 1;
                self.busy.isolated -= u32::from(running.isolated);
                self.busy.forbidden -= u32::from(running.overlap_forbidden);
                self.state.forbidden_run(self.busy.forbidden);
                Some(running)
            }
            // One end only: the first one counts.
            Entry::Ended(_) => {
                self.entries.insert(attempt, before);
                return None;
            }
        };
        if running.as_ref().is_none_or(|running| running.announcement != Announcement::Void) {
            self.entries.insert(attempt, Entry::Ended(Box::new(report)));
            self.unanswered += 1;
        }
        running
    }

    /// Forgets an attempt whose report was answered, and returns what it reported.
    pub(crate) fn answered(&mut self, attempt: AttemptId) -> Option<v1::Ending> {
        let Some(Entry::Ended(report)) = self.entries.get(&attempt) else { return None };
        let ending = report.ending();
        self.entries.remove(&attempt);
        self.unanswered -= 1;
        self.state.reported().release(attempt);
        Some(ending)
    }

    /// Makes every claim void: the worker has lapsed. What runs is ordered to stop and stays
    /// until it has ended; the rest is forgotten. Returns how many attempts that were.
    pub(crate) fn void(&mut self, drop_at: BootTime) -> usize {
        let before = self.entries.len();
        self.entries.retain(|_, entry| matches!(entry, Entry::Running(_)));
        self.waiting.clear();
        self.waiting_count = 0;
        self.unanswered = 0;
        for (_, running) in self.all_running() {
            running.announcement = Announcement::Void;
            running.stop(StopReason::Stale, drop_at);
        }
        before
    }
}

impl Running {
    /// Tells the attempt to stop. A weightier reason replaces an earlier one.
    pub(crate) fn stop(&mut self, reason: StopReason, drop_at: BootTime) {
        let is_news = self.handle.stop.send_if_modified(|current| {
            let outweighs = match (*current, reason) {
                (None, _) => true,
                (Some(StopReason::Forced), _) => false,
                (Some(_), StopReason::Forced) => true,
                (Some(_), _) => false,
            };
            if outweighs {
                *current = Some(reason);
            }
            outweighs
        });
        if is_news {
            self.drop_at = Some(self.drop_at.map_or(drop_at, |at| at.min(drop_at)));
        }
    }

    /// The worker leaves: work that goes on although its job was cancelled is waited for until
    /// `at`.
    pub(crate) fn give_up_from(&mut self, at: BootTime) {
        if matches!(self.stop_reason(), Some(StopReason::Cancelled | StopReason::Stale)) {
            self.give_up_at = Some(self.give_up_at.map_or(at, |before| before.min(at)));
        }
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        *self.handle.stop.borrow()
    }
}
