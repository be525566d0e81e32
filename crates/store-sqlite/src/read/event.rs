//! The event log. Server ids are UUIDv7 and one server writes at a time, so (server, n) is
//! the order of time.

use outlast_store::StoreError;
use outlast_store::codec;
use outlast_store::event::{Event, EventPage, EventQuery};
use rusqlite::{Connection, OptionalExtension as _};
use uuid::Uuid;

use crate::row::failed;

/// Batches looked at in one page at most, so that a rare filter cannot read the whole log.
const BATCHES_MAX: u32 = 20_000;

/// A place in the log: after event `i` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    server: [u8; 16],
    n: i64,
    i: i64,
}

impl Place {
    const START: Self = Self { server: [0; 16], n: -1, i: -1 };

    fn text(self) -> String {
        format!("{}={}.{}", Uuid::from_bytes(self.server).simple(), self.n, self.i)
    }

    fn parse(text: &str) -> Option<Self> {
        let (server, place) = text.split_once('=')?;
        let (n, i) = place.split_once('.')?;
        let server = *Uuid::parse_str(server).ok()?.as_bytes();
        Some(Self { server, n: n.parse().ok()?, i: i.parse().ok()? })
    }
}

pub(crate) fn page(db: &Connection, query: &EventQuery) -> Result<EventPage, StoreError> {
    let mut place = match &query.after {
        None => start(db, query)?,
        Some(text) => Place::parse(text)
            .ok_or_else(|| StoreError::Rejected(format!("`{text}` is not an event cursor")))?,
    };
    let mut select = db
        .prepare_cached(
            "select server, n, body from event_batch where (server, n) >= (?1, ?2)
             order by server, n limit ?3",
        )
        .map_err(failed)?;
    let mut rows = select.query((place.server.as_slice(), place.n, BATCHES_MAX)).map_err(failed)?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut events = Vec::new();
    'batches: while let Some(row) = rows.next().map_err(failed)? {
        let server: [u8; 16] = row.get(0).map_err(failed)?;
        let n: i64 = row.get(1).map_err(failed)?;
        let body =
            row.get_ref(2).map_err(failed)?.as_str().map_err(|error| failed(error.into()))?;
        for (event, i) in codec::events_of_text(body)?.into_iter().zip(0_i64..) {
            let here = Place { server, n, i };
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

/// Nothing is told of a job before it is stored.
fn start(db: &Connection, query: &EventQuery) -> Result<Place, StoreError> {
    let Some(job) = query.job else { return Ok(Place::START) };
    let mut select = db
        .prepare_cached(
            "select server, n from event_batch
             where at >= (select created from job_row where id = ?)
             order by at, server, n limit 1",
        )
        .map_err(failed)?;
    let found = select.query_row([job.0.as_bytes().as_slice()], |row| {
        Ok(Place { server: row.get(0)?, n: row.get(1)?, i: -1 })
    });
    Ok(found.optional().map_err(failed)?.unwrap_or(Place::START))
}

/// The cursor after everything there is.
pub(crate) fn end(db: &Connection) -> Result<String, StoreError> {
    let mut select = db
        .prepare_cached(
            "select server, n, body from event_batch order by server desc, n desc limit 1",
        )
        .map_err(failed)?;
    let found = select.query_row([], |row| {
        let body: String = row.get(2)?;
        Ok((Place { server: row.get(0)?, n: row.get(1)?, i: -1 }, body))
    });
    let Some((place, body)) = found.optional().map_err(failed)? else {
        return Ok(Place::START.text());
    };
    let events = codec::events_of_text(&body)?.len();
    Ok(Place { i: i64::try_from(events).unwrap_or(i64::MAX) - 1, ..place }.text())
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
