//! Fair shares by stride scheduling: which job of a queue is next when its jobs share slots by the value
//! of a key.
//!
//! ```text
//! pass    the slot time that a share has had, divided by its weight
//! claim   at each rank the share with the lowest pass is next; its pass rises by an estimate
//! end     the difference to the time that the attempt really took is put right
//! ```
//!
//! Passes are kept in memory, at each server for the jobs that it gives out. Nothing is stored, so
//! weights act at once, and after a restart all shares begin together. A share that had no jobs for
//! a while begins where the last job that was taken began: it has no claim on time that it did not
//! use. A share that was held up otherwise, say by a limit, catches up by some minutes of slot time or a few attempts at
//! most.
//! What it had above its part, it still has to its debit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use outlast_core::time::{Span, Timestamp};

use super::lane::{Lane, LaneJob, Share};

/// For how long a share without jobs keeps its pass at least, in microseconds.
const IDLE_MIN: i64 = 5_000_000;
/// For how many mean attempts it keeps it.
const IDLE_ATTEMPTS: i64 = 4;
/// By how much a share may be behind the others at most, however long it was held up: so many of
/// its attempts, or so many microseconds.
const BEHIND_ATTEMPTS: i64 = 4;
const BEHIND_MIN: i64 = 300_000_000;
/// What an attempt is taken to need before one has ended, in microseconds.
const FIRST_ESTIMATE: i64 = 1_000_000;
/// Least that an attempt is charged, in microseconds: times are known in milliseconds.
const CHARGE_MIN: i64 = 1_000;
/// How much one attempt changes a mean: an eighth of the difference.
const MEAN_OF: i64 = 8;
/// Most shares, and most attempts, that are remembered.
const KNOWN_MAX: usize = 200_000;

/// Where shares compete: a queue at a priority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    queue: String,
    level: i64,
}

/// A share at a priority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Account {
    line: Line,
    value: Option<String>,
}

impl Account {
    fn of(share: &Share, rank: i64) -> Arc<Self> {
        // Jobs that go in front of others of their priority share with these.
        let level = rank.saturating_add(1).div_euclid(2);
        let line = Line { queue: share.queue.clone(), level };
        Arc::new(Self { line, value: share.value.clone() })
    }
}

/// What a share has had.
#[derive(Clone, Copy, Debug)]
struct State {
    /// In microseconds of slot time, divided by the weight.
    pass: i64,
    /// Mean time of its attempts in microseconds, if one has ended.
    mean: Option<i64>,
    /// When it last had jobs, or ended an attempt.
    seen: Timestamp,
}

/// What is known of a line as a whole.
#[derive(Clone, Copy, Debug, Default)]
struct LineState {
    /// The pass at which the last job was taken.
    now: i64,
    /// Mean time of attempts in microseconds, if one has ended.
    mean: Option<i64>,
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The number of its job.
    pub seq: i64,
    /// How long it ran; `None` if it never started.
    pub ran: Option<Span>,
}

/// What an attempt was charged.
#[derive(Clone, Debug)]
struct Charge {
    account: Arc<Account>,
    weight: i64,
    estimate: i64,
    claimed: Timestamp,
}

/// The passes of all shares, as one server sees them.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    states: HashMap<Arc<Account>, State>,
    lines: HashMap<Line, LineState>,
    /// By the number of the job.
    charges: HashMap<i64, Charge>,
    /// The jobs that the batch under way has taken.
    fresh: HashSet<i64>,
}

impl Shares {
    /// Returns the order in which heads are tried: that of rank and number, where each place of a
    /// job of a fair queue goes to the job, of that queue and rank, whose share is next.
    pub fn turns(&mut self, lanes: &[Lane], mut heads: Vec<LaneJob>, now: Timestamp) -> ShareOrder {
        heads.sort_by_key(|head| (head.rank, head.seq));
        let mut turns = ShareOrder::default();
        if lanes.iter().all(|lane| lane.share.is_none()) {
            turns.places = heads.into_iter().map(|head| (head, None)).collect();
            return turns;
        }
        let mut lines: HashMap<(&str, i64), usize> = HashMap::new();
        let mut accounts: HashMap<Arc<Account>, usize> = HashMap::new();
        for head in heads {
            let share = lanes.get(head.lane).and_then(|lane| lane.share.as_ref());
            let place = share.map(|share| {
                let line = *lines.entry((share.queue.as_str(), head.rank)).or_insert_with(|| {
                    turns.lines.push(Vec::new());
                    turns.lines.len() - 1
                });
                let account = Account::of(share, head.rank);
                let known = accounts.get(&account).copied();
                let at = known.unwrap_or_else(|| {
                    let (pass, estimate) = self.begin(&account, share.weight, now);
                    turns.passes.push((pass, part(estimate, i64::from(share.weight))));
                    accounts.insert(account, turns.passes.len() - 1);
                    turns.passes.len() - 1
                });
                turns.queue_up(line, at, head);
                line
            });
            turns.places.push_back((head, place));
        }
        turns
    }

