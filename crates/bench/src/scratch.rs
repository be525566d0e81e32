//! A temporary database on a PostgreSQL server that is already running.

use outlast_cli_core::exit::Failure;
use outlast_store_postgres::{OpenError, connect};
use uuid::Uuid;

/// A database that was created for one measurement, and is dropped after it.
#[derive(Debug)]
pub(crate) struct Scratch {
    url: String,
    name: String,
    /// The database that was named on the command line.
    beside: String,
}

impl Scratch {
    /// Creates a database beside the one that `url` names.
    pub(crate) async fn create(url: &str) -> Result<Self, Failure> {
        let name = format!("outlast_bench_{}", Uuid::now_v7().simple());
        execute(url, &format!("create database {name}")).await?;
        Ok(Self { url: with_database(url, &name), name, beside: url.to_owned() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Drops it, even while there are connections to it.
    pub(crate) async fn remove(self) -> Result<(), Failure> {
        execute(&self.beside, &format!("drop database {} with (force)", self.name)).await
    }
}

async fn execute(url: &str, statement: &str) -> Result<(), Failure> {
    let (client, _reader) = connect(url).await.map_err(|error| unusable(&error))?;
    let executed = client.batch_execute(statement).await;
    executed.map_err(|error| unusable(&error.into()))
}

/// Why PostgreSQL cannot be measured.
pub(crate) fn unusable(error: &OpenError) -> Failure {
    Failure::failed(format!("cannot measure PostgreSQL: {error}"))
        .with_hint("the role of --database must be allowed to create databases")
}

/// Returns the address of another database on the same server.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A connection string of words: the last value of a keyword counts.
        return format!("{url} dbname={name}");
    };
    let (authority, parameters) =
        rest.split_once('?').map_or((rest, None), |(authority, more)| (authority, Some(more)));
    let host = authority.split('/').next().unwrap_or_default();
    let parameters = parameters.map(|more| format!("?{more}")).unwrap_or_default();
    format!("{scheme}://{host}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn only_the_name_of_the_database_changes() {
        for (url, expected) in [
            ("postgres://me:pw@db:5432/jobs", "postgres://me:pw@db:5432/new"),
            ("postgres://db/jobs?sslmode=require", "postgres://db/new?sslmode=require"),
            ("postgres://db", "postgres://db/new"),
            ("host=db dbname=jobs", "host=db dbname=jobs dbname=new"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
