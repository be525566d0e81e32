//! How often the store was restored. PostgreSQL is copied and restored by its own tools, which
//! cannot say here that they did: `outlast restore --mark-only` does.

use outlast_store::cursor::LANES_A_RESTORE;

use crate::connect::Options;
use crate::error::OpenError;
use crate::postgres_store::PostgresStore;
use crate::transfer::PostgresTarget;

/// Makes a restored store tell itself apart from the one that was lost: by its generation, and by
/// lanes of the event log that no reader has seen. Servers of before have no lane any more.
const RENEW: &str = "with lanes as (
         insert into event_lane as e (id, latest) values (1, $1)
         on conflict (id) do update set latest = e.latest + $1),
     closed as (update server_batch set lane = null where lane is not null)
     update outlast.generation set number = number + 1 returning number";

impl PostgresStore {
    /// Raises the generation of a database that was just restored; returns it.
    ///
    /// # Errors
    /// Returns why the database cannot be used, or that a server is using it.
    pub async fn accept(url: &str) -> Result<u64, OpenError> {
        let target = PostgresTarget::open(url, &Options::default()).await?;
        let number: i64 =
            target.client().query_one(RENEW, &[&LANES_A_RESTORE]).await?.try_get(0)?;
        // A server that came in between has read the old one.
        target.refuse_others().await?;
        Ok(u64::try_from(number).unwrap_or(1))
    }
}
