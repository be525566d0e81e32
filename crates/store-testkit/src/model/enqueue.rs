//! Storing jobs.

use std::collections::HashSet;
use std::sync::Arc;

use outlast_core::job::{Job, Place, State, Turn};
use outlast_core::queue::{Depth, waits};
use outlast_store::command::{First, NewJob};
use outlast_store::record::StoredJob;
use outlast_store::reply::{EnqueueRefusal, Enqueued};
use outlast_store_rules::apply::unique::Verdict;
use outlast_store_rules::rules::enqueued_event;

use crate::model::tables::Row;
use crate::model::tx::Tx;

impl Tx<'_> {
    pub(super) fn enqueue(&mut self, job: &NewJob) -> Result<Enqueued, EnqueueRefusal> {
        self.has_time(job)?;
        let verdict = self.judge(job)?;
        if !matches!(verdict, Verdict::Ignore(_)) {
            self.is_new(job)?;
        }
        self.has_room(&[(job, verdict)]).map_err(|(_, refusal)| refusal)?;
        Ok(self.place(job, verdict))
    }

    /// All of them or none: every one is checked before the first is stored.
    pub(super) fn enqueue_all(
        &mut self,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>, (usize, EnqueueRefusal)> {
        let (mut ids, mut keys) = (HashSet::new(), HashSet::new());
        let mut verdicts = Vec::new();
        for (n, job) in jobs.iter().enumerate() {
            let key_is_repeated = job.unique.is_some_and(|it| !keys.insert(it.fingerprint));
            let verdict = self.has_time(job).and_then(|()| {
                if !ids.insert(job.id) {
                    return Err(EnqueueRefusal::DuplicateId(job.id));
                }
                if key_is_repeated {
                    return Err(EnqueueRefusal::RepeatedKey(job.id));
                }
                let verdict = self.judge(job)?;
                if !matches!(verdict, Verdict::Ignore(_)) {
                    self.is_new(job)?;
                }
                Ok(verdict)
            });
            verdicts.push(verdict.map_err(|refusal| (n, refusal))?);
        }
        let all: Vec<(&NewJob, Verdict)> = jobs.iter().zip(verdicts).collect();
        self.has_room(&all)?;
        Ok(all.into_iter().map(|(job, verdict)| self.place(job, verdict)).collect())
    }

    /// A queue that is bounded has room for all jobs of a request, or none is stored.
    fn has_room(&self, jobs: &[(&NewJob, Verdict)]) -> Result<(), (usize, EnqueueRefusal)> {
        let bounded = self.tables.settings.iter();
        let bounded = bounded.filter_map(|(queue, it)| Some((queue, it.settings.max_depth?)));
        for (queue, max) in bounded {
            let waiting = |row: &&Row| row.stored.key.queue == *queue && waits(row.job.state);
            let before = self.tables.rows.values().filter(waiting).count();
            let is_gone = |(_, verdict): &&(&NewJob, Verdict)| match verdict {
                Verdict::Replace(found) => {
                    self.tables.find(found.job).is_some_and(|(_, row)| waiting(&row))
                }
                Verdict::Take(_) | Verdict::Ignore(_) => false,
            };
            let of_queue = |(job, _): &&(&NewJob, Verdict)| job.class.queue == *queue;
            let is_new =
                |(_, verdict): &&(&NewJob, Verdict)| !matches!(verdict, Verdict::Ignore(_));
            let new = jobs.iter().filter(of_queue).filter(is_new).count();
            let gone = jobs.iter().filter(is_gone).count();
            if new > gone && before + new - gone > usize::try_from(max).unwrap_or(usize::MAX) {
                let depth = Depth { jobs: u64::try_from(before).unwrap_or(u64::MAX), max };
                let more = u64::try_from(new - gone).unwrap_or(u64::MAX);
                let first = jobs.iter().position(|it| of_queue(&it)).unwrap_or(0);
                let queue = queue.as_str().into();
                return Err((first, EnqueueRefusal::QueueFull { queue, depth, more }));
            }
        }
        Ok(())
    }

    fn has_time(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        match job.rules.expires_at {
            Some(at) if at <= self.now() => Err(EnqueueRefusal::Expired(job.id)),
            Some(_) | None => Ok(()),
        }
    }

    fn is_new(&self, job: &NewJob) -> Result<(), EnqueueRefusal> {
        match self.tables.by_id.contains_key(&job.id) {
            true => Err(EnqueueRefusal::DuplicateId(job.id)),
            false => Ok(()),
        }
    }

    pub(super) fn insert(&mut self, new: &NewJob) -> Enqueued {
        let now = self.now();
        let key = new.stored_in();
        let class = self.tables.class(&key);
        let (state, place) = match new.first {
            First::At(at) if at > now => (State::Scheduled, Place::Timer(at)),
            First::Now | First::At(_) => (State::Available, Place::Ready(Turn::InOrder)),
            First::OnActivation => (State::Pending, Place::Pending),
        };
        let scheduled_for = match place {
            Place::Timer(at) => Some(at),
            Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
        };
        let stored = Arc::new(StoredJob {
            id: new.id,
            class,
            key: Arc::new(key.into_owned()),
            keys: new.keys.clone(),
            priority: new.priority,
            payload: new.payload.clone(),
            rules: new.rules.clone(),
            timeout: new.timeout,
            visibility: new.visibility,
            scheduled_timeout: new.scheduled_timeout,
            origin: new.origin,
            created: now,
            scheduled_for,
        });
        self.log_event(enqueued_event(&stored, state, &new.by));
        self.tables.add(Row {
            job: Job::new(state, new.rules.clone()),
            stored,
            place,
            class,
            since: now,
            attempt: 0,
            in_flight: None,
            attempts: Vec::new(),
            checkpoint: None,
            finished: None,
            result: None,
            stranded: None,
            ended_by: "",
            dead_letter: None,
            unhandled: false,
            log: Vec::new(),
        });
        Enqueued { id: new.id, class, state, at: now, by_key: None }
    }
}
