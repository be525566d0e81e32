//! The event log, read by cursors that are vectors (server, n, index).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use uuid::Uuid;

use crate::error::StoreError;
use crate::event::{Event, EventPage, EventQuery};
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
        let mut vector = query.after.as_deref().map_or(Ok(Vector::new()), parse)?;
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
}
