//! What attempts printed.

use outlast_store::StoreError;
use outlast_store::query::{LogLine, LogPage, LogQuery};
use outlast_store_rules::list::Fit;
use rusqlite::Connection;

use crate::read::job::seq_of;
use crate::row::{self, failed, int};

pub(crate) fn of_job(db: &Connection, query: &LogQuery) -> Result<LogPage, StoreError> {
    let Some(seq) = seq_of(db, query.job)? else { return Ok(LogPage { lines: Vec::new() }) };
    let mut select = db
        .prepare_cached(
            "select id, epoch, stream, at, bytes from log where seq = ? and id > ?
             order by id limit ?",
        )
        .map_err(failed)?;
    let rows = select
        .query_map((seq, int(query.after), query.limit), |row| {
            Ok(LogLine {
                id: row.get(0)?,
                epoch: row::epoch(row, 1)?,
                stream: row::stream_of(row.get(2)?),
                at: row::time(row, 3)?,
                bytes: row.get(4)?,
            })
        })
        .map_err(failed)?;
    let (mut lines, mut fit) = (Vec::new(), Fit::default());
    for line in rows {
        let line = line.map_err(failed)?;
        if !fit.takes(line.bytes.len()) {
            break;
        }
        lines.push(line);
    }
    Ok(LogPage { lines })
}
