//! Lists and counts when many connections write the same things.

use std::sync::atomic::{AtomicBool, Ordering};

use outlast_cluster::Database;
use outlast_core::job::State;
use outlast_store::command::{JobAction, ReportedOutcome};
use outlast_store::query::{JobQuery, Page};
use outlast_store::{Command, Reply, Store as _};

use crate::hand::{Server, check_tally, enqueue, finish, forget, job, number, order, run, sql};

/// Such a list once ended after the first block, as if there were no more.
#[test]
fn list_of_a_queue_is_whole_however_many_connections_stored_its_jobs() {
    let database = Database::new().unwrap();
    run(async {
        let (server, client) = (Server::open(&database.url).await, sql(&database.url).await);
        let mut wanted = Vec::new();
        for block in 1..=6 {
            let next = format!("select setval('job_seq', {})", block * 1_024 + 10);
            client.query_one(&next, &[]).await.unwrap();
            let mut ours = job();
            ours.class.queue = "ours".into();
            wanted.push(ours.id);
            server.one(enqueue(ours)).await;
            server.add(3).await;
        }
        let noted = "insert into class_block
            select b.class, b.block, w from class_block b, generate_series(1000001, 1000040) w";
        client.batch_execute(noted).await.unwrap();
        let query = JobQuery {
            queue: Some("ours".into()),
            ..JobQuery::all(Page { limit: 50, cursor: None })
        };
        let page = server.store.jobs(query).await.unwrap();
        let found: Vec<_> = page.jobs.iter().map(|job| job.job.id).collect();
        wanted.reverse();
        assert_eq!((found, page.next), (wanted, None));
    });
}

/// A job that went from one table to another while a page was read was once on none, and a change of
/// all jobs left it out.
#[test]
fn jobs_that_start_and_are_handed_back_meanwhile_are_on_the_list() {
    const JOBS: usize = 40;
    let database = Database::new().unwrap();
    run(async {
        let (server, other) =
            (Server::open(&database.url).await, Server::open(&database.url).await);
        let worker = other.worker().await;
        server.add(JOBS).await;
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let moving = {
            let is_over = std::sync::Arc::clone(&is_over);
            tokio::spawn(async move {
                let mut moved = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let claimed = other.claim(worker, 20).await;
                    moved += claimed.len();
                    let back = claimed
                        .into_iter()
                        .map(|it| finish(worker, it.job.id, it.epoch, ReportedOutcome::Requeued));
                    other.apply(back.collect()).await;
                }
                moved
            })
        };
        let query = JobQuery {
            states: vec![State::Available, State::Active, State::Retryable],
            ..JobQuery::all(Page { limit: 100, cursor: None })
        };
        for _ in 0..200 {
            assert_eq!(server.store.jobs(query.clone()).await.unwrap().jobs.len(), JOBS);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(moving.await.unwrap() > JOBS, "jobs moved");
    });
}

/// Makes every commit that deletes a dead letter wait until an advisory lock is free.
const WAITING_COMMIT: &str = "
    create function public.wait() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock_shared(77); return null; end $$;
    create constraint trigger wait after delete on dead_letter_row deferrable initially deferred
        for each row execute function public.wait()";

/// The letter was once counted as gone twice.
#[test]
fn dead_letter_that_is_deleted_while_its_job_is_retried_elsewhere_is_counted_once() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let worker = a.worker().await;
        a.add(1).await;
        let claimed = a.claim(worker, 1).await.remove(0);
        let hopeless = ReportedOutcome::Failed { error_type: "e".into(), retryable: false };
        a.one(finish(worker, claimed.job.id, claimed.epoch, hopeless)).await;
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        assert_eq!(number(&client, "select count(*) from dead_letter_row").await, 1);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let deleted = forget(claimed.job.id);
        let retried = order(JobAction::Replay, claimed.job.id);
        let deleting = tokio::spawn(async move { a.one(Command::ForgetDeadLetter(deleted)).await });
        let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory'";
        while number(&client, waits).await == 0 {}
        let retrying =
            tokio::spawn(async move { b.try_apply(vec![Command::Order(retried)]).await });
        // It waits for the row, or has been refused already since it waited for too long.
        let blocked = "select count(*) from pg_stat_activity
            where wait_event_type = 'Lock' and wait_event <> 'advisory'";
        while number(&client, blocked).await == 0 && !retrying.is_finished() {}
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        // On a busy machine its commit waits for longer than locks are waited for, and is tried again:
        // the other one may come first.
        assert!(matches!(deleting.await.unwrap(), Reply::Forgotten(_)));
        retrying.await.unwrap().unwrap();
        check_tally(&client).await;
    });
}
