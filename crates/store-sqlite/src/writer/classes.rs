//! What is known of classes and queues without asking the database. The writer thread is
//! the only one that changes them, so this copy is exact; after a batch that failed it is
//! loaded again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use outlast_store::StoreError;
use outlast_store::command::{ClassId, ClassKey};
use outlast_store_rules::codec;
use rusqlite::Connection;

use crate::row::failed;

#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_key: HashMap<Arc<ClassKey>, ClassId>,
    by_id: HashMap<ClassId, Arc<ClassKey>>,
    by_queue: HashMap<String, Vec<ClassId>>,
    /// The class of the last new job, if it was known: most jobs of a batch are of one.
    last: Option<(Arc<ClassKey>, ClassId)>,
    paused: HashSet<String>,
    /// The block of jobs that each class has entered last.
    blocks: HashMap<ClassId, i64>,
    /// The last of these.
    entered: Option<(ClassId, i64)>,
}

impl Classes {
    pub(crate) fn load(db: &Connection) -> Result<Self, StoreError> {
        let mut classes = Self::default();
        let mut select = db
            .prepare(
                "select id, queue, job_type, route, tenant, isolated, keyed from class order by id",
            )
            .map_err(failed)?;
        let mut rows = select.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let (id, key) = class_of(row)?;
            classes.add(id, key);
        }
        let mut select = db.prepare("select name from queue where paused").map_err(failed)?;
        let names = select.query_map([], |row| row.get(0)).map_err(failed)?;
        classes.paused = names.collect::<Result<_, _>>().map_err(failed)?;
        Ok(classes)
    }

    fn add(&mut self, id: ClassId, key: ClassKey) {
        let key = Arc::new(key);
        self.by_queue.entry(key.queue.clone()).or_default().push(id);
        self.by_key.insert(Arc::clone(&key), id);
        self.by_id.insert(id, key);
    }

    pub(crate) fn known(&self, id: ClassId) -> Option<&Arc<ClassKey>> {
        self.by_id.get(&id)
    }

    pub(crate) fn key(&self, id: ClassId) -> Result<&Arc<ClassKey>, StoreError> {
        if let Some((key, _)) = self.last.as_ref().filter(|(_, last)| *last == id) {
            return Ok(key);
        }
        self.known(id).ok_or_else(|| StoreError::Corrupt(format!("no class {}", id.0)))
    }

    pub(crate) fn has(&self, key: &ClassKey) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| **last == *key) || self.by_key.contains_key(key)
    }

    /// Returns the class, made now if there is none.
    pub(crate) fn get_or_make(
        &mut self,
        db: &Connection,
        key: &ClassKey,
    ) -> Result<ClassId, StoreError> {
        if let Some((_, id)) = self.last.as_ref().filter(|(last, _)| **last == *key) {
            return Ok(*id);
        }
        if let Some((known, id)) = self.by_key.get_key_value(key) {
            self.last = Some((Arc::clone(known), *id));
            return Ok(*id);
        }
        let mut insert = db
            .prepare_cached(
                "insert into class (queue, job_type, route, tenant, isolated, keyed)
                 values (?, ?, ?, ?, ?, ?)",
            )
            .map_err(failed)?;
        let route = codec::route_text(key);
        let tenant = key.tenant.as_deref().unwrap_or("");
        insert
            .execute((&key.queue, &key.job_type, route, tenant, key.isolated, key.keyed))
            .map_err(failed)?;
        let id = ClassId(db.last_insert_rowid());
        self.add(id, key.clone());
        Ok(id)
    }

    /// Returns the class in which a job of class `id` is claimable.
    pub(crate) fn twin(
        &mut self,
        db: &Connection,
        id: ClassId,
        isolated: bool,
    ) -> Result<ClassId, StoreError> {
        let key = Arc::clone(self.key(id)?);
        key.twin(isolated).map_or(Ok(id), |twin| self.get_or_make(db, &twin))
    }

    /// Forgets a class that has no jobs left.
    pub(crate) fn forget(&mut self, id: ClassId) {
        let Some(key) = self.by_id.remove(&id) else { return };
        self.by_key.remove(&key);
        self.last.take_if(|(_, last)| *last == id);
        self.entered = None;
        self.blocks.remove(&id);
        if let Some(ids) = self.by_queue.get_mut(&key.queue) {
            ids.retain(|of_queue| *of_queue != id);
            if ids.is_empty() {
                self.by_queue.remove(&key.queue);
            }
        }
    }

    /// Notes that a class has a job in a block; returns whether that was not known.
    pub(crate) fn enters(&mut self, id: ClassId, block: i64) -> bool {
        if self.entered == Some((id, block)) {
            return false;
        }
        self.entered = Some((id, block));
        self.blocks.insert(id, block) != Some(block)
    }

    /// Forgets what is known of a block: no job of it is left.
    pub(crate) fn leave(&mut self, block: i64) {
        self.blocks.retain(|_, known| *known != block);
        self.entered = None;
    }

    pub(crate) fn is_paused(&self, queue: &str) -> bool {
        self.paused.contains(queue)
    }

    pub(crate) fn set_paused(&mut self, queue: &str, paused: bool) {
        if paused {
            self.paused.insert(queue.to_owned());
        } else {
            self.paused.remove(queue);
        }
    }

    /// Returns the plain classes of a queue, of one tenant if one is named.
    pub(crate) fn plain_of(&self, queue: &str, tenant: Option<&str>) -> Vec<ClassId> {
        let ids = self.by_queue.get(queue).map_or(&[][..], Vec::as_slice);
        ids.iter()
            .filter(|id| {
                self.by_id.get(id).is_some_and(|key| {
                    key.is_for_plain_clients()
                        && tenant.is_none_or(|tenant| key.tenant.as_deref() == Some(tenant))
                })
            })
            .copied()
            .collect()
    }
}

/// Reads a class from columns id, queue, `job_type`, route, tenant, isolated, keyed.
pub(crate) fn class_of(row: &rusqlite::Row<'_>) -> Result<(ClassId, ClassKey), StoreError> {
    let route: String = row.get(3).map_err(failed)?;
    let tenant: String = row.get(4).map_err(failed)?;
    let (route, placement) = codec::route_of(&route)?;
    let key = ClassKey {
        queue: row.get(1).map_err(failed)?,
        job_type: row.get(2).map_err(failed)?,
        route,
        tenant: (!tenant.is_empty()).then_some(tenant),
        isolated: row.get(5).map_err(failed)?,
        keyed: row.get(6).map_err(failed)?,
        placement,
    };
    Ok((ClassId(row.get(0).map_err(failed)?), key))
}
