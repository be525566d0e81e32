//! Bounds in bytes: what one read or one claim holds in memory, however long its jobs are.

use outlast_core::limits::{LISTED_BYTES_MAX, LOG_CHUNK_BYTES_MAX, PAGE_BYTES_MAX};
use outlast_core::time::Span;

use crate::command::{Command, EndDetail, Finish, LogChunk, ReportedOutcome, Stream};
use crate::conformance::Harness;
use crate::conformance::world::{World, failed, rules};
use crate::job::NewJob;
use crate::query::{JobQuery, LogQuery, Page};
use crate::record::{AttemptRecord, JobRecord, Omitted};
use crate::reply::Reply;
use crate::store::Store as _;

cases![
    page_of_jobs_ends_at_its_bytes_and_the_next_one_goes_on,
    job_that_is_longer_than_a_page_is_a_page,
    list_leaves_out_long_values_and_the_job_by_itself_has_them,
    page_of_dead_letters_ends_at_its_bytes_and_the_next_one_goes_on,
    page_of_output_ends_at_its_bytes_and_the_next_one_goes_on,
    history_of_very_many_long_errors_has_the_latest_ones,
];

/// JSON of so many bytes.
fn text(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)))
}

/// A job with arguments of so many bytes.
fn long<H: Harness>(world: &mut World<'_, H>, bytes: usize) -> NewJob {
    let mut job = world.job();
    job.payload.args = format!("[{}]", text(bytes.saturating_sub(2)));
    job
}

/// A job that lists show whole, and of which this many are more than a page.
fn shown<H: Harness>(world: &mut World<'_, H>) -> NewJob {
    long(world, LISTED_BYTES_MAX)
}

const MORE_THAN_A_PAGE: usize = PAGE_BYTES_MAX / LISTED_BYTES_MAX * 5 / 2;

/// Reads a list to its end; every page must keep its bound.
fn all_pages<H: Harness>(world: &World<'_, H>) -> Vec<JobRecord> {
    let mut query = JobQuery::all(Page { limit: 1_000, cursor: None });
    let mut all = Vec::new();
    loop {
        let page = world.ask(world.store().jobs(query.clone()));
        let bytes: usize = page.jobs.iter().map(JobRecord::bytes).sum();
        assert!(page.jobs.len() == 1 || bytes <= PAGE_BYTES_MAX, "a page of {bytes} bytes");
        all.extend(page.jobs);
        let Some(next) = page.next else { return all };
        query.page.cursor = Some(next);
    }
}

fn page_of_jobs_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(world: &mut World<'_, H>) {
    let mut ids = Vec::new();
    for _ in 0..MORE_THAN_A_PAGE {
        let job = shown(world);
        ids.push(world.add(job));
    }
    ids.reverse();
    let listed: Vec<_> = all_pages(world).iter().map(|job| job.job.id).collect();
    assert_eq!(listed, ids);
    let first = JobQuery::all(Page { limit: 1_000, cursor: None });
    let first = world.ask(world.store().jobs(first)).jobs.len();
    assert_eq!(first, PAGE_BYTES_MAX / LISTED_BYTES_MAX, "a page is as full as it may be");
}

fn job_that_is_longer_than_a_page_is_a_page<H: Harness>(world: &mut World<'_, H>) {
    for _ in 0..3 {
        let mut job = world.job();
        job.payload.extra = format!("{{\"note\":{}}}", text(PAGE_BYTES_MAX));
        world.add(job);
    }
    let page = world.ask(world.store().jobs(JobQuery::all(Page { limit: 10, cursor: None })));
    assert_eq!((page.jobs.len(), page.total), (1, Some(3)));
    assert_eq!(all_pages(world).len(), 3);
}

