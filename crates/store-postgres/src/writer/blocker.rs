//! Which session of the database a batch waits for.
//!
//! PostgreSQL can tell that only while the batch waits. So when one has met a lock, what the
//! connection waits for next is looked at from another one: once in a while, and not for each batch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;

use crate::connect::{Address, OpenConnection, Plans};
use crate::silence::ConnectionId;

/// Time between the beginnings of two searches, and how long errors repeat what one found.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest that a search takes.
const SEARCH_LIMIT: Duration = Duration::from_secs(3);
/// Time between two looks of a search.
const STEP: Duration = Duration::from_millis(50);

/// Asks for whom a process waits. It holds the lock of a row while it waits for the transaction that
/// changed it.
const LOOK: &str = "select b.pid, coalesce(b.application_name, ''), coalesce(b.state, ''),
        coalesce((select string_agg(distinct l.relation::regclass::text, ', ') from pg_locks l
            where l.pid = $1 and (l.locktype = 'tuple' or not l.granted)), '')
    from pg_stat_activity b where b.pid = any(pg_blocking_pids($1)) order by b.pid limit 1";

/// What is known of the session that batches wait for.
#[derive(Debug, Default)]
pub(super) struct Blocker {
    /// When the last search began.
    searched: Option<Instant>,
    found: Arc<Mutex<Option<Found>>>,
}

#[derive(Debug)]
struct Found {
    at: Instant,
    words: String,
}

impl Blocker {
    /// Notes that a batch met a lock on a connection. Returns what PostgreSQL said of it, with the
    /// session that holds the lock, if that is known.
    pub(super) fn met(&mut self, address: &Address, line: ConnectionId, said: &str) -> String {
        let now = Instant::now();
        if self.searched.is_none_or(|at| now >= at + PAUSE) {
            self.searched = Some(now);
            let (address, found) = (address.clone(), Arc::clone(&self.found));
            tokio::spawn(async move {
                let searching = search(&address, line.pid());
                let Ok(Some(words)) = tokio::time::timeout(SEARCH_LIMIT, searching).await else {
                    return;
                };
                let now = Instant::now();
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                // As long as it lasts, it is logged once.
                let lasts = |it: &Found| it.words == words && now < it.at + 3 * PAUSE;
                if !found.as_ref().is_some_and(lasts) {
                    tracing::warn!(blocker = words, "batches wait for a lock of another session");
                }
                *found = Some(Found { at: now, words });
            });
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match found.as_ref().filter(|it| now < it.at + PAUSE) {
            Some(Found { words, .. }) => format!("{said}; {words}"),
            None => said.to_owned(),
        }
    }
}

/// Looks until the process waits for someone.
async fn search(address: &Address, pid: i32) -> Option<String> {
    let (OpenConnection { client, reader }, _line) = address.reader(Plans::ForValues).await.ok()?;
    let found = loop {
        match client.query_opt(LOOK, &[&pid]).await {
            Ok(Some(row)) => break words_of(&row).ok(),
            Ok(None) => tokio::time::sleep(STEP).await,
            Err(_) => break None,
        }
    };
    reader.abort();
    found
}

fn words_of(row: &Row) -> Result<String, tokio_postgres::Error> {
    let (pid, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    let (state, tables): (String, String) = (row.try_get(2)?, row.try_get(3)?);
    let mut about = vec![format!("process {pid}")];
    about.extend([name, state].into_iter().filter(|it| !it.is_empty()));
    let what = if tables.is_empty() { String::new() } else { format!(" of {tables}") };
    Ok(format!("the lock{what} is held by a session ({})", about.join(", ")))
}
