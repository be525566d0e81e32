//! What time alone does to jobs.

use std::borrow::Cow;

use outlast_core::budget::ScheduledTimeout;
use outlast_core::job::{Event as JobEvent, EventKind};
use outlast_store::command::{EndDetail, Strand};

use super::Decided;
use super::loaded::{Loaded, Location};
use crate::rules::{Context, strand_error, timeout_detail, visibility_detail};

/// Why a job ended that expired before it started. Lists do not show such jobs.
pub const EXPIRED: &str = "expired";
/// Why a job ended that no live worker was able to run.
const STRANDED: &str = "stranded";
/// Who sweeps, in the event log.
const SWEEPER: &str = "sweeper";
/// Who ends stranded executions, in the event log. Readers of the log match this name.
const TIMEOUT_MONITOR: &str = "execution_timeout_monitor";

/// What has come due for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Its time to become claimable.
    Timer,
    /// The time after which it must not start.
    Expiry,
    /// The visibility of its plain attempt.
    Visibility,
    /// The time limit of its plain attempt.
    Deadline,
}

/// Decides what happens to a job for which something has come due, the `nth` of this command;
/// `None` when nothing does.
#[must_use]
pub fn due<'a>(loaded: &Loaded, due: Due, nth: usize, context: &Context) -> Option<Decided<'a>> {
    let (event, detail) = match (due, &loaded.location) {
        (Due::Timer, Location::Waiting) => (JobEvent::Due, EndDetail::default()),
        // A job that is held runs on; when it comes back it gets a new entry.
        (Due::Expiry, Location::Ready { .. } | Location::Waiting) => {
            let detail = EndDetail { evidence: EXPIRED.into(), ..EndDetail::default() };
            (JobEvent::Expire, detail)
        }
        (Due::Visibility, Location::Active(attempt)) => {
            (JobEvent::ExpireVisibility, visibility_detail(attempt.visibility.unwrap_or_default()))
        }
        (Due::Deadline, Location::Active(_)) => {
            (JobEvent::TimeOut, timeout_detail(loaded.stored.timeout.unwrap_or_default()))
        }
        (
            Due::Timer | Due::Expiry | Due::Visibility | Due::Deadline,
            Location::Ready { .. }
            | Location::Waiting
            | Location::Active(_)
            | Location::Finished(_),
        ) => return None,
    };
    let kind = event.kind();
    Some(Decided {
        transition: context.decide(&loaded.job, event, nth).ok()?,
        kind,
        by: Cow::Borrowed(SWEEPER),
        detail: Cow::Owned(detail),
        ended_by: if kind == EventKind::Expire { EXPIRED } else { "" },
        gates: Vec::new(),
    })
}

/// Decides what happens to a claimable job that no live worker was able to run for its whole
/// limit, the `nth` of this command; `None` when nothing does.
#[must_use]
pub fn strand<'a>(
    loaded: &Loaded,
    strand: &Strand,
    nth: usize,
    context: &Context,
) -> Option<Decided<'a>> {
    let (Location::Ready { since, .. }, ScheduledTimeout::After(limit)) =
        (&loaded.location, loaded.stored.scheduled_timeout)
    else {
        return None;
    };
    let error = strand_error(limit, context.now.since(*since), &strand.reason);
    let detail = EndDetail {
        error: Some(error),
        evidence: strand.reason.as_str().into(),
        ..EndDetail::default()
    };
    Some(Decided {
        transition: context.decide(&loaded.job, JobEvent::Strand, nth).ok()?,
        kind: EventKind::Strand,
        by: Cow::Borrowed(TIMEOUT_MONITOR),
        detail: Cow::Owned(detail),
        ended_by: STRANDED,
        gates: Vec::new(),
    })
}

/// Whether a search found as many as it may, so that there may be more.
#[must_use]
pub fn reached(found: usize, limit: i64) -> bool {
    i64::try_from(found).is_ok_and(|found| found >= limit)
}
