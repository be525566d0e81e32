//! PostgreSQL goes away at any moment: what was answered is so, and the store comes back by
//! itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outlast_cluster::{Cluster, Database, Stop};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::Timestamp;
use outlast_store::command::ReportedOutcome;
use outlast_store::reply::EnqueueRefusal;
use outlast_store::signal::{Heard, Signal};
use outlast_store::store::ManualClock;
use outlast_store::{Command, Reply, Store as _, StoreError};
use outlast_store_postgres::Options;
use tokio_postgres::Client;

use crate::hand::{Server, check_places, enqueue, finish, job, number, run, sql};

/// Longest that the store may need to come back on a loaded machine.
const BACK: Duration = Duration::from_secs(40);
/// Longest that a batch may wait for a PostgreSQL that says nothing.
const SILENCE: Duration = Duration::from_secs(25);
const JOBS: usize = 3;

/// What a server was answered, and what it was not.
#[derive(Debug, Default)]
struct Ledger {
    stored: Vec<JobId>,
    refused: Vec<JobId>,
    finished: Vec<(JobId, Epoch)>,
    unsure: usize,
}

/// Stores, claims and finishes jobs until it must stop; counts the batches that were
/// answered.
async fn write(
    server: Server,
    worker: WorkerId,
    claim: Command,
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) -> Ledger {
    let mut ledger = Ledger::default();
    let mut held: Vec<(JobId, Epoch)> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let jobs: Vec<_> = (0..JOBS).map(|_| job()).collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let mut commands: Vec<_> = jobs.into_iter().map(enqueue).collect();
        let done =
            held.iter().map(|(id, epoch)| finish(worker, *id, *epoch, ReportedOutcome::Completed));
        commands.extend(done);
        commands.push(claim.clone());
        match server.try_apply(commands).await {
            Ok(applied) => {
                ledger.stored.extend(ids);
                let replies = applied.replies.iter().skip(JOBS);
                for ((id, epoch), reply) in held.drain(..).zip(replies) {
                    assert!(matches!(reply, Reply::Moved(Ok(_))), "{reply:?}");
                    ledger.finished.push((id, epoch));
                }
                let Some(Reply::Claimed(Ok(claimed))) = applied.replies.last() else {
                    panic!("{:?}", applied.replies.last())
                };
                held.extend(claimed.jobs.iter().map(|claimed| (claimed.job.id, claimed.epoch)));
                answered.fetch_add(1, Ordering::SeqCst);
            }
            Err(StoreError::Ambiguous(_)) => {
                ledger.unsure += 1;
                // They may be finished, and what was claimed is not known.
                held.clear();
            }
            Err(StoreError::Unavailable(_) | StoreError::Locked(_)) => {
                ledger.refused.extend(ids);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
    ledger
}

impl Ledger {
    async fn check(&self, client: &Client) {
        check_places(client).await;
        let ids = |jobs: &[JobId]| jobs.iter().map(|job| job.0).collect::<Vec<_>>();
        let count = "select count(*) from job_row where id = any($1)";
        let stored = client.query_one(count, &[&ids(&self.stored)]).await.unwrap();
        assert_eq!(stored.get::<_, i64>(0), i64::try_from(self.stored.len()).unwrap());
        let refused = client.query_one(count, &[&ids(&self.refused)]).await.unwrap();
        assert_eq!(refused.get::<_, i64>(0), 0, "refused and stored all the same");
        let enqueued = "select count(*) from event
                        where type = 'job.enqueued' and job = any($1)";
        let logged = client.query_one(enqueued, &[&ids(&self.stored)]).await.unwrap();
        assert_eq!(logged.get::<_, i64>(0), i64::try_from(self.stored.len()).unwrap());
        let (jobs, epochs): (Vec<_>, Vec<_>) = self
            .finished
            .iter()
            .map(|(job, epoch)| (job.0, i64::try_from(epoch.0).unwrap()))
            .unzip();
        let ended = "select count(*) from attempt t
                     join unnest($1::uuid[], $2::bigint[]) k(job, epoch)
                         on k.job = t.job and k.epoch = t.epoch
                     join job j on j.id = t.job and j.state = 'completed'";
        let ended = client.query_one(ended, &[&jobs, &epochs]).await.unwrap();
        assert_eq!(ended.get::<_, i64>(0), i64::try_from(jobs.len()).unwrap());
    }
}

/// Waits until some more batches were answered.
async fn more(answered: &AtomicUsize, count: usize) {
    let wanted = answered.load(Ordering::SeqCst) + count;
    let waiting = async {
        while answered.load(Ordering::SeqCst) < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(BACK, waiting).await.unwrap();
}

struct Load {
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<Ledger>>,
}

impl Load {
    async fn start(url: &str, servers: usize) -> Self {
        let (answered, stop) = (Arc::default(), Arc::default());
        let mut load = Self { answered, stop, writers: Vec::new() };
        for _ in 0..servers {
            let server = Server::with(url, &Options::default()).await;
            // Nothing goes wrong until it has begun.
            let worker = server.worker().await;
            server.add(1).await;
            let claim = server.claiming(worker, 2).await;
            let (answered, stop) = (Arc::clone(&load.answered), Arc::clone(&load.stop));
            load.writers.push(tokio::spawn(write(server, worker, claim, answered, stop)));
        }
        more(&load.answered, 5).await;
        load
    }

    async fn end(self, client: &Client) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            let ledger = writer.await.unwrap();
            assert!(ledger.stored.len() > 10, "{} stored", ledger.stored.len());
            ledger.check(client).await;
        }
    }
}

#[test]
fn batches_whose_connection_is_cut_at_any_moment_take_effect_once_or_not_at_all() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let load = Load::start(&url, 2).await;
        let client = sql(&url).await;
        for round in 0..60 {
            let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                       where application_name = 'outlast' and pid <> pg_backend_pid()";
            number(&client, cut).await;
            more(&load.answered, 1 + round % 3).await;
            // Another moment of a batch each time.
            tokio::time::sleep(Duration::from_micros(u64::try_from(round).unwrap() * 173)).await;
        }
        load.end(&client).await;
    });
}

