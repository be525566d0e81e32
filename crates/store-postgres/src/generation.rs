//! How often the store was restored. PostgreSQL is copied and restored by its own tools, which
//! cannot say here that they did: `outlast restore --mark-only` does.

use tokio_postgres::Client;

use crate::connect::{OpenError, Options};
use crate::postgres_store::PostgresStore;
use crate::transfer::PostgresTarget;

/// Returns the store's generation.
pub(crate) async fn generation(client: &Client) -> Result<u64, OpenError> {
    let row = client.query_one("select max(number) from outlast.generation", &[]).await?;
    Ok(row.try_get::<_, Option<i64>>(0)?.and_then(|it| u64::try_from(it).ok()).unwrap_or(1))
}

impl PostgresStore {
    /// Raises the generation of a database that was just restored; returns it.
    ///
    /// # Errors
    /// Returns why the database cannot be used, or that a server is using it.
    pub async fn accept(url: &str) -> Result<u64, OpenError> {
        let target = PostgresTarget::open(url, &Options::default()).await?;
        let raised = target
            .client()
            .query_one("update outlast.generation set number = number + 1 returning number", &[]);
        let number: i64 = raised.await?.try_get(0)?;
        Ok(u64::try_from(number).unwrap_or(1))
    }
}
