//! How inputs become one batch.
//!
//! Lanes in order: renew, output, finish, claim, enqueue, long enqueue, so that a flood of
//! enqueues delays no heartbeat, and one of long jobs no short ones. At most one operation per job:
//! a second one waits for the next batch. Output is stored before the end of its job: readers that
//! follow a job stop when it has ended.

use std::collections::{HashMap, HashSet, VecDeque};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_store::Command;
use outlast_store::command::ClassId;
use outlast_store::reply::Claimed;

use crate::engine::command_facts::{
    BYTES_OF_ONE, is_goodbye, is_long, jobs_named, printed_by, weight_of, weight_of_claim,
};
use crate::engine::dispatch::Planned;
use crate::engine::input::ReplySender;

/// Most weight in one batch; an enqueued job weighs 1, and more if it is longer than 4 KiB. Keeps a
/// batch to a few milliseconds, and to 8 MiB.
const WEIGHT_MAX: usize = 2_000;

/// A command, and where its reply goes.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) command: Command,
    pub(crate) reply_to: ReplyTo,
}

/// Where a reply goes.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    /// To the caller that submitted the command.
    Caller(ReplySender),
    /// To the session that sent the report.
    Report(Reported),
    /// To the session that the jobs are claimed for.
    Session(Planned),
    /// To the bookkeeping of a class whose jobs must run alone: whether this server leads for it.
    Isolation(ClassId),
    /// To the lease monitor, which may declare many workers dead at once.
    Lapse { mass: bool, caller: ReplySender },
    /// To the bookkeeping of a class that no worker can run.
    Unclaimable(ClassId),
    /// To the caller that paused or resumed a queue.
    Queue { queue: String, paused: bool, caller: ReplySender },
    /// Nowhere.
    None,
}

/// An attempt that a session reported on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported {
    pub(crate) worker: WorkerId,
    pub(crate) session: u64,
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    /// Whether it has ended.
    pub(crate) finished: bool,
}

impl ReplyTo {
    /// Whether a caller waits that may be told to try again.
    pub(crate) const fn is_caller(&self) -> bool {
        match self {
            Self::Caller(_) | Self::Lapse { .. } | Self::Queue { .. } => true,
            Self::Report(_)
            | Self::Session(_)
            | Self::Isolation(_)
            | Self::Unclaimable(_)
            | Self::None => false,
        }
    }
}

#[derive(Clone, Copy)]
enum Lane {
    Renew,
    Output,
    Finish,
    Claim,
    Enqueue,
    Long,
}

/// Lanes in the order in which a batch takes from them.
const LANES: usize = 6;

/// Weight reserved for the enqueues of a batch, so that a steady stream of reports and claims
/// cannot starve producers.
const ENQUEUE_SHARE: usize = WEIGHT_MAX / 4;

/// Weight reserved for long enqueues: they wait for no others, and add little to how long a batch
/// takes.
const LONG_SHARE: usize = WEIGHT_MAX / 4;

/// Most weight that output takes of a batch, so that jobs that print a lot delay no others.
const OUTPUT_SHARE: usize = WEIGHT_MAX / 4;

/// Operations that wait for a batch: in order of arrival within a lane.
#[derive(Debug, Default)]
pub(crate) struct Batcher {
    lanes: [VecDeque<Op>; LANES],
    /// How long claimed jobs are, in bytes: rises at once, and falls by an eighth of the difference.
    claimed_bytes: usize,
}

