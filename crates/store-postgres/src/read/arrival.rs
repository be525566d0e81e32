//! Jobs that programs stored by SQL.

use outlast_core::id::JobId;
use outlast_core::limits::ARRIVALS_BYTES_MAX;
use outlast_store::StoreError;
use outlast_store::arrival::{Arrival, ArrivalNumber, ArrivalState};

use crate::read::Reader;
use crate::row::get;

/// The first arrivals, none after those that come to `$3` bytes. The length of a text is known
/// without reading it.
const PAGE: &str = "select a.n, a.id, a.tenant, a.envelope
     from (
         select f.*, sum(octet_length(f.envelope)) over (order by f.n rows unbounded preceding)
             - octet_length(f.envelope) as before
         from (
             select n, id, tenant, envelope from arrival where n > $1 order by n limit $2) f) a
     where a.before < $3::bigint order by a.n";

pub(crate) async fn page(
    reader: &Reader,
    after: Option<ArrivalNumber>,
    limit: u32,
) -> Result<Vec<Arrival>, StoreError> {
    let after = after.map_or(0, |number| number.0);
    let most = i64::try_from(ARRIVALS_BYTES_MAX).unwrap_or(i64::MAX);
    let rows = reader.all(PAGE, &[&after, &i64::from(limit), &most]).await?;
    let arrival = |row| {
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
