//! Heartbeats of plain clients.

use outlast_core::id::JobId;
use outlast_core::job::State;
use outlast_store::extend::{
    Extend, Holds, JobCount, Unconfirmed, is_confirmed, is_extended, unconfirmed_event,
};
use outlast_store::reply::Extended;

use crate::model::tables::{Row, Seq};
use crate::model::tx::Tx;

impl Tx<'_> {
    /// Extends what a plain client holds. A client that names jobs may also extend jobs without a
    /// known holder: it may not have given its id when it fetched them.
    pub(super) fn extend(&mut self, extend: &Extend) -> Extended {
        match &extend.holds {
            Holds::Jobs(jobs) => {
                let found = jobs.iter().filter_map(|id| self.tables.find(*id));
                let theirs =
                    found.filter(|(_, row)| holder(row).is_none_or(|it| it == extend.worker));
                let theirs: Vec<(Seq, JobId)> = theirs
                    .filter(|(_, row)| may_be_extended(row))
                    .map(|(seq, row)| (seq, row.stored.id))
                    .collect();
                theirs.iter().for_each(|(seq, _)| self.prolong(*seq));
                Extended::all(theirs.into_iter().map(|(_, id)| id).collect())
            }
            Holds::Count(count) => self.extend_counted(&extend.worker, count),
        }
    }

    fn extend_counted(&mut self, worker: &str, count: &JobCount) -> Extended {
        let rows = self.tables.live_rows().filter(|(_, row)| holder(row) == Some(worker));
        let rows = rows.filter(|(_, row)| counts(row, count)).map(|(seq, row)| (seq, row.clone()));
        let rows: Vec<(Seq, Row)> = rows.collect();
        let held = rows.len();
        let mut extended = Extended::default();
        for (seq, row) in rows.iter().filter(|(_, row)| may_be_extended(row)) {
            let job = row.stored.id;
            if is_extended(agreed(row), held, count.jobs) {
                self.prolong(*seq);
                extended.jobs.push(job);
                continue;
            }
            extended.unconfirmed.push(job);
            if count.report.contains(&job) {
                let (job_type, queue) = (&row.stored.key.job_type, &row.stored.key.queue);
                let of = Unconfirmed { job, epoch: row.job.epoch, job_type, queue, held };
                self.log_event(unconfirmed_event(&of, worker, count.jobs, self.now()));
            }
        }
        extended
    }

    fn prolong(&mut self, seq: Seq) {
        let now = self.now();
        self.tables.change(seq, |row| {
            let attempt = row.in_flight.as_mut();
            if let Some(visible) = attempt.and_then(|attempt| attempt.visible.as_mut()) {
                visible.until = now.after(visible.length);
            }
        });
    }
}

fn holder(row: &Row) -> Option<&str> {
    row.in_flight.as_ref()?.plain.as_deref()
}

/// A cancelled attempt counts, since its holder may not know that it is cancelled.
fn counts(row: &Row, count: &JobCount) -> bool {
    let attempt = row.in_flight.as_ref();
    attempt.is_some_and(|held| held.visible.is_some() && held.claimed <= count.arrived)
}

fn may_be_extended(row: &Row) -> bool {
    let attempt = row.in_flight.as_ref();
    row.job.state == State::Active && attempt.is_some_and(|attempt| attempt.visible.is_some())
}

fn agreed(row: &Row) -> bool {
    let attempt = row.in_flight.as_ref();
    let visible = attempt.and_then(|attempt| Some((attempt.claimed, attempt.visible?)));
    visible.is_some_and(|(claimed, it)| is_confirmed(claimed, it.until, it.length))
}
