//! What attempts printed.

use outlast_store::StoreError;
use outlast_store::query::{LogLine, LogPage, LogQuery};
use outlast_store_rules::list::Fit;

use crate::read::Reader;
use crate::row::{self, get, int};

/// Pieces that are asked for at once, of 64 KiB at most each.
const AT_ONCE: u32 = 64;

pub(crate) async fn of_job(reader: &Reader, query: &LogQuery) -> Result<LogPage, StoreError> {
    let (mut lines, mut fit, mut after) = (Vec::new(), Fit::default(), int(query.after));
    let mut left = query.limit;
    while left > 0 {
        let (from, asked) = (after, left.min(AT_ONCE));
        let (mut found, mut is_full) = (0_u32, false);
        let take = |row: &tokio_postgres::Row| {
            let line = line(row)?;
            is_full = !fit.takes(line.bytes.len());
            if !is_full {
                after = int(line.id);
                found += 1;
                lines.push(line);
            }
            Ok(!is_full)
        };
        let sql = "select l.id, l.epoch, l.stream, l.at, l.bytes
             from log l where l.seq = (select j.seq from job_row j where j.id = $1) and l.id > $2
             order by l.id limit $3";
        reader.each(sql, &[&query.job.0, &from, &i64::from(asked)], take).await?;
        if is_full || found < asked {
            break;
        }
        left -= asked;
    }
    Ok(LogPage { lines })
}

fn line(row: &tokio_postgres::Row) -> Result<LogLine, StoreError> {
    Ok(LogLine {
        id: row::count(row, 0)?,
        epoch: row::epoch(row, 1)?,
        stream: row::stream_of(get(row, 2)?),
        at: row::time(row, 3)?,
        bytes: get(row, 4)?,
    })
}
