//! What comes due by time alone, and what waited too long for a worker.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Event as JobEvent, EventKind, Place, State};
use outlast_core::time::Timestamp;
use outlast_store::command::{EndDetail, Strand, Sweep};
use outlast_store::reply::{Moved, Stranded, Swept};
use outlast_store_rules::rules::{strand_error, timeout_detail, visibility_detail};

use crate::model::tables::{Row, Seq};
use crate::model::tx::{Cause, Tx};

/// Who says that time has passed.
const BY: &str = "sweeper";
/// Who ends jobs that no worker claimed, in the event log.
const STRAND_BY: &str = "execution_timeout_monitor";

impl Tx<'_> {
    pub(super) fn sweep(&mut self, sweep: &Sweep) -> Swept {
        let now = self.now();
        let limit = usize::try_from(sweep.limit).unwrap_or(usize::MAX);
        let mut swept = Swept::default();
        let timer = |row: &Row| match row.place {
            Place::Timer(due) => Some(due),
            Place::Ready(_) | Place::Pending | Place::Active | Place::Ended => None,
        };
        let silent = |row: &Row| {
            let visible = row.in_flight.as_ref()?.visible?;
            (visible.length <= sweep.watched).then_some(visible.until)
        };
        let none = |_: &Row| EndDetail::default();
        let expired = |_: &Row| EndDetail { evidence: "expired".into(), ..EndDetail::default() };
        let unseen = |row: &Row| {
            let visible = row.in_flight.as_ref().and_then(|attempt| attempt.visible);
            visible.map_or_else(EndDetail::default, |visible| visibility_detail(visible.length))
        };
        let overrun =
            |row: &Row| row.stored.timeout.map_or_else(EndDetail::default, timeout_detail);
        let mut run = |due: &dyn Fn(&Row) -> Option<Timestamp>,
                       event: JobEvent<'_>,
                       detail: &dyn Fn(&Row) -> EndDetail| {
            let found = self.due_rows(due, now, limit);
            swept.more |= found.len() == limit;
            for seq in found {
                swept.moved.extend(self.time_passed(seq, event, swept.moved.len(), detail));
            }
        };
        // Timers first: a job that came due and expired meanwhile must not run either.
        run(&timer, JobEvent::Due, &none);
        run(&Row::expires, JobEvent::Expire, &expired);
        run(&silent, JobEvent::ExpireVisibility, &unseen);
        run(&Row::plain_limit, JobEvent::TimeOut, &overrun);
        swept
    }

    /// Rows whose time has come, longest overdue first.
    fn due_rows(
        &self,
        due: &dyn Fn(&Row) -> Option<Timestamp>,
        now: Timestamp,
        limit: usize,
    ) -> Vec<Seq> {
        let mut found: Vec<(Timestamp, Seq)> = self
            .tables
            .live_rows()
            .filter_map(|(seq, row)| Some((due(row)?, seq)))
            .filter(|(at, _)| *at <= now)
            .collect();
        found.sort_unstable();
        found.truncate(limit);
        found.into_iter().map(|(_, seq)| seq).collect()
    }

    fn time_passed(
        &mut self,
        seq: Seq,
        event: JobEvent<'_>,
        nth: usize,
        detail: &dyn Fn(&Row) -> EndDetail,
    ) -> Option<Moved> {
        let detail = detail(self.tables.rows.get(&seq)?);
        let cause = Cause { kind: event.kind(), by: BY, detail: &detail };
        self.play(seq, event, nth, &cause).ok()
    }

    pub(super) fn strand(&mut self, strand: &Strand) -> Stranded {
        let now = self.now();
        let deadline = |row: &Row| {
            let ScheduledTimeout::After(limit) = row.stored.scheduled_timeout else { return None };
            let waits = row.class == strand.class && row.job.state == State::Available;
            waits.then(|| row.since.max(strand.since).after(limit))
        };
        let limit = usize::try_from(strand.limit).unwrap_or(usize::MAX);
        let mut moved: Vec<Moved> = Vec::new();
        let mut due = self.due_rows(&deadline, now, usize::MAX);
        // Who has waited longest goes first, whenever the last worker left.
        due.sort_by_key(|seq| self.tables.rows.get(seq).map(|row| (waited_until(row), *seq)));
        for seq in due.into_iter().take(limit) {
            moved.extend(self.strand_one(seq, strand, moved.len()));
        }
        let next = self.tables.live_rows().filter_map(|(_, row)| deadline(row)).min();
        Stranded { moved, next }
    }

    fn strand_one(&mut self, seq: Seq, strand: &Strand, nth: usize) -> Option<Moved> {
        let row = self.tables.rows.get(&seq)?;
        let ScheduledTimeout::After(limit) = row.stored.scheduled_timeout else { return None };
        let error = strand_error(limit, self.now().since(row.since), &strand.reason);
        let evidence = strand.reason.as_str().into();
        let detail = EndDetail { evidence, error: Some(error.clone()), ..EndDetail::default() };
        let cause = Cause { kind: EventKind::Strand, by: STRAND_BY, detail: &detail };
        let moved = self.play(seq, JobEvent::Strand, nth, &cause).ok()?;
        self.tables.change(seq, |row| row.stranded = Some(error));
        Some(moved)
    }
}

/// When a claimable job's patience ends, counted from its own wait alone.
fn waited_until(row: &Row) -> Option<Timestamp> {
    match row.stored.scheduled_timeout {
        ScheduledTimeout::Never => None,
        ScheduledTimeout::After(limit) => Some(row.since.after(limit)),
    }
}
