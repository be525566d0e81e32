//! Forward-only migrations, counted in `user_version`. A newer schema is refused.

use rusqlite::Connection;

use crate::connection::OpenError;

const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_first.sql"),
    include_str!("../migrations/0002_idempotency.sql"),
    include_str!("../migrations/0003_attachment.sql"),
    include_str!("../migrations/0004_log_size.sql"),
];

/// Version of the schema that this build knows.
pub const SCHEMA_VERSION: usize = MIGRATIONS.len();

/// Brings the schema up to date; returns how many migrations ran.
///
/// # Errors
/// Returns [`OpenError::NewerSchema`] for a store made by a newer Outlast, else what
/// SQLite says. A failed migration leaves the schema as it was.
pub fn migrate(connection: &mut Connection) -> Result<usize, OpenError> {
    let found: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?;
    let found = usize::try_from(found).unwrap_or(usize::MAX);
    if found > SCHEMA_VERSION {
        return Err(OpenError::NewerSchema { found, known: SCHEMA_VERSION });
    }
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let step = connection.transaction()?;
        step.execute_batch(migration)?;
        step.pragma_update(None, "user_version", u32::try_from(done + 1).unwrap_or(u32::MAX))?;
        step.commit()?;
    }
    Ok(SCHEMA_VERSION - found)
}
