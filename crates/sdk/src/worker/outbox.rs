//! What is to be sent, coalesced: whatever is ready when the transport has room goes as one
//! message of its sort. There is no timer: idle adds no delay, load makes larger messages.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use outlast_core::limits::SESSION_MESSAGE_BYTES_AIM;
use outlast_proto::v1::worker_message::Body;
use outlast_proto::v1::{
    Capacity, Checkpoint, LogChunk, LogChunks, PhaseChange, Report, Reports, WorkerMessage, report,
};

use crate::delivery::AttemptId;

/// Most reports in one message.
const REPORTS_MAX: usize = 512;

/// A message takes no further report or piece of output beyond this.
const MESSAGE_BYTES: usize = SESSION_MESSAGE_BYTES_AIM;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    capacity: Option<Capacity>,
    phase: Option<PhaseChange>,
    /// Output, and how many bytes of room each piece took.
    logs: VecDeque<(LogChunk, usize)>,
    log_bytes: usize,
    /// Pieces of output queued, and sent or forgotten, so far.
    logs_in: u64,
    logs_out: u64,
    /// What attempts have to say, and how many pieces of output were queued before it.
    reports: VecDeque<(u64, Queued)>,
    /// The newest checkpoint of each attempt that has one to be sent.
    checkpoints: HashMap<AttemptId, Bytes>,
}

/// What an attempt has to say, in order.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are reports, and a box each would be an allocation a job"
)]
enum Queued {
    Report(Report),
    /// The place of a checkpoint in the order; which one it is is decided when it is sent.
    Checkpoint(AttemptId),
}

/// A message, and how many bytes of output there is room for again once it is sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: WorkerMessage,
    pub(crate) room: usize,
}

impl Outbox {
    pub(crate) fn capacity(&mut self, capacity: Capacity) {
        self.capacity = Some(capacity);
    }

    pub(crate) fn phase(&mut self, phase: PhaseChange) {
        self.phase = Some(phase);
    }

    pub(crate) fn log(&mut self, chunk: LogChunk, room: usize) {
        self.log_bytes += chunk.bytes.len();
        self.logs_in += 1;
        self.logs.push_back((chunk, room));
    }

    pub(crate) fn report(&mut self, report: Report) {
        self.reports.push_back((self.logs_in, Queued::Report(report)));
    }

    /// Queues a checkpoint, in the place of one that was not sent yet.
    pub(crate) fn checkpoint(&mut self, attempt: AttemptId, bytes: Bytes) {
        if self.checkpoints.insert(attempt, bytes).is_none() {
            self.reports.push_back((self.logs_in, Queued::Checkpoint(attempt)));
        }
    }

    /// Forgets a checkpoint that goes with the report of the attempt's end.
    pub(crate) fn forget_checkpoint(&mut self, attempt: AttemptId) {
        self.checkpoints.remove(&attempt);
    }

    pub(crate) fn reports_waiting(&self) -> usize {
        self.reports.len()
    }

    /// Forgets what is sent again on a new session. Output and checkpoints stay: there is no
    /// other copy.
    pub(crate) fn begin_session(&mut self) {
        self.capacity = None;
        self.phase = None;
        self.reports.retain(|(_, report)| matches!(report, Queued::Checkpoint(_)));
    }

    /// Forgets everything about attempts; returns the room that its output took.
    pub(crate) fn forget_attempts(&mut self) -> usize {
        self.reports.clear();
        self.checkpoints.clear();
        self.logs_out = self.logs_in;
        self.log_bytes = 0;
        self.logs.drain(..).map(|(_, room)| room).sum()
    }

    /// Says whether there is anything to send, with or without what depends on the lease.
    pub(crate) fn has_next(&self, trusted: bool) -> bool {
        self.capacity.is_some()
            || self.phase.is_some()
            || (trusted && !(self.logs.is_empty() && self.reports.is_empty()))
    }

    /// Takes the next message. `trusted`: the lease is known to hold, so that attempts may
    /// be spoken for.
    pub(crate) fn next(&mut self, trusted: bool) -> Option<Outgoing> {
        let plain = |body| Outgoing { message: WorkerMessage { body: Some(body) }, room: 0 };
        if let Some(capacity) = self.capacity.take() {
            return Some(plain(Body::Capacity(capacity)));
        }
        if let Some(phase) = self.phase.take() {
            return Some(plain(Body::Phase(phase)));
        }
        if !trusted {
            return None;
        }
        // Output before reports: a server may keep none after the end. But a flood holds up
        // no report that does not come after it.
        let flood = self.log_bytes > MESSAGE_BYTES;
        let waits = flood && self.report_is_next();
        if !(self.logs.is_empty() || waits) {
            return Some(self.next_logs());
        }
        self.report_is_next().then(|| plain(Body::Reports(self.next_reports())))
    }

    fn report_is_next(&self) -> bool {
        self.reports.front().is_some_and(|(after, _)| *after <= self.logs_out)
    }

    fn next_logs(&mut self) -> Outgoing {
        let mut chunks = Vec::new();
        let (mut bytes, mut freed) = (0_usize, 0_usize);
        while bytes < MESSAGE_BYTES
            && let Some((chunk, room)) = self.logs.pop_front()
        {
            bytes += chunk.bytes.len();
            freed += room;
            chunks.push(chunk);
            self.logs_out += 1;
        }
        self.log_bytes = self.log_bytes.saturating_sub(bytes);
        let body = Body::Logs(LogChunks { chunks });
        Outgoing { message: WorkerMessage { body: Some(body) }, room: freed }
    }

