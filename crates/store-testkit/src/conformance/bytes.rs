//! Bounds in bytes: what one read or one claim holds in memory, however long its jobs are.

use std::num::NonZeroU32;

use outlast_core::id::JobId;
use outlast_core::limits::{
    CHECKPOINT_BYTES_MAX, CLAIM_BYTES_MAX, LISTED_BYTES_MAX, LOG_CHUNK_BYTES_MAX, PAGE_BYTES_MAX,
};
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, Command, EndDetail, Finish, LogChunk,
    ReportedOutcome, Stream,
};
use outlast_store::event::EventQuery;
use outlast_store::job::NewJob;
use outlast_store::query::{JobQuery, LogQuery, Page};
use outlast_store::record::{AttemptRecord, JobRecord, Omitted};
use outlast_store::reply::{Claimed, Claims, Reply};
use outlast_store::store::Store as _;

use crate::conformance::limit::{keys, per_queue, per_tenant};
use crate::conformance::world::{World, failed, rules};
use crate::conformance::{Hand, Harness};

cases![
    page_of_jobs_ends_at_its_bytes_and_the_next_one_goes_on,
    job_that_is_longer_than_a_page_is_a_page,
    list_leaves_out_long_values_and_the_job_by_itself_has_them,
    page_of_dead_letters_ends_at_its_bytes_and_the_next_one_goes_on,
    page_of_output_ends_at_its_bytes_and_the_next_one_goes_on,
    history_of_very_many_long_errors_has_the_latest_ones,
    claim_ends_at_its_bytes_and_the_next_one_goes_on,
    claim_by_limits_ends_at_its_bytes_and_the_next_one_goes_on,
    claim_by_limits_of_a_few_long_jobs_before_many_short_ones_takes_what_fits,
    page_of_an_error_counts_no_job_that_does_not_have_it,
    fetch_ends_at_its_bytes_and_the_next_one_goes_on,
    claims_of_one_batch_are_each_cut_and_the_jobs_go_to_the_first,
    claim_counts_checkpoints,
    jobs_that_a_claim_avoids_use_up_none_of_its_bytes,
    events_of_long_batches_are_all_read,
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
        let query = JobQuery::dead_letters(Page { limit: 1_000, cursor });
        let page = world.ask(world.store().dead_letters(query));
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

/// Enqueues jobs of 300 KB, ten more than one claim takes; returns their ids.
fn more_than_a_claim<H: Harness>(world: &mut World<'_, H>, key: Option<&str>) -> Vec<JobId> {
    let mut ids = Vec::new();
    for _ in 0..CLAIM_BYTES_MAX / 300_000 + 10 {
        let mut job = long(world, 300_000);
        if let Some(value) = key {
            job.keys = keys(&[("tenant", value)]);
        }
        ids.push(world.add(job));
    }
    ids
}

/// What a claim took: it must keep its bound, and have the payloads.
fn checked(claims: &Claims, max: usize) -> Vec<JobId> {
    let bytes: Vec<usize> = claims.jobs.iter().map(Claimed::bytes).collect();
    let before: usize = bytes.iter().rev().skip(1).sum();
    assert!(before < CLAIM_BYTES_MAX, "{} bytes before the last job", before);
    assert!(claims.jobs.iter().all(|job| job.job.payload.args.len() >= 300_000));
    assert_eq!(claims.cut, claims.jobs.len() < max, "{} jobs", claims.jobs.len());
    claims.jobs.iter().map(|job| job.job.id).collect()
}

/// Claims until all jobs are taken, in order.
fn claim_all<H: Harness>(world: &mut World<'_, H>, hand: Hand, ids: &[JobId]) {
    let mut taken = Vec::new();
    for _ in 0..ids.len() {
        let left = ids.len() - taken.len();
        let from = world.all_classes();
        let max = u32::try_from(left).unwrap();
        let claims = world.claims_by(hand.claimant(), from, max).unwrap();
        taken.extend(checked(&claims, left));
        if taken.len() == ids.len() {
            break;
        }
    }
    assert_eq!(taken, ids);
}

fn claim_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let ids = more_than_a_claim(world, None);
    claim_all(world, hand, &ids);
}

fn claim_by_limits_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hand = world.worker();
    world.limit(per_tenant(1_000));
    let ids = more_than_a_claim(world, Some("v"));
    claim_all(world, hand, &ids);
}

