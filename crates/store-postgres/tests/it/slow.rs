//! A statement that takes too long: its batch has no effect and says that this is why, and others do
//! not wait as long again.

use std::time::Duration;

use outlast_cluster::Database;
use outlast_store::command::NewJob;
use outlast_store::{Command, Reply, StoreError};
use tokio::time::Instant;

use crate::arrivals::{ids, planned, put, taken};
use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

/// Longest that a statement may take here.
const LIMIT: Duration = Duration::from_secs(2);

/// Makes jobs of the queue and the type `slow` take longer than any statement may.
pub(crate) const SLOW: &str = "
    create function public.slow() returns trigger language plpgsql as
        $$ begin
            if exists (select 1 from outlast.class c
                where c.id = new.class and 'slow' in (c.queue, c.job_type))
            then perform pg_sleep(60); end if;
            return new;
        end $$;
    create trigger slow before insert on outlast.job_row
        for each row execute function public.slow()";

fn slow_job() -> NewJob {
    let mut job = job();
    job.class.queue = "slow".into();
    job
}

async fn timed(server: &Server, jobs: Vec<NewJob>) -> (Result<usize, StoreError>, Duration) {
    let began = Instant::now();
    let tried = server.try_apply(jobs.into_iter().map(enqueue).collect()).await;
    let stored = |replies: Vec<Reply>| {
        replies.iter().filter(|it| matches!(it, Reply::Enqueued(Ok(_)))).count()
    };
    (tried.map(|applied| stored(applied.replies)), began.elapsed())
}

/// It was once taken for an outage.
#[test]
fn statement_that_takes_too_long_fails_its_batch_and_is_found_soon() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_limit(&database.url, LIMIT).await;
        let client = sql(&database.url).await;
        client.batch_execute(SLOW).await.unwrap();
        // Whether it is one statement, or several with the class.
        for _ in 0..2 {
            let (tried, took) = timed(&server, vec![job(), slow_job(), job()]).await;
            assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
            assert!(took < LIMIT * 2, "{took:?}");
        }
        let (tried, took) = timed(&server, vec![slow_job()]).await;
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        assert!(took < LIMIT / 2, "{took:?}");
        let (tried, _) = timed(&server, vec![job(), job()]).await;
        assert!(matches!(tried, Ok(2)), "{tried:?}");
        assert_eq!(number(&client, "select count(*) from job_row").await, 2);
        check_places(&client).await;
    });
}

/// After eight of them in a row, each had the whole limit again.
#[test]
fn command_that_stays_slow_gets_the_whole_limit_once() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_limit(&database.url, LIMIT).await;
        let client = sql(&database.url).await;
        client.batch_execute(SLOW).await.unwrap();
        let (tried, _) = timed(&server, vec![job(), slow_job()]).await;
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        let (tried, _) = timed(&server, vec![job()]).await;
        assert!(matches!(tried, Ok(1)), "{tried:?}");
        let mut long = 0;
        for _ in 0..16 {
            let (tried, took) = timed(&server, vec![slow_job()]).await;
            assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
            long += usize::from(took >= LIMIT);
        }
        assert!(long <= 1, "{long} tries took the whole limit");
    });
}

/// An operator's `pg_cancel_backend` was taken for an outage, too.
#[test]
fn statement_that_an_operator_cancels_fails_its_batch_alone() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        let client = sql(&database.url).await;
        client.batch_execute(SLOW).await.unwrap();
        let cancelling = async {
            let cancel = "select count(*) filter (where pg_cancel_backend(pid))
                from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
            while number(&client, cancel).await == 0 {}
        };
        let ((tried, _), ()) = tokio::join!(timed(&server, vec![job(), slow_job()]), cancelling);
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        let (tried, _) = timed(&server, vec![job()]).await;
        assert!(matches!(tried, Ok(1)), "{tried:?}");
    });
}

/// One job that a trigger held up would have kept every other of its page from being enqueued.
#[test]
fn arrival_whose_job_takes_too_long_keeps_no_other_waiting() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_limit(&database.url, LIMIT).await;
        let client = sql(&database.url).await;
        client.batch_execute(SLOW).await.unwrap();
        let first = put(&client, "'work'").await.unwrap();
        put(&client, "'slow'").await.unwrap();
        let last = put(&client, "'work'").await.unwrap();
        let order = planned(&server, 10, None).await;
        let tried = server.try_apply(vec![Command::EnqueueArrived(order)]).await;
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        assert_eq!(ids(&taken(&server, 10).await), [first, last]);
        check_places(&client).await;
    });
}

/// Makes each claim of a job take longer than a statement may while the writer waits briefly.
const SLOW_CLAIM: &str = "
    create function public.slow_claim() returns trigger language plpgsql as
        $$ begin perform pg_sleep(0.8); return new; end $$;
    create trigger slow_claim before insert on outlast.active
        for each row execute function public.slow_claim()";

/// For five minutes after one slow statement, such claims were refused.
#[test]
fn claim_that_is_too_slow_after_a_slow_statement_goes_through_at_its_next_try() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::with_limit(&database.url, LIMIT * 2).await;
        let client = sql(&database.url).await;
        client.batch_execute(SLOW).await.unwrap();
        client.batch_execute(SLOW_CLAIM).await.unwrap();
        let jobs = server.add(3).await;
        let worker = server.worker().await;
        let claim = server.claiming(worker, 1).await;
        let (tried, _) = timed(&server, vec![job(), slow_job()]).await;
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        let tried = server.try_apply(vec![claim.clone()]).await;
        let Err(StoreError::Slow(slow)) = tried else { panic!("brief: {tried:?}") };
        assert_eq!(slow.chosen.iter().map(|it| it.job).collect::<Vec<_>>(), jobs[..1]);
        // From then on, also in batches with others.
        for commands in [vec![claim.clone()], vec![enqueue(job()), claim.clone()]] {
            let replies = server.try_apply(commands).await.unwrap().replies;
            let Some(Reply::Claimed(Ok(claims))) = replies.last() else { panic!("{replies:?}") };
            assert_eq!(claims.jobs.len(), 1);
        }
        // What is always slow still costs little.
        let (tried, took) = timed(&server, vec![job(), slow_job()]).await;
        assert!(matches!(tried, Err(StoreError::Slow(_))), "{tried:?}");
        assert!(took < LIMIT, "{took:?}");
        check_places(&client).await;
    });
}
