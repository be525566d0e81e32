//! Forward-only migrations under an advisory lock, so that servers may start together. A
//! newer schema is refused, and so is one that another build made.
//!
//! ```text
//! look ─nothing pending─▶ done: no lock was taken, and no right to change tables is needed
//!      ─pending─────────▶ lock, look again, apply, note, commit: all of it or nothing
//! ```

use outlast_store_rules::migration::{Found, Migration, SchemaStatus, schema_status};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient};

use crate::error::OpenError;

/// One that was released never changes: a store keeps a digest of each.
const MIGRATIONS: &[Migration] = &[
    Migration {
        name: "0001_first",
        text: concat!(
            include_str!("../migrations/0001_first/tables.sql"),
            include_str!("../migrations/0001_first/history.sql"),
            include_str!("../migrations/0001_first/limits.sql"),
            include_str!("../migrations/0001_first/batches.sql"),
            include_str!("../migrations/0001_first/tally.sql"),
            include_str!("../migrations/0001_first/views.sql"),
            include_str!("../migrations/0001_first/enqueue.sql"),
        ),
    },
    Migration {
        name: "0002_orders_and_health",
        text: include_str!("../migrations/0002_orders_and_health.sql"),
    },
    Migration { name: "0003_resources", text: include_str!("../migrations/0003_resources.sql") },
    Migration {
        name: "0004_orders_to_one_worker",
        text: include_str!("../migrations/0004_orders_to_one_worker.sql"),
    },
    Migration {
        name: "0005_handled_dead_letters",
        text: include_str!("../migrations/0005_handled_dead_letters.sql"),
    },
    Migration { name: "0006_failovers", text: include_str!("../migrations/0006_failovers.sql") },
    Migration { name: "0007_schedules", text: include_str!("../migrations/0007_schedules.sql") },
    Migration { name: "0008_workflows", text: include_str!("../migrations/0008_workflows.sql") },
    Migration {
        name: "0009_queue_counts",
        text: include_str!("../migrations/0009_queue_counts.sql"),
    },
    Migration {
        name: "0010_browser_sessions",
        text: include_str!("../migrations/0010_browser_sessions.sql"),
    },
    Migration { name: "0011_operations", text: include_str!("../migrations/0011_operations.sql") },
    Migration {
        name: "0012_charges_and_rare_events",
        text: include_str!("../migrations/0012_charges_and_rare_events.sql"),
    },
];

/// Version of the schema that this build knows.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// The lock that is held while migrating: `outlast` as a number.
const LOCK: i64 = 0x6f75_746c_6173_7400;
/// Longest that others are waited for who migrate the same database.
const OTHERS_LIMIT_S: u32 = 60;
/// Longest wait for a table. Later transactions wait behind this one, those of running servers
/// included.
const TABLE_LIMIT_S: u32 = 10;

/// Returns which migrations were applied.
pub(crate) async fn look(client: &impl GenericClient) -> Result<SchemaStatus, OpenError> {
    Ok(schema_status(MIGRATIONS, &found(client).await?)?)
}

/// Brings the schema up to date; returns which migrations ran.
pub(crate) async fn migrate(client: &mut Client) -> Result<Vec<&'static str>, OpenError> {
    if look(client).await?.pending.is_empty() {
        return Ok(Vec::new());
    }
    let step = client.transaction().await?;
    step.batch_execute(&format!("set local lock_timeout = '{OTHERS_LIMIT_S}s'")).await?;
    let locked = step.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await;
    locked.map_err(|error| busy(error, "another program migrates it", OTHERS_LIMIT_S))?;
    step.batch_execute(&format!("set local lock_timeout = '{TABLE_LIMIT_S}s'")).await?;
    let table = "another session holds a lock on one of its tables";
    let ran = apply(&step).await.map_err(|error| busy(error, table, TABLE_LIMIT_S))?;
    step.commit().await?;
    for migration in &ran {
        tracing::info!(migration, "store was migrated");
    }
    Ok(ran)
}

async fn apply(step: &tokio_postgres::Transaction<'_>) -> Result<Vec<&'static str>, Stop> {
    step.batch_execute(
        "create schema if not exists outlast;
         set local search_path = outlast, public;
         create table if not exists outlast.migration (
             version integer primary key,
             at timestamptz not null default clock_timestamp(),
             digest text not null
         )",
    )
    .await?;
    let status = look(step).await?;
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(status.applied.len()) {
        step.batch_execute(migration.text).await?;
        let now = i32::try_from(done + 1).unwrap_or(i32::MAX);
        let note = "insert into outlast.migration (version, digest) values ($1, $2)";
        step.execute(note, &[&now, &migration.digest()]).await?;
    }
    Ok(status.pending)
}

/// Why migrating stopped.
enum Stop {
    Said(tokio_postgres::Error),
    Refused(OpenError),
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Said(error)
    }
}

impl From<OpenError> for Stop {
    fn from(error: OpenError) -> Self {
        Self::Refused(error)
    }
}

fn busy(stop: impl Into<Stop>, why: &'static str, seconds: u32) -> OpenError {
    match stop.into() {
        Stop::Said(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            OpenError::Busy { why, seconds }
        }
        Stop::Said(error) => error.into(),
        Stop::Refused(error) => error,
    }
}

async fn found(client: &impl GenericClient) -> Result<Found, OpenError> {
    let columns = "select attname from pg_attribute
                   where attrelid = to_regclass('outlast.migration') and attnum > 0
                       and not attisdropped";
    let columns = client.query(columns, &[]).await?;
    if columns.is_empty() {
        return Ok(Found::default());
    }
    // Builds of before the first release kept no digest at first.
    let names: Result<Vec<&str>, _> = columns.iter().map(|row| row.try_get(0)).collect();
    let digest = if names?.contains(&"digest") { "digest" } else { "null::text" };
    let select = format!("select version, {digest} from outlast.migration");
    let mut found = Found::default();
    for row in client.query(&select, &[]).await? {
        let version = usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0);
        found.version = found.version.max(version);
        if let Some(digest) = row.try_get(1)? {
            found.digests.push((version, digest));
        }
    }
    Ok(found)
}