/// Their mean is short, and those in front are not.
fn claim_by_limits_of_a_few_long_jobs_before_many_short_ones_takes_what_fits<H: Harness>(
    world: &mut World<'_, H>,
) {
    const LONG: usize = CLAIM_BYTES_MAX / 5 + 100_000;
    let hand = world.worker();
    world.limit(per_tenant(1_000));
    let mut ids = Vec::new();
    for bytes in std::iter::repeat_n(LONG, 5).chain(std::iter::repeat_n(100, 600)) {
        let mut job = long(world, bytes);
        job.keys = keys(&[("tenant", "v")]);
        ids.push(world.add(job));
    }
    let mut taken = Vec::new();
    while taken.len() < ids.len() {
        let left = u32::try_from(ids.len() - taken.len()).unwrap();
        let claims = world.claims_by(hand.claimant(), world.all_classes(), left).unwrap();
        let bytes: usize = claims.jobs.iter().map(Claimed::bytes).sum();
        assert!(!claims.jobs.is_empty() && bytes < CLAIM_BYTES_MAX + LONG, "{bytes} bytes");
        taken.extend(claims.jobs.iter().map(|job| job.job.id));
    }
    assert_eq!(taken, ids);
}

/// Its details are searched by the store, and are not what went wrong.
fn page_of_an_error_counts_no_job_that_does_not_have_it<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let padding = "foo ".repeat(15_000);
    let mut ids = Vec::new();
    for nth in 0..50 {
        let mut job = world.job();
        job.rules = rules(1);
        let id = world.add(job);
        let claimed = world.run(hand);
        let error = if nth < 30 {
            ids.push(id);
            r#"{"type":"e","message":"foo"}"#.to_owned()
        } else {
            format!(r#"{{"type":"e","message":"bar","details":{{"text":"{padding}"}}}}"#)
        };
        let detail = EndDetail { error: Some(error), ..EndDetail::default() };
        let (fence, reported) = (hand.fence(claimed.epoch), failed());
        let finish = Finish { job: id, fence, reported, detail, by: "test".into() };
        world.moved(Command::Finish(Box::new(finish))).unwrap();
    }
    ids.reverse();
    let mut query = JobQuery::all(Page { limit: 100, cursor: None });
    query.error = Some("foo".into());
    let page = world.ask(world.store().jobs(query));
    let found: Vec<_> = page.jobs.iter().map(|job| job.job.id).collect();
    assert_eq!((found, page.next), (ids, None));
}

fn fetch_ends_at_its_bytes_and_the_next_one_goes_on<H: Harness>(world: &mut World<'_, H>) {
    let ids = more_than_a_claim(world, None);
    let mut taken = Vec::new();
    while taken.len() < ids.len() {
        let left = ids.len() - taken.len();
        let visibility = Span::from_secs(60);
        let claimant = Claimant::Plain { worker: Some("w".into()), visibility };
        let from = ClaimFrom::Queues { queues: vec!["default".into()], tenant: None };
        let claims = world.claims_by(claimant, from, u32::try_from(left).unwrap()).unwrap();
        assert!(!claims.jobs.is_empty());
        taken.extend(checked(&claims, left));
    }
    assert_eq!(taken, ids);
}

fn claims_of_one_batch_are_each_cut_and_the_jobs_go_to_the_first<H: Harness>(
    world: &mut World<'_, H>,
) {
    let hands = [world.worker(), world.worker()];
    let ids = more_than_a_claim(world, None);
    let from = world.all_classes();
    let claim = |hand: Hand| {
        Command::Claim(Claim {
            claimant: hand.claimant(),
            from: from.clone(),
            max: NonZeroU32::new(1_000).unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        })
    };
    let replies = world.apply(hands.map(claim).into()).replies;
    let mut taken = Vec::new();
    for reply in replies {
        let Reply::Claimed(Ok(claims)) = reply else { panic!("not a claim's reply: {reply:?}") };
        assert!(claims.cut || taken.len() + claims.jobs.len() == ids.len());
        taken.extend(claims.jobs.iter().map(|job| job.job.id));
    }
    assert_eq!(taken, ids[..taken.len()]);
    for (hand, rest) in hands.into_iter().zip([&ids[taken.len()..], &[]]) {
        claim_all(world, hand, rest);
    }
    let none = world.claims_by(hands[1].claimant(), world.all_classes(), 5).unwrap();
    assert_eq!(none.jobs, []);
}

