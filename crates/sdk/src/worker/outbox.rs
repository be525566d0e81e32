//! What is to be sent, coalesced: whatever is ready when the transport has room goes as one
//! message of its sort. There is no timer: idle adds no delay, load makes larger messages.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use outlast_core::limits::SESSION_MESSAGE_BYTES_AIM;
use outlast_core::time::BootTime;
use outlast_proto::v1::worker_message::Body;
use outlast_proto::v1::{
    Capacity, Checkpoint, LogChunk, LogChunks, PhaseChange, Report, Reports, WorkerMessage, report,
};

use super::output_queue::{Answers, OutputQueue};
use crate::delivery::AttemptId;

/// Most reports in one message.
const REPORTS_MAX: usize = 512;

/// A message takes no further report or piece of output beyond this.
pub(super) const MESSAGE_BYTES: usize = SESSION_MESSAGE_BYTES_AIM;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    capacity: Option<Capacity>,
    phase: Option<PhaseChange>,
    output: OutputQueue,
    /// What attempts have to say, and how many pieces of output must be sent before it; those
    /// that wait for the fewest come first.
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

    pub(crate) fn log(&mut self, attempt: AttemptId, chunk: LogChunk, room: usize) {
        self.output.push(attempt, chunk, room);
    }

    pub(crate) fn report(&mut self, report: Report) {
        let after = match report.what {
            // Only an end comes after all that the attempt printed.
            Some(report::What::Finished(_)) => {
                self.output.before(report.attempt.as_ref().and_then(AttemptId::from_wire))
            }
            Some(report::What::Started(_) | report::What::Checkpoint(_)) | None => {
                self.output.sent()
            }
        };
        self.queue(after, Queued::Report(report));
    }

    fn queue(&mut self, after: u64, queued: Queued) {
        let place = self.reports.partition_point(|(other, _)| *other <= after);
        self.reports.insert(place, (after, queued));
    }

    /// Queues a checkpoint, in the place of one that was not sent yet.
    pub(crate) fn checkpoint(&mut self, attempt: AttemptId, bytes: Bytes) {
        if self.checkpoints.insert(attempt, bytes).is_none() {
            self.queue(self.output.sent(), Queued::Checkpoint(attempt));
        }
    }

    /// Forgets a checkpoint that goes with the report of the attempt's end.
    pub(crate) fn forget_checkpoint(&mut self, attempt: AttemptId) {
        self.checkpoints.remove(&attempt);
    }

    pub(crate) fn reports_waiting(&self) -> usize {
        self.reports.len()
    }

    /// Forgets what is sent again on a new session, and takes back the output that was not
    /// stored. Checkpoints stay: there is no other copy.
    pub(crate) fn begin_session(&mut self, answers: Answers) {
        self.capacity = None;
        self.phase = None;
        self.output.begin_session(answers);
        self.reports.retain(|(_, report)| matches!(report, Queued::Checkpoint(_)));
        for (after, _) in &mut self.reports {
            *after = self.output.sent();
        }
    }

    /// Forgets output that the server has stored; returns the room that it took.
    pub(crate) fn stored(&mut self, messages: u64, now: BootTime) -> usize {
        self.output.stored(messages, now)
    }

    /// Gives up output that was not sent, so that reports are not held up by it; returns the
    /// room that it took.
    pub(crate) fn cut_output(&mut self) -> usize {
        let room = self.output.cut();
        for (after, _) in &mut self.reports {
            *after = (*after).min(self.output.queued());
        }
        room
    }

    /// Forgets what attempts have to say, except what they printed: the server stores that also
    /// when other workers have their jobs by then.
    pub(crate) fn forget_reports(&mut self) {
        self.reports.clear();
        self.checkpoints.clear();
    }

    /// Whether there is output that no server is known to have stored.
    pub(crate) fn holds_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Forgets all output; returns how many bytes that is, and the room that it took.
    pub(crate) fn drop_output(&mut self) -> (usize, usize) {
        self.output.clear()
    }

    /// Says whether there is anything to send, with or without what depends on the lease.
    pub(crate) fn has_next(&self, trusted: bool) -> bool {
        self.capacity.is_some()
            || self.phase.is_some()
            || (trusted && (self.output.has_next() || self.report_is_next()))
    }

    /// Takes the next message. `trusted`: the lease is known to hold, so that attempts may
    /// be spoken for.
    pub(crate) fn next(&mut self, trusted: bool, now: BootTime) -> Option<Outgoing> {
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
        let flood = self.output.waiting_bytes() > MESSAGE_BYTES;
        let waits = flood && self.report_is_next();
        if self.output.has_next() && !waits {
            let (chunks, room) = self.output.next(now);
            let message = WorkerMessage { body: Some(Body::Logs(LogChunks { chunks })) };
            return Some(Outgoing { message, room });
        }
        self.report_is_next().then(|| plain(Body::Reports(self.next_reports())))
    }

    fn report_is_next(&self) -> bool {
        self.reports.front().is_some_and(|(after, _)| *after <= self.output.sent())
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
    use outlast_core::time::{BootTime, Span};
    use uuid::Uuid;

    use super::{Answers, Outbox, REPORTS_MAX};
    use crate::delivery::AttemptId;

    const NOW: BootTime = BootTime(1_000_000);

    fn attempt(n: u128) -> AttemptId {
        AttemptId { job: JobId(Uuid::from_u128(n)), epoch: Epoch(1) }
    }

    fn finished(n: u128, bytes: usize) -> Report {
        let end = Finished { result_json: vec![b'1'; bytes].into(), ..Finished::default() };
        Report { attempt: Some(attempt(n).to_wire()), what: Some(report::What::Finished(end)) }
    }

    fn chunk(n: u32, bytes: usize) -> LogChunk {
        LogChunk { n, bytes: vec![b'x'; bytes].into(), ..LogChunk::default() }
    }

    /// The numbers of the next message's chunks.
    fn next_output(outbox: &mut Outbox, now: BootTime) -> Option<Vec<u32>> {
        match outbox.next(true, now)?.message.body? {
            Body::Logs(logs) => Some(logs.chunks.into_iter().map(|chunk| chunk.n).collect()),
            other => panic!("expected output, got {other:?}"),
        }
    }

    fn bodies(outbox: &mut Outbox, trusted: bool) -> Vec<&'static str> {
        std::iter::from_fn(|| outbox.next(trusted, NOW))
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
            outbox.report(finished(1, 0));
            outbox.log(attempt(2), LogChunk::default(), 0);
        }
        outbox.capacity(Capacity { slots: 1, prefetch: 0 });
        assert_eq!(bodies(&mut outbox, true), ["capacity", "logs", "reports"]);
    }

    #[test]
    fn large_results_are_spread_over_several_messages() {
        let mut outbox = Outbox::default();
        for _ in 0..8 {
            outbox.report(finished(1, 1024 * 1024));
        }
        assert_eq!(bodies(&mut outbox, true), ["reports", "reports"]);
    }

    #[test]
    fn a_flood_of_output_holds_up_no_report_that_came_before_it() {
        let mut outbox = Outbox::default();
        const MIB: usize = 1024 * 1024;
        outbox.log(attempt(1), chunk(0, MIB), 0);
        outbox.report(finished(1, 0));
        for n in 0..8 {
            outbox.log(attempt(2), chunk(n, MIB), 0);
        }
        outbox.report(finished(2, 0));
        outbox.report(finished(3, 0));
        // The end of an attempt that printed nothing is first; then output with the end of the
        // first one behind it.
        let all = ["reports", "logs", "reports", "logs", "logs", "reports"];
        assert_eq!(bodies(&mut outbox, true), all);
    }

    #[test]
    fn output_is_kept_until_it_is_stored_and_comes_again_before_its_end() {
        let mut outbox = Outbox::default();
        let answers = Answers::Within(Span(1000));
        outbox.begin_session(answers);
        for n in 0..4 {
            outbox.log(attempt(1), chunk(n, 64 * 1024), 10);
        }
        outbox.log(attempt(1), chunk(4, 1), 10);
        assert_eq!(next_output(&mut outbox, NOW), Some(vec![0, 1, 2, 3]));
        outbox.report(finished(1, 0));
        // So much may be unanswered, and no more.
        assert!(!outbox.has_next(true));
        assert_eq!(outbox.stored(1, NOW), 40);
        assert_eq!(next_output(&mut outbox, NOW), Some(vec![4]));
        assert_eq!(bodies(&mut outbox, true), ["reports"]);
        outbox.begin_session(answers);
        outbox.report(finished(1, 0));
        assert_eq!(bodies(&mut outbox, true), ["logs", "reports"]);
        assert_eq!(outbox.stored(1, NOW), 10);
        outbox.begin_session(answers);
        assert!(!outbox.has_next(true));
    }

    #[test]
    fn a_slow_link_gets_little_output_at_a_time() {
        let mut outbox = Outbox::default();
        let answers = Answers::Within(Span(1000));
        outbox.begin_session(answers);
        for n in 0..20 {
            outbox.log(attempt(1), chunk(n, 32 * 1024), 0);
        }
        assert_eq!(next_output(&mut outbox, NOW).unwrap().len(), 8);
        // The session is lost: again, and with care.
        outbox.begin_session(answers);
        assert_eq!(next_output(&mut outbox, NOW), Some(vec![0, 1]));
        outbox.stored(1, NOW.after(Span(2000)));
        assert_eq!(next_output(&mut outbox, NOW), Some(vec![2, 3]));
        outbox.stored(2, NOW.after(Span(100)));
        assert_eq!(next_output(&mut outbox, NOW), Some(vec![4, 5, 6, 7]));
    }

    #[test]
    fn output_that_is_given_up_leaves_a_mark_and_holds_up_no_end() {
        let mut outbox = Outbox::default();
        outbox.begin_session(Answers::Within(Span(1000)));
        for n in 0..40 {
            outbox.log(attempt(1), chunk(n, 32 * 1024), 1);
        }
        outbox.report(finished(1, 0));
        assert_eq!(next_output(&mut outbox, NOW).unwrap().len(), 8);
        assert_eq!(outbox.cut_output(), 32);
        let Some(Body::Logs(logs)) = outbox.next(true, NOW).unwrap().message.body else {
            panic!("expected output")
        };
        let mark = format!("[{} bytes of output were dropped here]\n", 32 * 32 * 1024);
        let marks: Vec<_> = logs.chunks.iter().map(|mark| (mark.n, mark.bytes.as_ref())).collect();
        assert_eq!(marks, [(39, mark.as_bytes())]);
        assert_eq!(bodies(&mut outbox, true), ["reports"]);
    }

    #[test]
    fn of_checkpoints_that_wait_only_the_newest_of_each_attempt_is_sent() {
        let mut outbox = Outbox::default();
        for n in 0..100_u8 {
            outbox.checkpoint(attempt(1), vec![n].into());
            outbox.checkpoint(attempt(2), vec![n, n].into());
        }
        // A session that ends before they are sent takes nothing away.
        outbox.begin_session(Answers::Never);
        let Some(Body::Reports(sent)) = outbox.next(true, NOW).unwrap().message.body else {
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
        outbox.report(finished(1, 0));
        outbox.capacity(Capacity { slots: 0, prefetch: 0 });
        assert_eq!(bodies(&mut outbox, false), ["capacity"]);
        assert!(!outbox.has_next(false) && outbox.has_next(true));
    }
}