#[test]
fn store_comes_back_by_itself_however_postgres_was_stopped() {
    let mut cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let load = Load::start(&url, 2).await;
        for how in [Stop::Fast, Stop::Immediate, Stop::Kill, Stop::Kill, Stop::Immediate] {
            tokio::task::block_in_place(|| {
                cluster.stop(how).unwrap();
                cluster.start_again().unwrap();
            });
            more(&load.answered, 10).await;
        }
        load.end(&sql(&url).await).await;
    });
}

/// Makes every commit that stores a job take a second.
const SLOW_COMMIT: &str = "
    create function public.slow() returns trigger language plpgsql as
        $$ begin perform pg_sleep(1); return null; end $$;
    create constraint trigger slow after insert on job_row deferrable initially deferred
        for each row execute function public.slow()";

/// Waits for a backend that is committing, and returns its process id.
async fn committing(client: &Client) -> i32 {
    let sql = "select pid from pg_stat_activity where wait_event = 'PgSleep'";
    let waiting = async {
        loop {
            if let Some(row) = client.query_opt(sql, &[]).await.unwrap() {
                return row.get(0);
            }
        }
    };
    tokio::time::timeout(BACK, waiting).await.unwrap()
}

#[test]
fn batch_cut_while_it_is_committed_is_looked_up_and_stored_once() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        // By a clock of its own: what only stores jobs need not ask for the time.
        let clock = Some(Arc::new(ManualClock::at(Timestamp(1_800_000_000_000))) as Arc<_>);
        let options = Options { clock, ..Options::default() };
        let server = Arc::new(Server::with(&url, &options).await);
        let client = sql(&url).await;
        client.batch_execute(SLOW_COMMIT).await.unwrap();
        // The first makes the class and commits by itself; the second is one statement.
        for jobs in 1..=2 {
            let adding = Arc::clone(&server);
            let adding = tokio::spawn(async move { adding.add(1).await });
            let pid = committing(&client).await;
            client.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
            assert_eq!(adding.await.unwrap().len(), 1);
            assert_eq!(number(&client, "select count(*) from job_row").await, jobs);
            check_places(&client).await;
        }
    });
}

#[test]
fn postgres_that_hangs_without_a_word_is_unavailable_until_it_goes_on() {
    let cluster = Cluster::start(&[]).unwrap();
    let url = cluster.create_database().unwrap();
    run(async {
        let server = Server::with(&url, &Options::default()).await;
        server.add(1).await;
        cluster.freeze_all().unwrap();
        let lost = job();
        let hanging = tokio::time::timeout(SILENCE, server.try_apply(vec![enqueue(lost.clone())]));
        let answer = hanging.await.unwrap();
        // All of it was sent: PostgreSQL may still carry it out when it goes on.
        assert!(matches!(answer, Err(StoreError::Ambiguous(_))), "{answer:?}");
        let telling = tokio::time::timeout(SILENCE, outlast_store::Store::now(&server.store));
        assert!(telling.await.unwrap().is_err());
        cluster.thaw_all().unwrap();
        server.add(1).await;
        let again = server.apply(vec![enqueue(lost.clone())]).await;
        let there = matches!(
            again.first(),
            Some(Reply::Enqueued(Ok(_) | Err(EnqueueRefusal::DuplicateId(_))))
        );
        assert!(there, "{again:?}");
        let client = sql(&url).await;
        assert_eq!(number(&client, "select count(*) from job_row").await, 3);
        check_places(&client).await;
    });
}

/// A pause that could not be told was once never heard of by the others, whose lines were well.
#[test]
fn others_hear_of_what_a_broken_line_could_not_tell() {
    let database = Database::new().unwrap();
    run(async {
        let (a, b) = (Server::open(&database.url).await, Server::open(&database.url).await);
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let joined = say.clone();
        a.store.listen(Arc::new(move |it| drop(joined.send(it))));
        assert_eq!(heard.recv().await, Some(Heard::Missed), "the line is there");
        let client = sql(&database.url).await;
        let line = "select pid::bigint from pg_stat_activity
            where datname = current_database() and application_name = 'outlast notify'";
        let line = number(&client, line).await;
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        b.store.listen(Arc::new(move |it| drop(say.send(it))));
        assert_eq!(heard.recv().await, Some(Heard::Missed), "the line is there");
        client.execute("select pg_terminate_backend($1::bigint::int)", &[&line]).await.unwrap();
        a.store.signal(vec![Signal::Queue { queue: "q".into(), paused: true }]);
        let hears = async {
            loop {
                if let Some(Heard::Signals(signals)) = heard.recv().await {
                    return signals;
                }
            }
        };
        let signals = tokio::time::timeout(Duration::from_secs(60), hears).await.unwrap();
        assert!(
            signals.iter().all(|it| matches!(it, Signal::Missed | Signal::Queue { .. })),
            "{signals:?}"
        );
    });
}
