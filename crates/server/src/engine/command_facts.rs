//! What is known of a command before it is executed: how much it weighs in a batch, which job it is
//! about, when it makes something due.

use outlast_core::id::JobId;
use outlast_core::limits::{CLAIM_BYTES_MAX, SHORT_BODY_BYTES_MAX};
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::Command;
use outlast_store::command::{Claim, EndDetail, First, NewJob, WorkerMove};
use outlast_store::workflow::NewWorkflow;

/// How many bytes cost as much as a job.
pub(super) const BYTES_OF_ONE: usize = 4096;

/// Weight of one lapse: thousands of workers take a few short commits.
const LAPSE_WEIGHT: usize = 2;

/// Returns the job whose output it stores.
pub(super) fn printed_by(command: &Command) -> Option<JobId> {
    match command {
        Command::Log(chunk) => Some(chunk.job),
        _ => None,
    }
}

/// Whether it ends what the worker still holds.
pub(super) fn is_goodbye(step: &WorkerMove) -> bool {
    matches!(step.event, WorkerEvent::Goodbye | WorkerEvent::Died)
}

/// Returns what a claim weighs when each job that it may take adds this much for its length.
pub(super) fn weight_of_claim(claim: &Claim, of_claimed: usize) -> usize {
    let max = usize::try_from(claim.max.get()).unwrap_or(usize::MAX);
    let most = CLAIM_BYTES_MAX / BYTES_OF_ONE;
    max.min(64).saturating_add(max.saturating_mul(of_claimed).min(most))
}

/// The weight of an order to all workers. A batch with it holds few other commands, since it may
/// take long.
const ORDER_WEIGHT: usize = 1_000;

/// Returns how much of a batch it fills: a job weighs 1, and one that is longer than 4 KiB as many
/// times that as it is long.
pub(super) fn weight_of(command: &Command) -> usize {
    let jobs = match command {
        // It moves the jobs that the worker held.
        Command::Lapse(_) => LAPSE_WEIGHT,
        Command::Claim(claim) => weight_of_claim(claim, 0),
        // It may move the whole fleet.
        Command::OrderWorkers(_) => ORDER_WEIGHT,
        other => jobs_of(other),
    };
    jobs.max(bytes_of(command).div_ceil(BYTES_OF_ONE))
}

/// Whether an enqueue takes its time because of how long its jobs are, not how many.
pub(super) fn is_long(command: &Command) -> bool {
    let (jobs, bytes) = (jobs_of(command), bytes_of(command));
    bytes > SHORT_BODY_BYTES_MAX && bytes / jobs.max(1) > BYTES_OF_ONE
}

fn jobs_of(command: &Command) -> usize {
    match command {
        Command::EnqueueAll(jobs) => jobs.len(),
        Command::EnqueueOnce(once) => once.jobs.len(),
        Command::EnqueueArrived(order) => order.jobs.len(),
        Command::WriteSchedule(write) => write.jobs.len() + 1,
        Command::WriteWorkflow(write) => {
            write.jobs.len() + write.items.len() + write.started.len() + 1
        }
        Command::WriteOperation(write) => write.orders.len() + 1,
        _ => 1,
    }
}

/// Returns how long the texts are that a command carries, in bytes.
pub(super) fn bytes_of(command: &Command) -> usize {
    let of_all = |jobs: &[NewJob]| jobs.iter().map(|job| job.payload.bytes()).sum();
    match command {
        Command::Enqueue(job) => job.payload.bytes(),
        Command::EnqueueAll(jobs) => of_all(jobs),
        Command::EnqueueOnce(once) => of_all(&once.jobs),
        Command::EnqueueArrived(order) => {
            order.jobs.iter().map(|arrived| arrived.job.payload.bytes()).sum()
        }
        Command::WriteSchedule(write) => {
            let state = write.to.as_ref();
            let of_state = state.map_or(0, |it| it.definition.len() + it.progress.len());
            of_all(&write.jobs) + of_state
        }
        Command::WriteWorkflow(write) => {
            let of_new = |new: &NewWorkflow| new.definition.len();
            let texts = write.items.iter().flat_map(|item| [&item.input, &item.result]);
            of_all(&write.jobs)
                + write.new.as_ref().map_or(0, of_new)
                + write.to.as_ref().map_or(0, |to| to.progress.len())
                + write
                    .ends
                    .iter()
                    .filter_map(|end| end.result.as_ref())
                    .map(String::len)
                    .sum::<usize>()
                + write.started.iter().map(|child| of_new(&child.new)).sum::<usize>()
                + texts.flatten().map(String::len).sum::<usize>()
        }
        Command::Log(chunk) => chunk.bytes.len(),
        Command::Finish(finish) => {
            let EndDetail { result, error, checkpoint, .. } = &finish.detail;
            let texts = [result, error].into_iter().flatten().map(String::len);
            texts.sum::<usize>() + checkpoint.as_ref().map_or(0, Vec::len)
        }
        Command::Progress(progress) => progress.checkpoint.as_ref().map_or(0, Vec::len),
        _ => 0,
    }
}

/// Returns the jobs that no other command of the same batch may be about.
pub(super) fn jobs_named(command: &Command) -> impl Iterator<Item = JobId> {
    let ordered = match command {
        Command::WriteOperation(write) => &*write.orders,
        _ => &[],
    };
    job_of(command).into_iter().chain(ordered.iter().map(|order| order.job))
}

fn job_of(command: &Command) -> Option<JobId> {
    match command {
        Command::Enqueue(job) => Some(job.id),
        Command::Start(start) => Some(start.job),
        Command::Adopt(adopt) => Some(adopt.job),
        Command::Finish(finish) => Some(finish.job),
        Command::Order(order) => Some(order.job),
        Command::Progress(progress) => Some(progress.job),
        _ => None,
    }
}

/// Returns the earliest time at which this command makes something due.
pub(super) fn due_of(command: &Command) -> Option<Timestamp> {
    let of_job = |job: &NewJob| {
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
        Command::WriteSchedule(write) => write.jobs.iter().filter_map(of_job).min(),
        Command::WriteWorkflow(write) => write.jobs.iter().filter_map(of_job).min(),
        Command::EnqueueArrived(order) => {
            let kept = order.jobs.iter().filter(|arrived| arrived.refused.is_none());
            kept.filter_map(|arrived| of_job(&arrived.job)).min()
        }
        _ => None,
    }
}
