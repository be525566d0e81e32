//! Classes without jobs are deleted, while other servers know them and store jobs in them.

use outlast_cluster::Database;
use outlast_core::id::Epoch;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    JobAction, LeadershipFence, LeadershipRequest, NewJob, Prune, RETENTION,
};
use outlast_store::reply::Pruned;
use outlast_store::{Command, Reply, Store as _};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, job, number, order, run, sql};

fn of(queue: &str) -> NewJob {
    let mut job = job();
    job.class.queue = queue.into();
    job
}

async fn prune(server: &Server) -> Pruned {
    let (name, holder) = (RETENTION.to_owned(), server.id);
    let hold = Some(Span::from_secs(60));
    let leadership = match server
        .one(Command::Leadership(LeadershipRequest { name: name.clone(), holder, hold }))
        .await
    {
        Reply::Leadership(Ok(leadership)) => {
            LeadershipFence { name, holder, epoch: Epoch(leadership.epoch.0) }
        }
        other => panic!("another server leads: {other:?}"),
    };
    let all = Timestamp(i64::MAX);
    let (finished_before, workers_before, limit) = (all, all, 1_000);
    let prune = Prune { leadership, finished_before, workers_before, limit, from_start: true };
    match server.one(Command::Prune(prune)).await {
        Reply::Pruned(Ok(pruned)) => pruned,
        other => panic!("not a prune's reply: {other:?}"),
    }
}

/// Has a server know a class of which no job is left; returns the class's number.
async fn emptied(server: &Server, pruner: &Server, queue: &str) -> i64 {
    // The latest class stays.
    let later = format!("after-{queue}");
    let stored = server.apply(vec![enqueue(of(queue)), enqueue(of(&later))]).await;
    let [Reply::Enqueued(Ok(first)), Reply::Enqueued(Ok(_))] = stored.as_slice() else {
        panic!("{stored:?}")
    };
    server.one(Command::Order(order(JobAction::Cancel, first.id))).await;
    assert_eq!(prune(pruner).await.jobs, 1);
    first.class.0
}

async fn numbers(server: &Server, queue: &str) -> Vec<i64> {
    let tally = server.store.tally().await.unwrap();
    tally.iter().filter(|class| class.key.queue == queue).map(|class| class.id.0).collect()
}

/// Checks that every job has its class, and nothing is left of those that are gone.
async fn check_classes(client: &Client) {
    for (table, column) in [("job_row", "class"), ("ready", "class"), ("class_block", "class")] {
        let lost = format!(
            "select count(*) from {table} t where not exists
                 (select 1 from class c where c.id = t.{column})"
        );
        assert_eq!(number(client, &lost).await, 0, "rows of {table} without their class");
    }
    check_places(client).await;
}

/// A prune that deletes the last jobs of a block may be too early to leave it.
#[test]
fn blocks_without_jobs_are_left_by_a_later_prune() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        for _ in 0..3 {
            let Reply::Enqueued(Ok(stored)) = server.one(enqueue(of("mail"))).await else {
                panic!()
            };
            server.one(Command::Order(order(JobAction::Cancel, stored.id))).await;
            client
                .batch_execute("select setval('job_seq', nextval('job_seq') + 4096)")
                .await
                .unwrap();
        }
        let kept = server.one(enqueue(of("mail"))).await;
        assert_eq!(prune(&server).await.jobs, 3);
        let blocks = "select count(*) from class_block";
        assert_eq!(number(&client, blocks).await, 4);
        client
            .batch_execute("select setval('job_seq', nextval('job_seq') + 1024 * 300)")
            .await
            .unwrap();
        prune(&server).await;
        assert_eq!(number(&client, blocks).await, 1, "{kept:?}");
    });
}

#[test]
fn class_that_was_deleted_is_made_anew_by_a_server_that_still_knows_it() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let gone = emptied(&b, &a, "invented").await;
        // A server that only reads jobs, and one that moves one, know it too.
        assert_eq!(prune(&a).await.classes, 1);
        assert_eq!(numbers(&a, "invented").await, [0_i64; 0]);
        let stored = b.one(enqueue(of("invented"))).await;
        let Reply::Enqueued(Ok(stored)) = stored else { panic!("{stored:?}") };
        assert!(stored.class.0 > gone, "{stored:?}");
        assert_eq!(numbers(&a, "invented").await, [stored.class.0]);
        check_classes(&sql(&database.url).await).await;
    });
}

#[test]
fn prune_and_enqueue_at_once_leave_no_job_without_its_class() {
    const ROUNDS: u32 = 48;
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let client = sql(&database.url).await;
        let mut kept = 0_u32;
        for round in 0..ROUNDS {
            let queue = format!("invented-{round}");
            let began = Instant::now();
            emptied(&b, &a, &queue).await;
            // Some are early, some late, and some meet the prune.
            let late = began.elapsed().mul_f64(f64::from(round % 12) / 12.0);
            let storing = async {
                tokio::time::sleep(late).await;
                b.one(enqueue(of(&queue))).await
            };
            let (pruned, stored) = tokio::join!(prune(&a), storing);
            let Reply::Enqueued(Ok(stored)) = stored else { panic!("{stored:?}") };
            assert_eq!(numbers(&a, &queue).await, [stored.class.0], "round {round}");
            kept += u32::from(pruned.classes == 0);
        }
        assert!(0 < kept && kept < ROUNDS, "{kept} of {ROUNDS} classes were kept");
        check_classes(&client).await;
        assert_eq!(number(&client, "select count(*) from class").await, i64::from(2 * ROUNDS));
    });
}

#[test]
fn class_that_a_batch_is_entering_is_passed_over() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let class = emptied(&b, &a, "invented").await;
        for entering in [
            // A server that has counted jobs of it before, and one that has not.
            "update tally_slot set available = available where class = $1 and server = $2",
            "insert into tally_slot select $2, 999, $1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
        ] {
            let mut client = sql(&database.url).await;
            let entered = client.transaction().await.unwrap();
            assert_eq!(entered.execute(entering, &[&class, &b.id]).await.unwrap(), 1);
            assert_eq!(prune(&a).await.classes, 0, "{entering}");
            entered.rollback().await.unwrap();
        }
        assert_eq!(prune(&a).await.classes, 1);
    });
}

#[test]
fn batch_that_meets_the_deletion_of_its_class_waits_for_it_and_makes_another() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let class = emptied(&b, &a, "invented").await;
        let mut client = sql(&database.url).await;
        let deleting = client.transaction().await.unwrap();
        for sql in [
            "select from class where id = $1 for update",
            "delete from tally where class = $1",
            "delete from tally_slot where class = $1",
            "delete from class_block where class = $1",
            "delete from class where id = $1",
        ] {
            deleting.execute(sql, &[&class]).await.unwrap();
        }
        let storing = tokio::spawn(async move { b.one(enqueue(of("invented"))).await });
        let watcher = sql(&database.url).await;
        let stuck = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'
                     and datname = current_database()";
        while number(&watcher, stuck).await == 0 {
            tokio::task::yield_now().await;
        }
        deleting.commit().await.unwrap();
        let stored = storing.await.unwrap();
        let Reply::Enqueued(Ok(stored)) = stored else { panic!("{stored:?}") };
        assert!(stored.class.0 > class, "{stored:?}");
        check_classes(&watcher).await;
    });
}
