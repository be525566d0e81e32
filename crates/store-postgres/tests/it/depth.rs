//! Bounded queues in which several servers store jobs at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::job::State;
use outlast_core::queue::{Change, QueueChange};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, LeadershipFence, LeadershipRequest, NewJob, Prune,
    RETENTION, ReportedOutcome, SetQueue,
};
use outlast_store::reply::EnqueueRefusal;
use outlast_store::{Command, Reply, Store as _};

use crate::hand::{Server, check_places, enqueue, finish, job, number, run, sql};
use crate::snapshots::{end_connections, pages_read, tend_no_longer};

/// Jobs that wait, as one look sees all of them.
const WAITING: &str = "select (select count(*) from ready) + (select count(*) from waiting)";

fn bound(queue: &str, max: u32) -> Command {
    let change = QueueChange { max_depth: Change::Set(max), ..QueueChange::default() };
    Command::SetQueue(Box::new(SetQueue { queue: queue.into(), change, by: "operator".into() }))
}

fn in_queue(queue: &str) -> NewJob {
    let mut job = job();
    job.class.queue = queue.into();
    job
}

/// Sends jobs in batches of a few requests; returns how many were stored, and how full the queue
/// was whenever one was refused.
async fn produce(server: &Server, batches: usize) -> (usize, Vec<u64>) {
    let (mut stored, mut full) = (0, Vec::new());
    for _ in 0..batches {
        let batch = vec![enqueue(job()), enqueue(in_queue("other")), enqueue(job())];
        let replies = server.apply(batch).await;
        assert!(matches!(replies[1], Reply::Enqueued(Ok(_))), "{replies:?}");
        for reply in [&replies[0], &replies[2]] {
            match reply {
                Reply::Enqueued(Ok(_)) => stored += 1,
                Reply::Enqueued(Err(EnqueueRefusal::QueueFull { depth, more: 1, .. })) => {
                    full.push(depth.jobs);
                }
                other => panic!("not an enqueue's reply: {other:?}"),
            }
        }
    }
    (stored, full)
}

#[test]
fn several_servers_fill_a_queue_to_its_bound_and_not_further() {
    const SERVERS: usize = 4;
    const BATCHES: usize = 25;
    const BOUND: usize = 70;
    let database = Database::new().unwrap();
    run(async {
        let operator = Server::open(&database.url).await;
        operator.one(bound("default", u32::try_from(BOUND).unwrap())).await;
        let mut tasks = Vec::new();
        for _ in 0..SERVERS {
            let server = Server::open(&database.url).await;
            tasks.push(tokio::spawn(async move { produce(&server, BATCHES).await }));
        }
        let (mut stored, mut full) = (0, Vec::new());
        for task in tasks {
            let (more, refused) = task.await.unwrap();
            stored += more;
            full.extend(refused);
        }
        assert_eq!((stored, full.len()), (BOUND, SERVERS * BATCHES * 2 - BOUND));
        // None was refused while there was room.
        assert!(full.iter().all(|jobs| *jobs == 70), "{full:?}");
        let client = sql(&database.url).await;
        let of_queue = "select count(*) from ready r join class c on c.id = r.class
             where c.queue = 'default'";
        assert_eq!(number(&client, of_queue).await, 70);
        check_places(&client).await;
    });
}

/// Claims jobs of the queue and ends them, until `stop` is set; returns how many.
async fn consume(server: &Server, stop: &AtomicBool) -> usize {
    let worker = server.worker().await;
    let mut ended = 0;
    while !stop.load(Ordering::Relaxed) {
        let claim = Claim {
            claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(60) },
            from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
            max: 7.try_into().unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        let Reply::Claimed(Ok(claims)) = server.one(Command::Claim(claim)).await else {
            panic!("not a claim's reply");
        };
        let finishes = claims.jobs.iter().map(|claimed| {
            let mut report =
                finish(worker, claimed.job.id, claimed.epoch, ReportedOutcome::Completed);
            if let Command::Finish(report) = &mut report {
                report.fence.worker = None;
            }
            report
        });
        ended += claims.jobs.len();
        server.apply(finishes.collect()).await;
    }
    ended
}

