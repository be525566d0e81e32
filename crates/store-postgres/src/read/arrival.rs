//! Jobs that programs stored by SQL.

use outlast_core::id::JobId;
use outlast_core::limits::ARRIVALS_BYTES_MAX;
use outlast_store::StoreError;
use outlast_store::arrival::{Arrival, ArrivalNumber, ArrivalState};
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::floors::arrivals::Arrivals;
use crate::read::Reader;
use crate::row::get;

/// The first arrivals, none after those that come to `$3` bytes. The length of a text is known
/// without reading it.
const PAGE: &str = "select a.n, a.id, a.tenant, a.envelope
     from (
         select f.*, sum(octet_length(f.envelope)) over (order by f.n rows unbounded preceding)
             - octet_length(f.envelope) as before
         from (
             select n, id, tenant, envelope from arrival where n >= $1 order by n limit $2) f) a
     where a.before < $3::bigint order by a.n";

pub(crate) async fn page(
    reader: &Reader,
    arrivals: &Arrivals,
    after: Option<ArrivalNumber>,
    limit: u32,
) -> Result<Vec<Arrival>, StoreError> {
    let begin = arrivals.begin(Instant::now());
    let from = after.map_or(begin.from, |number| number.0.saturating_add(1));
    let most = i64::try_from(ARRIVALS_BYTES_MAX).unwrap_or(i64::MAX);
    let rows = reader.all(PAGE, &[&from, &i64::from(limit), &most]).await?;
    if after.is_none() {
        let number = |row: Option<&Row>| row.map(|row| get::<i64>(row, 0)).transpose();
        let found = number(rows.first())?.zip(number(rows.last())?);
        arrivals.end(begin, found, Instant::now());
    }
    let arrival = |row: &Row| {
        Ok(Arrival {
            number: ArrivalNumber(get(row, 0)?),
            id: JobId(get(row, 1)?),
            tenant: get(row, 2)?,
            envelope: get(row, 3)?,
        })
    };
    rows.iter().map(arrival).collect()
}

/// A job that is being enqueued is an arrival or stored in what one statement sees.
pub(crate) async fn by_id(reader: &Reader, id: JobId) -> Result<ArrivalState, StoreError> {
    let sql = "select a.n, a.tenant, a.envelope,
             exists (select 1 from job_row j where j.id = w.id)
         from (select $1::uuid as id) w left join arrival a on a.id = w.id";
    let Some(row) = reader.one(sql, &[&id.0]).await? else { return Ok(ArrivalState::Unknown) };
    if get(&row, 3)? {
        return Ok(ArrivalState::Enqueued);
    }
    let number: Option<i64> = get(&row, 0)?;
    let Some(number) = number.map(ArrivalNumber) else { return Ok(ArrivalState::Unknown) };
    let (tenant, envelope) = (get(&row, 1)?, get(&row, 2)?);
    Ok(ArrivalState::Waiting(Arrival { number, id, tenant, envelope }))
}
