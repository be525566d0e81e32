//! Forward-only migrations, counted in `user_version`; what was applied is kept in `meta`. A
//! newer schema is refused, and so is one that another build made.

use std::path::Path;

use outlast_store_rules::migration::{Found, Migration, SchemaStatus, schema_status};
use rusqlite::Connection;

use crate::error::OpenError;
use crate::guard::{APPLICATION_ID, refuse_foreign};
use crate::look::open_to_look;

/// One that was released never changes: a store keeps a digest of each.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_first", text: include_str!("../migrations/0001_first.sql") },
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
    Migration { name: "0006_schedules", text: include_str!("../migrations/0006_schedules.sql") },
    Migration { name: "0007_workflows", text: include_str!("../migrations/0007_workflows.sql") },
    Migration {
        name: "0008_queue_counts",
        text: include_str!("../migrations/0008_queue_counts.sql"),
    },
    Migration {
        name: "0009_browser_sessions",
        text: include_str!("../migrations/0009_browser_sessions.sql"),
    },
    Migration { name: "0010_operations", text: include_str!("../migrations/0010_operations.sql") },
    Migration {
        name: "0011_charges_and_rare_events",
        text: include_str!("../migrations/0011_charges_and_rare_events.sql"),
    },
];

/// Version of the schema that this build knows.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// What the keys in `meta` begin with; the number of the migration follows.
const KEY: &str = "migration ";

/// Brings the schema up to date; returns which migrations ran.
///
/// # Errors
/// Returns why the store is not for this build, else what SQLite says. A failed migration
/// leaves the schema as it was.
pub fn migrate(connection: &mut Connection) -> Result<Vec<&'static str>, OpenError> {
    let status = schema_status(MIGRATIONS, &found(connection)?)?;
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(status.applied.len()) {
        let step = connection.transaction()?;
        step.execute_batch(migration.text)?;
        step.execute(
            "insert into meta (key, value) values (?1, ?2)
             on conflict (key) do update set value = excluded.value",
            (format!("{KEY}{}", done + 1), migration.digest()),
        )?;
        step.pragma_update(None, "user_version", u32::try_from(done + 1).unwrap_or(u32::MAX))?;
        step.commit()?;
        tracing::info!(migration = migration.name, "store was migrated");
    }
    claim(connection)?;
    Ok(status.pending)
}

/// Says in the file whose it is.
fn claim(connection: &Connection) -> Result<(), rusqlite::Error> {
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id == APPLICATION_ID {
        return Ok(());
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)
}

/// Returns which migrations were applied to the store at `path`, and changes nothing: a server
/// may have it open. A store that does not exist yet lacks all of them.
pub(crate) fn look(path: &Path) -> Result<SchemaStatus, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    match std::fs::metadata(path) {
        Ok(found) if found.len() > 0 => {}
        Ok(_) => return Ok(schema_status(MIGRATIONS, &Found::default())?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(schema_status(MIGRATIONS, &Found::default())?);
        }
        Err(error) => return Err(io(error)),
    }
    let db = open_to_look(path)?;
    refuse_foreign(&db, path)?;
    schema_status_of(&db)
}

/// Returns which migrations were applied to an open store.
pub(crate) fn schema_status_of(connection: &Connection) -> Result<SchemaStatus, OpenError> {
    Ok(schema_status(MIGRATIONS, &found(connection)?)?)
}

fn found(connection: &Connection) -> Result<Found, rusqlite::Error> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = usize::try_from(version).unwrap_or(usize::MAX);
    if version == 0 {
        return Ok(Found::default());
    }
    let mut select = connection.prepare(
        "select cast(substr(key, 1 + length(?1)) as integer), value from meta
         where substr(key, 1, length(?1)) = ?1",
    )?;
    let digests = select.query_map([KEY], |row| Ok((row.get::<_, usize>(0)?, row.get(1)?)))?;
    Ok(Found { version, digests: digests.collect::<Result<_, _>>()? })
}
