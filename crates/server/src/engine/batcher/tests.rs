use outlast_core::evidence::Evidence;
use outlast_core::limits::CLAIM_BYTES_MAX;
use outlast_core::worker::liveness::WorkerEvent;
use outlast_store::command::{
    Claim, EndDetail, Fence, Finish, LogChunk, ReportedOutcome, Start, Stream, WorkerMove,
};
use uuid::Uuid;

use super::*;
use crate::engine::command_facts::bytes_of;

fn start(job: u128) -> Op {
    let start =
        Start { job: JobId(Uuid::from_u128(job)), fence: Fence::default(), pack_digest: None };
    Op { command: Command::Start(start), reply_to: ReplyTo::None }
}

fn goodbye() -> Op {
    let step = WorkerMove {
        worker: WorkerId(Uuid::from_u128(1)),
        event: WorkerEvent::Goodbye,
        ordered: None,
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

/// A bulk's few bytes were once added to the number of its jobs, so that no batch held two of 1,000.
#[test]
fn bulks_of_short_jobs_fill_a_batch_by_their_number() {
    let mut batcher = Batcher::default();
    for _ in 0..4 {
        let mut bulk = bulk(WEIGHT_MAX as u128 / 2);
        let Command::EnqueueAll(jobs) = &mut bulk.command else { unreachable!() };
        jobs.iter_mut().for_each(|job| job.payload.args = r#"[{"user":1024}]"#.to_owned());
        batcher.push(bulk);
    }
    assert_eq!((batcher.take().len(), batcher.take().len()), (2, 2));
    assert!(batcher.is_empty());
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

fn long(job: u128, bytes: usize) -> Op {
    let mut job = crate::engine::tests::noop_job(job);
    job.payload.args = "x".repeat(bytes);
    Op { command: Command::Enqueue(Box::new(job)), reply_to: ReplyTo::None }
}

fn bytes(batch: &[Op]) -> usize {
    batch.iter().map(|op| bytes_of(&op.command)).sum()
}

/// An enqueue weighed the same with ten bytes and with a million: 250 of these were one batch, and a
/// small one waited for seconds.
#[test]
fn flood_of_long_jobs_comes_in_short_batches_and_small_jobs_pass_it() {
    let mut batcher = Batcher::default();
    (0..250).for_each(|job| batcher.push(long(job, 1_000_000)));
    (250..260).for_each(|job| batcher.push(long(job, 10)));
    let first = batcher.take();
    let small = first.iter().filter(|op| bytes_of(&op.command) < 100).count();
    assert_eq!(small, 10, "small ones do not wait");
    let mut batches = vec![first];
    while !batcher.is_empty() {
        batches.push(batcher.take());
    }
    let most = LONG_SHARE * BYTES_OF_ONE;
    assert!(batches.iter().all(|batch| bytes(batch) <= most), "{most}");
    assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 260);
}

#[test]
fn batch_of_reports_is_bounded_in_bytes() {
    let mut batcher = Batcher::default();
    for job in 0..100 {
        let mut op = finish(job);
        if let Command::Finish(finish) = &mut op.command {
            finish.detail.result = Some("x".repeat(1_000_000));
        }
        batcher.push(op);
    }
    let mut ended = 0;
    while !batcher.is_empty() {
        let batch = batcher.take();
        assert!(bytes(&batch) <= WEIGHT_MAX * BYTES_OF_ONE);
        ended += ends(&batch);
    }
    assert_eq!(ended, 100);
}

#[test]
fn claims_weigh_what_the_last_ones_brought() {
    let claim = |max: u32| Claim {
        claimant: outlast_store::command::Claimant::Plain {
            worker: None,
            visibility: outlast_core::time::Span::from_secs(1),
        },
        from: outlast_store::command::ClaimFrom::Classes([ClassId(1)].into()),
        max: std::num::NonZeroU32::new(max).unwrap(),
        is_prefetch: false,
        avoids: Vec::new(),
        asked: outlast_store::command::AskedByQueues::default(),
    };
    assert_eq!(weight_of_claim(&claim(10), 0), 10);
    assert_eq!(weight_of_claim(&claim(2), 256), 2 + 512);
    assert_eq!(weight_of_claim(&claim(1_000), 256), 64 + CLAIM_BYTES_MAX / BYTES_OF_ONE);
}
