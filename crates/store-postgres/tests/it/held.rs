//! Rows that are locked: no more than are taken, and one that another session holds costs nothing
//! but what is about it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::budget::ScheduledTimeout;
use outlast_core::id::JobId;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, ClassId, JobAction, NewJob, Progress,
    ReportedOutcome, Strand, Sweep,
};
use outlast_store::extend::{Extend, Holds, JobCount};
use outlast_store::reply::{Claimed, Extended};
use outlast_store::store::ManualClock;
use outlast_store::{Clock as _, Command, Reply, Store as _, StoreError};
use outlast_store_postgres::Options;
use tokio::time::Instant;

use crate::hand::{Server, check_places, enqueue, finish, job, number, order, run, sql};

/// Makes every commit that takes a job wait until an advisory lock is free.
pub(crate) const WAITING_COMMIT: &str = "
    create function public.wait() returns trigger language plpgsql as
        $$ begin perform pg_advisory_xact_lock_shared(77); return null; end $$;
    create constraint trigger wait after insert on active deferrable initially deferred
        for each row execute function public.wait()";

fn job_of(class: usize) -> NewJob {
    let mut job = job();
    job.class.job_type = format!("work-{class}");
    job
}

#[test]
fn claim_of_several_classes_locks_what_it_takes_and_leaves_the_rest_to_others() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let jobs = (0..10).flat_map(|class| (0..10).map(move |_| job_of(class)));
        a.one(Command::EnqueueAll(jobs.collect())).await;
        let (here, there) = (a.worker().await, b.worker().await);
        let (claim, other) = (a.claiming(here, 10).await, b.claiming(there, 10).await);
        let (holder, client) = (sql(&database.url).await, sql(&database.url).await);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let claiming = tokio::spawn(async move { a.one(claim).await });
        let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory'";
        while number(&client, waits).await == 0 {}
        // It has locked what it takes, and nothing else.
        let free = "select count(*) from (select 1 from ready for update skip locked) x";
        assert_eq!(number(&client, free).await, 90);
        let claiming_there = tokio::spawn(async move { b.one(other).await });
        while number(&client, waits).await < 2 {}
        assert_eq!(number(&client, free).await, 80);
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        for claiming in [claiming, claiming_there] {
            match claiming.await.unwrap() {
                Reply::Claimed(Ok(claimed)) => assert_eq!(claimed.jobs.len(), 10),
                other => panic!("{other:?}"),
            }
        }
        check_places(&client).await;
    });
}

#[test]
fn batch_that_needs_a_row_that_is_held_says_so_and_others_go_on() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        server.add(2).await;
        let claimed = server.claim(worker, 2).await;
        let end = |claimed: &Claimed| {
            finish(worker, claimed.job.id, claimed.epoch, ReportedOutcome::Completed)
        };
        let holder = sql(&database.url).await;
        let hold = "begin; select 1 from active order by seq limit 1 for update";
        holder.batch_execute(hold).await.unwrap();
        let both = vec![end(&claimed[0]), end(&claimed[1])];
        for commands in [both, vec![end(&claimed[0])]] {
            let tried = server.try_apply(commands).await;
            assert!(matches!(tried, Err(StoreError::Locked(_))), "{tried:?}");
        }
        let other = server.try_apply(vec![end(&claimed[1]), enqueue(job())]).await.unwrap();
        assert!(matches!(other.replies[0], Reply::Moved(Ok(_))), "{other:?}");
        holder.batch_execute("rollback").await.unwrap();
        let freed = server.one(end(&claimed[0])).await;
        assert!(matches!(freed, Reply::Moved(Ok(_))), "{freed:?}");
        check_places(&holder).await;
    });
}

