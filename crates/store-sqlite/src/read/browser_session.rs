//! Sessions of browsers.

use outlast_store::browser_session::{BrowserSession, SessionQuery};
use outlast_store::idempotency::Fingerprint;
use outlast_store::{StoreError, browser_session_columns};
use rusqlite::{Connection, Params, Row};
use uuid::Uuid;

use crate::row::{self, failed};

/// Reads a session from [`browser_session_columns`].
fn record_of(row: &Row<'_>) -> rusqlite::Result<BrowserSession> {
    Ok(BrowserSession {
        id: row::uuid(row, 0)?,
        secret: row.get(1)?,
        token: row.get(2)?,
        name: row.get(3)?,
        address: row.get(4)?,
        agent: row.get(5)?,
        created: row::time(row, 6)?,
        used: row::time(row, 7)?,
        expires: row::time(row, 8)?,
    })
}

/// Returns the sessions that a statement returns.
pub(crate) fn all(
    db: &Connection,
    sql: &'static str,
    values: impl Params,
) -> Result<Vec<BrowserSession>, StoreError> {
    let mut select = db.prepare_cached(sql).map_err(failed)?;
    let rows = select.query_map(values, record_of).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

pub(crate) fn one(
    db: &Connection,
    secret: &Fingerprint,
) -> Result<Option<BrowserSession>, StoreError> {
    let sql =
        concat!("select ", browser_session_columns!(), " from browser_session where secret = ?");
    Ok(all(db, sql, [secret.as_slice()])?.pop())
}

pub(crate) fn page(
    db: &Connection,
    query: &SessionQuery,
) -> Result<Vec<BrowserSession>, StoreError> {
    let sql = concat!(
        "select ",
        browser_session_columns!(),
        " from browser_session where expires > ?1 and id < ?2 and (?3 is null or token = ?3)
         order by id desc limit ?4"
    );
    let before = query.before.unwrap_or(Uuid::max());
    let token = query.token.as_ref().map(<[u8; 32]>::as_slice);
    all(db, sql, (query.now.0, before.as_bytes().as_slice(), token, query.limit))
}