#[test]
fn queue_is_never_over_its_bound_while_jobs_come_and_go() {
    const BOUND: i64 = 20;
    let database = Database::new().unwrap();
    run(async {
        let operator = Server::open(&database.url).await;
        operator.one(bound("default", u32::try_from(BOUND).unwrap())).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut producers = Vec::new();
        for _ in 0..3 {
            let server = Server::open(&database.url).await;
            producers.push(tokio::spawn(async move { produce(&server, 80).await }));
        }
        let (server, until) = (Server::open(&database.url).await, Arc::clone(&stop));
        let consumer = tokio::spawn(async move { consume(&server, &until).await });
        let client = sql(&database.url).await;
        let of_queue = "select count(*) from ready r join class c on c.id = r.class
             where c.queue = 'default'";
        while !producers.iter().all(tokio::task::JoinHandle::is_finished) {
            let jobs = number(&client, of_queue).await;
            assert!(jobs <= BOUND, "{jobs} jobs wait");
        }
        let (mut stored, mut refused) = (0, 0);
        for producer in producers {
            let (more, full) = producer.await.unwrap();
            assert!(full.iter().all(|jobs| *jobs == 20), "refused while there was room: {full:?}");
            stored += more;
            refused += full.len();
        }
        stop.store(true, Ordering::Relaxed);
        let ended = consumer.await.unwrap();
        assert_eq!(stored + refused, 3 * 80 * 2);
        let left = usize::try_from(number(&client, of_queue).await).unwrap();
        assert_eq!(ended + left, stored, "each is somewhere");
        check_places(&client).await;
    });
}

/// Servers that store jobs, one of which has just begun, know of a bound from when it is set.
#[test]
fn bound_holds_from_when_it_is_set_on_every_server() {
    let database = Database::new().unwrap();
    run(async {
        let operator = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        for round in 0..6_u32 {
            let stop = Arc::new(AtomicBool::new(false));
            let queue = format!("q{round}");
            let mut producers = Vec::new();
            for late in [false, false, true] {
                let (url, stop, queue) = (database.url.clone(), Arc::clone(&stop), queue.clone());
                let server = if late { None } else { Some(Server::open(&url).await) };
                producers.push(tokio::spawn(async move {
                    let server = match server {
                        Some(server) => server,
                        None => Server::open(&url).await,
                    };
                    while !stop.load(Ordering::Relaxed) {
                        server.one(enqueue(in_queue(&queue))).await;
                    }
                }));
            }
            let of_queue = format!(
                "select count(*) from ready r join class c on c.id = r.class where c.queue = '{queue}'"
            );
            while number(&client, &of_queue).await < 20 * i64::from(round) {
                tokio::task::yield_now().await;
            }
            // Below what is there: nothing more is stored.
            operator.one(bound(&queue, 1)).await;
            let at_once = number(&client, &of_queue).await;
            for _ in 0..20 {
                operator.one(enqueue(in_queue("other"))).await;
            }
            stop.store(true, Ordering::Relaxed);
            for producer in producers {
                producer.await.unwrap();
            }
            // If there was none yet, there is one now.
            assert_eq!(number(&client, &of_queue).await, at_once.max(1), "round {round}");
        }
    });
}

