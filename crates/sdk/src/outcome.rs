//! What ends an attempt, and how it ended.

use std::time::Duration;

use bytes::Bytes;
use outlast_core::evidence::EvidenceCode;
use outlast_core::limits::{
    self, CHECKPOINT_BYTES_MAX, ERROR_DETAILS_BYTES_MAX, ERROR_MESSAGE_BYTES_MAX,
    ERROR_TYPE_BYTES_MAX, EVIDENCE_BYTES_MAX, RESULT_BYTES_MAX,
};
use outlast_core::resources::Usage;
use outlast_proto::v1;
use outlast_wire::json;

/// Why an attempt must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopReason {
    /// The job was cancelled, or a newer claim exists.
    Cancelled,
    /// The claim is void: the worker lapsed, or the store does not have it.
    Stale,
    /// The lease may pass soon, and the job forbids overlap.
    DeadlineNear,
    /// The grace period of a drain is over.
    Interrupted,
    /// End at once: no time is given.
    Forced,
}

/// What ends an attempt's work, and so what is known when its handler was cut short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ends {
    /// All of it holds on to the [`AttemptContext`](crate::AttemptContext) or to what the
    /// handler's future owns: when those are gone it has ended. The process ends itself rather than let an attempt that
    /// forbids overlap run on after its deadline.
    #[default]
    WithTheContext,
    /// It is in other processes, which keep the deadline themselves. Only the handler's outcome
    /// says that they are gone.
    ByItself,
}

/// The kind of an attempt's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// The work is done.
    Completed,
    /// The work failed.
    Failed,
    /// It ran longer than it may.
    TimedOut,
    /// The worker's shutdown ended it.
    Interrupted,
    /// It is handed back unrun.
    NotStarted,
    /// An order to stop ended it.
    Cancelled,
    /// The worker was lost: its guardian was killed, or it was frozen past its lease. Neither the
    /// job nor a shutdown is the cause.
    Lost,
}

/// What went wrong, for people and for retry policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A short fixed code, such as `timeout`.
    pub error_type: String,
    /// A sentence.
    pub message: String,
    /// More, as JSON; empty if there is nothing.
    pub details_json: Bytes,
    /// Whether trying again can help.
    pub retryable: bool,
}

/// How an attempt ended, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What kind of end it was.
    pub kind: OutcomeKind,
    /// The result as JSON, of a completed attempt; empty is null.
    pub result_json: Bytes,
    /// What went wrong, unless it completed.
    pub failure: Option<Failure>,
    /// Exit code of the program, where one ran and had one.
    pub exit_code: Option<i32>,
    /// What the next attempt should be given; empty keeps what is stored.
    pub checkpoint: Bytes,
    /// The evidence for the end, as a sentence.
    pub evidence: String,
    /// Its code, where the job itself did not end the attempt.
    pub evidence_code: Option<EvidenceCode>,
    /// No process or thread of the attempt is left.
    pub tree_empty: bool,
    /// Something was executed, so effects may exist.
    pub executed: bool,
    /// What it used, where that is known.
    pub usage: Usage,
}

impl Outcome {
    fn new(kind: OutcomeKind, evidence: impl Into<String>) -> Self {
        Self {
            kind,
            result_json: Bytes::new(),
            failure: None,
            exit_code: None,
            checkpoint: Bytes::new(),
            evidence: evidence.into(),
            evidence_code: None,
            tree_empty: true,
            executed: true,
            usage: Usage::default(),
        }
    }

    /// The work is done, with this JSON as its result.
    #[must_use]
    pub fn completed(result_json: impl Into<Bytes>) -> Self {
        Self { result_json: result_json.into(), ..Self::new(OutcomeKind::Completed, "") }
    }

    /// The work failed; trying again may help.
    #[must_use]
    pub fn failed(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(OutcomeKind::Failed, message.clone()).because(error_type, message)
    }

