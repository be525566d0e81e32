//! The contract suite and random sequences against the model, on a real PostgreSQL.

use std::future::Future;
use std::sync::Arc;

use outlast_cluster::Database;
use outlast_store::event::EventName;
use outlast_store::{Clock, Store as _};
use outlast_store_postgres::{Options, PostgresStore};
use outlast_store_rules::apply::claim::scan_budget::ScanBudget;
use outlast_store_rules::codec;
use outlast_store_testkit::conformance::{self, Harness};

use crate::hand::sql;

struct Databases {
    runtime: tokio::runtime::Runtime,
    /// One database for all cases of a test: each finds it empty.
    database: Database,
    reach: ScanBudget,
}

impl Databases {
    fn new() -> Self {
        Self::with_reach(ScanBudget::STANDARD)
    }

    fn with_reach(reach: ScanBudget) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        Self { runtime, database: Database::new().unwrap(), reach }
    }

    fn connect(&self, clock: Arc<dyn Clock>) -> PostgresStore {
        let options = Options { unsafe_no_fsync: true, clock: Some(clock) };
        let opening = PostgresStore::open_with_reach(&self.database.url, &options, self.reach);
        self.runtime.block_on(opening).unwrap()
    }
}

impl Harness for Databases {
    type Store = PostgresStore;

    fn open(&self, clock: Arc<dyn Clock>) -> PostgresStore {
        let store = self.connect(clock);
        // Every world is the same server, that begins to count again.
        let forget = async {
            let client = sql(&self.database.url).await;
            client.batch_execute("truncate server_batch, batch_slot").await.unwrap();
        };
        self.runtime.block_on(forget);
        let reset = outlast_store::Batch {
            id: outlast_store::BatchId { server: uuid::Uuid::now_v7(), n: 0 },
            jitter_seed: 0,
            budgets: outlast_core::budget::Budgets::DEFAULT,
            commands: vec![outlast_store::Command::Reset],
        };
        self.runtime.block_on(async {
            store.apply(reset.into()).await.unwrap();
            // No command forgets who leads.
            let client = sql(&self.database.url).await;
            client.batch_execute("truncate duty").await.unwrap();
        });
        store
    }

    /// A look costs a hundred queries and more.
    fn batches_per_look(&self) -> u64 {
        3
    }

    fn reopen(&self, store: PostgresStore, clock: Arc<dyn Clock>) -> PostgresStore {
        self.runtime.block_on(store.close()).unwrap();
        self.runtime.block_on(check_lanes(&self.database));
        self.connect(clock)
    }

    fn miscount(&self, _store: &PostgresStore, by: i32) {
        let miscount = "insert into gate_held select id, gen_random_uuid(), $1 from gate";
        self.runtime.block_on(async {
            let client = sql(&self.database.url).await;
            client.execute(miscount, &[&i64::from(by)]).await.unwrap();
        });
    }

    fn misname(&self, _store: &PostgresStore, name: EventName) {
        let rename = "update event_batch set body = replace(body, $1, '\"k\":\"job.invented\"')";
        let known = format!("\"k\":\"{}\"", name.word());
        self.runtime.block_on(async {
            sql(&self.database.url).await.execute(rename, &[&known]).await.unwrap();
        });
    }

    fn block_on<F: Future>(&self, call: F) -> F::Output {
        self.runtime.block_on(call)
    }
}

/// Checks that keys, lanes and classes of all jobs agree.
async fn check_lanes(database: &Database) {
    let rows = "select j.keys, j.lane, c.keyed, coalesce(k.keyed, c.keyed),
                    coalesce(r.lane, j.lane, 0)
                from job_row j join class c on c.id = j.class
                    left join ready r on r.seq = j.seq left join class k on k.id = r.class";
    for row in sql(&database.url).await.query(rows, &[]).await.unwrap() {
        let keys = codec::keys_of(row.get(0)).unwrap();
        let (lane, keyed) = (keys.lane(), !keys.is_empty());
        assert_eq!(row.get::<_, Option<i64>>(1), keyed.then_some(lane));
        let of_tables: (bool, bool, i64) = (row.get(2), row.get(3), row.get(4));
        assert_eq!(of_tables, (keyed, keyed, lane));
    }
}

macro_rules! families {
    ($($family:ident),* $(,)?) => {$(
        #[test]
        fn $family() {
            conformance::check(&Databases::new(), &conformance::$family::cases());
        }
    )*};
}

families!(
    enqueue,
    keys,
    placement,
    idempotency,
    unique,
    claim,
    report,
    race,
    standing,
    worker,
    workflow,
    workflow_lists,
    schedule,
    browser_session,
    plain,
    operation,
    order,
    failover,
    sweep,
    leadership,
    lanes,
    crowd,
    limit,
    recount,
    queue,
    fair,
    depth,
    read,
    bytes,
    events,
    durable,
);

/// Scripts for each seed: a look at everything costs hundreds of queries.
const SCRIPTS: u32 = 5;

#[test]
fn random_sequences_of_the_first_seed_do_what_the_model_does() {
    conformance::random::check_seed(&Databases::new(), 1, SCRIPTS);
}

#[test]
fn random_sequences_of_the_second_seed_do_what_the_model_does() {
    conformance::random::check_seed(&Databases::new(), 2, SCRIPTS);
}

#[test]
fn random_sequences_of_the_third_seed_do_what_the_model_does() {
    conformance::random::check_seed(&Databases::new(), 3, SCRIPTS);
}

#[test]
fn random_claims_that_look_less_far_take_only_what_may_start() {
    let harness = Databases::with_reach(ScanBudget::SHORT);
    conformance::random::check_seed_of_short_looks(&harness, 1, SCRIPTS);
}
