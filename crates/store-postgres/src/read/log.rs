//! What attempts printed.

use outlast_store::StoreError;
use outlast_store::query::{LogLine, LogPage, LogQuery};

use crate::read::Reader;
use crate::row::{self, get, int};

pub(crate) async fn of_job(reader: &Reader, query: &LogQuery) -> Result<LogPage, StoreError> {
    let rows = reader
        .all(
            "select l.id, l.epoch, l.stream, l.at, l.bytes
             from log l where l.seq = (select j.seq from job_row j where j.id = $1) and l.id > $2
             order by l.id limit $3",
            &[&query.job.0, &int(query.after), &i64::from(query.limit)],
        )
        .await?;
    let mut lines = Vec::with_capacity(rows.len());
    for row in &rows {
        lines.push(LogLine {
            id: row::count(row, 0)?,
            epoch: row::epoch(row, 1)?,
            stream: row::stream_of(get(row, 2)?),
            at: row::time(row, 3)?,
            bytes: get(row, 4)?,
        });
    }
    Ok(LogPage { lines })
}