fn list_leaves_out_long_values_and_the_job_by_itself_has_them<H: Harness>(
    world: &mut World<'_, H>,
) {
    let job = long(world, 200_000);
    let (args, hand) = (job.payload.args.clone(), world.worker());
    let id = world.add(job);
    let claimed = world.run(hand);
    let result = text(LISTED_BYTES_MAX + 1);
    let detail = EndDetail { result: Some(result.clone()), ..EndDetail::default() };
    let (fence, reported) = (hand.fence(claimed.epoch), ReportedOutcome::Completed);
    let finish = Finish { job: id, fence, reported, detail, by: "test".into() };
    world.moved(Command::Finish(Box::new(finish))).unwrap();
    let listed = all_pages(world).remove(0);
    let omitted = Omitted { args: Some(200_000), result: Some(result.len() as u64) };
    assert_eq!(listed.omitted, omitted);
    assert_eq!((listed.job.payload.args.as_str(), listed.result), (Omitted::ARGS, None));
    let whole = world.read(id);
    assert_eq!(whole.omitted, Omitted::default());
    assert_eq!((whole.job.payload.args.clone(), whole.result), (args, Some(result)));
}

fn page_of_dead_letters_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    let mut ids = Vec::new();
    for _ in 0..MORE_THAN_A_PAGE {
        let mut job = shown(world);
        job.rules = rules(1);
        job.rules.retry.on_exhaustion = outlast_core::retry::OnExhaustion::DeadLetter;
        ids.push(world.add(job));
        let claimed = world.run(hand);
        assert!(world.finish(&claimed, hand, failed()).unwrap().dead_letter);
    }
    ids.reverse();
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = world.ask(world.store().dead_letters(Page { limit: 1_000, cursor }));
        let bytes: usize = page.letters.iter().map(|letter| letter.job.bytes()).sum();
        assert!(bytes <= PAGE_BYTES_MAX, "a page of {bytes} bytes");
        listed.extend(page.letters.iter().map(|letter| letter.job.job.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, ids);
}

fn page_of_output_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let job = world.add_plain();
    let claimed = world.run(hand);
    let chunks = u32::try_from(PAGE_BYTES_MAX / LOG_CHUNK_BYTES_MAX * 5 / 2).unwrap();
    for n in 0..chunks {
        let bytes = vec![b'x'; LOG_CHUNK_BYTES_MAX];
        let chunk = LogChunk { job, epoch: claimed.epoch, n, stream: Stream::Stdout, bytes };
        assert_eq!(world.one(Command::Log(chunk)), Reply::Done);
    }
    let (mut after, mut read) = (0, 0);
    loop {
        let page = world.ask(world.store().logs(LogQuery { job, after, limit: 1_000 })).lines;
        let bytes: usize = page.iter().map(|line| line.bytes.len()).sum();
        assert!(bytes <= PAGE_BYTES_MAX, "a page of {bytes} bytes");
        let Some(last) = page.last() else { break };
        (after, read) = (last.id, read + page.len());
    }
    assert_eq!(read, chunks as usize);
}

fn history_of_very_many_long_errors_has_the_latest_ones<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let mut job = world.job();
    job.rules = rules(100);
    let id = world.add(job);
    let attempts = 20;
    let error = format!("{{\"type\":\"t\",\"message\":{}}}", text(PAGE_BYTES_MAX / 16));
    for _ in 0..attempts {
        world.wait(Span::from_secs(3_600));
        world.sweep();
        let claimed = world.run(hand);
        let detail = EndDetail { error: Some(error.clone()), ..EndDetail::default() };
        let (fence, reported) = (hand.fence(claimed.epoch), failed());
        let finish = Finish { job: id, fence, reported, detail, by: "test".into() };
        world.moved(Command::Finish(Box::new(finish))).unwrap();
    }
    let history = world.attempts(id);
    assert_eq!(history.len(), attempts);
    let omitted = |attempt: &AttemptRecord| attempt.error.is_none();
    assert_eq!(history.iter().filter(|attempt| omitted(attempt)).count(), attempts - 15);
    assert!(history.is_sorted_by_key(|attempt| attempt.error.is_some()), "the oldest are left out");
    let length = u64::try_from(error.len()).ok();
    assert!(history.iter().filter(|it| omitted(it)).all(|attempt| attempt.omitted == length));
}
