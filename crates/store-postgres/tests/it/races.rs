//! Several servers at one database at the same time: whatever the order in which they get
//! through, one wins, and nothing is left between two places.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_cluster::Database;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::limit::Scope;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    Fence, JobAction, LeadershipFence, LeadershipRequest, Progress, Prune, RETENTION,
    ReportedOutcome, Reporter,
};
use outlast_store::event::{EventName, EventQuery};
use outlast_store::idempotency::{EnqueueOnce, EnqueuedOnce};
use outlast_store::reply::{Claimed, WorkerMoveRefusal};
use outlast_store::{Command, Reply, Store as _};

use crate::hand::{
    LEASE, Server, arrival, check_places, enqueue, finish, job, lapse, limit, new_id, number,
    order, renew, run, sql,
};

const ROUNDS: usize = 25;
/// A lease that has passed as soon as it is given.
const NONE: Span = Span(0);

async fn two(database: &Database) -> (Server, Server) {
    (Server::open(&database.url).await, Server::open(&database.url).await)
}

async fn in_flight(server: &Server, worker: WorkerId) -> usize {
    server.store.in_flight_of(worker).await.unwrap().len()
}

#[test]
fn renewal_and_lapse_at_once_have_one_winner_which_decides_about_the_jobs() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for round in 0..ROUNDS {
            a.add(3).await;
            let worker = a.worker_of(NONE).await;
            let count = a.claim(worker, 3).await.len();
            let renewal = a.renewal(worker).await;
            let (renewed, lapsed) =
                tokio::join!(a.one(renew(worker)), b.one(lapse(worker, renewal)));
            let kept = in_flight(&a, worker).await;
            match (renewed, lapsed) {
                (Reply::Renewed(Ok(_)), Reply::WorkerMoved(Err(WorkerMoveRefusal::Renewed))) => {
                    assert_eq!(kept, count, "round {round}");
                }
                (Reply::Renewed(Err(_)), Reply::WorkerMoved(Ok(moved))) => {
                    assert_eq!((kept, moved.moved.len()), (0, count), "round {round}");
                }
                other => panic!("both or none won: {other:?}"),
            }
        }
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn claim_and_lapse_at_once_leave_nothing_with_the_lapsed_worker() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for round in 0..ROUNDS {
            a.add(3).await;
            let worker = a.worker_of(NONE).await;
            let renewal = a.renewal(worker).await;
            let claiming = a.claiming(worker, 3).await;
            let (_, lapsed) = tokio::join!(a.one(claiming), b.one(lapse(worker, renewal)));
            assert!(matches!(lapsed, Reply::WorkerMoved(Ok(_))), "{lapsed:?}");
            assert_eq!(in_flight(&b, worker).await, 0, "round {round}");
        }
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn worker_that_registers_at_two_servers_at_once_is_one_worker_with_two_sessions() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for _ in 0..ROUNDS {
            let worker = WorkerId(new_id());
            let (one, other) =
                tokio::join!(a.apply(arrival(worker, LEASE)), b.apply(arrival(worker, LEASE)));
            let mut sessions = BTreeSet::new();
            for replies in [one, other] {
                let Some(Reply::Attached(Ok(attached))) = replies.last() else {
                    panic!("not attached: {replies:?}")
                };
                sessions.insert(attached.session);
            }
            assert_eq!(sessions, BTreeSet::from([1, 2]));
        }
    });
}

#[test]
fn jobs_of_one_key_sent_to_two_servers_at_once_are_stored_once() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for round in 0..ROUNDS {
            let key = [u8::try_from(round).unwrap(); 32];
            let once = || {
                let jobs = vec![job(), job()];
                let keep = Span::from_secs(60);
                Command::EnqueueOnce(Box::new(EnqueueOnce { key, request: [1; 32], keep, jobs }))
            };
            let replies = tokio::join!(a.one(once()), b.one(once()));
            match replies {
                (
                    Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(stored))),
                    Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(before))),
                )
                | (
                    Reply::EnqueuedOnce(Ok(EnqueuedOnce::Before(before))),
                    Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(stored))),
                ) => {
                    let stored: Vec<JobId> = stored.iter().map(|job| job.id).collect();
                    assert_eq!(stored, before);
                }
                other => panic!("stored twice or never: {other:?}"),
            }
        }
        let client = sql(&database.url).await;
        let count = number(&client, "select count(*) from job_row").await;
        assert_eq!(count, i64::try_from(2 * ROUNDS).unwrap());
        check_places(&client).await;
    });
}

#[test]
fn no_job_is_claimed_twice_none_is_left_and_no_claim_comes_back_short() {
    claim_by_several(None);
}

