//! History by day: made ahead, dropped when it is old, and never in the way of work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast_cluster::Database;
use outlast_core::id::{Epoch, JobId};
use outlast_core::leadership::LeadershipRefusal;
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    JobAction, LeadershipFence, LeadershipRequest, LogChunk, Prune, RETENTION, ReportedOutcome,
    Stream,
};
use outlast_store::partitions::{DAY_MS, Maintain, Maintained};
use outlast_store::store::ManualClock;
use outlast_store::{Clock as _, Command, Reply, Store as _};
use outlast_store_postgres::{Options, PostgresSource};
use tokio_postgres::Client;

use crate::hand::{Server, check_places, finish, forget, number, order, run, sql};
use crate::load::Player;
use crate::transfer::{LAX, export, into_postgres};

/// Noon of a day long before any test runs.
const NOON: Timestamp = Timestamp(19_000 * DAY_MS + DAY_MS / 2);
const DAY: u32 = 24 * 3600 * 1000;
const TABLES: [&str; 3] = ["event_batch", "attempt_row", "log"];

async fn at(url: &str, clock: &ManualClock) -> Server {
    let options = Options { unsafe_no_fsync: true, clock: Some(Arc::new(clock.clone())) };
    Server::with(url, &options).await
}

async fn leadership(server: &Server) -> LeadershipFence {
    let (name, holder) = (RETENTION.to_owned(), server.id);
    let hold = Some(Span::from_secs(60));
    match server
        .one(Command::Leadership(LeadershipRequest { name: name.clone(), holder, hold }))
        .await
    {
        Reply::Leadership(Ok(leadership)) => {
            LeadershipFence { name, holder, epoch: leadership.epoch }
        }
        other => panic!("another server leads: {other:?}"),
    }
}

async fn maintain(server: &Server, finished_before: Timestamp) -> Maintained {
    let order = Maintain { leadership: leadership(server).await, finished_before, limit: 1_000 };
    server.store.maintain(order).await.unwrap().unwrap()
}

/// Forgets what ended before a time.
async fn prune(server: &Server, finished_before: Timestamp) -> u32 {
    let (leadership, workers_before) = (leadership(server).await, finished_before);
    let limit = 1_000;
    let prune = Prune { leadership, finished_before, workers_before, limit, from_start: true };
    match server.one(Command::Prune(prune)).await {
        Reply::Pruned(Ok(pruned)) => pruned.jobs,
        other => panic!("not a prune's reply: {other:?}"),
    }
}

/// Makes the first deletion of an ended job fail at its commit, as a deadlock would.
const FAILS_ONCE: &str = "
    create sequence public.commits;
    create function public.fail_once() returns trigger language plpgsql as $$ begin
        if nextval('public.commits') = 1 then
            raise exception 'once' using errcode = 'serialization_failure';
        end if;
        return null;
    end $$;
    create constraint trigger fail_once after delete on finished deferrable initially deferred
        for each row execute function public.fail_once()";

/// Where the next prune goes on is kept with the commit: a try that failed once had a page skipped.
#[test]
fn prune_that_is_tried_again_skips_no_job() {
    let database = Database::new().unwrap();
    run(async {
        let server = Server::open(&database.url).await;
        for id in server.add(30).await {
            server.one(Command::Order(order(JobAction::Cancel, id))).await;
        }
        let leadership = leadership(&server).await;
        let page = async |from_start| {
            let (leadership, all) = (leadership.clone(), Timestamp(i64::MAX));
            let (finished_before, workers_before, limit) = (all, all, 10);
            let prune = Prune { leadership, finished_before, workers_before, limit, from_start };
            match server.one(Command::Prune(prune)).await {
                Reply::Pruned(Ok(pruned)) => (pruned.jobs, pruned.more),
                other => panic!("not a prune's reply: {other:?}"),
            }
        };
        let client = sql(&database.url).await;
        assert_eq!(page(true).await, (10, true));
        client.batch_execute(FAILS_ONCE).await.unwrap();
        assert_eq!(page(false).await, (10, true));
        assert_eq!(number(&client, "select last_value from public.commits").await, 11);
        assert_eq!(page(false).await, (10, true));
        assert_eq!(page(false).await, (0, false));
        assert_eq!(count(&client, "job_row").await, 0);
        check_places(&client).await;
    });
}

