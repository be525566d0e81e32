//! What needs a hand on the writer's own connection.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::budget::Budgets;
use outlast_core::id::JobId;
use outlast_core::job::Rules;
use outlast_core::keys::Keys;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, JobAction, JobOrder, NewJob, Payload, SetLimit,
    SetQueue,
};
use outlast_store::store::ManualClock;
use outlast_store::{BatchId, Command, Reply};
use outlast_store_testkit::job::plain_job;
use rusqlite::StatementStatus;
use uuid::Uuid;

use super::*;
use crate::connection::{Options, own};

fn owned(folder: &Path) -> Owned {
    let owned = own(&folder.join("outlast.db"), &Options::default()).unwrap();
    event_log::begin_lane(&owned.writer).unwrap();
    owned
}

fn batch(n: u64, payload_bytes: usize) -> Batch {
    let payload = Payload { args: "x".repeat(payload_bytes), ..Payload::default() };
    batch_of(n, vec![Command::Enqueue(Box::new(NewJob { payload, ..job(n) }))])
}

fn batch_of(n: u64, commands: Vec<Command>) -> Batch {
    let id = BatchId { server: Uuid::from_u128(1), n };
    Batch { id, jitter_seed: 0, budgets: Budgets::DEFAULT, commands }
}

fn job(n: u64) -> NewJob {
    plain_job(JobId(Uuid::from_u128(n.into())))
}

#[test]
fn batch_that_does_not_fit_on_the_disk_leaves_no_trace_and_the_next_goes_through() {
    let folder = tempfile::tempdir().unwrap();
    let owned = owned(folder.path());
    let pages: i64 = owned.writer.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    owned
        .writer
        .pragma_update_and_check(None, "max_page_count", pages + 10, |_row| Ok(()))
        .unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let (asks, thread) = start(owned, clock, Timestamp(0), ScanBudget::STANDARD).unwrap();
    let apply = |batch: Batch| {
        let (reply, answer) = oneshot::channel();
        asks.send(Request::Apply(batch.into(), reply)).unwrap();
        answer.blocking_recv().unwrap()
    };

    // The class is made by the batch that fails, and must be made again.
    let full = apply(batch(1, 1_000_000)).unwrap_err();
    assert!(matches!(full, StoreError::Full(_)), "{full}");
    apply(batch(2, 10)).unwrap();

    drop(asks);
    thread.join().unwrap();
    let db = Connection::open(folder.path().join("outlast.db")).unwrap();
    let found: (u32, u32) = db
        .query_row("select (select count(*) from job), (select count(*) from class)", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(found, (1, 1));
}

#[test]
fn statement_is_prepared_once_whatever_is_bound() {
    let folder = tempfile::tempdir().unwrap();
    let owned = owned(folder.path());
    let mut prepared = 0;
    for id in 0..3_u128 {
        // Taken from the cache each time, as the writer does.
        let mut select = owned
            .writer
            .prepare_cached(
                "select j.seq, a.epoch from job_row j left join active a on a.seq = j.seq
                 where j.id = ?",
            )
            .unwrap();
        assert!(select.query([id.to_be_bytes().as_slice()]).unwrap().next().unwrap().is_none());
        prepared += select.get_status(StatementStatus::RePrepare);
    }
    assert_eq!(prepared, 0);
}

thread_local! {
    static OPERATOR: std::cell::RefCell<Option<Connection>> = const { std::cell::RefCell::new(None) };
}

/// People run the SQL of the operations guide while the server runs.
#[test]
fn batch_waits_for_an_operators_transaction_also_when_it_reads_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut owned = owned(folder.path());
    let operator = Connection::open(folder.path().join("outlast.db")).unwrap();
    operator.execute_batch("begin immediate; insert into meta values ('note', 'x')").unwrap();
    OPERATOR.set(Some(operator));
    // The writer waits, and meanwhile the operator commits.
    let operator_commits =
        |_tries| OPERATOR.take().is_some_and(|operator| operator.execute_batch("commit").is_ok());
    owned.writer.busy_handler(Some(operator_commits)).unwrap();

    let mut batch = batch(1, 10);
    let order = JobOrder {
        job: JobId(Uuid::nil()),
        action: JobAction::Cancel,
        tenant: None,
        by: "test".into(),
        expected: None,
    };
    batch.commands.insert(0, Command::Order(order));
    let mut cache = Cache { classes: Classes::load(&owned.writer).unwrap(), ..Cache::default() };
    let applied = apply(&mut owned, &mut cache, &batch, Timestamp(1)).unwrap();
    assert!(matches!(applied.replies[1], Reply::Enqueued(Ok(_))), "{:?}", applied.replies);
}

/// A process that is just being started holds a copy of every open file for a moment.
#[test]
fn closed_store_is_free_though_a_child_still_has_its_lock_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let first = owned(folder.path());
    let childs_copy = first.lock.try_clone().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let (asks, thread) = start(first, clock, Timestamp(0), ScanBudget::STANDARD).unwrap();
    drop(asks);
    thread.join().unwrap();
    own(&folder.path().join("outlast.db"), &Options::default()).unwrap();
    drop(childs_copy);
}