/// Such a claim once got nothing when another server had locked the first jobs.
#[test]
fn limit_on_one_class_that_is_never_reached_makes_no_claim_come_back_short() {
    claim_by_several(Some(limit("rare", Scope::Type("work-0".into()), 1_000)));
}

/// Claims jobs of many classes at several servers at once.
fn claim_by_several(limit: Option<Command>) {
    const CLASSES: usize = 60;
    const EACH: usize = 10;
    const JOBS: usize = CLASSES * EACH;
    const CLAIMERS: usize = 4;
    const MAX: usize = 7;
    let database = Database::new().unwrap();
    run(async {
        let first = Server::open(&database.url).await;
        let jobs = (0..JOBS).map(|n| {
            let mut job = job();
            job.class.job_type = format!("work-{}", n % CLASSES);
            job
        });
        first.one(Command::EnqueueAll(jobs.collect())).await;
        // Those of a class through whose gate another server is claiming are out of reach.
        let reserve = if limit.is_some() { EACH } else { 0 };
        if let Some(limit) = limit {
            first.one(limit).await;
        }
        let left = Arc::new(AtomicUsize::new(JOBS));
        let claiming: Vec<_> = (0..CLAIMERS)
            .map(|_| {
                let (url, left) = (database.url.clone(), Arc::clone(&left));
                tokio::spawn(async move {
                    let server = Server::open(&url).await;
                    let worker = server.worker().await;
                    let claim = server.claiming(worker, 7).await;
                    let mut ids = Vec::new();
                    while left.load(Ordering::SeqCst) > 0 {
                        let Reply::Claimed(Ok(claimed)) = server.one(claim.clone()).await else {
                            panic!("may not claim")
                        };
                        let claimed = claimed.jobs;
                        let left = left.fetch_sub(claimed.len(), Ordering::SeqCst);
                        // Whatever the others have locked, there was enough.
                        let plenty = left >= CLAIMERS * MAX + reserve;
                        assert!(!plenty || claimed.len() == MAX, "{} of {left}", claimed.len());
                        ids.extend(claimed.iter().map(|claimed| claimed.job.id));
                    }
                    ids
                })
            })
            .collect();
        let mut all = Vec::new();
        for claimer in claiming {
            all.extend(claimer.await.unwrap());
        }
        let different: HashSet<&JobId> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (JOBS, JOBS));
        check_places(&sql(&database.url).await).await;
    });
}

/// A job, held.
async fn one_in_flight(server: &Server) -> (WorkerId, u64, Claimed) {
    server.add(1).await;
    let worker = server.worker_of(NONE).await;
    let claimed = server.claim(worker, 1).await.remove(0);
    (worker, server.renewal(worker).await, claimed)
}

async fn state(server: &Server, id: JobId) -> State {
    server.store.job(id).await.unwrap().unwrap().state
}

fn accepted(reply: &Reply) -> bool {
    match reply {
        Reply::Moved(moved) => moved.is_ok(),
        other => panic!("not of a move: {other:?}"),
    }
}

#[test]
fn finish_and_cancel_at_once_have_one_winner() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for _ in 0..ROUNDS {
            let (worker, _, Claimed { job, epoch, .. }) = one_in_flight(&a).await;
            let finishing = a.one(finish(worker, job.id, epoch, ReportedOutcome::Completed));
            let (_, cancelled) =
                tokio::join!(finishing, b.one(Command::Order(order(JobAction::Cancel, job.id))));
            let expected = if accepted(&cancelled) { State::Cancelled } else { State::Completed };
            assert_eq!(state(&a, job.id).await, expected);
            assert_eq!(in_flight(&a, worker).await, 0, "its end was reported");
        }
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn finish_and_lapse_at_once_have_one_winner() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for _ in 0..ROUNDS {
            let (worker, renewal, Claimed { job, epoch, .. }) = one_in_flight(&a).await;
            let finishing = a.one(finish(worker, job.id, epoch, ReportedOutcome::Completed));
            let (finished, lapsed) = tokio::join!(finishing, b.one(lapse(worker, renewal)));
            let Reply::WorkerMoved(Ok(lapsed)) = lapsed else { panic!("{lapsed:?}") };
            assert_eq!(accepted(&finished), lapsed.moved.is_empty());
            assert_eq!(state(&a, job.id).await == State::Completed, accepted(&finished));
            // It must not be in the way of the next round.
            b.one(Command::Order(order(JobAction::Cancel, job.id))).await;
        }
        check_places(&sql(&database.url).await).await;
    });
}

