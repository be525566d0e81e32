//! What is known of classes without asking. Classes are only ever added, by any server; a
//! batch that fails may have added some in vain, so what is known then is forgotten.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_store::command::{ClassId, ClassKey};
use outlast_store::{StoreError, codec};

use crate::failure::{Conflict, Failure};
use crate::link::values;
use crate::row::{class_of, get};
use crate::writer::Writing;

#[derive(Debug, Default)]
pub(super) struct Classes {
    by_key: HashMap<Arc<ClassKey>, ClassId>,
    by_id: HashMap<ClassId, Arc<ClassKey>>,
}

impl Classes {
    fn add(&mut self, id: ClassId, key: ClassKey) {
        let key = Arc::new(key);
        self.by_key.insert(Arc::clone(&key), id);
        self.by_id.insert(id, key);
    }

    pub(super) fn key(&self, id: ClassId) -> Result<&Arc<ClassKey>, StoreError> {
        self.by_id.get(&id).ok_or_else(|| StoreError::Corrupt(format!("no class {}", id.0)))
    }

    pub(super) fn has(&self, id: ClassId) -> bool {
        self.by_id.contains_key(&id)
    }
}

impl Writing<'_> {
    /// Makes sure that these classes are known.
    pub(super) async fn learn_classes(
        &mut self,
        ids: impl IntoIterator<Item = ClassId>,
    ) -> Result<(), Failure> {
        if ids.into_iter().all(|id| self.classes.has(id)) {
            return Ok(());
        }
        let rows = self
            .ask("select id, queue, job_type, route, tenant, isolated from class", Vec::new())
            .await?;
        for row in &rows {
            let (id, key) = class_of(row)?;
            self.classes.add(id, key);
        }
        Ok(())
    }

    /// Returns the class, made now if there is none.
    pub(super) async fn get_or_make(&mut self, key: &ClassKey) -> Result<ClassId, Failure> {
        if let Some(id) = self.classes.by_key.get(key) {
            return Ok(*id);
        }
        let words = || {
            let tenant = key.tenant.clone().unwrap_or_default();
            let route = codec::route_text(&key.route);
            values![key.queue.clone(), key.job_type.clone(), route, tenant, key.isolated]
        };
        let find = "select id from class where queue = $1 and job_type = $2 and route = $3
                    and tenant = $4 and isolated = $5";
        let mut found = self.ask(find, words()).await?;
        if found.is_empty() {
            // Another server may be making it: then this waits for it, and finds it.
            found = self
                .ask(
                    "insert into class (id, queue, job_type, route, tenant, isolated)
                     select coalesce(max(id), 0) + 1, $1, $2, $3, $4, $5 from class
                     on conflict do nothing returning id",
                    words(),
                )
                .await?;
        }
        if found.is_empty() {
            found = self.ask(find, words()).await?;
        }
        // Or it has made another one, of the same number.
        let Some(row) = found.first() else {
            return Err(Failure::Again(Conflict::Locks, "a class was made meanwhile".into()));
        };
        let id = ClassId(get(row, 0)?);
        self.classes.add(id, key.clone());
        Ok(id)
    }

    /// Returns the class in which a job of class `id` is claimable.
    pub(super) async fn twin(&mut self, id: ClassId, isolated: bool) -> Result<ClassId, Failure> {
        // An attempt is remembered over a batch that failed, its class is not.
        self.learn_classes([id]).await?;
        let key = Arc::clone(self.classes.key(id)?);
        if key.isolated == isolated {
            return Ok(id);
        }
        self.get_or_make(&ClassKey { isolated, ..ClassKey::clone(&key) }).await
    }
}