async fn days(client: &Client, table: &str) -> Vec<i64> {
    let sql = "select (to_date(right(inhrelid::regclass::text, 8), 'YYYYMMDD')
                   - date '1970-01-01')::bigint
               from pg_inherits where inhparent = $1::text::regclass
               and inhrelid::regclass::text !~ 'default' order by 1";
    let rows = client.query(sql, &[&table]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

async fn count(client: &Client, table: &str) -> i64 {
    number(client, &format!("select count(*) from {table}")).await
}

/// Runs a job that prints a line and ends so.
async fn work(server: &Server, reported: ReportedOutcome) -> JobId {
    let worker = server.worker().await;
    let job = server.add(1).await.remove(0);
    let claimed = server.claim(worker, 1).await;
    let (epoch, bytes) = (claimed[0].epoch, b"a line".to_vec());
    let chunk = LogChunk { job, epoch, n: 0, stream: Stream::Stdout, bytes };
    server.apply(vec![Command::Log(chunk), finish(worker, job, epoch, reported)]).await;
    job
}

fn hopeless() -> ReportedOutcome {
    ReportedOutcome::Failed { error_type: "error".into(), retryable: false }
}

async fn shown(server: &Server, job: JobId) -> (usize, usize) {
    let query = outlast_store::query::LogQuery { job, after: 0, limit: 100 };
    let lines = server.store.logs(query).await.unwrap().lines.len();
    (server.store.attempts(job).await.unwrap().len(), lines)
}

#[test]
fn days_are_made_ahead_by_the_migration_and_by_the_leader() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        let client = sql(&database.url).await;
        let today = "select floor(extract(epoch from now()) / 86400)::bigint";
        let today = number(&client, today).await;
        for table in TABLES {
            let made = days(&client, table).await;
            // The day may have changed since.
            assert!(made.contains(&today) && made.contains(&(today + 2)), "{made:?}, {today}");
        }
        let far = Timestamp(0);
        assert_eq!(maintain(&server, far).await, Maintained { made: 12, ..Maintained::default() });
        assert_eq!(maintain(&server, far).await, Maintained::default());
        clock.advance(DAY);
        assert_eq!(maintain(&server, far).await, Maintained { made: 3, ..Maintained::default() });
        assert_eq!(days(&client, "log").await[..5], [19_000, 19_001, 19_002, 19_003, 19_004]);
        work(&server, ReportedOutcome::Completed).await;
        for table in TABLES {
            assert_eq!(count(&client, &format!("{table}_default")).await, 0);
            assert!(count(&client, &format!("{table}_20220109")).await > 0, "{table}");
        }
    });
}

#[test]
fn what_is_in_the_default_partition_moves_to_its_day_when_that_is_made() {
    let database = Database::new().unwrap();
    run(async {
        let server = at(&database.url, &ManualClock::at(NOON)).await;
        let client = sql(&database.url).await;
        let job = work(&server, ReportedOutcome::Completed).await;
        for table in TABLES {
            assert!(count(&client, &format!("{table}_default")).await > 0, "{table}");
        }
        let before = shown(&server, job).await;
        assert_eq!(before, (1, 1));
        assert_eq!(maintain(&server, Timestamp(0)).await.made, 12);
        for table in TABLES {
            assert_eq!(count(&client, &format!("{table}_default")).await, 0);
            assert!(count(&client, &format!("{table}_20220108")).await > 0, "{table}");
        }
        assert_eq!(shown(&server, job).await, before);
    });
}

