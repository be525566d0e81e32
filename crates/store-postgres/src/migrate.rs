//! Forward-only migrations under an advisory lock, so that servers may start together. A
//! newer schema is refused.

use tokio_postgres::Client;

use crate::connect::OpenError;

const MIGRATIONS: &[&str] = &[include_str!("../migrations/0001_first.sql")];

/// Version of the schema that this build knows.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// The lock that whoever migrates holds: `outlast` as a number.
const LOCK: i64 = 0x6f75_746c_6173_7400;

/// Brings the schema up to date; returns how many migrations ran.
pub(crate) async fn migrate(client: &mut Client) -> Result<usize, OpenError> {
    let step = client.transaction().await?;
    step.execute("select pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    step.batch_execute(
        "set local search_path = public;
         create schema if not exists outlast;
         create table if not exists outlast.migration (
             version integer primary key,
             at timestamptz not null default clock_timestamp()
         )",
    )
    .await?;
    let found = version(&step).await?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::NewerSchema { found, known: SCHEMA_VERSION });
    }
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        step.batch_execute(migration).await?;
        let now = i32::try_from(done + 1).unwrap_or(i32::MAX);
        step.execute("insert into outlast.migration (version) values ($1)", &[&now]).await?;
    }
    step.commit().await?;
    Ok(SCHEMA_VERSION - found)
}

async fn version(step: &tokio_postgres::Transaction<'_>) -> Result<usize, OpenError> {
    let row =
        step.query_one("select coalesce(max(version), 0) from outlast.migration", &[]).await?;
    Ok(usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0))
}
