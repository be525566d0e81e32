//! What can be read outside a batch.

mod events;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::evidence::Evidence;
use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::{DeadLetterReason, Outcome, Place, State};
use outlast_core::resources::Usage;
use outlast_core::time::Timestamp;
use outlast_core::worker::liveness::Liveness;
use outlast_store::command::{ClassId, ClassKey, LetterKey};
use outlast_store::error::StoreError;
use outlast_store::job::rank;
use outlast_store::query::{
    AheadQuery, Claimable, ClassBacklog, DeadLetterPage, JobPage, JobQuery, LogPage, LogQuery,
    OldestClaimable, Page, QueuePause, QueueStats, StatusFilter, UnhandledLetter, WorkerPage,
    WorkerQuery,
};
use outlast_store::record::{
    AttemptRecord, HolderRecord, InFlightJob, JobRecord, Omitted, WorkerBrief, WorkerRecord,
};
use outlast_store::schedule::mark;
use outlast_store::store::GONE_SHOWN;
use outlast_store::tally::{self, ClassCounts, Counts, Second};
use outlast_store::workflow;
use outlast_store_rules::list::{self, Fit, Numbers};

use crate::model::tables::{Row, Seq, Tables};

impl Row {
    fn running(&self) -> Option<AttemptRecord> {
        let attempt = self.in_flight.as_ref()?;
        Some(AttemptRecord {
            epoch: self.job.epoch,
            life: self.job.life,
            attempt: self.job.running_attempt(),
            worker: attempt.worker,
            worker_name: attempt.plain.clone(),
            claimed: attempt.claimed,
            started: self.started(),
            finished: None,
            outcome: None,
            charge: None,
            next_state: None,
            error: None,
            omitted: None,
            exit_code: None,
            by: String::new(),
            evidence: Evidence::default(),
            pack_digest: attempt.pack_digest.clone(),
            usage: Usage::default(),
        })
    }

    fn latest(&self) -> Option<AttemptRecord> {
        self.running().or_else(|| self.attempts.last().cloned())
    }

    /// The latest error of this life; none once the job completed.
    fn error(&self) -> Option<String> {
        if self.job.state == State::Completed {
            return None;
        }
        let this_life = self.attempts.iter().rev().filter(|of| of.life == self.job.life);
        self.stranded.clone().or_else(|| this_life.filter_map(|of| of.error.clone()).next())
    }

    fn record(&self) -> JobRecord {
        let latest = self.latest();
        JobRecord {
            job: self.stored.clone(),
            state: self.job.state,
            epoch: self.job.epoch,
            life: self.job.life,
            spent: self.job.spent,
            attempt: self.attempt,
            isolated: self.job.isolated,
            since: self.since,
            due: match self.place {
                Place::Timer(due) => Some(due),
                Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
            },
            holder: self.in_flight.as_ref().map(|attempt| HolderRecord {
                worker: attempt.worker,
                name: attempt.plain.clone(),
                visible_until: attempt.visible.map(|visible| visible.until),
            }),
            last_holder: latest.as_ref().map(|attempt| HolderRecord {
                worker: attempt.worker,
                name: attempt.worker_name.clone(),
                visible_until: None,
            }),
            claimed: latest.as_ref().map(|attempt| attempt.claimed),
            started: latest.and_then(|attempt| attempt.started),
            finished: self.finished,
            result: self.result.clone(),
            error: self.error(),
            ended_by: self.ended_by.to_owned(),
            dead_letter: self.dead_letter.map(|(reason, _)| reason),
            omitted: Omitted::default(),
        }
    }

    /// Whether the job counts in a column of a tally.
    fn counts_in(&self, column: &str) -> bool {
        let letter = self.dead_letter.map(|(reason, _)| reason);
        match column {
            "started" => self.job.state == State::Active && self.started().is_some(),
            "exhausted" => letter == Some(DeadLetterReason::Exhausted),
            "abandoned" => letter.is_some_and(|reason| reason != DeadLetterReason::Exhausted),
            state => self.job.state.as_str() == state,
        }
    }

