//! A batch that only stores claimable jobs is one statement, and as safe as any other.

use std::sync::Arc;

use outlast_cluster::Database;
use outlast_core::budget::Budgets;
use outlast_core::keys::Keys;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::NewJob;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::store::ManualClock;
use outlast_store::{Batch, BatchId, Clock as _, Command, Reply, Store as _};
use outlast_store_postgres::Options;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

/// Opens a server with a clock of its own, so that no batch asks for the time.
async fn open(database: &Database) -> (Server, ManualClock) {
    let clock = ManualClock::at(Timestamp(1_800_000_000_000));
    let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(clock.clone())) };
    (Server::with(&database.url, &options).await, clock)
}

fn of_type(job_type: &str) -> NewJob {
    let mut job = job();
    job.class.job_type = job_type.into();
    job
}

/// It was six: each has a message and an answer of its own.
#[test]
fn batch_of_claimable_jobs_is_one_statement() {
    let database = Database::new().unwrap();
    run(async {
        let (server, clock) = open(&database).await;
        let both = || vec![enqueue(of_type("a")), enqueue(of_type("b")), enqueue(of_type("a"))];
        // The classes are made.
        assert!(server.statements_of(both()).await > 5);
        assert_eq!(server.statements_of(vec![enqueue(of_type("a"))]).await, 1);
        assert_eq!(server.statements_of(both()).await, 1);
        let several = (0..2_000).map(|n| of_type(if n % 2 == 0 { "a" } else { "b" })).collect();
        assert_eq!(server.statements_of(vec![Command::EnqueueAll(several)]).await, 1);
        // Opening and its answer, rows, counts with events, commit.
        let mut expiring = of_type("a");
        expiring.rules.expires_at = Some(clock.now().after(Span(60_000)));
        assert_eq!(server.statements_of(vec![enqueue(expiring)]).await, 5);
        let client = sql(&database.url).await;
        check_places(&client).await;
        let logged = "select count(*) from event where type = 'job.enqueued'";
        assert_eq!(number(&client, logged).await, 2_008);
        // They are numbered in the order in which they came.
        let order = "select count(*) from (
                 select lag(seq) over (order by b.n, e.i) as before, j.seq
                 from event_batch b, jsonb_array_elements(b.body::jsonb) with ordinality e(v, i)
                     join job_row j on j.id = (e.v ->> 'j')::uuid) x
             where before >= seq";
        assert_eq!(number(&client, order).await, 0);
    });
}

#[test]
fn batch_of_claimable_jobs_with_keys_is_one_statement_too() {
    let database = Database::new().unwrap();
    run(async {
        let (server, _clock) = open(&database).await;
        let keyed = |n: u32| {
            let keys = Keys::new([("tenant".to_owned(), n.to_string())].into()).unwrap();
            NewJob { keys, ..of_type("a") }
        };
        let both = || vec![enqueue(keyed(1)), enqueue(of_type("a"))];
        // The classes are made.
        assert!(server.statements_of(both()).await > 5);
        assert_eq!(server.statements_of(both()).await, 1);
        let several = (0..1_000).map(keyed).collect();
        assert_eq!(server.statements_of(vec![Command::EnqueueAll(several)]).await, 1);
        let client = sql(&database.url).await;
        check_places(&client).await;
        let stored = "select count(*) from ready r join job_row j using (seq)
            where r.lane = j.lane and j.keys::jsonb ->> 'tenant' is not null";
        assert_eq!(number(&client, stored).await, 1_002);
        let others = "select count(*) from ready r join job_row j using (seq)
            where r.lane = 0 and j.lane is null and j.keys is null";
        assert_eq!(number(&client, others).await, 2);
        let shown = "select count(*) from job where keys = '{\"tenant\":\"1\"}'";
        assert_eq!(number(&client, shown).await, 3);
    });
}

#[test]
fn jobs_that_are_stored_already_are_refused_and_the_others_are_stored_once() {
    let database = Database::new().unwrap();
    run(async {
        let (server, _clock) = open(&database).await;
        server.add(1).await;
        let known = job();
        server.one(enqueue(known.clone())).await;
        // The first is found out by PostgreSQL, the second here.
        let twice = job();
        for commands in [
            vec![enqueue(job()), enqueue(known.clone())],
            vec![enqueue(twice.clone()), enqueue(twice.clone())],
        ] {
            let refused = match &commands[1] {
                Command::Enqueue(job) => job.id,
                other => panic!("{other:?}"),
            };
            let replies = server.apply(commands).await;
            assert!(matches!(replies[0], Reply::Enqueued(Ok(_))), "{replies:?}");
            let expected = Reply::Enqueued(Err(EnqueueRefusal::DuplicateId(refused)));
            assert_eq!(replies[1], expected);
        }
        let client = sql(&database.url).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 4);
        check_places(&client).await;
        assert_eq!(server.statements_of(vec![enqueue(job())]).await, 1);
    });
}

/// The row that it changes first refuses a batch that comes a second time, and one of a server
/// whose lane of the event log was closed.
#[test]
fn batch_that_its_row_refuses_stores_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let (server, _clock) = open(&database).await;
        server.add(1).await;
        server.add(1).await;
        for n in [1, 2] {
            let again = Batch {
                id: BatchId { server: server.id, n },
                jitter_seed: 1,
                budgets: Budgets::DEFAULT,
                commands: vec![enqueue(job())],
            };
            assert!(server.store.apply(again.into()).await.is_err());
        }
        let client = sql(&database.url).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 2);
        client
            .batch_execute("select outlast.close_lanes(gen_random_uuid(), 9223372036854775807)")
            .await
            .unwrap();
        server.add(1).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 3);
        let lanes = "select count(distinct lane) from event_batch";
        assert_eq!(number(&client, lanes).await, 2, "a new lane");
        assert_eq!(server.statements_of(vec![enqueue(job())]).await, 1);
        check_places(&client).await;
    });
}
