//! The numbers of queues, whatever classes these have.

use outlast_cluster::Database;
use outlast_core::job::State;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{LeadershipFence, LeadershipRequest, NewJob, RETENTION};
use outlast_store::partitions::Maintain;
use outlast_store::{Command, Reply, Store as _};
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};
use crate::snapshots::{end_connections, pages_read, tend_no_longer};

const QUEUES: usize = 20;
const TYPES: usize = 400;

/// Tables that are about queues, classes and claimable jobs.
const READ: [&str; 9] = [
    "class",
    "queue",
    "tally",
    "tally_slot",
    "queue_tally",
    "ready_second",
    "ready_second_slot",
    "ready",
    "server_batch",
];

fn of_type(queue: &str, n: usize) -> NewJob {
    let mut job = job();
    job.class.queue = queue.into();
    job.class.job_type = format!("type-{n}");
    job
}

/// Ends all slots, as if all servers had been silent for long.
async fn end_slots(client: &Client) {
    let end = format!("select outlast.close_lanes(gen_random_uuid(), {})", i64::MAX);
    client.batch_execute(&end).await.unwrap();
}

/// Returns how many pages the numbers of all queues and of one take.
async fn pages(server: &Server, client: &Client) -> [i64; 2] {
    end_slots(client).await;
    client.batch_execute("vacuum analyze").await.unwrap();
    tend_no_longer(client, &READ).await;
    // What a connection reads first is not counted.
    server.store.queues().await.unwrap();
    end_connections(client).await;
    let before = pages_read(client, &READ).await;
    let all = server.store.queues().await.unwrap();
    assert_eq!(all.len(), QUEUES);
    assert!(all.iter().all(|queue| queue.available > 0 && queue.oldest_available.is_some()));
    end_connections(client).await;
    let between = pages_read(client, &READ).await;
    server.store.queue("queue-7".into()).await.unwrap().unwrap();
    end_connections(client).await;
    [between - before, pages_read(client, &READ).await - between]
}

async fn store(server: &Server, types: std::ops::Range<usize>) {
    for types in types.collect::<Vec<_>>().chunks(25) {
        let of = |queue| types.iter().map(move |n| of_type(&format!("queue-{queue}"), *n));
        server.one(Command::EnqueueAll((0..QUEUES).flat_map(of).collect())).await;
    }
}

#[test]
fn numbers_of_queues_cost_the_same_however_many_classes_they_have() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        store(&server, 0..1).await;
        let [all_of_few, one_of_few] = pages(&server, &client).await;
        store(&server, 1..TYPES).await;
        let [all, one] = pages(&server, &client).await;
        println!("all queues: {all_of_few} and {all} pages; one: {one_of_few} and {one} pages");
        // The index of classes is one level deeper, and their jobs came in some more seconds.
        assert!(
            all <= 3 * all_of_few,
            "{all} pages for all queues, {all_of_few} with a class each"
        );
        assert!(one <= 3 * one_of_few, "{one} pages for one queue, {one_of_few} with a class");
        check_places(&client).await;
    });
}

/// A reader adds up what the slots under way have changed, and no more than that.
#[test]
fn slots_under_way_are_counted_and_bounded() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        store(&server, 0..TYPES).await;
        let most = "select count(*) from tally_slot";
        assert!(number(&client, most).await <= 2048 + 500, "counts of a slot under way");
        let all = server.store.queues().await.unwrap();
        assert!(all.iter().all(|queue| queue.available == TYPES as u64), "{all:?}");
        let counts = server.store.counts_of("queue-3".into(), None).await.unwrap();
        assert_eq!(counts.state(State::Available), TYPES as u64);
        check_places(&client).await;
    });
}

#[test]
fn seconds_from_which_no_job_waits_any_more_are_deleted_with_the_slot() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        let worker = server.worker().await;
        server.add(3).await;
        end_slots(&client).await;
        let seconds = "select count(*) from ready_second where second >= 0";
        assert_eq!(number(&client, seconds).await, 1);
        server.claim(worker, 3).await;
        end_slots(&client).await;
        assert_eq!(number(&client, "select count(*) from ready_second").await, 0);
        check_places(&client).await;
    });
}

async fn maintain(server: &Server) {
    let (name, holder) = (RETENTION.to_owned(), server.id);
    let hold = Some(Span::from_secs(60));
    let ask = LeadershipRequest { name: name.clone(), holder, hold };
    let Reply::Leadership(Ok(led)) = server.one(Command::Leadership(ask)).await else {
        panic!("not the leader");
    };
    let leadership = LeadershipFence { name, holder, epoch: led.epoch };
    let order = Maintain { leadership, finished_before: Timestamp(1), limit: 100 };
    server.store.maintain(order).await.unwrap().unwrap();
}

/// As after two jobs, of which a server of the build before stored one and claimed the other: the
/// sums agree.
#[test]
fn seconds_are_counted_again_though_their_sum_is_right() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        server.one(enqueue(job())).await;
        server.one(enqueue(job())).await;
        end_slots(&client).await;
        let wrong = "insert into ready_second select queue, v.second, server, v.jobs
             from ready_second, (values (5::bigint, 1), (6::bigint, -1)) v(second, jobs)
             where ready_second.second = -1";
        client.batch_execute(wrong).await.unwrap();
        maintain(&server).await;
        let left = "select count(*) from ready_second where second in (5, 6)";
        assert_eq!(number(&client, left).await, 0);
        check_places(&client).await;
        server.store.close().await.unwrap();
    });
}

/// As a server of the build before does, which claims a job and does not count it by second.
#[test]
fn oldest_job_is_right_though_seconds_are_wrong_until_they_are_counted_again() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        server.one(enqueue(job())).await;
        end_slots(&client).await;
        let before = "insert into ready_second select queue, v.second, server, 1
             from ready_second, (values (5::bigint), (-1::bigint)) v(second) where ready_second.second >= 0
             on conflict (queue, second, server) do update set jobs = ready_second.jobs + 1";
        client.batch_execute(before).await.unwrap();
        let first = number(&client, "select min(since) from ready").await;
        let oldest = |queue: outlast_store::query::QueueStats| queue.oldest_available.unwrap();
        let second = Timestamp(first / 1000 * 1000);
        let all = server.store.queues().await.unwrap();
        assert_eq!(oldest(all[0].clone()), second);
        let one = server.store.queue("default".into()).await.unwrap().unwrap();
        assert_eq!(oldest(one), second);

        maintain(&server).await;
        assert_eq!(number(&client, "select count(*) from ready_second where second = 5").await, 0);
        check_places(&client).await;
        server.store.close().await.unwrap();
    });
}