#[test]
fn bound_waits_for_batches_that_are_under_way() {
    let database = Database::new().unwrap();
    run(async {
        let other = Server::open(&database.url).await;
        other.one(enqueue(job())).await;
        let client = sql(&database.url).await;
        // As a batch of the other server does.
        let begun = format!("begin; update batch_slot set n = n where server = '{}'", other.id);
        client.batch_execute(&begun).await.unwrap();
        let url = database.url.clone();
        let setting = tokio::spawn(async move {
            let operator = Server::open(&url).await;
            operator.one(bound("default", 1)).await
        });
        let watcher = sql(&database.url).await;
        let waits = "select count(*) from pg_stat_activity
             where wait_event_type = 'Lock' and query like '%for update of s%'";
        while number(&watcher, waits).await == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!setting.is_finished());
        let settings = "select count(*) from queue where settings like '%max_depth%'";
        assert_eq!(number(&watcher, settings).await, 0);
        client.batch_execute("commit").await.unwrap();
        assert!(matches!(setting.await.unwrap(), Reply::QueueSet(Ok(_))));
        let refused = other.one(enqueue(job())).await;
        assert!(
            matches!(refused, Reply::Enqueued(Err(EnqueueRefusal::QueueFull { .. }))),
            "{refused:?}"
        );
    });
}

#[test]
fn queues_without_a_bound_pay_nothing_for_those_that_have_one() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_clock(&database.url).await;
        server.one(bound("default", 1000)).await;
        server.one(enqueue(in_queue("other"))).await;
        assert_eq!(server.statements_of(vec![enqueue(in_queue("other"))]).await, 1);
        server.one(enqueue(job())).await;
        // Opening and its answer; the queue's row, its jobs, known ids; rows, counts, commit.
        assert_eq!(server.statements_of(vec![enqueue(job())]).await, 8);
    });
}

#[test]
fn server_that_was_forgotten_asks_again() {
    let database = Database::new().unwrap();
    run(async {
        let (server, operator) =
            (Server::open(&database.url).await, Server::open(&database.url).await);
        server.one(enqueue(job())).await;
        let client = sql(&database.url).await;
        // As a prune does a day after the last batch of a server.
        let forget = format!(
            "select outlast.close_lanes(gen_random_uuid(), {});
             delete from server_batch where server = '{}'",
            i64::MAX,
            server.id
        );
        client.batch_execute(&forget).await.unwrap();
        operator.one(bound("default", 1)).await;
        let refused = server.one(enqueue(job())).await;
        assert!(
            matches!(refused, Reply::Enqueued(Err(EnqueueRefusal::QueueFull { .. }))),
            "{refused:?}"
        );
    });
}

/// What a server has counted that is gone counts once, at whichever server.
#[test]
fn counts_that_pass_from_server_to_server_within_a_batch_count_once() {
    let database = Database::new().unwrap();
    run(async {
        let (gone, server) = (Server::open(&database.url).await, Server::open(&database.url).await);
        gone.add(3).await;
        server.one(bound("default", 5)).await;
        let client = sql(&database.url).await;
        let silent = format!(
            "update server_batch set at = 0 where server = '{0}';
             update batch_slot set at = 0 where server = '{0}'",
            gone.id
        );
        client.batch_execute(&silent).await.unwrap();
        let (name, holder) = (RETENTION.to_owned(), server.id);
        let hold = Some(Span::from_secs(60));
        let ask = LeadershipRequest { name: name.clone(), holder, hold };
        let Reply::Leadership(Ok(led)) = server.one(Command::Leadership(ask)).await else {
            panic!("not the leader");
        };
        let before = Timestamp(1);
        let prune = Command::Prune(Prune {
            leadership: LeadershipFence { name, holder, epoch: led.epoch },
            finished_before: before,
            workers_before: before,
            limit: 100,
            from_start: true,
        });
        let commands = vec![enqueue(job()), prune, enqueue(job()), enqueue(job())];
        let replies = server.apply(commands).await;
        assert!(matches!(replies[1], Reply::Pruned(Ok(_))), "{replies:?}");
        assert!(matches!(replies[2], Reply::Enqueued(Ok(_))), "{replies:?}");
        let Reply::Enqueued(Err(EnqueueRefusal::QueueFull { depth, .. })) = &replies[3] else {
            panic!("not refused: {:?}", replies[3]);
        };
        assert_eq!(depth.jobs, 5);
        assert_eq!(number(&client, WAITING).await, 5);
        check_places(&client).await;
        server.store.close().await.unwrap();
    });
}

