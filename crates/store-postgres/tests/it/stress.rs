//! Limits under everything at once: servers whose batches fail at any point and whose connections
//! are cut, limits that change, and attempts that start, end and are lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::limit::LimitName;
use outlast_core::time::Timestamp;
use outlast_store::command::{QueueOrder, RemoveLimit};
use outlast_store::{Command, Reply, StoreError};
use tokio_postgres::Client;

use crate::hand::{Server, check_gates, check_places, number, per_tenant, run, sql};
use crate::load::{Player, RATE, World};

const SERVERS: u64 = 3;
/// The work between two looks at a store that stands still.
const ROUNDS: usize = 4;
const BATCHES: usize = 60;
/// How many batches end before the next connection is cut.
const CUT_EVERY: i64 = 15;
/// Longest that one server may need for a round on a loaded machine.
const ROUND_MAX: Duration = Duration::from_secs(100);

/// Of the commits that start or end attempts, some fail, and some take a while: a connection that
/// is cut then leaves the server in doubt.
const CRASH_POINTS: &str = "
    create function public.crash() returns trigger language plpgsql as $$
    begin
        if random() < 0.03 then raise exception 'a crash point'; end if;
        if random() < 0.05 then perform pg_sleep(0.01); end if;
        return null;
    end $$;
    create constraint trigger crash after insert or delete on active
        deferrable initially deferred for each row execute function public.crash()";

/// Cuts a connection of some server, whatever it does.
const CUT_ANY: &str = "select count(pg_terminate_backend(pid)) from (
        select pid from pg_stat_activity
        where application_name = 'outlast' and datname = current_database()
            and backend_type = 'client backend'
        order by random() limit 1) x";

/// Cuts a connection that writes a batch or commits it, if there is one.
const CUT_BATCH: &str = "select count(pg_terminate_backend(pid)) from (
        select pid from pg_stat_activity
        where application_name = 'outlast' and datname = current_database()
            and backend_xid is not null limit 1) x";

/// Every gate, at one moment: its limit, how many attempts hold it, how many it counts, and how many
/// may hold it.
const GATES: &str = "
    select (select n from limit_version), g.id, g.limit_name, coalesce(c.in_flight, 0),
        coalesce((select sum(h.n) from gate_held h where h.gate = g.id), 0)::bigint,
        (select r.concurrency from limit_rule r where r.name = g.limit_name)
    from gate g left join outlast.gate_counted c on c.id = g.id";

/// Attempts of tenants that no gate counts: the limit on tenants is always there.
const UNCOUNTED: &str = "
    select count(*) from active a join job_row j on j.seq = a.seq
    where j.keys is not null and not exists (
        select 1 from gate g where g.limit_name = 'tenant' and a.gates @> array[g.id])";

/// Jobs that wait although every gate of theirs is open.
const LEFT: &str = "
    select count(*) from ready r join job_row j on j.seq = r.seq join class c on c.id = r.class
    where not c.isolated
        and (r.expires is null or r.expires > extract(epoch from clock_timestamp()) * 1000)
        and not exists (
            select 1 from limit_rule l join gate g on g.limit_name = l.name
            where (g.value is null or j.keys like '%' || g.value || '%')
                and l.concurrency <= (select sum(h.n) from gate_held h where h.gate = g.id))";

const HELD: &str = "select a.worker, j.id, a.epoch from active a join job_row j on j.seq = a.seq";

const NOW: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// Looks at committed states while servers work.
struct Watcher {
    client: Client,
    version: i64,
    /// How many attempts held each gate, as seen last.
    before: HashMap<i64, i64>,
    looks: usize,
}

impl Watcher {
    async fn look(&mut self) {
        let mut seen = HashMap::new();
        let mut version = self.version;
        for row in self.client.query(GATES, &[]).await.unwrap() {
            version = row.get(0);
            let (gate, limit): (i64, String) = (row.get(1), row.get(2));
            let (held, counted): (i64, i64) = (row.get(3), row.get(4));
            assert_eq!(held, counted, "gate {gate} of {limit}");
            if let Some(most) = row.get::<_, Option<i64>>(5).filter(|_| version == self.version) {
                // A limit that was lowered ends nothing, but nothing starts.
                let most = most.max(self.before.get(&gate).copied().unwrap_or(0));
                assert!(held <= most, "{held} hold a gate of {limit}, {most} may");
                self.looks += 1;
            }
            seen.insert(gate, held);
        }
        (self.version, self.before) = (version, seen);
        assert_eq!(number(&self.client, UNCOUNTED).await, 0);
    }

    async fn reconcile(&self, world: &Mutex<World>) {
        let rows = self.client.query(HELD, &[]).await.unwrap();
        let held = rows.iter().map(|row| {
            let epoch = Epoch(row.get::<_, i64>(2).unsigned_abs());
            (row.get::<_, Option<_>>(0).map(WorkerId), JobId(row.get(1)), epoch)
        });
        world.lock().unwrap().reconcile(held.collect());
    }
}