    fn matches(&self, query: &JobQuery) -> bool {
        let latest = self.latest();
        let abandoned = self.dead_letter.is_some_and(|(reason, _)| match reason {
            DeadLetterReason::PoisonSuspect | DeadLetterReason::AtMostOnce => true,
            DeadLetterReason::Exhausted => false,
        });
        let outcome = self.attempts.last().and_then(|attempt| attempt.outcome);
        let timed_out = outcome == Some(Outcome::Timeout);
        let started = self.job.state == State::Active && self.started().is_some();
        let key = &self.stored.key;
        let is_wanted = |wanted: Option<bool>, is: bool| wanted.is_none_or(|wanted| wanted == is);
        let has = |status: &StatusFilter| {
            status.states.contains(&self.job.state)
                && is_wanted(status.abandoned, abandoned)
                && is_wanted(status.timed_out, timed_out)
                && is_wanted(status.started, started)
        };
        let digits = self.stored.id.0.simple().to_string();
        (query.states.is_empty() || query.states.contains(&self.job.state))
            && (query.statuses.is_empty() || query.statuses.iter().any(has))
            && query.keys.iter().all(|(name, value)| self.stored.keys.get(name) == Some(value))
            && query
                .schedule
                .as_ref()
                .is_none_or(|name| self.stored.payload.extra.contains(&mark(name)))
            && query
                .workflow
                .is_none_or(|id| self.stored.payload.extra.contains(&workflow::mark(id)))
            && (query.error.is_none() || query.has_error(&self.record()))
            && query.id_suffix.as_ref().is_none_or(|suffix| digits.ends_with(suffix))
            && query.queue.as_ref().is_none_or(|queue| *queue == key.queue)
            && query.job_type.as_ref().is_none_or(|job_type| *job_type == key.job_type)
            && query.tenant.as_ref().is_none_or(|tenant| key.tenant.as_ref() == Some(tenant))
            && query
                .worker
                .is_none_or(|worker| latest.is_some_and(|attempt| attempt.worker == Some(worker)))
            && query.abandoned.is_none_or(|wanted| wanted == abandoned)
            && query.timed_out.is_none_or(|wanted| wanted == timed_out)
            && query.started.is_none_or(|wanted| wanted == started)
            && query.ids.is_none_or(|(from, to)| (from..=to).contains(&self.stored.id))
            && query.created_from.is_none_or(|from| self.stored.created >= from)
            && query.created_before.is_none_or(|before| self.stored.created < before)
            && query.letters.is_none_or(|letters| {
                self.dead_letter.is_some_and(|(reason, at)| letters.matches(reason, at))
            })
    }
}

/// Reads a cursor: the sequence number that the page before ended with.
fn before(page: &Page) -> Result<Seq, StoreError> {
    page.cursor.as_deref().map_or(Ok(Seq::MAX), |cursor| {
        cursor.parse().map_err(|error| StoreError::Rejected(format!("cursor {cursor:?}: {error}")))
    })
}

/// Returns a sequence number as other stores have it.
fn number(seq: Seq) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// Cuts a page out of what matches; `next` is set when there is more.
fn cut<T>(mut rows: Vec<(Seq, T)>, page: &Page) -> (Vec<T>, Option<String>) {
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(seq, _)| seq.to_string());
    (rows.into_iter().map(|(_, row)| row).collect(), next)
}

impl Tables {
    pub(super) fn job(&self, id: JobId) -> Option<JobRecord> {
        self.find(id).map(|(_, row)| self.named(row.record()))
    }

    pub(super) fn jobs(&self, query: &JobQuery) -> Result<JobPage, StoreError> {
        list::filled(query, self.numbers(query)?, |seq| Ok(self.listed(seq)))
    }

    fn numbers(&self, query: &JobQuery) -> Result<Numbers, StoreError> {
        let before = before(&query.page)?;
        let matching = || self.rows.iter().rev().filter(|(_, row)| row.matches(query));
        let rows = matching().filter(|(seq, _)| **seq < before);
        let (seqs, next) = cut(rows.map(|(seq, _)| (*seq, number(*seq))).collect(), &query.page);
        let total = u64::try_from(matching().count()).ok();
        Ok(Numbers { seqs, next, total })
    }

    fn listed(&self, number: i64) -> Option<JobRecord> {
        let seq = Seq::try_from(number).ok()?;
        self.rows.get(&seq).map(|row| list::listed(self.named(row.record())))
    }

    pub(super) fn attempts(&self, id: JobId) -> Vec<AttemptRecord> {
        let Some((_, row)) = self.find(id) else { return Vec::new() };
        let name = |attempt: AttemptRecord| {
            let worker_name = self.name(attempt.worker).or(attempt.worker_name);
            AttemptRecord { worker_name, ..attempt }
        };
        let mut attempts: Vec<AttemptRecord> =
            row.attempts.iter().cloned().chain(row.running()).map(name).collect();
        let mut fit = Fit::default();
        for attempt in attempts.iter_mut().rev() {
            let length = attempt.error.as_ref().map_or(0, String::len);
            if let Some(error) = attempt.error.take_if(|_| !fit.takes(length)) {
                attempt.omitted = u64::try_from(error.len()).ok();
            }
        }
        attempts
    }

