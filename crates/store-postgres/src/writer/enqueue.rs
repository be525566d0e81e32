//! Storing jobs: two rows each, written by one statement for all of a batch.

use std::sync::Arc;

use outlast_core::job::State;
use outlast_store::command::NewJob;
use outlast_store::reply::Enqueued;
use outlast_store_rules::apply::enqueue;
use outlast_store_rules::apply::sweep::Due;
use outlast_store_rules::codec;

use crate::failure::Failure;
use crate::row::{self, text};
use crate::writer::Tx;
use crate::writer::write_set::NewRow;

impl Tx<'_> {
    /// Stores a job; one that is refused, for a reason, is stored as discarded.
    pub(super) async fn insert_job(
        &mut self,
        job: &NewJob,
        refused: Option<&str>,
    ) -> Result<Enqueued, Failure> {
        let class = self.get_or_make(&job.stored_in()).await?;
        let key = Arc::clone(self.cache.classes.key(class)?);
        let stored = enqueue::begin(job, class, key, self.batch.context.now);
        let stored = if refused.is_some() { stored.refused() } else { stored };
        for (due, at) in
            [(Due::Timer, stored.job.scheduled_for), (Due::Expiry, job.rules.expires_at)]
        {
            if let Some(at) = at {
                self.holds.sweeps.put(due, at.0, self.batch.context.now);
            }
        }
        if stored.state == State::Available {
            self.holds.ready.put_new(class.0, -2 * i64::from(job.priority));
        }
        self.write_set.new.push(NewRow {
            id: job.id.0,
            class: class.0,
            priority: i16::from(job.priority),
            rules: codec::rules_text(&job.rules),
            timeout_ms: row::span(job.timeout),
            visibility_ms: row::span(job.visibility),
            strand_ms: row::strand_ms(job.scheduled_timeout),
            origin: row::origin_number(job.origin),
            created: self.batch.context.now.0,
            scheduled_for: stored.job.scheduled_for.map(|at| at.0),
            expires_at: job.rules.expires_at.map(|at| at.0),
            args: text(&job.payload.args),
            meta: text(&job.payload.meta),
            extra: text(&job.payload.extra),
            keys: codec::keys_text(&job.keys),
            lane: (!job.keys.is_empty()).then(|| job.keys.lane()),
            state: stored.state.as_str(),
            refusal: refused.map(text),
        });
        self.seen.stored.insert(job.id);
        self.seen.absent.remove(&job.id);
        Ok(stored.announce(&mut self.batch.outbox))
    }
}
