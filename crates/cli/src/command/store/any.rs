//! One store or the other: what serves is compiled once, whatever it stores in.

use std::sync::Arc;

use outlast_core::duty::DutyRefusal;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::time::Timestamp;
use outlast_store::event::{EventPage, EventQuery};
use outlast_store::query::{
    Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery, Page,
    QueuePause, QueueStats, StoreFacts, WorkerPage, WorkerQuery,
};
use outlast_store::record::{AttemptRecord, Held, JobRecord, WorkerBrief, WorkerRecord};
use outlast_store::signal::{Heard, Signal};
use outlast_store::tally::ClassCounts;
use outlast_store::tend::{Tend, Tended};
use outlast_store::{Applied, Batch, Store, StoreError};
use outlast_store_postgres::PostgresStore;
use outlast_store_sqlite::SqliteStore;
use uuid::Uuid;

/// The store that the configuration named.
#[derive(Clone, Debug)]
pub(crate) enum AnyStore {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Store for AnyStore {
    async fn apply(&self, batch: Batch) -> Result<Applied, StoreError> {
        match self {
            Self::Sqlite(store) => store.apply(batch).await,
            Self::Postgres(store) => store.apply(batch).await,
        }
    }

    fn beats_come_from(&self, server: Uuid) {
        match self {
            Self::Sqlite(store) => store.beats_come_from(server),
            Self::Postgres(store) => store.beats_come_from(server),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match self {
            Self::Sqlite(store) => store.now().await,
            Self::Postgres(store) => store.now().await,
        }
    }

    async fn job(&self, id: JobId) -> Result<Option<JobRecord>, StoreError> {
        match self {
            Self::Sqlite(store) => store.job(id).await,
            Self::Postgres(store) => store.job(id).await,
        }
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        match self {
            Self::Sqlite(store) => store.jobs(query).await,
            Self::Postgres(store) => store.jobs(query).await,
        }
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptRecord>, StoreError> {
        match self {
            Self::Sqlite(store) => store.attempts(id).await,
            Self::Postgres(store) => store.attempts(id).await,
        }
    }

    async fn logs(&self, query: LogQuery) -> Result<LogPage, StoreError> {
        match self {
            Self::Sqlite(store) => store.logs(query).await,
            Self::Postgres(store) => store.logs(query).await,
        }
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        match self {
            Self::Sqlite(store) => store.workers().await,
            Self::Postgres(store) => store.workers().await,
        }
    }

    async fn workers_page(&self, query: WorkerQuery) -> Result<WorkerPage, StoreError> {
        match self {
            Self::Sqlite(store) => store.workers_page(query).await,
            Self::Postgres(store) => store.workers_page(query).await,
        }
    }

    async fn live_workers(&self) -> Result<Vec<WorkerRecord>, StoreError> {
        match self {
            Self::Sqlite(store) => store.live_workers().await,
            Self::Postgres(store) => store.live_workers().await,
        }
    }

    async fn fleet(&self) -> Result<Vec<WorkerBrief>, StoreError> {
        match self {
            Self::Sqlite(store) => store.fleet().await,
            Self::Postgres(store) => store.fleet().await,
        }
    }

    async fn workers_named(&self, ids: Vec<WorkerId>) -> Result<Vec<WorkerRecord>, StoreError> {
        match self {
            Self::Sqlite(store) => store.workers_named(ids).await,
            Self::Postgres(store) => store.workers_named(ids).await,
        }
    }

    async fn held_by(&self, worker: WorkerId) -> Result<Vec<Held>, StoreError> {
        match self {
            Self::Sqlite(store) => store.held_by(worker).await,
            Self::Postgres(store) => store.held_by(worker).await,
        }
    }

    async fn backlog(&self) -> Result<Vec<ClassBacklog>, StoreError> {
        match self {
            Self::Sqlite(store) => store.backlog().await,
            Self::Postgres(store) => store.backlog().await,
        }
    }

    async fn tally(&self) -> Result<Vec<ClassCounts>, StoreError> {
        match self {
            Self::Sqlite(store) => store.tally().await,
            Self::Postgres(store) => store.tally().await,
        }
    }

    async fn pauses(&self) -> Result<Vec<QueuePause>, StoreError> {
        match self {
            Self::Sqlite(store) => store.pauses().await,
            Self::Postgres(store) => store.pauses().await,
        }
    }

    async fn claimable(&self, max: u32) -> Result<Vec<Claimable>, StoreError> {
        match self {
            Self::Sqlite(store) => store.claimable(max).await,
            Self::Postgres(store) => store.claimable(max).await,
        }
    }

    async fn queues(&self) -> Result<Vec<QueueStats>, StoreError> {
        match self {
            Self::Sqlite(store) => store.queues().await,
            Self::Postgres(store) => store.queues().await,
        }
    }

    async fn dead_letters(&self, page: Page) -> Result<DeadLetterPage, StoreError> {
        match self {
            Self::Sqlite(store) => store.dead_letters(page).await,
            Self::Postgres(store) => store.dead_letters(page).await,
        }
    }

    async fn events(&self, query: EventQuery) -> Result<EventPage, StoreError> {
        match self {
            Self::Sqlite(store) => store.events(query).await,
            Self::Postgres(store) => store.events(query).await,
        }
    }

    async fn events_end(&self) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(store) => store.events_end().await,
            Self::Postgres(store) => store.events_end().await,
        }
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        match self {
            Self::Sqlite(store) => store.next_due().await,
            Self::Postgres(store) => store.next_due().await,
        }
    }

    async fn arrivals(&self, only: Option<JobId>) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(store) => store.arrivals(only).await,
            Self::Postgres(store) => store.arrivals(only).await,
        }
    }

    async fn tend(&self, tend: Tend) -> Result<Result<Tended, DutyRefusal>, StoreError> {
        match self {
            Self::Sqlite(store) => store.tend(tend).await,
            Self::Postgres(store) => store.tend(tend).await,
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }

    fn tell(&self, signals: Vec<Signal>) {
        match self {
            Self::Sqlite(store) => store.tell(signals),
            Self::Postgres(store) => store.tell(signals),
        }
    }

    fn listen(&self, hear: Arc<dyn Fn(Heard) + Send + Sync>) {
        match self {
            Self::Sqlite(store) => store.listen(hear),
            Self::Postgres(store) => store.listen(hear),
        }
    }

    fn has_one_writer(&self) -> bool {
        match self {
            Self::Sqlite(store) => store.has_one_writer(),
            Self::Postgres(store) => store.has_one_writer(),
        }
    }

    fn facts(&self) -> StoreFacts {
        match self {
            Self::Sqlite(store) => store.facts(),
            Self::Postgres(store) => store.facts(),
        }
    }
}