/// The first job of a lane was once found by reading all jobs of its class.
#[test]
fn the_first_jobs_of_a_lane_are_found_without_reading_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let owned = owned(folder.path());
    let insert = "with recursive n(n) as (select 1 union all select n + 1 from n where n < 2000)
         insert into ready (class, rank, seq, epoch, life, failures, losses, interruptions, since, lane)
         select 1, 0, n, 0, 1, 0, 0, 0, 0, case when n > 1990 then 7 else 1 + n % 5 end from n";
    owned.writer.execute_batch(insert).unwrap();
    let mut select = owned.writer.prepare(claim::HEADS_OF_LANE).unwrap();
    let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(1);
    let found: Result<Vec<i64>, _> = select.query_map((1, 7, 3), read).unwrap().collect();
    assert_eq!(found.unwrap(), [1991, 1992, 1993]);
    let steps = select.get_status(StatementStatus::VmStep);
    assert!(steps < 200, "{steps} steps");
}

/// A claim of a lane whose first jobs had expired once read them again for each of them.
#[test]
fn expired_jobs_before_those_of_a_claim_are_read_once() {
    let steps = [500, 2_000].map(|expired| {
        let folder = tempfile::tempdir().unwrap();
        let mut owned = owned(folder.path());
        let keys = Keys::new([("tenant".into(), "a".into())].into()).unwrap();
        let name = LimitName::new("tenant").unwrap();
        let scope = Scope::Key("tenant".into());
        let limit = Limit { name, scope, concurrency: Some(1), rate: None };
        let order = SetLimit { limit, configured: false, by: String::new() };
        let jobs = (0..=expired).map(|n| {
            let expires_at = (n < expired).then_some(Timestamp(10));
            NewJob {
                keys: keys.clone(),
                rules: Rules { expires_at, ..Rules::standard() },
                ..job(n)
            }
        });
        let commands =
            vec![Command::SetLimit(Box::new(order)), Command::EnqueueAll(jobs.collect())];
        let mut cache =
            Cache { classes: Classes::load(&owned.writer).unwrap(), ..Cache::default() };
        apply(&mut owned, &mut cache, &batch_of(1, commands), Timestamp(1)).unwrap();

        let steps = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&steps);
        let step = move || {
            count.fetch_add(100, Ordering::Relaxed);
            false
        };
        owned.writer.progress_handler(100, Some(step)).unwrap();
        let claim = Command::Claim(Claim {
            claimant: Claimant::Plain { worker: None, visibility: Span(1_000) },
            from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
            max: NonZeroU32::new(1).unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        });
        let applied = apply(&mut owned, &mut cache, &batch_of(2, vec![claim]), Timestamp(20));
        let Reply::Claimed(Ok(claims)) = &applied.unwrap().replies[0] else { panic!("refused") };
        let id = JobId(Uuid::from_u128(expired.into()));
        assert_eq!(claims.jobs.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>(), [id]);
        steps.load(Ordering::Relaxed)
    });
    assert!(steps[1] < 5 * steps[0], "four times as many expired jobs: {steps:?} steps");
}

/// It once added up all classes of the queue, for each batch that stored a job in it.
#[test]
fn bounded_queue_is_counted_once_however_many_classes_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut owned = owned(folder.path());
    let mut cache = Cache { classes: Classes::load(&owned.writer).unwrap(), ..Cache::default() };
    let max_depth = Change::Set(30);
    let change = QueueChange { max_depth, ..QueueChange::default() };
    let order = SetQueue { queue: "default".into(), change, by: String::new() };
    let bound = batch_of(1, vec![Command::SetQueue(Box::new(order))]);
    apply(&mut owned, &mut cache, &bound, Timestamp(1)).unwrap();
    let counted = |owned: &Owned| {
        let select = owned.writer.prepare_cached(depth::WAITING).unwrap();
        select.get_status(StatementStatus::Run)
    };
    for n in 2..40 {
        let mut job = job(n);
        job.class.job_type = format!("type-{n}");
        let stored = batch_of(n, vec![Command::Enqueue(Box::new(job))]);
        let applied = apply(&mut owned, &mut cache, &stored, Timestamp(1)).unwrap();
        let is_stored = matches!(applied.replies.as_slice(), [Reply::Enqueued(Ok(_))]);
        assert_eq!(is_stored, n < 32, "{n}: {applied:?}");
    }
    assert_eq!(counted(&owned), 1);
    // One place becomes free.
    let order = JobOrder {
        action: JobAction::Cancel,
        job: JobId(Uuid::from_u128(5)),
        tenant: None,
        by: "test".into(),
        expected: None,
    };
    apply(&mut owned, &mut cache, &batch_of(40, vec![Command::Order(order)]), Timestamp(1))
        .unwrap();
    for n in 41..43 {
        let applied = apply(&mut owned, &mut cache, &batch(n, 1), Timestamp(1)).unwrap();
        let is_stored = matches!(applied.replies.as_slice(), [Reply::Enqueued(Ok(_))]);
        assert_eq!(is_stored, n == 41, "{n}: {applied:?}");
    }
    assert_eq!(counted(&owned), 1);
}