#[test]
fn day_that_is_old_goes_at_once_and_a_job_that_is_kept_keeps_its_history() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        let client = sql(&database.url).await;
        maintain(&server, Timestamp(0)).await;
        let letter = work(&server, hopeless()).await;
        let ended = work(&server, ReportedOutcome::Completed).await;
        clock.advance(2 * DAY);
        let before = Timestamp(clock.now().0 - i64::from(DAY));
        assert_eq!(prune(&server, before).await, 1);
        // Its history is still stored, and no reader sees it.
        assert_eq!(count(&client, "attempt_row").await, 2);
        assert_eq!((shown(&server, ended).await, shown(&server, letter).await), ((0, 0), (1, 1)));
        assert_eq!(number(&client, "select count(*) from attempt").await, 1);
        let maintained = maintain(&server, before).await;
        assert_eq!((maintained.dropped, maintained.put_off), (3, 0));
        for table in TABLES {
            assert_eq!(days(&client, table).await[0], 19_001, "{table}");
        }
        assert_eq!(shown(&server, letter).await, (1, 1));
        assert_eq!((count(&client, "attempt_row").await, count(&client, "log").await), (1, 1));
        // A person has dealt with it.
        server.one(Command::ForgetDeadLetter(forget(letter))).await;
        assert_eq!(prune(&server, before).await, 1);
        assert_eq!(maintain(&server, before).await.deleted, 2);
        assert_eq!((count(&client, "attempt_row").await, count(&client, "log").await), (0, 0));
    });
}

#[test]
fn of_a_day_with_many_jobs_that_are_kept_the_rest_is_deleted_in_steps() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        let client = sql(&database.url).await;
        maintain(&server, Timestamp(0)).await;
        let (kept, forgotten) = (10_001, 1_500);
        let fill = format!(
            "insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
                 select g, gen_random_uuid(), 1, 0, 1, 1, '[]', '', ''
                 from generate_series(1, {kept}) g;
             insert into attempt_row (seq, epoch, life, number, claimed, finished, outcome,
                                      next_state, by, evidence)
                 select g, 1, 1, 1, 1, {}, 'completed', 'completed', '', ''
                 from generate_series(1, {kept} + {forgotten}) g",
            NOON.0
        );
        client.batch_execute(&fill).await.unwrap();
        clock.advance(2 * DAY);
        let now = clock.now();
        for (deleted, more) in [(1_000, true), (500, false), (0, false)] {
            let maintained = maintain(&server, now).await;
            assert_eq!((maintained.deleted, maintained.more), (deleted, more));
            assert!(days(&client, "attempt_row").await.contains(&19_000));
        }
        assert_eq!(count(&client, "attempt_row").await, kept);
        client.batch_execute("delete from job_row where seq > 5000").await.unwrap();
        // All of it was read in vain: it rests for a day.
        assert_eq!(maintain(&server, now).await, Maintained::default());
        clock.advance(DAY);
        assert_eq!(maintain(&server, now).await.dropped, 1);
        assert_eq!(count(&client, "attempt_row_default").await, 5_000);
    });
}

#[test]
fn default_partition_that_keeps_many_rows_is_read_once_a_day() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        let client = sql(&database.url).await;
        maintain(&server, Timestamp(0)).await;
        let fill = async |first: i64, last: i64| {
            let fill = format!(
                "insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
                     select g, gen_random_uuid(), 1, 0, 1, 1, '[]', '', ''
                     from generate_series({first}, {last}) g;
                 insert into attempt_row (seq, epoch, life, number, claimed, finished, outcome,
                                          next_state, by, evidence)
                     select g, 1, 1, 1, 1, 1, 'completed', 'completed', '', ''
                     from generate_series({first}, {last}) g"
            );
            client.batch_execute(&fill).await.unwrap();
        };
        let forget_ten = async || {
            let forget = "delete from job_row where seq in (select seq from job_row limit 10)";
            client.batch_execute(forget).await.unwrap();
        };
        let deleted = async || maintain(&server, Timestamp(0)).await.deleted;
        fill(1, 100).await;
        forget_ten().await;
        // There are few rows: it is read each time.
        assert_eq!((deleted().await, deleted().await), (10, 0));
        forget_ten().await;
        assert_eq!(deleted().await, 10);
        fill(101, 11_000).await;
        assert_eq!(deleted().await, 0);
        forget_ten().await;
        assert_eq!(deleted().await, 0);
        clock.advance(DAY);
        assert_eq!(deleted().await, 10);
    });
}

