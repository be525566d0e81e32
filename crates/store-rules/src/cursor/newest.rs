//! Reading the event log backwards: the newest events first, as far back as one page may look.

use outlast_core::limits::EVENTS_BYTES_MAX;
use outlast_store::error::StoreError;
use outlast_store::event::{Event, NewestPage, NewestQuery};

use super::{LOOKED_MAX, Logged, TimePosition, Times};
use crate::codec;

/// Batches that are read at once, at first and at most: after the first ones it is known how long they are.
const WINDOW_MIN: usize = 16;
const WINDOW_MAX: usize = 256;

/// A page under way. A store passes the batches up to [`Newest::end`] to it, newest first, until
/// [`Newest::take`] says that the page is done.
#[derive(Debug)]
pub struct Newest<'q> {
    query: &'q NewestQuery,
    /// Texts of which each batch with a wanted event holds one; none if it may hold any.
    words: Vec<String>,
    end: TimePosition,
    since: i64,
    limit: usize,
    /// Newest first.
    events: Vec<(String, Event)>,
    looked: usize,
    batches: usize,
    bytes: usize,
    /// Before which place it was not looked.
    stopped: Option<TimePosition>,
}

impl<'q> Newest<'q> {
    /// Begins where the query says; what it asks for happened in `life`.
    ///
    /// # Errors
    /// Returns that its cursor is none.
    pub fn of(query: &'q NewestQuery, life: Times) -> Result<Self, StoreError> {
        let mut end = query.until.map_or(TimePosition::END, |until| TimePosition::at(until.0));
        end = end.min(TimePosition::at(life.to.saturating_add(1)));
        if let Some(text) = &query.before {
            let place = TimePosition::parse(text)
                .ok_or_else(|| StoreError::Rejected(format!("`{text}` is not an event cursor")))?;
            end = end.min(place);
        }
        let since = query.since.map_or(i64::MIN, |since| since.0).max(life.from);
        let limit = usize::try_from(query.of.limit).unwrap_or(usize::MAX);
        let (words, events, stopped) = (words_of(&query.of.names), Vec::new(), None);
        Ok(Self {
            query,
            words,
            end,
            since,
            limit,
            events,
            looked: 0,
            batches: 0,
            bytes: 0,
            stopped,
        })
    }

    /// Returns the time, the lane and the number of the batch before which batches are wanted.
    #[must_use]
    pub fn end(&self) -> (i64, i64, i64) {
        let TimePosition { at, lane, n, i } = self.stopped.unwrap_or(self.end);
        let n = if i > 0 { n.saturating_add(1) } else { n };
        (at, i64::try_from(lane).unwrap_or(i64::MAX), n)
    }

    /// Returns from which time on events are wanted.
    #[must_use]
    pub const fn since(&self) -> i64 {
        self.since
    }

    /// Returns how many batches to read at once: no more bytes of them than a page looks at, as far as
    /// the ones before tell.
    #[must_use]
    pub fn window(&self) -> usize {
        if self.batches == 0 {
            return WINDOW_MIN;
        }
        let length = (self.bytes / self.batches).max(1);
        (EVENTS_BYTES_MAX / length).clamp(1, WINDOW_MAX)
    }

    /// Takes in the newest batch that is not yet looked at; returns whether the page is done.
    ///
    /// # Errors
    /// Returns that the batch cannot be read.
    pub fn take(&mut self, lane: i64, batch: &Logged) -> Result<bool, StoreError> {
        if batch.at < self.since {
            self.stopped = None;
            return Ok(true);
        }
        let lane = u128::from(lane.unsigned_abs());
        let place = |i| TimePosition { at: batch.at, lane, n: batch.n, i };
        let body = batch.body.as_deref().unwrap_or("[]");
        if !self.words.is_empty() && !self.words.iter().any(|word| body.contains(word.as_str())) {
            // To read it as text takes a fraction of what it takes to read it as JSON.
            self.batches += 1;
            self.bytes += body.len();
            self.stopped = Some(place(0));
            return Ok(self.bytes >= EVENTS_BYTES_MAX);
        }
        let events = codec::events_of_text(body)?;
        self.looked += 1 + events.len();
        self.batches += 1;
        self.bytes += body.len();
        let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
        let numbers = (0..count).rev();
        for (event, i) in events.into_iter().rev().zip(numbers) {
            let wanted = event.filter(|event| self.query.of.matches(event));
            let Some(event) = wanted.filter(|_| place(i) < self.end) else { continue };
            self.events.push((place(i + 1).to_string(), event));
            if self.events.len() >= self.limit {
                self.stopped = Some(place(i));
                return Ok(true);
            }
        }
        self.stopped = Some(place(0));
        Ok(self.looked >= LOOKED_MAX || self.bytes >= EVENTS_BYTES_MAX)
    }