/// What became of batches.
#[derive(Debug, Default)]
struct Tries {
    applied: AtomicI64,
    failed: AtomicI64,
    cut: AtomicI64,
}

impl Tries {
    fn ended(&self) -> i64 {
        [&self.applied, &self.failed, &self.cut].map(number_of).iter().sum()
    }
}

fn number_of(count: &AtomicI64) -> i64 {
    count.load(Ordering::SeqCst)
}

async fn work(mut player: Player, url: String, tries: Arc<Tries>) -> Player {
    let client = sql(&url).await;
    for _ in 0..BATCHES {
        let now = Timestamp(number(&client, NOW).await);
        match player.try_to_play(now).await {
            Ok(()) => tries.applied.fetch_add(1, Ordering::SeqCst),
            Err(StoreError::Ambiguous(_) | StoreError::Unavailable(_) | StoreError::Locked(_)) => {
                tries.cut.fetch_add(1, Ordering::SeqCst)
            }
            Err(other) => {
                assert!(other.to_string().contains("a crash point"), "{other}");
                tries.failed.fetch_add(1, Ordering::SeqCst)
            }
        };
    }
    player
}

/// Waits until what was cut off has been rolled back or committed.
async fn await_quiet(client: &Client) {
    let busy = "select count(*) from pg_stat_activity
        where application_name = 'outlast' and datname = current_database() and state <> 'idle'";
    let waiting = async { while number(client, busy).await > 0 {} };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
}

/// What stands still is right, and claims of a server that knows nothing leave nothing behind that
/// may start.
async fn check(url: &str, watcher: &mut Watcher) {
    let client = sql(url).await;
    await_quiet(&client).await;
    client.batch_execute("alter table active disable trigger crash").await.unwrap();
    watcher.look().await;
    check_places(&client).await;
    check_gates(&client).await;
    let server = Server::open(url).await;
    let by = || "operator".to_owned();
    let rate = RemoveLimit { name: LimitName::new(RATE).unwrap(), configured: false, by: by() };
    let resume = QueueOrder { queue: "default".into(), paused: false, by: by() };
    server.apply(vec![Command::RemoveLimit(rate), Command::Queue(resume)]).await;
    let worker = server.worker().await;
    let mut empty = 0;
    for _ in 0..100 {
        let claim = server.claiming(worker, 100).await;
        match server.one(claim).await {
            Reply::Claimed(Ok(claims)) if claims.jobs.is_empty() => empty += 1,
            Reply::Claimed(Ok(_)) => empty = 0,
            other => panic!("{other:?}"),
        }
        if empty == 5 {
            break;
        }
    }
    assert_eq!(empty, 5, "claims do not end");
    assert_eq!(number(&client, LEFT).await, 0, "jobs wait for nothing");
    watcher.look().await;
    check_places(&client).await;
    client.batch_execute("alter table active enable trigger crash").await.unwrap();
}

#[test]
fn limits_hold_and_count_right_whatever_fails_and_no_job_waits_for_nothing() {
    let database = Database::new().unwrap();
    run(async {
        let url = database.url.clone();
        let world: Arc<Mutex<World>> = Arc::default();
        let mut players = Vec::new();
        for seed in 1..=SERVERS {
            players.push(Player::new(Server::open(&url).await, seed, &world));
        }
        Server::open(&url).await.one(per_tenant(3)).await;
        let (cutter, tries) = (sql(&url).await, Arc::new(Tries::default()));
        cutter.batch_execute(CRASH_POINTS).await.unwrap();
        let client = sql(&url).await;
        let mut watcher = Watcher { client, version: -1, before: HashMap::new(), looks: 0 };
        let mut cut_batches = 0;
        for _ in 0..ROUNDS {
            let start = |player| tokio::spawn(work(player, url.clone(), Arc::clone(&tries)));
            let working: Vec<_> = players.drain(..).map(start).collect();
            let watching = async {
                while working.iter().any(|working| !working.is_finished()) {
                    watcher.look().await;
                    watcher.reconcile(&world).await;
                    if tries.ended() / CUT_EVERY > cut_batches {
                        number(&cutter, CUT_ANY).await;
                        cut_batches += number(&cutter, CUT_BATCH).await;
                    }
                }
            };
            tokio::time::timeout(ROUND_MAX, watching).await.unwrap();
            for working in working {
                players.push(working.await.unwrap());
            }
            check(&url, &mut watcher).await;
        }
        let counts = (number_of(&tries.applied), number_of(&tries.failed), cut_batches);
        assert!(counts.0 > 200 && counts.1 > 10 && counts.2 > 20, "{counts:?}");
        assert!(watcher.looks > 500, "{} looks", watcher.looks);
    });
}
