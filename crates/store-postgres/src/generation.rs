//! Which restore the store is of. PostgreSQL is copied and restored by its own tools, which
//! cannot say here that they did: `outlast restore --mark-only` does.

use outlast_store_rules::cursor::{LANES_A_RESTORE, LANES_A_SECOND};

use tokio_postgres::types::ToSql;

use crate::connect::Options;
use crate::error::OpenError;
use crate::postgres_store::PostgresStore;
use crate::transfer::PostgresTarget;

/// Makes a restored store tell itself apart from the one that was lost, and from one that was made
/// of the same backup before: by its generation, and by lanes of the event log that no reader has
/// seen.
///
/// By the microsecond: the same backup may be restored twice within a second.
const RENEW: &str = "with clock as (
         select extract(epoch from clock_timestamp()) as seconds),
     lanes as (
         insert into event_lane as e (id, latest)
         select 1, greatest($1::bigint, (seconds * $2::bigint)::bigint) from clock
         on conflict (id) do update set latest = greatest(e.latest + $1, excluded.latest))
     update outlast.generation set number = greatest(number + 1,
         (select (seconds * 1000000)::bigint from clock)),
         restored = greatest(number + 1, (select (seconds * 1000000)::bigint from clock))
     returning number";

/// Servers of before have no lane any more.
const CLOSE: &str = "select outlast.close_lanes('00000000-0000-0000-0000-000000000000',
     9223372036854775807)";

impl PostgresStore {
    /// Raises the generation of a database that was just restored; returns it.
    ///
    /// # Errors
    /// Returns why the database cannot be used, or that a server is using it.
    pub async fn accept(url: &str) -> Result<u64, OpenError> {
        let target = PostgresTarget::open(url, &Options::default()).await?;
        target.client().query_one(CLOSE, &[]).await?;
        let lanes: [&(dyn ToSql + Sync); 2] = [&LANES_A_RESTORE, &LANES_A_SECOND];
        let number: i64 = target.client().query_one(RENEW, &lanes).await?.try_get(0)?;
        // A server that came in between has read the old one.
        target.refuse_others().await?;
        Ok(u64::try_from(number).unwrap_or(1))
    }
}