/// A thousand of the longest jobs once went in one prune, whose statements have a limit in time.
#[test]
fn a_prune_deletes_long_jobs_in_parts() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        let client = sql(&database.url).await;
        server.add(1).await;
        let fill = "alter table job_row alter args set storage external;
             insert into job_row (seq, id, class, priority, origin, created, args, meta, extra)
                 select g, gen_random_uuid(), 1, 0, 1, 1, repeat('x', 1000000), '', ''
                 from generate_series(1001, 1150) g;
             insert into finished (seq, state, at, epoch, life, failures, losses, interruptions,
                                   isolated, attempt, shown, ended_by)
                 select g, 'completed', g, 1, 1, 0, 0, 0, false, 1, true, ''
                 from generate_series(1001, 1150) g;
             select outlast.count_tally()";
        client.batch_execute(fill).await.unwrap();
        let mut pruned = Vec::new();
        for from_start in [true, false, false] {
            let leadership = leadership(&server).await;
            let finished_before = clock.now();
            let workers_before = finished_before;
            let limit = 1_000;
            let prune = Prune { leadership, finished_before, workers_before, limit, from_start };
            match server.one(Command::Prune(prune)).await {
                Reply::Pruned(Ok(reply)) => pruned.push((reply.jobs, reply.more)),
                other => panic!("not a prune's reply: {other:?}"),
            }
        }
        assert_eq!(pruned, [(67, true), (67, true), (16, false)]);
        check_places(&client).await;
    });
}

#[test]
fn day_that_is_just_over_is_kept_however_short_the_retention() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        maintain(&server, Timestamp(0)).await;
        clock.advance(DAY / 2 + 1);
        assert_eq!(maintain(&server, Timestamp(i64::MAX)).await.dropped, 0);
        clock.advance(3600 * 1000);
        assert_eq!(maintain(&server, Timestamp(i64::MAX)).await.dropped, 3);
    });
}

/// A long read must not make others wait behind the maintenance of history.
#[test]
fn tending_is_put_off_while_somebody_works_with_a_table() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        maintain(&server, Timestamp(0)).await;
        clock.advance(2 * DAY);
        let mut other = sql(&database.url).await;
        let reading = other.transaction().await.unwrap();
        reading.query("select count(*) from attempt_row", &[]).await.unwrap();
        let now = clock.now();
        let maintained = maintain(&server, now).await;
        // Days of attempts are neither made nor dropped.
        assert_eq!(
            (maintained.put_off > 0, maintained.dropped, maintained.made),
            (true, 4, 4),
            "{maintained:?}"
        );
        work(&server, ReportedOutcome::Completed).await;
        reading.commit().await.unwrap();
        let maintained = maintain(&server, now).await;
        assert_eq!(
            (maintained.put_off, maintained.dropped, maintained.made),
            (0, 2, 2),
            "{maintained:?}"
        );
    });
}

#[test]
fn whoever_lost_the_leadership_tends_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let server = at(&database.url, &ManualClock::at(NOON)).await;
        let (fence, client) = (leadership(&server).await, sql(&database.url).await);
        for stale in [
            LeadershipFence { epoch: Epoch(7), ..fence.clone() },
            LeadershipFence { holder: uuid::Uuid::nil(), ..fence.clone() },
        ] {
            let order =
                Maintain { leadership: stale, finished_before: Timestamp(i64::MAX), limit: 10 };
            let refused = server.store.maintain(order).await.unwrap();
            assert!(matches!(refused, Err(LeadershipRefusal::Elsewhere(_))), "{refused:?}");
        }
        assert!(!days(&client, "log").await.contains(&19_000));
    });
}