/// One job's row once stopped every timer.
#[test]
fn sweep_passes_over_an_expired_job_that_somebody_holds() {
    let database = Database::new().unwrap();
    run(async {
        // By a clock of its own: a job that comes too late is refused, and is never swept.
        let clock = ManualClock::at(Timestamp(1_800_000_000_000));
        let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(clock.clone())) };
        let server = Server::with(&database.url, &options).await;
        let expiring = async || {
            let mut job = job();
            job.rules.expires_at = Some(clock.now().after(Span(30)));
            let id = job.id;
            let reply = server.one(enqueue(job)).await;
            assert!(matches!(reply, Reply::Enqueued(Ok(_))), "{reply:?}");
            id
        };
        let (held, free) = (expiring().await, expiring().await);
        let holder = sql(&database.url).await;
        let hold = "begin; select 1 from ready order by seq limit 1 for update";
        holder.batch_execute(hold).await.unwrap();
        let sweep = || Command::Sweep(Sweep { limit: 100, watched: Span::ZERO });
        let swept = async || -> Vec<JobId> {
            match server.try_apply(vec![sweep()]).await.unwrap().replies.remove(0) {
                Reply::Swept(found) => found.moved.iter().map(|moved| moved.job).collect(),
                other => panic!("{other:?}"),
            }
        };
        clock.advance(30);
        assert_eq!(swept().await, [free]);
        assert_eq!(swept().await, []);
        holder.batch_execute("rollback").await.unwrap();
        assert_eq!(swept().await, [held]);
        check_places(&holder).await;
    });
}

#[test]
fn heartbeat_of_a_plain_worker_prolongs_what_is_free_and_names_what_somebody_holds() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let (held, free) = (server.add(1).await.remove(0), server.add(1).await.remove(0));
        let claim = Claim {
            claimant: Claimant::Plain { worker: Some("w".into()), visibility: Span(60_000) },
            from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
            max: NonZeroU32::new(2).unwrap(),
            is_prefetch: false,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        };
        let claimed = server.one(Command::Claim(claim)).await;
        assert!(
            matches!(&claimed, Reply::Claimed(Ok(claimed)) if claimed.jobs.len() == 2),
            "{claimed:?}"
        );
        let holder = sql(&database.url).await;
        let hold = "begin; select 1 from active order by seq limit 1 for update";
        holder.batch_execute(hold).await.unwrap();
        let extend = |holds| Command::Extend(Extend { worker: "w".into(), holds });
        let named = |jobs: Vec<JobId>| extend(Holds::Jobs(jobs));
        let arrived = server.store.now().await.unwrap();
        let counted = || extend(Holds::Count(JobCount { jobs: 2, arrived, report: Vec::new() }));
        // All of one batch take one round trip, whatever their senders.
        let commands = vec![counted(), named(vec![free, held]), named(vec![held])];
        let before = server.store.round_trips().await;
        let replies = server.try_apply(commands).await.unwrap().replies;
        assert!(server.store.round_trips().await <= before + 3);
        let both = Extended { passed_over: vec![held], ..Extended::all(vec![free]) };
        let only = Extended { passed_over: vec![held], ..Extended::default() };
        assert_eq!(replies, [both.clone(), both, only].map(Reply::Extended));
        holder.batch_execute("rollback").await.unwrap();
        let reply = server.one(counted()).await;
        assert_eq!(reply, Reply::Extended(Extended::all(vec![held, free])));
    });
}

#[test]
fn checkpoint_and_the_end_after_it_go_through_at_the_first_try() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        server.add(3).await;
        let claimed = server.claim(worker, 3).await;
        let before = server.store.tried_again().await;
        let fence = outlast_store::command::Fence {
            epoch: Some(claimed[0].epoch),
            worker: Some(outlast_store::command::Reporter::Native(worker)),
            attempt: None,
        };
        let checkpoint = Some(b"here".to_vec());
        let progress = Progress { job: claimed[0].job.id, fence, checkpoint };
        server.one(Command::Progress(Box::new(progress))).await;
        let end = |at: usize| {
            finish(worker, claimed[at].job.id, claimed[at].epoch, ReportedOutcome::Completed)
        };
        assert!(matches!(server.one(end(0)).await, Reply::Moved(Ok(_))));
        assert_eq!(server.store.tried_again().await, before, "after a checkpoint");
        // Another server has moved the second: one try fails, and the third is still remembered.
        let other = Server::open(&database.url).await;
        other.one(Command::Order(order(JobAction::Cancel, claimed[1].job.id))).await;
        server.one(end(1)).await;
        assert_eq!(server.store.tried_again().await, before + 1);
        let asked = server.store.round_trips().await;
        assert!(matches!(server.one(end(2)).await, Reply::Moved(Ok(_))));
        assert_eq!(server.store.round_trips().await, asked + 1, "looked up again");
    });
}