/// A queue that another transaction has locked does not stop the others for long.
#[test]
fn locked_queue_delays_no_other_for_long() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.one(bound("default", 10)).await;
        let client = sql(&database.url).await;
        client.batch_execute("begin; update queue set paused = false").await.unwrap();
        let tried = server.try_apply(vec![enqueue(job())]).await;
        assert!(matches!(tried, Err(outlast_store::StoreError::Locked(_))), "{tried:?}");
        let other = server.one(enqueue(in_queue("other")));
        let other = tokio::time::timeout(Duration::from_secs(10), other).await.unwrap();
        assert!(matches!(other, Reply::Enqueued(Ok(_))), "{other:?}");
        client.batch_execute("commit").await.unwrap();
        assert!(matches!(server.one(enqueue(job())).await, Reply::Enqueued(Ok(_))));
    });
}

/// Tables that say how many jobs there are.
const COUNTS: [&str; 6] = ["class", "tally", "tally_slot", "depth", "depth_slot", "server_batch"];

/// And the table of claimable jobs, of which the oldest is looked for.
const READ_FOR_NUMBERS: [&str; 7] =
    ["class", "tally", "tally_slot", "queue_tally", "ready_second", "ready_second_slot", "ready"];

fn of_type(queue: &str, n: usize) -> NewJob {
    let mut job = job();
    job.class.queue = queue.into();
    job.class.job_type = format!("type-{n}");
    job
}

/// It once added up all classes of the queue, for each batch that stored a job in it.
#[test]
fn bounded_queue_of_many_classes_costs_what_one_of_a_single_class_does() {
    const TYPES: usize = 5000;
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        for types in (0..TYPES).collect::<Vec<_>>().chunks(500) {
            let jobs = types.iter().map(|n| of_type("many", *n)).collect();
            server.one(Command::EnqueueAll(jobs)).await;
        }
        server.one(enqueue(of_type("one", 0))).await;
        for queue in ["many", "one"] {
            server.one(bound(queue, 100_000)).await;
        }
        let client = sql(&database.url).await;
        client.batch_execute("vacuum analyze").await.unwrap();
        tend_no_longer(&client, &COUNTS).await;
        let mut pages = Vec::new();
        for queue in ["one", "many"] {
            server.one(enqueue(of_type(queue, 0))).await;
            end_connections(&client).await;
            let before = pages_read(&client, &COUNTS).await;
            for _ in 0..20 {
                server.one(enqueue(of_type(queue, 0))).await;
            }
            end_connections(&client).await;
            pages.push(pages_read(&client, &COUNTS).await - before);
        }
        assert!(pages[1] <= 2 * pages[0], "{pages:?} pages");

        // The numbers of one queue are not paid for by the classes of another.
        let mut pages = Vec::new();
        for (queue, jobs) in [("one", 22), ("many", TYPES as u64 + 21)] {
            let before = pages_read(&client, &READ_FOR_NUMBERS).await;
            let numbers = server.store.queue(queue.into()).await.unwrap().unwrap();
            assert_eq!(numbers.available, jobs);
            assert!(numbers.oldest_available.is_some());
            let counts = server.store.counts_of(queue.into(), None).await.unwrap();
            assert_eq!(counts.state(State::Available), jobs);
            end_connections(&client).await;
            pages.push(pages_read(&client, &READ_FOR_NUMBERS).await - before);
        }
        assert!(pages[1] <= pages[0] + 30, "{pages:?} pages for the numbers of one queue");
        assert_eq!(server.store.queue("none".into()).await.unwrap(), None);
        check_places(&client).await;
    });
}