/// Another server may become the leader half-way: two servers do so at once, while all servers work.
#[test]
fn servers_that_work_and_tend_at_once_lose_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let world = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let mut playing = Vec::new();
        for seed in 1..=2 {
            let mut player = Player::new(Server::open(&database.url).await, seed, &world);
            let over = Arc::clone(&over);
            playing.push(tokio::spawn(async move {
                let mut played = 0;
                while !over.load(Ordering::Relaxed) {
                    player.play().await;
                    played += 1;
                }
                played
            }));
        }
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let client = sql(&database.url).await;
        let mut dropped = 0;
        for round in 0..20_i64 {
            for table in TABLES {
                let sql = format!("select outlast.add_day('{table}', {}, 0)", 18_000 + round);
                client.batch_execute(&sql).await.unwrap();
            }
            let maintain = async |server: &Server| {
                // Players acquire and resign leadership too.
                let (name, holder) = (RETENTION.to_owned(), server.id);
                let hold = Some(Span(20));
                let ask =
                    Command::Leadership(LeadershipRequest { name: name.clone(), holder, hold });
                let Reply::Leadership(Ok(taken)) = server.one(ask).await else { return 0 };
                let leadership = LeadershipFence { name, holder, epoch: taken.epoch };
                let finished_before = Timestamp(taken.until.0 - i64::from(DAY));
                let order = Maintain { leadership, finished_before, limit: 100 };
                server
                    .store
                    .maintain(order)
                    .await
                    .unwrap()
                    .map_or(0, |maintained| maintained.dropped)
            };
            let (by_a, by_b) = tokio::join!(maintain(&a), maintain(&b));
            dropped += by_a + by_b;
        }
        over.store(true, Ordering::Relaxed);
        for player in playing {
            assert!(player.await.unwrap() > 0);
        }
        assert!(dropped > 0, "something was dropped under load");
        check_places(&client).await;
        let lost = "select count(*) from finished f where f.state = 'completed' and not exists
                        (select 1 from attempt_row t where t.seq = f.seq and t.epoch = f.epoch)";
        assert_eq!(number(&client, lost).await, 0);
    });
}

#[test]
fn reset_empties_every_day() {
    let database = Database::new().unwrap();
    run(async {
        let clock = ManualClock::at(NOON);
        let server = at(&database.url, &clock).await;
        work(&server, ReportedOutcome::Completed).await;
        maintain(&server, Timestamp(0)).await;
        clock.advance(30 * DAY);
        work(&server, hopeless()).await;
        server.one(Command::Reset).await;
        let client = sql(&database.url).await;
        for table in TABLES {
            assert_eq!(count(&client, table).await, 0, "{table}");
        }
    });
}

/// In another store the number of a forgotten job may be another job's.
#[test]
fn history_of_forgotten_jobs_does_not_move_and_that_of_others_moves_to_its_days() {
    let (database, other) = (Database::new().unwrap(), Database::new().unwrap());
    run(async {
        let server = Server::open(&database.url).await;
        let kept = work(&server, hopeless()).await;
        work(&server, ReportedOutcome::Completed).await;
        let now = server.store.now().await.unwrap();
        assert_eq!(prune(&server, Timestamp(now.0 + 1)).await, 1);
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("export");
        let source = PostgresSource::open(&database.url, &LAX).await.unwrap();
        let manifest = export(source, &place).await;
        for table in ["attempt_row", "log"] {
            let section = manifest.sections.iter().find(|section| section.name == table);
            assert_eq!(section.map(|section| section.rows), Some(1), "{table}");
        }
        into_postgres(&other.url, &place).await.unwrap();
        let client = sql(&other.url).await;
        for table in TABLES {
            assert_eq!(count(&client, &format!("{table}_default")).await, 0, "{table}");
        }
        let moved = Server::open(&other.url).await;
        assert_eq!(shown(&moved, kept).await, (1, 1));
    });
}
