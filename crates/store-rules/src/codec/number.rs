//! Types that stores keep as numbers.

use outlast_core::budget::ScheduledTimeout;
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Liveness, Phase, Standing};
use outlast_store::command::Stream;
use outlast_store::job::Origin;

/// Returns a count as databases keep it.
#[must_use]
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns the milliseconds of a length.
#[must_use]
pub fn span(value: Option<Span>) -> Option<i64> {
    value.map(|span| int(span.0))
}

/// Returns the number of an origin.
#[must_use]
pub const fn origin_number(origin: Origin) -> i16 {
    match origin {
        Origin::Ojs => 0,
        Origin::Execution => 1,
    }
}

/// Returns the origin of a number.
#[must_use]
pub const fn origin_of(number: i16) -> Origin {
    if number == 0 { Origin::Ojs } else { Origin::Execution }
}

/// Returns the number of a stream of output.
#[must_use]
pub const fn stream_number(stream: Stream) -> i16 {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::Worker => 2,
    }
}

/// Returns the stream of a number.
#[must_use]
pub const fn stream_of(number: i16) -> Stream {
    match number {
        0 => Stream::Stdout,
        1 => Stream::Stderr,
        _ => Stream::Worker,
    }
}

/// Returns the milliseconds after which a job that no worker can run fails, if it does.
#[must_use]
pub fn strand_ms(timeout: ScheduledTimeout) -> Option<i64> {
    match timeout {
        ScheduledTimeout::Never => None,
        ScheduledTimeout::After(span) => Some(int(span.0)),
    }
}

/// Returns the timeout of [`strand_ms`].
#[must_use]
pub fn scheduled_timeout(ms: Option<i64>) -> ScheduledTimeout {
    let span = ms.map(|ms| Span(u64::try_from(ms).unwrap_or(0)));
    span.map_or(ScheduledTimeout::Never, ScheduledTimeout::After)
}

/// Returns the number of a worker's phase.
#[must_use]
pub const fn phase_number(phase: Phase) -> i16 {
    match phase {
        Phase::Running => 0,
        Phase::Quiet => 1,
        Phase::Draining => 2,
    }
}

/// Returns the number of a worker's liveness.
#[must_use]
pub const fn liveness_number(liveness: Liveness) -> i16 {
    match liveness {
        Liveness::Live => 0,
        Liveness::Suspect => 1,
        Liveness::Lapsed => 2,
        Liveness::Gone => 3,
    }
}

/// Returns phase and liveness of their numbers.
#[must_use]
pub const fn standing(phase: i16, liveness: i16) -> Standing {
    let phase = match phase {
        0 => Phase::Running,
        1 => Phase::Quiet,
        _ => Phase::Draining,
    };
    let liveness = match liveness {
        0 => Liveness::Live,
        1 => Liveness::Suspect,
        2 => Liveness::Lapsed,
        _ => Liveness::Gone,
    };
    Standing { phase, liveness }
}