impl Batcher {
    pub(crate) fn push(&mut self, op: Op) {
        let lane = lane_of(&op.command) as usize;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.push_back(op);
        }
    }

    /// Puts operations back that were taken, in their order, before all that have come since.
    pub(crate) fn put_back(&mut self, ops: Vec<Op>) {
        for op in ops.into_iter().rev() {
            let lane = lane_of(&op.command) as usize;
            if let Some(lane) = self.lanes.get_mut(lane) {
                lane.push_front(op);
            }
        }
    }

    /// Notes how long the jobs are that a claim took: the next ones will be about as long.
    pub(crate) fn claimed(&mut self, jobs: &[Claimed]) {
        if !jobs.is_empty() {
            let latest = jobs.iter().map(Claimed::bytes).sum::<usize>() / jobs.len();
            let less = self.claimed_bytes.saturating_sub(latest) / 8;
            self.claimed_bytes = latest.max(self.claimed_bytes.saturating_sub(less));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }

    /// Returns how many jobs the waiting claims ask for, by class; a claim of several classes
    /// counts for each of them.
    pub(crate) fn planned(&self) -> HashMap<ClassId, u64> {
        let mut planned = HashMap::new();
        let claims = self.lanes.get(Lane::Claim as usize).into_iter().flatten();
        for op in claims {
            let ReplyTo::Session(Planned { classes, max, .. }) = &op.reply_to else { continue };
            for class in classes.iter() {
                *planned.entry(*class).or_default() += u64::from(*max);
            }
        }
        planned
    }

    /// Takes the next batch in lane order. A second operation about a job stays for a later
    /// batch, and so does what does not fit.
    pub(crate) fn take(&mut self) -> Vec<Op> {
        let waiting: usize = self.lanes.iter().map(VecDeque::len).sum();
        let mut batch = Vec::with_capacity(waiting.min(WEIGHT_MAX));
        let mut jobs = HashSet::with_capacity(batch.capacity());
        let mut printing = HashSet::new();
        let mut weight = 0_usize;
        let of_claimed = self.claimed_bytes / BYTES_OF_ONE;
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let limit = limit(at, weight);
            let before = batch.len();
            let mut later = VecDeque::new();
            while weight < limit {
                let Some(op) = lane.pop_front() else { break };
                let size = match &op.command {
                    Command::Claim(claim) => weight_of_claim(claim, of_claimed),
                    other => weight_of(other),
                };
                // The first of a lane is taken whatever its size, or it would wait forever.
                let fits = batch.len() == before || weight + size <= limit;
                let in_turn = match &op.command {
                    // A goodbye ends what the worker still holds, so it comes after every
                    // earlier report, including those that wait for the next batch.
                    Command::Worker(step) if is_goodbye(step) => later.is_empty(),
                    // Output stays in order.
                    Command::Log(_) => later.is_empty(),
                    Command::Finish(finish) => !printing.contains(&finish.job),
                    _ => true,
                };
                let is_alone = || jobs_named(&op.command).all(|job| !jobs.contains(&job));
                if fits && in_turn && is_alone() {
                    jobs.extend(jobs_named(&op.command));
                    weight += size;
                    batch.push(op);
                } else {
                    later.push_back(op);
                }
            }
            later.append(lane);
            *lane = later;
            // Output that did not fit delays only the end of its job.
            if at == Lane::Output as usize {
                printing.extend(lane.iter().filter_map(|op| printed_by(&op.command)));
            }
        }
        batch
    }
}

/// Returns the weight up to which a lane fills a batch that has `weight` already.
fn limit(lane: usize, weight: usize) -> usize {
    if lane == Lane::Enqueue as usize {
        WEIGHT_MAX.max(weight + ENQUEUE_SHARE)
    } else if lane == Lane::Long as usize {
        weight + LONG_SHARE
    } else if lane == Lane::Output as usize {
        WEIGHT_MAX.min(weight + OUTPUT_SHARE)
    } else {
        WEIGHT_MAX
    }
}

fn lane_of(command: &Command) -> Lane {
    match command {
        // A goodbye must not overtake the reports before it.
        Command::Worker(step) if is_goodbye(step) => Lane::Finish,
        Command::Renew(_)
        | Command::Register(_)
        | Command::Attach(_)
        | Command::Worker(_)
        | Command::Lapse(_)
        | Command::OrderWorkers(_)
        | Command::ReportHealth(_)
        | Command::Extend(_)
        | Command::Reset => Lane::Renew,
        Command::Start(_)
        | Command::Adopt(_)
        | Command::NoteLoss(_)
        | Command::NoteSkew(_)
        | Command::Finish(_)
        | Command::Order(_)
        | Command::WriteOperation(_)
        | Command::ForgetDeadLetter(_)
        | Command::HandleLetters(_)
        | Command::Sweep(_)
        | Command::Strand(_)
        | Command::Queue(_)
        | Command::SetQueue(_)
        | Command::SetLimit(_)
        | Command::RemoveLimit(_)
        | Command::Recount(_)
        | Command::BeginSession(_)
        | Command::RenewSession(_)
        | Command::EndSessions(_)
        | Command::Progress(_)
        | Command::ForgetWorker(_) => Lane::Finish,
        Command::Log(_) => Lane::Output,
        Command::Claim(_) => Lane::Claim,
        Command::Enqueue(_)
        | Command::EnqueueAll(_)
        | Command::EnqueueOnce(_)
        | Command::WriteSchedule(_)
        | Command::WriteWorkflow(_)
            if is_long(command) =>
        {
            Lane::Long
        }
        Command::Enqueue(_)
        | Command::EnqueueAll(_)
        | Command::EnqueueOnce(_)
        | Command::WriteSchedule(_)
        | Command::WriteWorkflow(_)
        | Command::Leadership(_)
        | Command::EnqueueArrived(_)
        | Command::Prune(_) => Lane::Enqueue,
    }
}

#[cfg(test)]
mod tests;
