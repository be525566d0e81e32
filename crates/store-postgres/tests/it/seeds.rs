//! The SQL that the seed documents show runs exactly as written there.

use std::sync::Arc;

use outlast_cluster::Database;
use outlast_core::time::Timestamp;
use outlast_store::command::{JobAction, ReportedOutcome};
use outlast_store::store::ManualClock;
use outlast_store::{Command, Store as _};
use outlast_store_postgres::Options;

use crate::hand::{Server, check_places, finish, goodbye, number, order, run, sql};

const ACTIVE_WORKERS: &str = "SELECT name, worker_role, status, last_heartbeat
FROM worker
WHERE status = 'active'
ORDER BY last_heartbeat DESC;";

const RECENT_DEACTIVATIONS: &str = "SELECT name, worker_role, status, last_heartbeat, updated
FROM worker
WHERE status = 'inactive'
AND updated > NOW() - INTERVAL '5 minutes'
ORDER BY updated DESC;";

const COUNT_BY_STATUS: &str = "SELECT status, COUNT(*)
FROM worker
GROUP BY status;";

const DELETE_OLD: &str = "DELETE FROM worker
WHERE status = 'inactive'
AND updated < NOW() - INTERVAL '7 days';";

#[test]
fn workers_are_listed_counted_and_cleaned_up_by_the_seeds_queries() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let here = server.worker().await;
        let gone = server.worker().await;
        server.one(goodbye(gone)).await;
        // One that has been gone for eight days.
        let now = server.store.now().await.unwrap();
        let clock = ManualClock::at(Timestamp(now.0 - 8 * 24 * 3600 * 1000));
        let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(clock)) };
        let before = Server::with(&database.url, &options).await;
        let old = before.worker().await;
        // It had work: one attempt that ended, one that was given back when it went.
        before.add(2).await;
        let claimed = before.claim(old, 2).await;
        let (ended, given_back) = (&claimed[0], claimed[1].job.id);
        before.one(finish(old, ended.job.id, ended.epoch, ReportedOutcome::Completed)).await;
        before.one(goodbye(old)).await;

        let client = sql(&database.url).await;
        let rows = client.query(ACTIVE_WORKERS, &[]).await.unwrap();
        let words = |at: usize| rows[0].get::<_, String>(at);
        assert_eq!(rows.len(), 1);
        assert_eq!([words(0), words(1), words(2)], ["shell-1", "action", "active"]);
        let rows = client.query(RECENT_DEACTIVATIONS, &[]).await.unwrap();
        assert_eq!(rows.len(), 1);
        let mut counts: Vec<(String, i64)> = client
            .query(COUNT_BY_STATUS, &[])
            .await
            .unwrap()
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect();
        counts.sort();
        assert_eq!(counts, [("active".to_owned(), 1), ("inactive".to_owned(), 2)]);
        assert_eq!(client.execute(DELETE_OLD, &[]).await.unwrap(), 1);
        let left = server.store.workers().await.unwrap();
        let mut left: Vec<_> = left.iter().map(|row| row.id).collect();
        left.sort();
        assert_eq!(left, [here, gone]);
        // What it did is still told, and what it had goes on.
        for claimed in &claimed {
            let attempts = server.store.attempts(claimed.job.id).await.unwrap();
            assert_eq!(attempts[0].worker, Some(old), "{attempts:?}");
        }
        let again = server.claim(here, 2).await;
        assert_eq!(again.iter().map(|it| it.job.id).collect::<Vec<_>>(), [given_back]);
        check_places(&client).await;
    });
}

#[test]
fn views_that_people_query_show_jobs_attempts_events_and_dead_letters() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let jobs = server.add(4).await;
        let claimed = server.claim(worker, 2).await;
        let dead = ReportedOutcome::Failed { error_type: "no such file".into(), retryable: false };
        let (first, second) = (&claimed[0], &claimed[1]);
        server.one(finish(worker, first.job.id, first.epoch, ReportedOutcome::Completed)).await;
        server.one(finish(worker, second.job.id, second.epoch, dead)).await;
        server.one(Command::Order(order(JobAction::Cancel, jobs[2]))).await;

        let client = sql(&database.url).await;
        let rows = client
            .query("select state, count(*), min(queue), min(type) from job group by 1", &[])
            .await
            .unwrap();
        let mut states: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        states.sort();
        assert_eq!(states, ["available", "cancelled", "completed", "discarded"]);
        let attempts =
            "select count(*) from attempt where finished >= claimed and worker is not null";
        assert_eq!(number(&client, attempts).await, 2);
        let letter = client
            .query_one("select job, queue, type, reason, at from dead_letter", &[])
            .await
            .unwrap();
        assert_eq!(letter.get::<_, uuid::Uuid>(0), second.job.id.0);
        let enqueued = "select count(distinct job) from event where type = 'job.enqueued'
                        and at > now() - interval '5 minutes'";
        assert_eq!(number(&client, enqueued).await, 4);
    });
}