    /// It failed by a panic, whose message is the error's.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "handler panicked".to_owned());
        Self::failed("panic", message)
    }

    /// It ran longer than `limit`.
    #[must_use]
    pub fn timed_out(limit: Duration) -> Self {
        let message = format!("ran longer than its time limit of {limit:?}");
        Self::new(OutcomeKind::TimedOut, message.clone()).because("timeout", message)
    }

    /// The worker's shutdown ended it.
    #[must_use]
    pub fn interrupted(evidence: impl Into<String>) -> Self {
        let evidence = evidence.into();
        Self::new(OutcomeKind::Interrupted, evidence.clone())
            .because("shutdown", evidence)
            .known_by(EvidenceCode::Drained)
    }

    /// The worker was lost.
    #[must_use]
    pub fn lost(code: EvidenceCode, evidence: impl Into<String>) -> Self {
        Self::new(OutcomeKind::Lost, evidence).known_by(code)
    }

    /// Adds the code of the evidence.
    #[must_use]
    pub const fn known_by(mut self, code: EvidenceCode) -> Self {
        self.evidence_code = Some(code);
        self
    }

    /// It is handed back unrun.
    #[must_use]
    pub fn not_started(evidence: impl Into<String>) -> Self {
        let unstarted = Self { executed: false, ..Self::new(OutcomeKind::NotStarted, evidence) };
        unstarted.known_by(EvidenceCode::HandedBack)
    }

    /// An order to stop ended it.
    #[must_use]
    pub fn cancelled(evidence: impl Into<String>) -> Self {
        Self::new(OutcomeKind::Cancelled, evidence)
    }

    /// Adds what went wrong.
    #[must_use]
    pub fn because(mut self, error_type: impl Into<String>, message: impl Into<String>) -> Self {
        self.failure = Some(Failure {
            error_type: error_type.into(),
            message: message.into(),
            details_json: Bytes::new(),
            retryable: true,
        });
        self
    }

    /// Says that trying again cannot help.
    #[must_use]
    pub fn permanently(mut self) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.retryable = false;
        }
        self
    }

    /// Says that nothing was executed, so that there are no effects.
    #[must_use]
    pub const fn unrun(mut self) -> Self {
        self.executed = false;
        self
    }

    /// Replaces an account that no server can store by one that it can: a report that is
    /// not understood is never answered.
    pub(crate) fn storable(mut self) -> Self {
        self.evidence = limits::cut(self.evidence, EVIDENCE_BYTES_MAX);
        if let Some(failure) = &mut self.failure {
            let Failure { error_type, message, details_json, .. } = failure;
            *error_type = limits::cut(std::mem::take(error_type), ERROR_TYPE_BYTES_MAX);
            *message = limits::cut(std::mem::take(message), ERROR_MESSAGE_BYTES_MAX);
            if details_json.len() > ERROR_DETAILS_BYTES_MAX {
                let size = details_json.len();
                *details_json = Bytes::new();
                self.evidence = format!("{} (error details not kept: {size} bytes)", self.evidence);
            }
        }
        if self.checkpoint.len() > CHECKPOINT_BYTES_MAX {
            self.checkpoint = Bytes::new();
            self.evidence.push_str(" (checkpoint too large to keep)");
        }
        if let Some(failure) = &mut self.failure
            && !failure.details_json.is_empty()
            && json::document(&failure.details_json).is_err()
        {
            failure.details_json = Bytes::new();
        }
        if self.kind != OutcomeKind::Completed || self.result_json.is_empty() {
            return self;
        }
        let problem = if self.result_json.len() > RESULT_BYTES_MAX {
            format!("result is larger than {RESULT_BYTES_MAX} bytes")
        } else {
            match json::document(&self.result_json) {
                Ok(_) => return self,
                Err(problem) => format!("result {problem}"),
            }
        };
        let failed = Self::failed("invalid_result", problem).permanently();
        Self {
            exit_code: self.exit_code,
            checkpoint: self.checkpoint,
            tree_empty: self.tree_empty,
            usage: self.usage,
            ..failed
        }
    }

    pub(crate) fn into_wire(self, ran: Option<Duration>) -> v1::Finished {
        let (error_type, error_message, error_details_json, retryable) = match self.failure {
            Some(failure) => {
                (failure.error_type, failure.message, failure.details_json, failure.retryable)
            }
            None => (String::new(), String::new(), Bytes::new(), true),
        };
        v1::Finished {
            ending: wire_ending(self.kind).into(),
            result_json: self.result_json,
            error_type,
            error_message,
            error_details_json,
            not_retryable: !retryable,
            exit_code: self.exit_code,
            ran_ms: ran
                .filter(|_| self.executed)
                .map(|ran| u64::try_from(ran.as_millis()).unwrap_or(u64::MAX)),
            checkpoint: self.checkpoint,
            evidence: self.evidence,
            tree_empty: self.tree_empty,
            evidence_code: self.evidence_code.map_or("", EvidenceCode::as_str).to_owned(),
            pack_digest: String::new(),
            peak_memory_bytes: self.usage.peak_memory,
            cpu_ms: self.usage.cpu.map(|time| time.0),
        }
    }
}

const fn wire_ending(kind: OutcomeKind) -> v1::Ending {
    match kind {
        OutcomeKind::Completed => v1::Ending::Completed,
        OutcomeKind::Failed => v1::Ending::Failed,
        OutcomeKind::TimedOut => v1::Ending::TimedOut,
        OutcomeKind::Interrupted => v1::Ending::Interrupted,
        OutcomeKind::NotStarted => v1::Ending::NotStarted,
        OutcomeKind::Cancelled => v1::Ending::Cancelled,
        OutcomeKind::Lost => v1::Ending::Lost,
    }
}
