//! The event log. One server writes at a time and the store's clock never runs backwards, so
//! (at, server, n) is the order of writing; batches that came with a store that was moved
//! here, written by several servers, are in the order of time.

mod place;

use outlast_store::StoreError;
use outlast_store::codec;
use outlast_store::event::{Event, EventPage, EventQuery};
use rusqlite::{Connection, OptionalExtension as _};

use crate::row::failed;
use place::Place;

/// Batches looked at in one page at most, so that a rare filter cannot read the whole log.
const BATCHES_MAX: u32 = 20_000;

pub(crate) fn page(db: &Connection, query: &EventQuery) -> Result<EventPage, StoreError> {
    let mut place = match &query.after {
        None => start(db, query)?,
        Some(text) => Place::of_cursor(db, text)?,
    };
    let mut select = db
        .prepare_cached(
            "select server, n, at, body from event_batch where (at, server, n) >= (?1, ?2, ?3)
             order by at, server, n limit ?4",
        )
        .map_err(failed)?;
    let from = (place.at, place.server.as_slice(), place.n, BATCHES_MAX);
    let mut rows = select.query(from).map_err(failed)?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut events = Vec::new();
    'batches: while let Some(row) = rows.next().map_err(failed)? {
        let server: [u8; 16] = row.get(0).map_err(failed)?;
        let n: i64 = row.get(1).map_err(failed)?;
        let at: i64 = row.get(2).map_err(failed)?;
        let body =
            row.get_ref(3).map_err(failed)?.as_str().map_err(|error| failed(error.into()))?;
        for (event, i) in codec::events_of_text(body)?.into_iter().zip(0_i64..) {
            let here = Place { at, server, n, i };
            if here <= place {
                continue;
            }
            if events.len() >= limit {
                break 'batches;
            }
            place = here;
            if matches(&event, query) {
                events.push((here.text(), event));
            }
        }
    }
    Ok(EventPage { events, next: place.text() })
}

/// Nothing is told of a job before it is stored; a store that was moved here may have been
/// written by several servers, whose clocks differed little.
fn start(db: &Connection, query: &EventQuery) -> Result<Place, StoreError> {
    let Some(job) = query.job else { return Ok(Place::START) };
    let mut select =
        db.prepare_cached("select created from job_row where id = ?").map_err(failed)?;
    let created = select.query_row([job.0.as_bytes().as_slice()], |row| row.get::<_, i64>(0));
    let created = created.optional().map_err(failed)?;
    Ok(created.map_or(Place::START, |at| Place { at: at.saturating_sub(1000), ..Place::START }))
}

/// The cursor after everything there is.
pub(crate) fn end(db: &Connection) -> Result<String, StoreError> {
    Place::end(db).map(Place::text)
}

fn matches(event: &Event, query: &EventQuery) -> bool {
    let named =
        query.names.is_empty() || query.names.iter().any(|pattern| event.kind.matches(pattern));
    let queued = query.queues.is_empty()
        || event.queue.as_ref().is_some_and(|queue| query.queues.contains(queue));
    let about = query.job.is_none() || event.job == query.job;
    let done_by = query.worker.is_none() || event.worker == query.worker;
    named && queued && about && done_by
}