#[test]
fn cancel_and_lapse_at_once_leave_the_job_cancelled_and_free() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        for _ in 0..ROUNDS {
            let (worker, renewal, Claimed { job, .. }) = one_in_flight(&a).await;
            let (cancelled, lapsed) = tokio::join!(
                a.one(Command::Order(order(JobAction::Cancel, job.id))),
                b.one(lapse(worker, renewal))
            );
            assert!(accepted(&cancelled) && matches!(lapsed, Reply::WorkerMoved(Ok(_))));
            assert_eq!(state(&a, job.id).await, State::Cancelled);
            assert_eq!(in_flight(&a, worker).await, 0);
        }
        check_places(&sql(&database.url).await).await;
    });
}

fn after(cursor: Option<String>) -> EventQuery {
    EventQuery { after: cursor, ..EventQuery::all(100) }
}

/// Reads on from a cursor and returns the jobs that were stored, and the cursor after them.
async fn read_on(server: &Server, cursor: Option<String>) -> (Vec<JobId>, Option<String>) {
    let page = server.store.events(after(cursor)).await.unwrap();
    let stored = page.events.iter().filter(|(_, event)| event.kind == EventName::JobEnqueued);
    (stored.filter_map(|(_, event)| event.job).collect(), Some(page.next))
}

#[test]
fn reader_of_events_misses_nothing_of_servers_that_commit_in_turns() {
    const BATCHES: usize = 150;
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        let reader = Server::open(&database.url).await;
        let write = |server: Server| async move {
            let mut ids = Vec::new();
            for _ in 0..BATCHES {
                ids.extend(server.add(2).await);
            }
            ids
        };
        let writing = (tokio::spawn(write(a)), tokio::spawn(write(b)));
        let (mut seen, mut cursor) = (Vec::new(), None);
        while !(writing.0.is_finished() && writing.1.is_finished()) {
            let (stored, next) = read_on(&reader, cursor).await;
            seen.extend(stored);
            cursor = next;
        }
        loop {
            let (stored, next) = read_on(&reader, cursor).await;
            if stored.is_empty() {
                break;
            }
            seen.extend(stored);
            cursor = next;
        }
        let mut wanted = [writing.0.await.unwrap(), writing.1.await.unwrap()].concat();
        wanted.sort();
        seen.sort();
        assert_eq!(seen, wanted);
    });
}

/// The batch of one server begins first and is committed last: its number in any common
/// count would be behind what the reader has seen.
#[test]
fn events_committed_late_come_after_the_readers_place() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        let blocked = a.add(1).await.remove(0);
        let mut client = sql(&database.url).await;
        let lock = client.transaction().await.unwrap();
        lock.execute("select from ready for update", &[]).await.unwrap();
        let waiting = tokio::spawn(async move {
            let late = job();
            let id = late.id;
            a.apply(vec![enqueue(late), Command::Order(order(JobAction::Cancel, blocked))]).await;
            id
        });
        let watcher = sql(&database.url).await;
        let stuck = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'
                     and datname = current_database()";
        while number(&watcher, stuck).await == 0 {
            tokio::task::yield_now().await;
        }
        let early = b.add(1).await.remove(0);
        let (seen, cursor) = read_on(&b, None).await;
        assert_eq!(seen, [blocked, early]);
        lock.commit().await.unwrap();
        let late = waiting.await.unwrap();
        assert_eq!(read_on(&b, cursor).await.0, [late]);
    });
}

fn retention(server: &Server, hold: Option<Span>) -> Command {
    let (name, holder) = (RETENTION.to_owned(), server.id);
    Command::Leadership(LeadershipRequest { name, holder, hold })
}

fn prune(server: &Server, epoch: u64) -> Command {
    let leadership =
        LeadershipFence { name: RETENTION.to_owned(), holder: server.id, epoch: Epoch(epoch) };
    let all = Timestamp(i64::MAX);
    Command::Prune(Prune {
        leadership,
        finished_before: all,
        workers_before: all,
        limit: 10,
        from_start: true,
    })
}

#[test]
fn leadership_that_servers_ask_for_at_once_is_one_server_s() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        let mut epoch = 0;
        for round in 0..ROUNDS {
            let long = Some(Span::from_secs(60));
            let replies = tokio::join!(a.one(retention(&a, long)), b.one(retention(&b, long)));
            let (winner, leadership) = match replies {
                (
                    Reply::Leadership(Ok(leadership)),
                    Reply::Leadership(Err(LeadershipRefusal::Elsewhere(of))),
                ) => {
                    assert_eq!(leadership, of, "round {round}");
                    (&a, leadership)
                }
                (
                    Reply::Leadership(Err(LeadershipRefusal::Elsewhere(of))),
                    Reply::Leadership(Ok(leadership)),
                ) => {
                    assert_eq!(leadership, of, "round {round}");
                    (&b, leadership)
                }
                other => panic!("both or none has it: {other:?}"),
            };
            assert_eq!(leadership.holder, winner.id);
            assert!(
                leadership.epoch.0 == epoch || leadership.epoch.0 == epoch + 1,
                "{leadership:?}"
            );
            epoch = leadership.epoch.0;
            assert!(matches!(winner.one(retention(winner, None)).await, Reply::Leadership(Ok(_))));
        }
    });
}

