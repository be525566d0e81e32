//! The event log, read by cursors that are vectors (server, n, index).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use outlast_store::error::StoreError;
use outlast_store::event::{Event, EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store_rules::cursor::TimePosition;
use uuid::Uuid;

use crate::model::tables::Tables;

/// For each server the last (batch, index) that was seen.
type Vector = BTreeMap<Uuid, (u64, usize)>;

fn parse(text: &str) -> Result<Vector, StoreError> {
    let bad = || StoreError::Rejected(format!("cursor {text:?} is not one of this store"));
    text.split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (server, at) = part.split_once('=').ok_or_else(bad)?;
            let (n, index) = at.split_once('.').ok_or_else(bad)?;
            let server = server.parse().ok().ok_or_else(bad)?;
            let n = n.parse().ok().ok_or_else(bad)?;
            Ok((server, (n, index.parse().ok().ok_or_else(bad)?)))
        })
        .collect()
}

fn text(vector: &Vector) -> String {
    let mut text = String::new();
    for (server, (n, index)) in vector {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{server}={n}.{index}");
    }
    text
}

impl Tables {
    /// The cursor after everything there is.
    pub(in crate::model) fn events_end(&self) -> String {
        let last = |(server, batches): (&Uuid, &BTreeMap<u64, Vec<Event>>)| {
            let (n, events) = batches.last_key_value()?;
            Some((*server, (*n, events.len().saturating_sub(1))))
        };
        text(&self.events.iter().filter_map(last).collect())
    }

    pub(in crate::model) fn events(&self, query: &EventQuery) -> Result<EventPage, StoreError> {
        let mut vector = match &query.after {
            Some(text) if TimePosition::is_meant(text) => self.vector_at(&place(text)?),
            Some(text) => parse(text)?,
            None => Vector::new(),
        };
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let mut unseen: Vec<(&Event, Uuid, u64, usize)> = Vec::new();
        for (server, batches) in &self.events {
            let seen = vector.get(server).copied();
            for (n, events) in batches {
                for (index, event) in events.iter().enumerate() {
                    if seen.is_none_or(|seen| seen < (*n, index)) {
                        unseen.push((event, *server, *n, index));
                    }
                }
            }
        }
        unseen.sort_by_key(|(event, server, n, index)| (event.at, *server, *n, *index));
        let mut events = Vec::new();
        for (event, server, n, index) in unseen {
            if events.len() == limit {
                break;
            }
            vector.insert(server, (n, index));
            if query.matches(event) {
                events.push((text(&vector), event.clone()));
            }
        }
        let is_complete = events.len() < limit;
        Ok(EventPage { events, next: text(&vector), is_complete })
    }

    /// All events, in the order of time.
    fn in_order(&self) -> Vec<(TimePosition, Uuid, usize, &Event)> {
        let mut all = Vec::new();
        for (server, batches) in &self.events {
            for (n, events) in batches {
                let number = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
                let batch = i64::try_from(*n).unwrap_or(i64::MAX);
                let (lane, begun) = (server.as_u128(), events.first().map_or(0, |it| it.at.0));
                let place = |i| TimePosition { at: begun, lane, n: batch, i: number(i) };
                let placed = events.iter().enumerate();
                all.extend(placed.map(|(i, event)| (place(i), *server, i, event)));
            }
        }
        all.sort_by_key(|(place, ..)| *place);
        all
    }

    /// What was seen by a reader that is at a place.
    fn vector_at(&self, end: &TimePosition) -> Vector {
        let mut vector = Vector::new();
        for (place, server, i, _) in self.in_order().iter().filter(|(place, ..)| place < end) {
            vector.insert(*server, (place.n.unsigned_abs(), *i));
        }
        vector
    }

    pub(in crate::model) fn newest_events(
        &self,
        query: &NewestQuery,
    ) -> Result<NewestPage, StoreError> {
        let before = query.before.as_deref().map(place).transpose()?;
        let until = query.until.map_or(TimePosition::END, |until| TimePosition::at(until.0));
        let end = before.map_or(until, |before| before.min(until));
        let since = query.since.map_or(i64::MIN, |since| since.0);
        let limit = usize::try_from(query.of.limit).unwrap_or(usize::MAX);
        let all = self.in_order();
        let wanted = all.iter().rev().filter(|(place, _, _, event)| {
            *place < end && place.at >= since && query.of.matches(event)
        });
        let found: Vec<_> = wanted.take(limit).collect();
        let previous = found.last().filter(|_| found.len() == limit);
        let previous = previous.map(|(place, ..)| place.to_string());
        let after = |place: &TimePosition| TimePosition { i: place.i + 1, ..*place }.to_string();
        let events = found.iter().rev();
        let events = events.map(|(place, _, _, event)| (after(place), (*event).clone())).collect();
        Ok(NewestPage { events, previous })
    }
}

fn place(text: &str) -> Result<TimePosition, StoreError> {
    let bad = || StoreError::Rejected(format!("cursor {text:?} is not one of this store"));
    TimePosition::parse(text).ok_or_else(bad)
}