    fn next_reports(&mut self) -> Reports {
        let mut reports = Vec::with_capacity(self.reports.len().min(REPORTS_MAX));
        let mut bytes = 0_usize;
        while reports.len() < REPORTS_MAX
            && bytes < MESSAGE_BYTES
            && self.report_is_next()
            && let Some((_, queued)) = self.reports.pop_front()
        {
            let report = match queued {
                Queued::Report(report) => report,
                Queued::Checkpoint(attempt) => {
                    let Some(bytes) = self.checkpoints.remove(&attempt) else { continue };
                    let what = report::What::Checkpoint(Checkpoint { bytes });
                    Report { attempt: Some(attempt.to_wire()), what: Some(what) }
                }
            };
            bytes += weight(&report);
            reports.push(report);
        }
        Reports { reports }
    }
}

fn weight(report: &Report) -> usize {
    match &report.what {
        Some(report::What::Finished(end)) => {
            end.result_json.len()
                + end.checkpoint.len()
                + end.error_details_json.len()
                + end.error_message.len()
                + end.evidence.len()
        }
        Some(report::What::Checkpoint(kept)) => kept.bytes.len(),
        Some(report::What::Started(_)) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use outlast_proto::v1::worker_message::Body;
    use outlast_proto::v1::{Capacity, Finished, LogChunk, Report, report};

    use outlast_core::id::{Epoch, JobId};
    use uuid::Uuid;

    use super::{Outbox, REPORTS_MAX};
    use crate::delivery::AttemptId;

    fn finished(bytes: usize) -> Report {
        let end = Finished { result_json: vec![b'1'; bytes].into(), ..Finished::default() };
        Report { attempt: None, what: Some(report::What::Finished(end)) }
    }

    fn bodies(outbox: &mut Outbox, trusted: bool) -> Vec<&'static str> {
        std::iter::from_fn(|| outbox.next(trusted))
            .filter_map(|out| out.message.body)
            .map(|body| match body {
                Body::Capacity(_) => "capacity",
                Body::Logs(_) => "logs",
                Body::Reports(_) => "reports",
                Body::Hello(_) | Body::Phase(_) | Body::Goodbye(_) => "other",
            })
            .collect()
    }

    #[test]
    fn everything_ready_goes_as_one_message_of_its_sort_and_output_before_reports() {
        let mut outbox = Outbox::default();
        for _ in 0..REPORTS_MAX {
            outbox.report(finished(0));
            outbox.log(LogChunk::default(), 0);
        }
        outbox.capacity(Capacity { slots: 1, prefetch: 0 });
        assert_eq!(bodies(&mut outbox, true), ["capacity", "logs", "reports"]);
    }

    #[test]
    fn large_results_are_spread_over_several_messages() {
        let mut outbox = Outbox::default();
        for _ in 0..8 {
            outbox.report(finished(1024 * 1024));
        }
        assert_eq!(bodies(&mut outbox, true), ["reports", "reports"]);
    }

    #[test]
    fn a_flood_of_output_holds_up_no_report_that_came_before_it() {
        let mut outbox = Outbox::default();
        let chunk = || LogChunk { bytes: vec![b'x'; 1024 * 1024].into(), ..LogChunk::default() };
        outbox.log(chunk(), 0);
        outbox.report(finished(0));
        for _ in 0..8 {
            outbox.log(chunk(), 0);
        }
        outbox.report(finished(0));
        // Its own output goes first, with some more; what came later waits its turn.
        assert_eq!(bodies(&mut outbox, true), ["logs", "reports", "logs", "logs", "reports"]);
    }

    #[test]
    fn of_checkpoints_that_wait_only_the_newest_of_each_attempt_is_sent() {
        let mut outbox = Outbox::default();
        let attempt = |n| AttemptId { job: JobId(Uuid::from_u128(n)), epoch: Epoch(1) };
        for n in 0..100_u8 {
            outbox.checkpoint(attempt(1), vec![n].into());
            outbox.checkpoint(attempt(2), vec![n, n].into());
        }
        // A session that ends before they are sent takes nothing away.
        outbox.begin_session();
        let Some(Body::Reports(sent)) = outbox.next(true).unwrap().message.body else {
            panic!("expected reports")
        };
        let kept: Vec<_> = sent
            .reports
            .into_iter()
            .map(|report| match report.what {
                Some(report::What::Checkpoint(kept)) => kept.bytes,
                other => panic!("expected a checkpoint, got {other:?}"),
            })
            .collect();
        assert_eq!(kept, [vec![99], vec![99, 99]]);
        assert!(!outbox.has_next(true));
    }

    #[test]
    fn no_attempt_is_spoken_for_on_a_lease_that_may_have_passed() {
        let mut outbox = Outbox::default();
        outbox.report(finished(0));
        outbox.capacity(Capacity { slots: 0, prefetch: 0 });
        assert_eq!(bodies(&mut outbox, false), ["capacity"]);
        assert!(!outbox.has_next(false) && outbox.has_next(true));
    }
}