/// A leader's work is complete before another server leads.
#[test]
fn prune_and_a_takeover_at_once_leave_no_prune_under_a_stale_epoch() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        let watcher = sql(&database.url).await;
        for round in 0..ROUNDS {
            let id = a.add(1).await.remove(0);
            a.one(Command::Order(order(JobAction::Cancel, id))).await;
            let Reply::Leadership(Ok(of_a)) = a.one(retention(&a, Some(NONE))).await else {
                panic!()
            };
            let (pruned, taken) =
                tokio::join!(a.one(prune(&a, of_a.epoch.0)), b.one(retention(&b, Some(NONE))));
            assert!(matches!(taken, Reply::Leadership(Ok(_))), "{taken:?}");
            let left = number(&watcher, "select count(*) from job_row").await;
            match pruned {
                Reply::Pruned(Ok(pruned)) => assert_eq!((pruned.jobs, left), (1, 0)),
                Reply::Pruned(Err(_)) => assert_eq!(left, 1, "round {round}"),
                other => panic!("not a prune's reply: {other:?}"),
            }
            let late = a.one(prune(&a, of_a.epoch.0)).await;
            assert!(
                matches!(late, Reply::Pruned(Err(LeadershipRefusal::Elsewhere(_)))),
                "{late:?}"
            );
            let Reply::Leadership(Ok(of_b)) = b.one(retention(&b, Some(NONE))).await else {
                panic!()
            };
            b.one(prune(&b, of_b.epoch.0)).await;
        }
    });
}

fn progress(worker: WorkerId, claimed: &Claimed) -> Command {
    let fence =
        Fence { epoch: Some(claimed.epoch), worker: Some(Reporter::Native(worker)), attempt: None };
    let checkpoint = Some(b"half".to_vec());
    Command::Progress(Box::new(Progress { job: claimed.job.id, fence, checkpoint }))
}

/// A server decides ends with what it remembers of the attempts that it gave out. What
/// another server did to them since counts all the same.
#[test]
fn what_another_server_did_to_an_attempt_counts_for_a_server_that_remembers_it_otherwise() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = two(&database).await;
        let ended = |worker, claimed: &Claimed| {
            finish(worker, claimed.job.id, claimed.epoch, ReportedOutcome::Completed)
        };
        let outcome = |reply: Reply| match reply {
            Reply::Moved(moved) => moved.map(|moved| (moved.state, moved.outcome)),
            other => panic!("{other:?}"),
        };
        for change in 0..4 {
            a.add(2).await;
            let worker = a.worker().await;
            let pair = a.claim(worker, 2).await;
            let renewal = a.renewal(worker).await;
            for claimed in &pair {
                match change {
                    0 => {
                        drop(b.one(Command::Order(order(JobAction::Cancel, claimed.job.id))).await)
                    }
                    1 => drop(b.one(progress(worker, claimed)).await),
                    2 => drop(b.one(ended(worker, claimed)).await),
                    _ => drop(b.one(lapse(worker, renewal)).await),
                }
            }
            let [remembered, looked_up] = pair.as_slice() else { panic!("{pair:?}") };
            let from_memory = outcome(a.one(ended(worker, remembered)).await);
            let from_table = outcome(b.one(ended(worker, looked_up)).await);
            assert_eq!(from_memory, from_table, "change {change}");
        }
        let client = sql(&database.url).await;
        assert_eq!(number(&client, "select count(*) from checkpoint").await, 0);
        check_places(&client).await;
    });
}

/// PostgreSQL may read what was sent to it long after it was given up and sent again.
#[test]
fn batch_that_arrives_a_second_time_does_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.add(1).await;
        let again = outlast_store::Batch {
            id: outlast_store::BatchId { server: server.id, n: 1 },
            jitter_seed: 1,
            budgets: outlast_core::budget::Budgets::DEFAULT,
            commands: vec![enqueue(job())],
        };
        assert!(server.store.apply(again.into()).await.is_err());
        server.add(1).await;
        let client = sql(&database.url).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 2);
        check_places(&client).await;
    });
}