async fn strand(server: &Server, class: ClassId) -> (usize, u64) {
    let since = Timestamp(0);
    let strand = Strand { class, since, reason: "nobody".into(), limit: 500 };
    let before = server.store.round_trips().await;
    match server.one(Command::Strand(strand)).await {
        Reply::Stranded(found) => (found.moved.len(), server.store.round_trips().await - before),
        other => panic!("{other:?}"),
    }
}

#[test]
fn looking_for_stranded_jobs_takes_as_long_whatever_limits_they_have() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let of_limit =
            |ms: u64| NewJob { scheduled_timeout: ScheduledTimeout::After(Span(ms)), ..job() };
        let hours = |n: u64| of_limit(3_600_000 + n);
        server.one(Command::EnqueueAll(vec![hours(0)])).await;
        let class = server.store.backlog().await.unwrap()[0].id;
        let (found, few) = strand(&server, class).await;
        assert_eq!(found, 0);
        server.one(Command::EnqueueAll((1..400).map(hours).collect())).await;
        server.one(Command::EnqueueAll((1..=40).map(of_limit).collect())).await;
        let mut moved = 0;
        while moved < 40 {
            let (found, many) = strand(&server, class).await;
            moved += found;
            assert!(many <= few + 3, "{many} round trips, {few} for a single limit");
        }
        assert_eq!(moved, 40);
        check_places(&sql(&database.url).await).await;
    });
}

/// Returns a claim of one job of any class.
async fn claim_one(server: &Server, worker: outlast_core::id::WorkerId) -> Command {
    let classes = server.store.backlog().await.unwrap().into_iter().map(|class| class.id);
    let from = ClaimFrom::Classes(classes.collect());
    let claimant = Claimant::Native { worker, session: 1 };
    Command::Claim(Claim {
        claimant,
        from,
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    })
}

/// What is claimed has no id of its own that a second try would meet: this once counted jobs,
/// which could not be stored twice anyway.
#[test]
fn claim_that_hangs_while_it_is_committed_is_ambiguous_not_tried_again() {
    let cluster = outlast_cluster::Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let options = Options::default();
        let server = Arc::new(Server::with(&url, &options).await);
        let worker = server.worker().await;
        server.add(5).await;
        let claim = claim_one(&server, worker).await;
        let (holder, client) = (sql(&url).await, sql(&url).await);
        client.batch_execute(WAITING_COMMIT).await.unwrap();
        holder.batch_execute("select pg_advisory_lock(77)").await.unwrap();
        let claiming = Arc::clone(&server);
        let claiming = tokio::spawn(async move { claiming.try_apply(vec![claim]).await });
        let waits = "select pid from pg_stat_activity where wait_event = 'advisory'";
        let pid: i32 = loop {
            if let Some(row) = client.query_opt(waits, &[]).await.unwrap() {
                break row.get(0);
            }
        };
        cluster.freeze(pid).unwrap();
        let answer = claiming.await.unwrap();
        assert!(matches!(answer, Err(StoreError::Ambiguous(_))), "{answer:?}");
        holder.batch_execute("select pg_advisory_unlock(77)").await.unwrap();
        cluster.thaw(pid).unwrap();
        // Its row is free when what was sent is committed, or rolled back.
        let decided = "select outlast.latest_batch($1)";
        client.query_one(decided, &[&server.id]).await.unwrap();
        let held = number(&client, "select count(*) from active").await;
        assert!(held <= 1, "{held} attempts of one claim");
        server.add(1).await;
        assert_eq!(number(&client, "select count(*) from active").await, held);
        check_places(&client).await;
    });
}

