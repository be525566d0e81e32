//! The cache of classes. Any server adds classes, and a prune deletes those
//! without jobs. A batch that fails may have rolled some back, so those that it made are
//! forgotten; one that names a deleted class fails, and all are forgotten. Classes that
//! were not needed for a while are forgotten too: there may be any number of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store_rules::codec;
use tokio::time::Instant;

use crate::connection::values;
use crate::failure::{Conflict, Failure};
use crate::row::{class_of, get};
use crate::writer::Tx;

/// How long an unused class stays in the cache: at least this, at most twice as long.
const KNOWN: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Known {
    key: Arc<ClassKey>,
    /// Whether it was needed since unneeded ones were last forgotten.
    needed: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Classes {
    by_key: HashMap<Arc<ClassKey>, ClassId>,
    by_id: HashMap<ClassId, Known>,
    /// Made by the batch under way.
    made: Vec<ClassId>,
    /// When unneeded ones were last forgotten.
    forgot: Instant,
}

impl Default for Classes {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            by_id: HashMap::new(),
            made: Vec::new(),
            forgot: Instant::now(),
        }
    }
}

impl Classes {
    fn add(&mut self, id: ClassId, key: ClassKey) {
        let key = Arc::new(key);
        self.by_key.insert(Arc::clone(&key), id);
        self.by_id.insert(id, Known { key, needed: AtomicBool::new(true) });
    }

    pub(super) fn key(&self, id: ClassId) -> Result<&Arc<ClassKey>, StoreError> {
        let known = self.by_id.get(&id);
        let known = known.ok_or_else(|| StoreError::Corrupt(format!("no class {}", id.0)))?;
        known.needed.store(true, Ordering::Relaxed);
        Ok(&known.key)
    }

    fn id(&self, key: &ClassKey) -> Option<ClassId> {
        let id = *self.by_key.get(key)?;
        if let Some(known) = self.by_id.get(&id) {
            known.needed.store(true, Ordering::Relaxed);
        }
        Some(id)
    }

    pub(super) fn forget(&mut self, id: ClassId) {
        if let Some(known) = self.by_id.remove(&id) {
            self.by_key.remove(&known.key);
        }
    }

    /// Forgets the classes that were not needed since it was last asked, if that is a while ago.
    /// Not while a batch is under way.
    pub(super) fn forget_unneeded(&mut self) {
        if self.forgot.elapsed() < KNOWN {
            return;
        }
        self.forgot = Instant::now();
        self.by_id.retain(|_, known| std::mem::take(known.needed.get_mut()));
        self.by_key.retain(|_, id| self.by_id.contains_key(id));
    }

    /// Notes that the batch under way is stored, and what it made with it.
    pub(super) fn keep_made(&mut self) {
        self.made.clear();
    }

    /// Forgets what a batch made that may not be stored.
    pub(super) fn forget_made(&mut self) {
        for id in std::mem::take(&mut self.made) {
            self.forget(id);
        }
    }

    pub(super) fn has(&self, id: ClassId) -> bool {
        self.by_id.contains_key(&id)
    }
}

impl Tx<'_> {
    /// Makes sure that these classes are known.
    pub(super) async fn learn_classes(
        &mut self,
        ids: impl IntoIterator<Item = ClassId>,
    ) -> Result<(), Failure> {
        let mut unknown: Vec<i64> =
            ids.into_iter().filter(|id| !self.cache.classes.has(*id)).map(|id| id.0).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        unknown.sort_unstable();
        unknown.dedup();
        let sql = "select id, queue, job_type, route, tenant, isolated, keyed from class
                   where id = any($1::bigint[])";
        let rows = self.query(sql, values![unknown]).await?;
        for row in &rows {
            let (id, key) = class_of(row)?;
            self.cache.classes.add(id, key);
        }
        Ok(())
    }

    /// Returns the class, made now if there is none.
    pub(super) async fn get_or_make(&mut self, key: &ClassKey) -> Result<ClassId, Failure> {
        if let Some(id) = self.cache.classes.id(key) {
            return Ok(id);
        }
        let words = || {
            let tenant = key.tenant.clone().unwrap_or_default();
            let route = codec::route_text(key);
            values![key.queue.clone(), key.job_type.clone(), route, tenant, key.isolated, key.keyed]
        };
        let find = "select id from class where queue = $1 and job_type = $2 and route = $3
                    and tenant = $4 and isolated = $5 and keyed = $6";
        let mut made = false;
        let mut found = self.query(find, words()).await?;
        if found.is_empty() {
            let mut all = words();
            all.extend(values![key.is_for_plain_clients()]);
            // Another server may be making it: then this waits for it, and finds it.
            found = self
                .query(
                    "insert into class (id, queue, job_type, route, tenant, isolated, keyed, plain)
                     select coalesce(max(id), 0) + 1, $1, $2, $3, $4, $5, $6, $7 from class
                     on conflict do nothing returning id",
                    all,
                )
                .await?;
            made = !found.is_empty();
        }
        if found.is_empty() {
            found = self.query(find, words()).await?;
        }
        // Or it has made another one, of the same number.
        let Some(row) = found.first() else {
            return Err(Failure::Again(Conflict::Locks, "a class was made meanwhile".into()));
        };
        let id = ClassId(get(row, 0)?);
        self.cache.classes.add(id, key.clone());
        if made {
            self.cache.classes.made.push(id);
        }
        Ok(id)
    }

    /// Returns the class in which a job of class `id` is claimable.
    pub(super) async fn twin_of(
        &mut self,
        id: ClassId,
        isolated: bool,
    ) -> Result<ClassId, Failure> {
        // An attempt is remembered over a batch that failed, its class is not.
        self.learn_classes([id]).await?;
        let key = Arc::clone(self.cache.classes.key(id)?);
        match key.twin(isolated) {
            Some(twin) => self.get_or_make(&twin).await,
            None => Ok(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use outlast_store::command::Route;

    use super::*;

    /// Once, every collision reloaded all classes.
    #[test]
    fn a_batch_that_fails_forgets_the_classes_that_it_made_and_no_others() {
        let key = |n: i64| ClassKey {
            queue: format!("q{n}"),
            job_type: "t".into(),
            route: Route::Plain,
            tenant: None,
            isolated: false,
            keyed: false,
            placement: Default::default(),
        };
        let mut classes = Classes::default();
        for n in 1..=3 {
            classes.add(ClassId(n), key(n));
        }
        classes.made.push(ClassId(2));
        classes.keep_made();
        classes.made.push(ClassId(3));
        classes.forget_made();
        let known = [1, 2, 3].map(|n| classes.has(ClassId(n)));
        assert_eq!(known, [true, true, false]);
        assert!(classes.by_key.contains_key(&key(2)) && !classes.by_key.contains_key(&key(3)));
    }
}
