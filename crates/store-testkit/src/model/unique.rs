//! Jobs of which there is one at a time.

use outlast_core::unique::Holder;
use outlast_store::command::NewJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store::unique::{KeyHolder, KeyOutcome};
use outlast_store_rules::apply::unique::{Verdict, ignored, in_place_of, judge, replacing};

use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn judge(&self, job: &NewJob) -> Result<Verdict, EnqueueRefusal> {
        let Some(unique) = &job.unique else { return Ok(Verdict::Take(None)) };
        let holder = self.tables.unique.get(&unique.fingerprint);
        let row = holder.and_then(|id| self.tables.find(*id));
        let holder = row.map(|(_, row)| KeyHolder {
            job: row.stored.id,
            class: row.stored.class,
            holder: Holder {
                state: row.job.state,
                held: row.in_flight.is_some(),
                created: row.stored.created,
            },
        });
        match judge(unique, holder, self.now())? {
            Verdict::Replace(found) if found.job == job.id => {
                Err(EnqueueRefusal::DuplicateId(job.id))
            }
            verdict => Ok(verdict),
        }
    }

    /// Stores a job as it was judged.
    pub(super) fn place(&mut self, job: &NewJob, verdict: Verdict) -> Enqueued {
        let stored = match verdict {
            Verdict::Ignore(found) => return ignored(&found),
            Verdict::Take(_) => self.insert(job),
            Verdict::Replace(found) => {
                let before = self.tables.find(found.job).map(|(_, row)| row.clone());
                let moved = self.order(&replacing(job, found.job)).ok().map(Box::new);
                let mut stored = match before {
                    Some(old) => self.insert(&in_place_of(job, &old.stored, old.job.state)),
                    None => self.insert(job),
                };
                stored.by_key = Some(KeyOutcome::Replaced { job: found.job, moved });
                stored
            }
        };
        if let Some(unique) = &job.unique {
            self.tables.unique.insert(unique.fingerprint, job.id);
        }
        stored
    }
}
