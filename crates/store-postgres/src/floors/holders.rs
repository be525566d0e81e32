//! Workers without a lease that hold attempts.
//!
//! They are found by stepping from worker to worker through the index of attempts, which passes the
//! entries of all attempts that ended while an old snapshot was held. If that is costly, it is done
//! at a bounded rate, and what was found is used until then. A worker that has just lost its lease is
//! among those that went last, and needs no looking for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use uuid::Uuid;

use super::sweeps::Pace;
use super::{COSTLY, COSTLY_EACH};

/// The workers without a lease that held attempts when they were last looked for.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    found: Vec<Uuid>,
    pace: Pace,
}

/// What a search for them found.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) found: Vec<Uuid>,
    /// How many gaps between workers with a lease were searched.
    pub(crate) gaps: i64,
    /// Pages that were read.
    pub(crate) pages: i64,
    pub(crate) began: Instant,
}

impl Holders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was found last, or `None` if it is time to search.
    pub(crate) fn known(&self, now: Instant) -> Option<Vec<Uuid>> {
        let state = self.state();
        (!state.pace.is_free(now)).then(|| state.found.clone())
    }

    /// Keeps what a search found.
    pub(crate) fn keep(&self, search: &Search, now: Instant) {
        let mut state = self.state();
        state.found.clone_from(&search.found);
        let is_costly = search.pages > COSTLY + COSTLY_EACH * search.gaps;
        state.pace.ended(search.began, now, is_costly);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn holders_are_searched_for_each_time_unless_that_is_costly() {
        let (holders, now, worker) = (Holders::default(), Instant::now(), Uuid::from_u128(7));
        assert_eq!(holders.known(now), None);
        let search = |pages| Search { found: vec![worker], gaps: 2, pages, began: now };
        holders.keep(&search(COSTLY + 2 * COSTLY_EACH), now + Duration::from_secs(1));
        assert_eq!(holders.known(now + Duration::from_secs(1)), None);
        let ended = now + Duration::from_secs(2);
        holders.keep(&search(COSTLY + 2 * COSTLY_EACH + 1), ended);
        assert_eq!(holders.known(ended + Duration::from_secs(39)), Some(vec![worker]));
        assert_eq!(holders.known(ended + Duration::from_secs(40)), None);
    }
}