    /// Returns the pass of a share that has jobs, and what an attempt of it is taken to need.
    fn begin(&mut self, account: &Arc<Account>, weight: u32, now: Timestamp) -> (i64, i64) {
        let line = self.lines.get(&account.line).copied().unwrap_or_default();
        let new = State { pass: line.now, mean: None, seen: now };
        let state = self.states.entry(Arc::clone(account)).or_insert(new);
        let mean = state.mean.or(line.mean).unwrap_or(FIRST_ESTIMATE);
        let idle = micros(now).saturating_sub(micros(state.seen));
        if idle > mean.saturating_mul(IDLE_ATTEMPTS).max(IDLE_MIN) {
            state.pass = state.pass.max(line.now);
        }
        state.seen = now;
        let estimate = mean.max(CHARGE_MIN);
        let behind =
            part(estimate, i64::from(weight)).saturating_mul(BEHIND_ATTEMPTS).max(BEHIND_MIN);
        state.pass = state.pass.max(line.now.saturating_sub(behind));
        (state.pass, estimate)
    }

    /// A job of a lane was taken, if it has a share.
    pub fn claimed(&mut self, lane: &Lane, rank: i64, seq: i64, now: Timestamp) {
        let Some(share) = &lane.share else { return };
        // An attempt before it that ended at another server, or in this batch, keeps its charge.
        self.charges.remove(&seq);
        self.fresh.insert(seq);
        let account = Account::of(share, rank);
        let (pass, estimate) = self.begin(&account, share.weight, now);
        let line = self.lines.entry(account.line.clone()).or_default();
        line.now = line.now.max(pass);
        let weight = i64::from(share.weight.max(1));
        if let Some(state) = self.states.get_mut(&account) {
            state.pass = state.pass.saturating_add(part(estimate, weight));
        }
        self.forget_old(now);
        self.charges.insert(seq, Charge { account, weight, estimate, claimed: now });
    }

    /// The attempt of a job has ended. One that this server did not give out is not on its
    /// accounts, and one that never started is not charged.
    pub fn ended(&mut self, Ended { seq, ran }: Ended, now: Timestamp) {
        self.fresh.remove(&seq);
        let Some(charge) = self.charges.get(&seq) else { return };
        let account = Arc::clone(&charge.account);
        let Some(ran) = ran else { return self.put_right(seq, 0) };
        let took = i64::try_from(ran.0).unwrap_or(i64::MAX).saturating_mul(1_000).max(CHARGE_MIN);
        self.put_right(seq, took);
        let line = self.lines.entry(account.line.clone()).or_default();
        line.mean = Some(mean_with(line.mean, took));
        if let Some(state) = self.states.get_mut(&account) {
            state.mean = Some(mean_with(state.mean, took));
            state.seen = now;
        }
    }

    /// A batch took effect in which attempts of these jobs ended. It takes no time where there are
    /// no shares.
    pub fn committed(&mut self, ended: &[Ended], now: Timestamp) {
        if self.charges.is_empty() {
            return;
        }
        let fresh = std::mem::take(&mut self.fresh);
        // What the batch itself took has not ended: an attempt before it did.
        let before = ended.iter().filter(|ended| !fresh.contains(&ended.seq));
        before.for_each(|ended| self.ended(*ended, now));
    }

    /// A batch begins. What the last one took is taken back if it did not take effect.
    pub fn begin_batch(&mut self) {
        for seq in std::mem::take(&mut self.fresh) {
            self.put_right(seq, 0);
        }
    }

