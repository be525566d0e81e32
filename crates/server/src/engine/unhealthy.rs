//! What workers said last of their health at this server, so that it is stored only when it changes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use outlast_core::id::WorkerId;

/// Most workers that are remembered. Forgetting one costs a write.
const WORKERS_MAX: usize = 10_000;

/// Why workers can run nothing, by what they said last here.
#[derive(Debug, Default)]
pub(crate) struct UnhealthyWorkers(Mutex<HashMap<WorkerId, String>>);

impl UnhealthyWorkers {
    /// Notes what a worker says; empty if it is healthy. Returns whether it said something else
    /// before, or this is the first that is heard of its trouble.
    pub(crate) fn note(&self, worker: WorkerId, reason: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reason.is_empty() {
            return all.remove(&worker).is_some();
        }
        if all.get(&worker).is_some_and(|before| before == reason) {
            return false;
        }
        if all.len() >= WORKERS_MAX {
            all.clear();
        }
        all.insert(worker, reason.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_what_is_new_is_stored() {
        let all = UnhealthyWorkers::default();
        let worker = WorkerId(Uuid::from_u128(1));
        let said = ["", "no memory", "no memory", "no disk", "", ""];
        let news = said.map(|reason| all.note(worker, reason));
        assert_eq!(news, [false, true, false, true, true, false]);
    }
}
