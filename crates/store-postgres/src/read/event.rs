//! The event log. Each server writes its own batches in order; those of several servers
//! become visible in any order. So a cursor holds a place for every server: what a reader
//! has not seen of a server is after its place, however late it was committed.

use std::collections::BTreeMap;

use outlast_store::event::{Event, EventPage, EventQuery};
use outlast_store::{StoreError, codec};
use uuid::Uuid;

use crate::read::Reader;
use crate::row::get;

/// Batches looked at in one page at most, so that a rare filter cannot read the whole log.
const BATCHES_MAX: usize = 20_000;
/// Batches read at once.
const BATCHES: i64 = 500;

/// After event `i` of batch `n`; before the first event of it when `i` is -1.
type Place = (i64, i64);

/// Where a reader is in the batches of each server; servers that are not named are at
/// their beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places(BTreeMap<Uuid, Place>);

impl Places {
    fn text(&self) -> String {
        let places: Vec<String> =
            self.0.iter().map(|(server, (n, i))| format!("{}={n}.{i}", server.simple())).collect();
        if places.is_empty() { "-".to_owned() } else { places.join("_") }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let place = |part: &str| {
            let (server, place) = part.split_once('=')?;
            let (n, i) = place.split_once('.')?;
            Some((Uuid::parse_str(server).ok()?, (n.parse().ok()?, i.parse().ok()?)))
        };
        Some(Self(text.split('_').map(place).collect::<Option<_>>()?))
    }
}

/// A cursor that an embedded store gave out before it was moved here. Its servers wrote one
/// after the other: what it has not seen is later.
struct Moved {
    server: Uuid,
    place: Place,
    at: i64,
}

impl Moved {
    fn parse(text: &str) -> Option<Self> {
        let (place, at) = text.split_once('@')?;
        let (server, place) = place.split_once('=')?;
        let (n, i) = place.split_once('.')?;
        let place = (n.parse().ok()?, i.parse().ok()?);
        Some(Self { server: Uuid::parse_str(server).ok()?, place, at: at.parse().ok()? })
    }

    async fn places(&self, reader: &Reader) -> Result<Places, StoreError> {
        let rows = reader
            .all(
                "select s.server, (
                     select b.n from event_batch b
                     where b.server = s.server and (b.at, b.server) < ($1::bigint, $2::uuid)
                     order by b.n desc limit 1)
                 from (select distinct server from event_batch) s",
                &[&self.at, &self.server],
            )
            .await?;
        let mut places = BTreeMap::from([(self.server, self.place)]);
        for row in &rows {
            if let Some(n) = get::<Option<i64>>(row, 1)? {
                places.entry(get(row, 0)?).or_insert((n, i64::MAX));
            }
        }
        Ok(Places(places))
    }
}

/// The servers in the log, one step in the index for each.
const SERVERS: &str = "with recursive s(server) as (
         (select server from event_batch order by server limit 1)
         union all
         select (select b.server from event_batch b where b.server > s.server
                 order by b.server limit 1)
         from s where s.server is not null)
     select s.server from s where s.server is not null";

pub(crate) async fn page(reader: &Reader, query: &EventQuery) -> Result<EventPage, StoreError> {
    let mut places = match &query.after {
        None => Places::default(),
        Some(text) => match Moved::parse(text) {
            Some(moved) => moved.places(reader).await?,
            None => Places::parse(text)
                .ok_or_else(|| StoreError::Rejected(format!("`{text}` is not an event cursor")))?,
        },
    };
    let oldest = oldest(reader, query).await?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut events = Vec::new();
    let mut looked = 0;
    loop {
        // The batch in which a server's place is comes again, and what is before the place
        // is passed over.
        let batches = batches(reader, &places, oldest).await?;
        let last = batches.len() < usize::try_from(BATCHES).unwrap_or(usize::MAX);
        looked += batches.len();
        for (server, n, body) in batches {
            let place = places.0.get(&server).copied().unwrap_or((n, -1));
            for (event, i) in codec::events_of_text(&body)?.into_iter().zip(0_i64..) {
                if (n, i) <= place {
                    continue;
                }
                if events.len() >= limit {
                    return Ok(EventPage { events, next: places.text() });
                }
                places.0.insert(server, (n, i));
                if matches(&event, query) {
                    events.push((places.text(), event));
                }
            }
        }
        if last || looked >= BATCHES_MAX {
            return Ok(EventPage { events, next: places.text() });
        }
    }
}

/// Reads the next batches of every server, in the order of time.
async fn batches(
    reader: &Reader,
    places: &Places,
    oldest: i64,
) -> Result<Vec<(Uuid, i64, String)>, StoreError> {
    let servers = reader.all(SERVERS, &[]).await?;
    let mut ids = Vec::with_capacity(servers.len());
    let mut from = Vec::with_capacity(servers.len());
    for row in &servers {
        let server: Uuid = get(row, 0)?;
        from.push(places.0.get(&server).map_or(i64::MIN, |(n, _)| *n));
        ids.push(server);
    }
    let rows = reader
        .all(
            "select b.server, b.n, b.body
             from unnest($1::uuid[], $2::bigint[]) s(server, n)
             cross join lateral (
                 select b.server, b.n, b.at, b.body from event_batch b
                 where b.server = s.server and b.n >= s.n and b.at >= $3
                 order by b.n limit $4) b
             order by b.at, b.server, b.n limit $4",
            &[&ids, &from, &oldest, &BATCHES],
        )
        .await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?))).collect()
}

/// Nothing is told of a job before it is stored; clocks of one PostgreSQL differ little.
async fn oldest(reader: &Reader, query: &EventQuery) -> Result<i64, StoreError> {
    let Some(job) = query.job.filter(|_| query.after.is_none()) else { return Ok(i64::MIN) };
    let row = reader.one("select created from job_row where id = $1", &[&job.0]).await?;
    let created: Option<i64> = row.map(|row| get(&row, 0)).transpose()?;
    Ok(created.map_or(i64::MIN, |at| at.saturating_sub(1000)))
}

/// The cursor after everything there is.
pub(crate) async fn end(reader: &Reader) -> Result<String, StoreError> {
    let mut places = Places::default();
    let servers = reader.all(SERVERS, &[]).await?;
    let mut ids: Vec<Uuid> = Vec::with_capacity(servers.len());
    for row in &servers {
        ids.push(get(row, 0)?);
    }
    let rows = reader
        .all(
            "select b.server, b.n, jsonb_array_length(b.body::jsonb)::bigint
             from unnest($1::uuid[]) s(server)
             cross join lateral (
                 select b.server, b.n, b.body from event_batch b where b.server = s.server
                 order by b.n desc limit 1) b",
            &[&ids],
        )
        .await?;
    for row in &rows {
        places.0.insert(get(row, 0)?, (get(row, 1)?, get::<i64>(row, 2)? - 1));
    }
    Ok(places.text())
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
