//! Places in the event log, and the text that readers are given for them.

use outlast_store::{StoreError, codec};
use rusqlite::{Connection, OptionalExtension as _};
use uuid::Uuid;

use crate::row::failed;

/// After event `i` of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: i64,
    pub(super) server: [u8; 16],
    pub(super) n: i64,
    pub(super) i: i64,
}

impl Place {
    /// Before everything.
    pub(super) const START: Self = Self { at: i64::MIN, server: [0; 16], n: -1, i: -1 };

    pub(super) fn text(self) -> String {
        if self == Self::START {
            return "-".to_owned();
        }
        let Self { at, n, i, .. } = self;
        format!("{}={n}.{i}@{at}", Uuid::from_bytes(self.server).simple())
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::START);
        }
        let (place, at) = text.split_once('@')?;
        let (server, n, i) = part_of(place)?;
        Some(Self { at: at.parse().ok()?, server, n, i })
    }

    /// Returns the place of a cursor that this store gave out, or the store that it was
    /// moved from.
    pub(super) fn of_cursor(db: &Connection, text: &str) -> Result<Self, StoreError> {
        if let Some(place) = Self::parse(text) {
            return Ok(place);
        }
        let places: Option<Vec<_>> = text.split('_').map(part_of).collect();
        let places = places
            .ok_or_else(|| StoreError::Rejected(format!("`{text}` is not an event cursor")))?;
        Self::of_servers(db, &places)
    }

    /// Returns the latest place before everything that a reader of several servers has not
    /// seen: it may be told a little twice, but nothing is kept from it.
    fn of_servers(db: &Connection, seen: &[Part]) -> Result<Self, StoreError> {
        let mut select = db.prepare("select distinct server from event_batch").map_err(failed)?;
        let servers = select.query_map([], |row| row.get(0)).map_err(failed)?;
        let mut first: Option<Self> = None;
        for server in servers {
            let server: [u8; 16] = server.map_err(failed)?;
            let place = seen.iter().find(|(named, ..)| *named == server);
            let (n, i) = place.map_or((i64::MIN, -1), |(_, n, i)| (*n, *i));
            if let Some(unseen) = Self::next_of(db, server, (n, i))? {
                first = Some(first.map_or(unseen, |first| first.min(unseen)));
            }
        }
        first.map_or_else(|| Self::end(db), Ok)
    }

    /// Returns the place before the first event of a server that is after (n, i).
    fn next_of(
        db: &Connection,
        server: [u8; 16],
        (n, i): (i64, i64),
    ) -> Result<Option<Self>, StoreError> {
        let mut select = db
            .prepare_cached(
                "select n, at, body from event_batch where server = ?1 and n >= ?2
                 order by n limit 2",
            )
            .map_err(failed)?;
        let mut rows = select.query((server.as_slice(), n)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let at: i64 = row.get(1).map_err(failed)?;
            let here: i64 = row.get(0).map_err(failed)?;
            if here > n {
                return Ok(Some(Self { at, server, n: here, i: -1 }));
            }
            let body: String = row.get(2).map_err(failed)?;
            if last_of(&body)? > i {
                return Ok(Some(Self { at, server, n, i }));
            }
        }
        Ok(None)
    }

    /// Returns the place after everything.
    pub(super) fn end(db: &Connection) -> Result<Self, StoreError> {
        let mut select = db
            .prepare_cached(
                "select server, n, at, body from event_batch
                 order by at desc, server desc, n desc limit 1",
            )
            .map_err(failed)?;
        let found = select.query_row([], |row| {
            let body: String = row.get(3)?;
            Ok((Self { server: row.get(0)?, n: row.get(1)?, at: row.get(2)?, i: -1 }, body))
        });
        let Some((place, body)) = found.optional().map_err(failed)? else {
            return Ok(Self::START);
        };
        Ok(Self { i: last_of(&body)?, ..place })
    }
}

/// After event `i` of batch `n` of a server.
type Part = ([u8; 16], i64, i64);

fn part_of(text: &str) -> Option<Part> {
    let (server, place) = text.split_once('=')?;
    let (n, i) = place.split_once('.')?;
    Some((*Uuid::parse_str(server).ok()?.as_bytes(), n.parse().ok()?, i.parse().ok()?))
}

/// Returns the number of the last event of a batch.
fn last_of(body: &str) -> Result<i64, StoreError> {
    let events = codec::events_of_text(body)?.len();
    Ok(i64::try_from(events).unwrap_or(i64::MAX) - 1)
}