    /// Charges what an attempt took in place of what it was taken to need.
    fn put_right(&mut self, seq: i64, took: i64) {
        let Some(charge) = self.charges.remove(&seq) else { return };
        if let Some(state) = self.states.get_mut(&charge.account) {
            let charged = part(charge.estimate, charge.weight);
            let more = part(took, charge.weight).saturating_sub(charged);
            state.pass = state.pass.saturating_add(more);
        }
    }

    /// Forgets attempts that ended elsewhere, and shares without jobs.
    fn forget_old(&mut self, now: Timestamp) {
        const DAY_MS: i64 = 24 * 3600 * 1000;
        const HOUR_MS: i64 = 3600 * 1000;
        if self.charges.len() >= KNOWN_MAX {
            self.charges.retain(|_, charge| now.0.saturating_sub(charge.claimed.0) < DAY_MS);
            if self.charges.len() >= KNOWN_MAX {
                self.charges.clear();
            }
        }
        if self.states.len() >= KNOWN_MAX {
            self.states.retain(|_, state| now.0.saturating_sub(state.seen.0) < HOUR_MS);
            if self.states.len() >= KNOWN_MAX {
                self.states.clear();
            }
        }
    }
}

/// Heads in the order in which a claim tries them.
#[derive(Debug, Default)]
pub struct ShareOrder {
    /// Best first; those of fair queues with the line that the place belongs to.
    places: VecDeque<(LaneJob, Option<usize>)>,
    /// The jobs of each queue and rank that wait for a place, by share and lane.
    lines: Vec<Vec<Waiting>>,
    /// Where the jobs of a line and lane are.
    index: HashMap<(usize, usize), usize>,
    /// The pass of each share, and by how much a claim raises it.
    passes: Vec<(i64, i64)>,
}

/// Jobs of a lane, oldest first.
#[derive(Debug)]
struct Waiting {
    share: usize,
    heads: VecDeque<LaneJob>,
}

impl ShareOrder {
    fn queue_up(&mut self, line: usize, share: usize, head: LaneJob) {
        let Some(lanes) = self.lines.get_mut(line) else { return };
        let at = *self.index.entry((line, head.lane)).or_insert(lanes.len());
        match lanes.get_mut(at) {
            Some(waiting) => waiting.heads.push_back(head),
            None => lanes.push(Waiting { share, heads: [head].into() }),
        }
    }

    /// Leaves out the places after that of this rank and number.
    pub fn end_after(&mut self, rank: i64, seq: i64) {
        self.places.retain(|(head, _)| (head.rank, head.seq) <= (rank, seq));
    }

    /// Tries the next place: `take` says whether the head starts. One that does not is the last of
    /// its lane. Returns `None` when there is no place left.
    pub fn try_next(&mut self, mut take: impl FnMut(LaneJob) -> bool) -> Option<()> {
        let (head, line) = self.places.pop_front()?;
        let Some(line) = line else {
            take(head);
            return Some(());
        };
        let Self { lines, passes, .. } = self;
        let line = lines.get_mut(line)?;
        // Whom a gate stops gives the place to the next.
        while let Some(at) = next(line, passes) {
            let waiting = line.get_mut(at)?;
            let head = waiting.heads.pop_front()?;
            if take(head) {
                if let Some((pass, more)) = passes.get_mut(waiting.share) {
                    *pass = pass.saturating_add(*more);
                }
                return Some(());
            }
            waiting.heads.clear();
        }
        Some(())
    }
}

/// Returns which lane is next: the one whose share has the lowest pass; then the oldest job.
fn next(line: &[Waiting], passes: &[(i64, i64)]) -> Option<usize> {
    let turn = |waiting: &Waiting| {
        let head = waiting.heads.front()?;
        let (pass, _) = passes.get(waiting.share)?;
        Some((*pass, head.seq))
    };
    let turns = line.iter().enumerate().filter_map(|(at, waiting)| Some((turn(waiting)?, at)));
    turns.min().map(|(_, at)| at)
}

fn part(time: i64, weight: i64) -> i64 {
    time.checked_div(weight).unwrap_or(time)
}

fn mean_with(mean: Option<i64>, took: i64) -> i64 {
    mean.map_or(took, |mean| {
        let by = took.saturating_sub(mean).checked_div(MEAN_OF).unwrap_or(0);
        mean.saturating_add(by)
    })
}

const fn micros(at: Timestamp) -> i64 {
    at.0.saturating_mul(1000)
}

#[cfg(test)]
mod tests;