    /// Returns the page. There is nothing before it if the last batch was passed.
    #[must_use]
    pub fn page(mut self, is_done: bool) -> NewestPage {
        self.events.reverse();
        let previous = self.stopped.filter(|_| is_done).map(|place| place.to_string());
        NewestPage { events: self.events, previous }
    }
}

/// Returns what stands in the text of each batch that holds one of these events, if all are named whole.
fn words_of(names: &[String]) -> Vec<String> {
    if names.iter().any(|name| name.ends_with('*')) {
        return Vec::new();
    }
    names.iter().map(|name| format!("\"{name}\"")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_store::event::EventQuery;

    fn query(limit: u32) -> NewestQuery {
        named("worker.*", limit)
    }

    fn named(name: &str, limit: u32) -> NewestQuery {
        let names = vec![name.to_owned()];
        let of = EventQuery { names, ..EventQuery::all(limit) };
        NewestQuery { of, since: None, until: None, before: None }
    }

    fn batch(n: i64, events: usize, evidence: usize) -> Logged {
        let one =
            format!(r#"{{"t":1,"k":"job.completed","by":"","ev":"{}"}}"#, "x".repeat(evidence));
        Logged { n, at: n, body: Some(format!("[{}]", vec![one; events].join(","))) }
    }

    /// How many batches a page looks at whose filter matches nothing.
    fn looked_at(events: usize, evidence: usize) -> i64 {
        let query = query(10);
        let mut newest = Newest::of(&query, super::super::EVER).unwrap();
        let mut n = 1_000_000;
        while !newest.take(1, &batch(n, events, evidence)).unwrap() {
            n -= 1;
        }
        assert_eq!(newest.page(true).previous, Some(format!("@{n}.1.{n}.0")));
        1_000_001 - n
    }

    /// What cannot hold a wanted event is not read as JSON, which this is not.
    #[test]
    fn batch_without_the_name_is_passed_over_and_one_with_it_is_read() {
        let query = named("worker.registered", 10);
        let mut newest = Newest::of(&query, super::super::EVER).unwrap();
        let other = Logged { n: 9, at: 9, body: Some("[{".to_owned()) };
        assert!(!newest.take(1, &other).unwrap());
        let body = r#"[{"t":1,"k":"worker.registered","by":"","ev":"x"}]"#;
        let wanted = Logged { n: 8, at: 8, body: Some(body.to_owned()) };
        assert!(!newest.take(1, &wanted).unwrap());
        assert_eq!(newest.page(false).events.len(), 1);
        let long = "x".repeat(EVENTS_BYTES_MAX);
        let mut newest = Newest::of(&query, super::super::EVER).unwrap();
        assert!(newest.take(1, &Logged { n: 7, at: 7, body: Some(long) }).unwrap());
        assert_eq!(newest.page(true).previous, Some("@7.1.7.0".to_owned()));
    }

    #[test]
    fn page_whose_filter_matches_nothing_ends_after_so_many_events_or_bytes() {
        assert_eq!(looked_at(999, 0), 20);
        assert!(looked_at(10, 100_000) <= 5, "a page reads no more than megabytes");
    }

    #[test]
    fn long_batches_are_read_few_at_a_time() {
        let query = query(10);
        let mut newest = Newest::of(&query, super::super::EVER).unwrap();
        assert_eq!(newest.window(), WINDOW_MIN);
        newest.take(1, &batch(9, 1, 10)).unwrap();
        assert_eq!(newest.window(), WINDOW_MAX);
        newest.take(1, &batch(8, 10, 200_000)).unwrap();
        assert!(newest.window() < 5, "{}", newest.window());
    }
}
