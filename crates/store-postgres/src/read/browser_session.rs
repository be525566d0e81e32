//! Sessions of browsers.

use outlast_store::browser_session::{BrowserSession, SessionQuery};
use outlast_store::idempotency::Fingerprint;
use outlast_store::{StoreError, browser_session_columns};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::read::Reader;
use crate::row::{get, time};

/// Reads a session from [`browser_session_columns`].
pub(crate) fn record_of(row: &Row) -> Result<BrowserSession, StoreError> {
    let hash = |at: usize| {
        let bytes: &[u8] = get(row, at)?;
        let length = |_error| StoreError::Corrupt(format!("column {at} is no hash"));
        Fingerprint::try_from(bytes).map_err(length)
    };
    Ok(BrowserSession {
        id: get(row, 0)?,
        secret: hash(1)?,
        token: hash(2)?,
        name: get(row, 3)?,
        address: get(row, 4)?,
        agent: get(row, 5)?,
        created: time(row, 6)?,
        used: time(row, 7)?,
        expires: time(row, 8)?,
    })
}

pub(crate) async fn one(
    reader: &Reader,
    secret: &Fingerprint,
) -> Result<Option<BrowserSession>, StoreError> {
    let sql =
        concat!("select ", browser_session_columns!(), " from browser_session where secret = $1");
    reader.all(sql, &[&secret.as_slice()]).await?.first().map(record_of).transpose()
}

pub(crate) async fn page(
    reader: &Reader,
    query: &SessionQuery,
) -> Result<Vec<BrowserSession>, StoreError> {
    let sql = concat!(
        "select ",
        browser_session_columns!(),
        " from browser_session
         where expires > $1 and id < $2 and ($3::bytea is null or token = $3)
         order by id desc limit $4"
    );
    let before = query.before.unwrap_or(Uuid::max());
    let token = query.token.as_ref().map(<[u8; 32]>::as_slice);
    let rows = reader.all(sql, &[&query.now.0, &before, &token, &i64::from(query.limit)]).await?;
    rows.iter().map(record_of).collect()
}
