//! Enqueueing once for a key. Two servers that are asked with the same key at the same time
//! meet at its row: one stores, the other is rolled back, tries again, and finds it.

use outlast_core::id::JobId;
use outlast_store::once::{Fingerprint, Once, OnceRefusal, Onced};
use outlast_store::reply::Enqueued;
use uuid::Uuid;

use crate::failure::Failure;
use crate::link::values;
use crate::row::get;
use crate::writer::Writing;

impl Writing<'_> {
    pub(super) async fn enqueue_once(
        &mut self,
        once: &Once,
    ) -> Result<Result<Onced, OnceRefusal>, Failure> {
        let found = self
            .ask(
                "select request, expires from idempotency where key = $1 for update",
                values![once.key.to_vec()],
            )
            .await?;
        let mut left_over = false;
        if let Some(row) = found.first() {
            let (request, expires): (&[u8], i64) = (get(row, 0)?, get(row, 1)?);
            if expires > self.now.0 {
                if request != once.request {
                    return Ok(Err(OnceRefusal::OtherRequest));
                }
                return Ok(Ok(Onced::Before(self.jobs_of(&once.key).await?)));
            }
            left_over = true;
        }
        let stored = match self.enqueue_all(&once.jobs).await? {
            Ok(stored) => stored,
            Err((position, refusal)) => return Ok(Err(OnceRefusal::Job(position, refusal))),
        };
        self.keep_key(once, &stored, left_over);
        Ok(Ok(Onced::Stored(stored)))
    }

    async fn jobs_of(&mut self, key: &Fingerprint) -> Result<Vec<JobId>, Failure> {
        let rows = self
            .ask(
                "select j.id from idempotency_job i join job_row j on j.seq = i.seq
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

    fn keep_key(&mut self, once: &Once, stored: &[Enqueued], left_over: bool) {
        let key = once.key.to_vec();
        // The same key may be there still, expired and not pruned.
        if left_over {
            self.write("delete from idempotency_job where key = $1", values![key.clone()]);
            self.write("delete from idempotency where key = $1", values![key.clone()]);
        }
        let expires = self.now.after(once.keep).0;
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
