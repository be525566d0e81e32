//! How inputs become one batch.
//!
//! Lanes in order: renew, output, finish, claim, enqueue, so that a flood of enqueues delays
//! no heartbeat. At most one operation per job: a second one waits for the next batch. Output
//! is stored before the end of its job: readers that follow a job stop when it has ended.

use std::collections::{HashMap, HashSet, VecDeque};

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::Command;
use outlast_store::command::{ClassId, First, WorkerMove};

use crate::engine::dispatch::Planned;
use crate::engine::input::{KeepingSender, ReplySender};

/// Most weight in one batch; an enqueued job weighs 1. Keeps a batch to a few milliseconds.
const WEIGHT_MAX: usize = 2_000;

/// Weight of one lapse: thousands of workers take a few short commits.
const LAPSE_WEIGHT: usize = 2;

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
    /// To the caller that submitted the command and gets it back.
    CallerKeeping(KeepingSender),
    /// To the session that sent the report.
    Report { worker: WorkerId, session: u64, job: JobId, epoch: Epoch, finished: bool },
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

impl ReplyTo {
    /// Whether a caller waits that may be told to try again.
    pub(crate) const fn is_caller(&self) -> bool {
        match self {
            Self::Caller(_) | Self::CallerKeeping(_) | Self::Lapse { .. } | Self::Queue { .. } => {
                true
            }
            Self::Report { .. }
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
}

/// Lanes in the order in which a batch takes from them.
const LANES: usize = 5;

/// Weight reserved for the enqueues of a batch, so that a steady stream of reports and claims
/// cannot starve producers.
const ENQUEUE_SHARE: usize = WEIGHT_MAX / 4;

/// Most weight that output takes of a batch, so that jobs that print a lot delay no others.
const OUTPUT_SHARE: usize = WEIGHT_MAX / 4;

/// Operations that wait for a batch: in order of arrival within a lane.
#[derive(Debug, Default)]
pub(crate) struct Batcher {
    lanes: [VecDeque<Op>; LANES],
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
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let limit = limit(at, weight);
            let before = batch.len();
            let mut later = VecDeque::new();
            while weight < limit {
                let Some(op) = lane.pop_front() else { break };
                let size = weight_of(&op.command);
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
                if fits && in_turn && job_of(&op.command).is_none_or(|job| jobs.insert(job)) {
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
    } else if lane == Lane::Output as usize {
        WEIGHT_MAX.min(weight + OUTPUT_SHARE)
    } else {
        WEIGHT_MAX
    }
}

fn printed_by(command: &Command) -> Option<JobId> {
    match command {
        Command::Log(chunk) => Some(chunk.job),
        _ => None,
    }
}

fn is_goodbye(step: &WorkerMove) -> bool {
    matches!(step.event, WorkerEvent::Goodbye | WorkerEvent::Died)
}

pub(super) fn weight_of(command: &Command) -> usize {
    match command {
        Command::EnqueueAll(jobs) => jobs.len(),
        Command::EnqueueOnce(once) => once.jobs.len(),
        Command::EnqueueArrived(order) => order.jobs.len(),
        // A few KiB of output cost as much as a job.
        Command::Log(chunk) => 1 + chunk.bytes.len() / 4096,
        // It moves the jobs that the worker held.
        Command::Lapse(_) => LAPSE_WEIGHT,
        Command::Claim(claim) => usize::try_from(claim.max.get()).unwrap_or(usize::MAX).min(64),
        _ => 1,
    }
}

fn job_of(command: &Command) -> Option<JobId> {
    match command {
        Command::Enqueue(job) => Some(job.id),
        Command::Start(start) => Some(start.job),
        Command::Finish(finish) => Some(finish.job),
        Command::Cancel(order)
        | Command::Activate(order)
        | Command::RunNow(order)
        | Command::Replay(order) => Some(order.job),
        Command::Progress(progress) => Some(progress.job),
        _ => None,
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
        | Command::Extend(_)
        | Command::Reset => Lane::Renew,
        Command::Start(_)
        | Command::Finish(_)
        | Command::Cancel(_)
        | Command::Activate(_)
        | Command::RunNow(_)
        | Command::Replay(_)
        | Command::ForgetDeadLetter(_)
        | Command::Sweep(_)
        | Command::Strand(_)
        | Command::Queue(_)
        | Command::SetQueue(_)
        | Command::SetLimit(_)
        | Command::RemoveLimit(_)
        | Command::Recount(_)
        | Command::Progress(_)
        | Command::ForgetWorker(_) => Lane::Finish,
        Command::Log(_) => Lane::Output,
        Command::Claim(_) => Lane::Claim,
        Command::Enqueue(_)
        | Command::EnqueueAll(_)
        | Command::EnqueueOnce(_)
        | Command::Leadership(_)
        | Command::EnqueueArrived(_)
        | Command::Prune(_) => Lane::Enqueue,
    }
}

/// Returns the earliest time at which this command makes something due.
pub(crate) fn due_of(command: &Command) -> Option<Timestamp> {
    let of_job = |job: &outlast_store::command::NewJob| {
        let first = match job.first {
            First::At(at) => Some(at),
            First::Now | First::OnActivation => None,
        };
        [first, job.rules.expires_at].into_iter().flatten().min()
    };
    match command {
        Command::Enqueue(job) => of_job(job),
        Command::EnqueueAll(jobs) => jobs.iter().filter_map(of_job).min(),
        Command::EnqueueOnce(once) => once.jobs.iter().filter_map(of_job).min(),
        Command::EnqueueArrived(order) => {
            let kept = order.jobs.iter().filter(|arrived| arrived.refused.is_none());
            kept.filter_map(|arrived| of_job(&arrived.job)).min()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::evidence::Evidence;
    use outlast_store::command::{
        EndDetail, Fence, Finish, LogChunk, ReportedOutcome, Start, Stream,
    };
    use uuid::Uuid;

    use super::*;

    fn start(job: u128) -> Op {
        let start =
            Start { job: JobId(Uuid::from_u128(job)), fence: Fence::default(), pack_digest: None };
        Op { command: Command::Start(start), reply_to: ReplyTo::None }
    }

    fn goodbye() -> Op {
        let step = WorkerMove {
            worker: WorkerId(Uuid::from_u128(1)),
            event: WorkerEvent::Goodbye,
            session: None,
            by: String::new(),
            evidence: Evidence::default(),
        };
        Op { command: Command::Worker(step), reply_to: ReplyTo::None }
    }

    fn goodbyes(batch: &[Op]) -> usize {
        batch.iter().filter(|op| matches!(op.command, Command::Worker(_))).count()
    }

    fn bulk(jobs: u128) -> Op {
        let job = |n| crate::engine::tests::noop_job(n);
        Op { command: Command::EnqueueAll((0..jobs).map(job).collect()), reply_to: ReplyTo::None }
    }

    /// Beats once waited for every bulk that had come before them.
    #[test]
    fn flood_of_bulks_delays_no_report_and_reports_do_not_starve_a_bulk() {
        let mut batcher = Batcher::default();
        let huge = WEIGHT_MAX as u128 * 2;
        batcher.push(bulk(huge));
        batcher.push(bulk(huge));
        (1..=WEIGHT_MAX as u128 + 5).for_each(|job| batcher.push(start(job)));
        let first = batcher.take();
        assert_eq!(first.len(), WEIGHT_MAX + 1);
        assert!(matches!(first[0].command, Command::Start(_)));
        assert!(matches!(first[WEIGHT_MAX].command, Command::EnqueueAll(_)));
        assert_eq!((batcher.take().len(), batcher.is_empty()), (5 + 1, true));
    }

    fn output(job: u128, n: u32, bytes: usize) -> Op {
        let (job, epoch) = (JobId(Uuid::from_u128(job)), Epoch(1));
        let chunk = LogChunk { job, epoch, n, stream: Stream::Stdout, bytes: vec![b'x'; bytes] };
        Op { command: Command::Log(chunk), reply_to: ReplyTo::None }
    }

    fn finish(job: u128) -> Op {
        let finish = Finish {
            job: JobId(Uuid::from_u128(job)),
            fence: Fence::default(),
            reported: ReportedOutcome::Completed,
            detail: EndDetail::default(),
            by: String::new(),
        };
        Op { command: Command::Finish(Box::new(finish)), reply_to: ReplyTo::None }
    }

    fn chunks(batch: &[Op]) -> Vec<u32> {
        batch
            .iter()
            .filter_map(|op| match &op.command {
                Command::Log(chunk) => Some(chunk.n),
                _ => None,
            })
            .collect()
    }

    fn ends(batch: &[Op]) -> usize {
        batch.iter().filter(|op| matches!(op.command, Command::Finish(_))).count()
    }

    /// Behind a flood of enqueues a job's output was once stored after its end, and readers that
    /// followed the job missed it.
    #[test]
    fn output_is_kept_before_the_end_that_came_after_it_whatever_else_there_is_to_do() {
        let mut batcher = Batcher::default();
        (0..3).for_each(|_| batcher.push(bulk(WEIGHT_MAX as u128)));
        batcher.push(output(1, 0, 10));
        batcher.push(finish(1));
        let first = batcher.take();
        assert!(matches!(first[0].command, Command::Log(_)));
        assert!(matches!(first[1].command, Command::Finish(_)));
    }

    #[test]
    fn output_that_waits_stays_in_order_and_holds_back_the_end_of_its_own_job_only() {
        let mut batcher = Batcher::default();
        let share = OUTPUT_SHARE * 4096;
        [output(1, 0, share / 2), output(1, 1, share), output(1, 2, 10), finish(1), finish(2)]
            .into_iter()
            .for_each(|op| batcher.push(op));
        let first = batcher.take();
        assert_eq!((chunks(&first), ends(&first)), (vec![0], 1));
        let second = batcher.take();
        assert_eq!((chunks(&second), ends(&second)), (vec![1], 0));
        let third = batcher.take();
        assert_eq!((chunks(&third), ends(&third), batcher.is_empty()), (vec![2], 1, true));
    }

    /// A goodbye once moved attempts whose reports were in the same batch, or deferred.
    #[test]
    fn goodbye_never_overtakes_a_report_that_came_before_it() {
        let mut batcher = Batcher::default();
        // The second word about job 1 waits for the next batch, and the goodbye with it.
        [start(1), start(1), goodbye()].into_iter().for_each(|op| batcher.push(op));
        assert_eq!(goodbyes(&batcher.take()), 0);
        let second = batcher.take();
        assert!(matches!(second.last().unwrap().command, Command::Worker(_)));
        assert_eq!((second.len(), batcher.is_empty()), (2, true));
    }
}
