//! A batch whose commit was sent and not confirmed, and that cannot be looked up either.

use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::id::JobId;
use outlast_store::reply::Resolved;
use outlast_store::{Reply, StoreError};
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, job, number, run, sql};

/// Longest that a statement may take here.
const LIMIT: Duration = Duration::from_secs(1);

/// Makes every commit that takes a job wait as long as a table has rows.
const WAITING_COMMIT: &str = "
    create table public.hold (it int);
    insert into public.hold values (1);
    create function public.wait() returns trigger language plpgsql as $$ begin
        while exists (select 1 from public.hold) loop perform pg_sleep(0.02); end loop;
        return null;
    end $$;
    create constraint trigger wait after insert on active deferrable initially deferred
        for each row execute function public.wait()";

/// A server whose claim is being committed for long, and got no answer.
async fn unconfirmed(url: &str) -> (Server, Client) {
    let server = Server::with_limit(url, LIMIT).await;
    server.add(3).await;
    let worker = server.worker().await;
    let claim = server.claiming(worker, 2).await;
    let client = sql(url).await;
    client.batch_execute(WAITING_COMMIT).await.unwrap();
    let answer = server.try_apply(vec![claim]).await;
    assert!(matches!(answer, Err(StoreError::Ambiguous(_))), "{answer:?}");
    let resolved = server.resolve().await;
    assert!(matches!(resolved, Err(StoreError::Locked(_))), "{resolved:?}");
    (server, client)
}

/// Ends the session whose commit waits, so that the batch takes no effect.
async fn end_the_commit(client: &Client) {
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and wait_event = 'PgSleep'";
    assert_eq!(number(client, cut).await, 1);
}

/// Resolves the batch once the rows of that session are locked no longer.
async fn resolve_once_free(server: &Server) -> Result<Resolved, StoreError> {
    loop {
        match server.resolve().await {
            Err(StoreError::Locked(_)) => tokio::task::yield_now().await,
            resolved => break resolved,
        }
    }
}

/// No client held the jobs, and only their visibility timeout gave them back.
#[test]
fn batch_that_took_effect_after_all_says_what_it_did() {
    let database = Database::new().unwrap();
    run(async {
        let (server, client) = unconfirmed(&database.url).await;
        client.batch_execute("delete from public.hold").await.unwrap();
        while number(&client, "select count(*) from active").await == 0 {}
        let Ok(Resolved::Applied(applied)) = server.resolve().await else { panic!("not resolved") };
        let [Reply::Claimed(Ok(claims))] = applied.replies.as_slice() else {
            panic!("{:?}", applied.replies)
        };
        let claimed: Vec<JobId> = claims.jobs.iter().map(|job| job.job.id).collect();
        let held = "select j.id from active a join job_row j on j.seq = a.seq order by j.seq";
        let held = client.query(held, &[]).await.unwrap();
        let held: Vec<JobId> = held.iter().map(|row| JobId(row.get(0))).collect();
        assert_eq!(claimed, held);
        assert!(matches!(server.resolve().await, Ok(Resolved::Unknown)), "once");
        server.add(1).await;
        check_places(&client).await;
    });
}

/// Its lock counted as that of another session: each command in turn was found to be held up, and
/// the store to be well.
#[test]
fn batch_that_meets_an_earlier_one_of_its_server_is_not_to_blame() {
    let database = Database::new().unwrap();
    run(async {
        let (server, client) = unconfirmed(&database.url).await;
        for _ in 0..3 {
            let answer = server.try_apply(vec![enqueue(job())]).await;
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        client.batch_execute("delete from public.hold").await.unwrap();
        while number(&client, "select count(*) from active").await == 0 {}
        server.add(1).await;
        check_places(&client).await;
    });
}

#[test]
fn batch_that_took_no_effect_takes_none_later() {
    let database = Database::new().unwrap();
    run(async {
        let (server, client) = unconfirmed(&database.url).await;
        end_the_commit(&client).await;
        let resolved = resolve_once_free(&server).await;
        assert!(matches!(resolved, Ok(Resolved::NotApplied)), "{resolved:?}");
        let free = "select count(*) from ready";
        assert_eq!(number(&client, free).await, 3);
        server.add(1).await;
        check_places(&client).await;
    });
}

/// The number that was taken to keep the batch from taking effect was once held for the batch's own.
#[test]
fn number_that_was_taken_and_not_confirmed_does_not_say_that_the_batch_took_effect() {
    let database = Database::new().unwrap();
    run(async {
        let (server, client) = unconfirmed(&database.url).await;
        end_the_commit(&client).await;
        let fences = "create constraint trigger wait after update on outlast.server_batch
            deferrable initially deferred for each row execute function public.wait()";
        while client.batch_execute(fences).await.is_err() {}
        let silent = resolve_once_free(&server).await;
        assert!(matches!(silent, Err(StoreError::Unavailable(_))), "{silent:?}");
        client.batch_execute("delete from public.hold").await.unwrap();
        let taken = "select count(*) from outlast.server_batch b
            where b.n >= (select max(n) from outlast.batch_slot s where s.server = b.server)
            and not exists (select 1 from pg_stat_activity where wait_event = 'PgSleep')";
        while number(&client, taken).await == 0 {}
        let resolved = server.resolve().await;
        assert!(matches!(resolved, Ok(Resolved::Unknown)), "{resolved:?}");
        assert_eq!(number(&client, "select count(*) from active").await, 0);
        server.add(1).await;
        check_places(&client).await;
    });
}
