//! Idempotency keys. Two servers that are asked with the same key at the same time
//! meet at its row: one stores, the other is rolled back, tries again, and finds it.

use outlast_core::id::JobId;
use outlast_store::idempotency::{EnqueueOnce, Fingerprint};
use outlast_store::reply::Enqueued;
use outlast_store_rules::backend::Key;
use uuid::Uuid;

use crate::connection::values;
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;

impl Tx<'_> {
    pub(super) async fn load_key(&mut self, key: &Fingerprint) -> Result<Key, Failure> {
        let sql = "select request, expires from idempotency where key = $1 for update";
        let found = self.query(sql, values![key.to_vec()]).await?;
        let Some(row) = found.first() else { return Ok(Key::Unused) };
        if get::<i64>(row, 1)? > self.batch.context.now.0 {
            Ok(Key::InForce(get(row, 0)?))
        } else {
            Ok(Key::Expired)
        }
    }

    pub(super) async fn load_jobs_of_key(
        &mut self,
        key: &Fingerprint,
    ) -> Result<Vec<JobId>, Failure> {
        let rows = self
            .query(
                "select j.id from idempotency_job i join job_row j on j.seq = any(array[i.seq])
                 where i.key = $1 order by i.seq",
                values![key.to_vec()],
            )
            .await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(JobId(get(row, 0)?));
        }
        Ok(ids)
    }

    pub(super) fn note_key(&mut self, once: &EnqueueOnce, stored: &[Enqueued], expired: bool) {
        let key = once.key.to_vec();
        if expired {
            self.write("delete from idempotency_job where key = $1", values![key.clone()]);
            self.write("delete from idempotency where key = $1", values![key.clone()]);
        }
        let expires = self.batch.context.now.after(once.keep).0;
        self.write(
            "insert into idempotency (key, request, expires) values ($1, $2, $3)",
            values![key.clone(), once.request.to_vec(), expires],
        );
        let ids: Vec<Uuid> = stored.iter().map(|job| job.id.0).collect();
        self.write(
            "insert into idempotency_job (seq, key)
             select seq, $2 from job_row where id = any($1::uuid[])",
            values![ids, key],
        );
    }
}