    /// A native worker's name, as long as the worker is not forgotten.
    fn name(&self, worker: Option<WorkerId>) -> Option<String> {
        Some(self.workers.get(&worker?)?.name.clone())
    }

    fn named(&self, mut record: JobRecord) -> JobRecord {
        for holder in [&mut record.holder, &mut record.last_holder].into_iter().flatten() {
            holder.name = self.name(holder.worker).or_else(|| holder.name.take());
        }
        record
    }

    pub(super) fn logs(&self, query: &LogQuery) -> LogPage {
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let Some((_, row)) = self.find(query.job) else { return LogPage { lines: Vec::new() } };
        let lines = row.log.iter().map(|(_, line)| line).filter(|line| line.id > query.after);
        let mut fit = Fit::default();
        let lines = lines.take(limit).take_while(|line| fit.takes(line.bytes.len()));
        LogPage { lines: lines.cloned().collect() }
    }

    pub(super) fn workers(&self) -> Vec<WorkerRecord> {
        self.workers_latest_first()
            .into_iter()
            .map(|worker| {
                let claimed = self.rows_in_flight_of(worker.id);
                let claimed: Vec<Timestamp> =
                    claimed.filter_map(|(_, row)| Some(row.in_flight.as_ref()?.claimed)).collect();
                let in_flight = u32::try_from(claimed.len()).unwrap_or(u32::MAX);
                let oldest_claim = claimed.into_iter().min();
                WorkerRecord { in_flight, oldest_claim, ..worker.clone() }
            })
            .collect()
    }