fn claim_counts_checkpoints<H: Harness>(world: &mut World<'_, H>) {
    let hand = world.worker();
    let count = CLAIM_BYTES_MAX / CHECKPOINT_BYTES_MAX + 3;
    for _ in 0..count {
        let mut job = world.job();
        job.rules = rules(100);
        world.add(job);
    }
    let claimed = world.claim(hand, 100);
    assert_eq!(claimed.len(), count);
    for claimed in &claimed {
        let checkpoint = Some(vec![1; CHECKPOINT_BYTES_MAX]);
        let detail = EndDetail { checkpoint, ..EndDetail::default() };
        let (fence, reported) = (hand.fence(claimed.epoch), ReportedOutcome::Interrupted);
        let finish = Finish { job: claimed.job.id, fence, reported, detail, by: "test".into() };
        world.moved(Command::Finish(Box::new(finish))).unwrap();
    }
    let again = world.claims_by(hand.claimant(), world.all_classes(), 100).unwrap();
    assert_eq!((again.jobs.len(), again.cut), (count - 3, true));
    let whole = |job: &Claimed| job.checkpoint.as_ref().map(Vec::len) == Some(CHECKPOINT_BYTES_MAX);
    assert!(again.jobs.iter().all(whole));
    let rest = world.claims_by(hand.claimant(), world.all_classes(), 3).unwrap();
    assert_eq!((rest.jobs.len(), rest.cut), (3, false));
    assert!(rest.jobs.iter().all(whole));
}

/// A read once took 500 batches, whatever their length; [`outlast_store_rules::cursor::Reading`] checks that no
/// window is longer than it may be.
fn events_of_long_batches_are_all_read<H: Harness>(world: &mut World<'_, H>) {
    let evidence = "e".repeat(4_000);
    let mut ids = Vec::new();
    for _ in 0..6 {
        let jobs: Vec<NewJob> = (0..200).map(|_| world.job()).collect();
        ids.extend(jobs.iter().map(|job| job.id));
        let by = |job: NewJob| NewJob { by: evidence.clone(), ..job };
        world.apply(vec![Command::EnqueueAll(jobs.into_iter().map(by).collect())]);
    }
    let mut query = EventQuery::all(90);
    let mut read = Vec::new();
    loop {
        let page = world.ask(world.store().events(query.clone()));
        read.extend(page.events.iter().filter_map(|(_, event)| event.job));
        if query.after.as_ref() == Some(&page.next) {
            break;
        }
        query.after = Some(page.next);
    }
    assert_eq!(read, ids);
}

/// A few long retries before others took all that such a claim may take: it got nothing, though there
/// were jobs for it, and was repeated at once.
fn jobs_that_a_claim_avoids_use_up_none_of_its_bytes<H: Harness>(world: &mut World<'_, H>) {
    for limits in [vec![], vec![per_queue(20)], vec![per_tenant(20)]] {
        limits.into_iter().for_each(|limit| world.limit(limit));
        let (one, other) = (world.worker(), world.worker());
        let avoided: Vec<JobId> = (0..6).map(|_| of_tenant(world, CLAIM_BYTES_MAX / 5)).collect();
        let rest: Vec<JobId> = (0..3).map(|_| of_tenant(world, 10)).collect();
        let claim = |world: &World<'_, H>, hand: Hand, max: u32, avoids: &[JobId]| {
            Command::Claim(Claim {
                claimant: hand.claimant(),
                from: world.all_classes(),
                max: NonZeroU32::new(max).unwrap(),
                is_prefetch: false,
                avoids: avoids.to_vec(),
                asked: AskedByQueues::default(),
            })
        };
        let commands = vec![claim(world, one, 9, &avoided), claim(world, other, 1, &[])];
        let replies = world.apply(commands).replies;
        let [Reply::Claimed(Ok(first)), Reply::Claimed(Ok(second))] = &replies[..] else {
            panic!("{replies:?}")
        };
        let ids = |claims: &Claims| claims.jobs.iter().map(|it| it.job.id).collect::<Vec<_>>();
        assert_eq!((ids(first), ids(second)), (rest, vec![avoided[0]]));
        assert_eq!((first.cut, first.passed_over.len()), (false, 1));
        let mut held: Vec<_> = first.jobs.iter().map(|it| (one, it.clone())).collect();
        held.extend(second.jobs.iter().map(|it| (other, it.clone())));
        while held.len() < 9 {
            let more = world.claim(other, 9);
            assert!(!more.is_empty(), "{} held", held.len());
            held.extend(more.into_iter().map(|it| (other, it)));
        }
        for (hand, it) in held {
            world.finish(&it, hand, ReportedOutcome::Completed).unwrap();
        }
        world.check_gates();
    }
}

fn of_tenant<H: Harness>(world: &mut World<'_, H>, bytes: usize) -> JobId {
    let job = long(world, bytes);
    world.add(NewJob { keys: keys(&[("tenant", "a")]), ..job })
}
