//! Unique keys: the job that took each of them last.

use outlast_core::id::JobId;
use outlast_core::unique::Holder;
use outlast_store::StoreError;
use outlast_store::command::ClassId;
use outlast_store::unique::{Fingerprint, KeyHolder};
use rusqlite::OptionalExtension as _;

use crate::row::{self, failed};
use crate::writer::Tx;

/// A job is claimable if it is nowhere else.
const HOLDER: &str = "
    select j.id, j.class, j.created, exists (select 1 from active a where a.seq = u.seq),
        coalesce((select f.state from finished f where f.seq = u.seq),
                 (select 'active' from active a where a.seq = u.seq),
                 (select w.state from waiting w where w.seq = u.seq), 'available')
    from unique_key u join job_row j on j.seq = u.seq
    where u.fp = ?";

impl Tx<'_> {
    pub(super) fn load_key_holder(
        &self,
        key: &Fingerprint,
    ) -> Result<Option<KeyHolder>, StoreError> {
        let mut select = self.db.prepare_cached(HOLDER).map_err(failed)?;
        let found = select.query_row([key.as_slice()], |row| {
            let (created, held) = (row::time(row, 2)?, row.get(3)?);
            let holder = Holder { state: row::state(row, 4)?, held, created };
            Ok(KeyHolder { job: row::job_id(row, 0)?, class: ClassId(row.get(1)?), holder })
        });
        found.optional().map_err(failed)
    }

    pub(super) fn put_key(&self, key: &Fingerprint, job: JobId) -> Result<(), StoreError> {
        let seq = self.seq_of(job)?;
        self.execute(
            "insert or replace into unique_key (fp, seq) values (?, ?)",
            (key.as_slice(), seq),
        )?;
        Ok(())
    }
}