    pub(super) fn workers_page(&self, query: &WorkerQuery) -> Result<WorkerPage, StoreError> {
        let before = query.before()?;
        let is = |wanted: &Option<String>, word: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == word)
        };
        let mut workers = self.workers();
        workers.retain(|worker| {
            let status = if worker.standing.is_active() { "active" } else { "inactive" };
            let plain_id = worker.plain_id.as_deref().unwrap_or(&worker.name);
            is(&query.status, status)
                && is(&query.state, worker.standing.state())
                && is(&query.role, worker.role.as_str())
                && is(&query.name, &worker.name)
                && (is(&query.called, &worker.name) || is(&query.called, plain_id))
                && query.ids.is_none_or(|(first, last)| (first..=last).contains(&worker.id))
        });
        let total = u64::try_from(workers.len()).unwrap_or(u64::MAX);
        workers.retain(|worker| (worker.created.0, worker.id) < before);
        Ok(WorkerPage::of(workers, total, &query.page))
    }

    pub(super) fn live_workers(&self) -> Vec<WorkerRecord> {
        let mut workers = self.workers();
        let mut gone: Vec<_> = workers
            .iter()
            .filter(|worker| !worker.standing.holds_lease())
            .map(|worker| (worker.updated, worker.id))
            .collect();
        gone.sort_unstable();
        let shown = usize::try_from(GONE_SHOWN).unwrap_or(usize::MAX);
        gone.truncate(gone.len().saturating_sub(shown));
        workers
            .retain(|worker| worker.in_flight > 0 || !gone.contains(&(worker.updated, worker.id)));
        workers
    }

    pub(super) fn fleet(&self) -> Vec<WorkerBrief> {
        let brief = |worker: WorkerRecord| WorkerBrief {
            id: worker.id,
            standing: worker.standing,
            renewal: worker.renewal,
            lease: worker.lease,
            last_heartbeat: worker.last_heartbeat,
            updated: worker.updated,
            lapsed_holding: worker.standing.liveness == Liveness::Lapsed && worker.in_flight > 0,
            unhealthy: worker.unhealthy.is_some(),
        };
        self.live_workers().into_iter().map(brief).collect()
    }

    pub(super) fn claimable(&self, max: u32) -> Vec<Claimable> {
        let counted = |(id, key): (&ClassId, &Arc<ClassKey>)| {
            let count = self.ready.get(id).map_or(0, BTreeSet::len);
            let count = u32::try_from(count).unwrap_or(u32::MAX).min(max);
            (count > 0).then(|| Claimable { id: *id, key: key.as_ref().clone(), count })
        };
        self.classes.iter().filter_map(counted).collect()
    }

    pub(super) fn oldest_claimable(&self, class: ClassId) -> Option<OldestClaimable> {
        let waiting = self.ready.get(&class)?.iter().map(|(.., seq)| *seq);
        let (since, seq) = waiting.map(|seq| (self.rows[&seq].since, seq)).min()?;
        Some(OldestClaimable { class, job: self.rows[&seq].stored.id, since })
    }

    pub(super) fn in_flight_of(&self, worker: WorkerId) -> Vec<InFlightJob> {
        self.rows_in_flight_of(worker)
            .filter_map(|(_, row)| {
                Some(InFlightJob {
                    job: row.stored.id,
                    epoch: row.job.epoch,
                    started: row.started().is_some(),
                    cancelled: row.job.state == State::Cancelled,
                    claimed: row.in_flight.as_ref()?.claimed,
                    isolated: row.job.isolated,
                })
            })
            .collect()
    }

    pub(super) fn backlog(&self) -> Vec<ClassBacklog> {
        self.classes
            .iter()
            .map(|(id, key)| ClassBacklog {
                id: *id,
                key: key.as_ref().clone(),
                ready: self.ready.get(id).is_some_and(|ready| !ready.is_empty()),
            })
            .collect()
    }

    /// Counts one by one what stores keep as they go.
    pub(super) fn tally(&self) -> Vec<ClassCounts> {
        let count = |id: &ClassId| {
            let mut values = [0; tally::COLUMNS.len()];
            for row in self.rows.values().filter(|row| row.class == *id) {
                for (value, column) in values.iter_mut().zip(tally::COLUMNS) {
                    *value += i64::from(row.counts_in(column));
                }
            }
            Counts::of(values)
        };
        let class = |(id, key): (&ClassId, &Arc<ClassKey>)| ClassCounts {
            id: *id,
            key: key.as_ref().clone(),
            counts: count(id),
        };
        self.classes.iter().map(class).collect()
    }

    pub(super) fn pauses(&self) -> Vec<QueuePause> {
        let pause =
            |(name, paused): (&String, &bool)| QueuePause { name: name.clone(), paused: *paused };
        self.paused.iter().map(pause).collect()
    }

    pub(super) fn ahead(&self, query: &AheadQuery) -> u64 {
        let Some(own) = self.by_id.get(&query.job) else { return 0 };
        let Some(ready) = self.ready.get(&query.class) else { return 0 };
        let places =
            ready.iter().map(|(Reverse(priority), turn, seq)| (rank(*priority, *turn), *seq));
        let Some(place) = places.clone().find(|(_, seq)| seq == own) else { return 0 };
        let before = places.filter(|other| {
            let row = self.rows.get(&other.1);
            *other < place && row.map_or(0, |row| row.stored.keys.lane()) == query.lane
        });
        let max = usize::try_from(query.max).unwrap_or(usize::MAX);
        u64::try_from(before.take(max).count()).unwrap_or(u64::MAX)
    }

    pub(super) fn queues(&self) -> Vec<QueueStats> {
        let mut queues: std::collections::BTreeMap<String, QueueStats> = self
            .classes
            .values()
            .map(|class| &class.queue)
            .chain(self.paused.keys())
            .map(|name| {
                let paused = self.is_paused(name);
                (name.clone(), QueueStats { name: name.clone(), paused, ..QueueStats::default() })
            })
            .collect();
        for row in self.rows.values() {
            let Some(queue) = queues.get_mut(&row.stored.key.queue) else { continue };
            *queue.count_mut(row.job.state) += 1;
            if row.job.state == State::Available {
                let since = Second::of(row.since).start();
                let oldest = queue.oldest_available.map_or(since, |at| at.min(since));
                queue.oldest_available = Some(oldest);
            }
        }
        queues.into_values().collect()
    }

    pub(super) fn unhandled_letters(&self, max: u32) -> Vec<UnhandledLetter> {
        let letter = |row: &Row| {
            let (reason, at) = row.dead_letter.filter(|_| row.unhandled)?;
            Some(UnhandledLetter {
                key: LetterKey { job: row.stored.id, life: row.job.life },
                queue: row.stored.key.queue.clone(),
                job_type: row.stored.key.job_type.clone(),
                reason,
                at,
            })
        };
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        self.rows.values().filter_map(letter).take(max).collect()
    }

    pub(super) fn dead_letters(&self, query: &JobQuery) -> Result<DeadLetterPage, StoreError> {
        list::dead_letters(query, self.numbers(query)?, |seq| Ok(self.listed(seq)))
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let times = |row: &Row| {
            let due = match row.place {
                Place::Timer(due) => Some(due),
                Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
            };
            let visible = row.in_flight.as_ref().and_then(|attempt| attempt.visible);
            [due, row.expires(), visible.map(|visible| visible.until), row.plain_limit()]
        };
        self.live_rows().flat_map(|(_, row)| times(row)).flatten().min()
    }
}