/// Such a claim once said that nothing was left, and the server that made it waited for a second.
#[test]
fn claim_takes_what_is_behind_locked_jobs_and_names_the_classes_in_which_it_met_these_only() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let worker = server.worker().await;
        let jobs = (0..30).map(|n| {
            let mut job = job();
            job.class.job_type = if n < 25 { "long" } else { "short" }.into();
            job
        });
        server.one(Command::EnqueueAll(jobs.collect())).await;
        let claim = |classes: &[ClassId]| {
            let claimant = Claimant::Native { worker, session: 1 };
            let from = ClaimFrom::Classes(classes.into());
            Command::Claim(Claim {
                claimant,
                from,
                max: NonZeroU32::new(5).unwrap(),
                is_prefetch: false,
                avoids: Vec::new(),
                asked: AskedByQueues::default(),
            })
        };
        let [long, short] = [1, 2].map(ClassId);
        // Of the long class more than a claim looks at, of the short one all.
        let holder = sql(&database.url).await;
        let hold = "begin; select 1 from ready where class = 2 or seq <= 12 for update";
        holder.batch_execute(hold).await.unwrap();
        for (classes, wanted) in [
            (&[long, short][..], (5, vec![])),
            (&[long], (5, vec![])),
            (&[long, short], (3, vec![long, short])),
            (&[long, short], (0, vec![long, short])),
            (&[short], (0, vec![short])),
            (&[ClassId(7)], (0, vec![])),
        ] {
            let Reply::Claimed(Ok(claims)) = server.one(claim(classes)).await else { panic!() };
            assert_eq!((claims.jobs.len(), claims.passed_over), wanted, "{classes:?}");
        }
        holder.batch_execute("rollback").await.unwrap();
        let mut left = 0;
        for _ in 0..4 {
            let Reply::Claimed(Ok(claims)) = server.one(claim(&[long, short])).await else {
                panic!()
            };
            assert_eq!(claims.passed_over, []);
            left += claims.jobs.len();
        }
        assert_eq!(left, 30 - 13);
        check_places(&holder).await;
    });
}

/// Such a fetch once got nothing: it looked at twice as many jobs as it wanted, locked or not.
#[test]
fn fetch_from_a_queue_takes_what_is_behind_locked_jobs() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let jobs: Vec<NewJob> = (0..360)
            .map(|n| {
                let mut job = job();
                job.class.job_type = if n < 350 { "long" } else { "short" }.into();
                job
            })
            .collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        server.one(Command::EnqueueAll(jobs)).await;
        let fetch = async |max| {
            let claim = Claim {
                claimant: Claimant::Plain { worker: None, visibility: Span(60_000) },
                from: ClaimFrom::Queues { queues: vec!["default".into()], tenant: None },
                max: NonZeroU32::new(max).unwrap(),
                is_prefetch: false,
                avoids: Vec::new(),
                asked: AskedByQueues::default(),
            };
            match server.one(Command::Claim(claim)).await {
                Reply::Claimed(Ok(claims)) => {
                    claims.jobs.iter().map(|claimed| claimed.job.id).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            }
        };
        let holder = sql(&database.url).await;
        let hold = "begin; select 1 from ready where class = 2 or seq <= 340 for update";
        holder.batch_execute(hold).await.unwrap();
        assert_eq!(fetch(1).await, ids[340..341]);
        assert_eq!(fetch(5).await, ids[341..346]);
        // Part of it is among the heads.
        assert_eq!(fetch(242).await, ids[346..350]);
        assert_eq!(fetch(5).await, []);
        holder.batch_execute("rollback").await.unwrap();
        assert_eq!(fetch(345).await, [&ids[..340], &ids[350..355]].concat());
        assert_eq!(fetch(45).await, ids[355..]);
        check_places(&holder).await;
    });
}

#[test]
fn error_of_a_batch_that_waits_names_the_session_that_holds_the_lock() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        server.add(1).await;
        let holder = sql(&database.url).await;
        holder.batch_execute("set application_name = 'report'; begin").await.unwrap();
        let pid = number(&holder, "select pg_backend_pid()::bigint").await;
        holder.batch_execute("select 1 from batch_slot for update").await.unwrap();
        let wanted = format!(
            "the lock of batch_slot is held by a session (process {pid}, report, idle in transaction)"
        );
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let failed = server.try_apply(vec![enqueue(job())]).await;
            let Err(StoreError::Unavailable(words)) = failed else { panic!("{failed:?}") };
            if words.ends_with(&wanted) {
                break;
            }
            assert!(Instant::now() < end, "{words}");
        }
        holder.batch_execute("rollback").await.unwrap();
        server.try_apply(vec![enqueue(job())]).await.unwrap();
    });
}
