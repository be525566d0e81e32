//! Unique keys: the job that took each of them last.
//!
//! Keys are read without locks, all of a batch at once. What is decided by them holds if the batch
//! finds them unchanged when it writes: one that no job had is inserted, and another one passes on
//! only from the job that had it. Otherwise the batch is tried again.

use outlast_core::id::JobId;
use outlast_core::unique::Holder;
use outlast_store::command::ClassId;
use outlast_store::reply::Enqueued;
use outlast_store::unique::{Fingerprint, KeyHolder};
use outlast_store_rules::backend::unique::Free;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::{self, get};
use crate::writer::Tx;
use crate::writer::write_set::{KeyPassed, KeyTaken};

/// A job is claimable if it is nowhere else.
const HOLDERS: &str = "
    select u.fp, j.id, j.class, j.created,
        coalesce((select true from active a where a.seq = u.seq), false),
        coalesce((select f.state from finished f where f.seq = u.seq),
                 (select 'active' from active a where a.seq = u.seq),
                 (select w.state from waiting w where w.seq = u.seq), 'available')
    from unique_key u join job_row j on j.seq = any(array[u.seq])
    where u.fp = any($1::bytea[])";

/// A batch that met others at its keys waits for them instead.
const LOCK: &str = "
    select 1 from unique_key u where u.fp = any($1::bytea[]) order by u.fp for update";

impl Tx<'_> {
    pub(super) async fn load_key_holders(&mut self, keys: Vec<Fingerprint>) -> Result<(), Failure> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        let mut statements = Vec::with_capacity(2);
        if self.locks.come_first {
            statements.push(Statement::new(LOCK, values![keys.clone()]));
        }
        statements.push(Statement::new(HOLDERS, values![keys]));
        let found = self.query_all(statements).await?.pop().unwrap_or_default();
        self.seen.keys.clear();
        for row in &found {
            let fp: &[u8] = get(row, 0)?;
            let Ok(fp) = Fingerprint::try_from(fp) else { continue };
            let (created, held) = (row::time(row, 3)?, get(row, 4)?);
            let holder = Holder { state: row::state(row, 5)?, held, created };
            let (job, class) = (JobId(get(row, 1)?), ClassId(get(row, 2)?));
            self.seen.keys.insert(fp, KeyHolder { job, class, holder });
        }
        Ok(())
    }

    /// Loads and locks a job, unless another transaction has locked it.
    pub(super) async fn take_free(&mut self, id: JobId) -> Result<Free, Failure> {
        // One that is only remembered is looked for all the same.
        if !self.seen.remembered.contains(&id)
            && let Some(loaded) = self.seen.jobs.remove(&id)
        {
            return Ok(Free::Loaded(Box::new(loaded)));
        }
        let busy = self.look_for_free(vec![id.0]).await?;
        Ok(match self.seen.jobs.remove(&id) {
            Some(loaded) => Free::Loaded(Box::new(loaded)),
            None if busy.is_empty() => Free::Gone,
            None => Free::Busy,
        })
    }

    pub(super) fn note_key_taken(
        &mut self,
        key: Fingerprint,
        stored: &Enqueued,
        before: Option<JobId>,
    ) {
        let (job, fp) = (stored.id.0, key.to_vec());
        match before {
            Some(before)
                if self.seen.stored.contains(&before) && self.write_set.pass_on(&key, job) => {}
            Some(before) => {
                self.write_set.keys.passed.push(KeyPassed { fp, before: before.0, job })
            }
            None => self.write_set.keys.taken.push(KeyTaken { fp, job }),
        }
        let holder = Holder { state: stored.state, held: false, created: stored.at };
        self.seen.keys.insert(key, KeyHolder { job: stored.id, class: stored.class, holder });
    }
}
