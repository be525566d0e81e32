//! Enqueueing once for a key.

use std::collections::HashSet;

use outlast_core::id::JobId;
use outlast_store::idempotency::{EnqueueOnce, EnqueueOnceRefusal, EnqueuedOnce};
use outlast_store::reply::Enqueued;

use crate::model::tables::Key;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn enqueue_once(
        &mut self,
        once: &EnqueueOnce,
    ) -> Result<EnqueuedOnce, EnqueueOnceRefusal> {
        let now = self.now();
        if let Some(key) = self.tables.keys.get(&once.key).filter(|key| key.expires > now) {
            return match key.request == once.request {
                true => Ok(EnqueuedOnce::Before(key.jobs.clone())),
                false => Err(EnqueueOnceRefusal::OtherRequest),
            };
        }
        let refused = |(position, refusal)| EnqueueOnceRefusal::Job(position, refusal);
        let stored = self.enqueue_all(&once.jobs).map_err(refused)?;
        let key = Key {
            request: once.request,
            expires: now.after(once.keep),
            jobs: stored.iter().map(|stored| stored.id).collect(),
        };
        if !stored.iter().any(Enqueued::is_old) {
            self.tables.keys.insert(once.key, key);
        }
        Ok(EnqueuedOnce::Stored(stored))
    }

    /// Drops expired keys, the oldest first; returns how many.
    pub(super) fn prune_keys(&mut self, limit: usize) -> usize {
        let now = self.now();
        let keys = self.tables.keys.iter();
        let mut old: Vec<_> = keys
            .filter(|(_, key)| key.expires <= now)
            .map(|(name, key)| (key.expires, *name))
            .collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, name) in &old {
            self.tables.keys.remove(name);
        }
        old.len()
    }

    /// Jobs that a key stands for.
    pub(super) fn keyed_jobs(&self) -> HashSet<JobId> {
        self.tables.keys.values().flat_map(|key| key.jobs.iter().copied()).collect()
    }
}
