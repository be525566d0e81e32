//! Opening the store that the configuration names. The only place that knows a backend.

use crate::config::value::Database;
use crate::exit::Failure;

pub(super) fn migrate(database: &Database) -> Result<(), Failure> {
    match database {
        Database::Sqlite(path) => {
            Err(Failure::failed(format!("no SQLite yet: {}", path.display())))
        }
        Database::Postgres(_) => Err(no_postgres()),
    }
}

// The address is not repeated: it may hold a password.
fn no_postgres() -> Failure {
    Failure::usage("this version has no PostgreSQL store")
        .with_hint("use the embedded store: --database sqlite:PATH")
}
