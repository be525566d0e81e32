//! Whether the process may open as many files as its slots need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::warm;

/// What the process needs beside its attempts: the session, the runtime, packs, logs, and warm
/// interpreters.
const BASE: u64 = 96 + WARM * warm::PROCESSES_MAX as u64;

/// What one warm interpreter takes at most, while it waits: what an attempt has of a shim, what watches
/// its end and that of its namespace, and its environment.
const WARM: u64 = 7;

/// What one attempt takes at most, while it is started: its pipes and the shim's socket, both
/// ends of each, what watches its end, and its environment.
const EACH: u64 = 13;

/// The limit on open files is too low, and cannot be raised.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{concurrency} slots need up to {needed} open files, and this process may open {allowed} \
     (RLIMIT_NOFILE): raise the limit (systemd: LimitNOFILE, Docker: --ulimit nofile), or lower \
     worker.concurrency to {fitting}"
)]
pub(super) struct TooFew {
    concurrency: u32,
    needed: u64,
    allowed: u64,
    fitting: u64,
}

/// Raises the soft limit to what is needed, and no further: jobs inherit it.
pub(super) fn ensure(concurrency: u32) -> Result<(), TooFew> {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let needed = needed(concurrency);
    if soft >= needed {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    if hard < needed || setrlimit(Resource::Nofile, raised).is_err() {
        return Err(TooFew { concurrency, needed, allowed: hard, fitting: fitting(hard) });
    }
    tracing::info!(from = soft, to = needed, concurrency, "raised the open-file limit");
    Ok(())
}

/// How many files a worker with this many slots may have open at the same time.
#[must_use]
pub fn needed(concurrency: u32) -> u64 {
    BASE + EACH * u64::from(concurrency)
}

const fn fitting(allowed: u64) -> u64 {
    allowed.saturating_sub(BASE) / EACH
}

#[cfg(test)]
mod tests {
    use super::{fitting, needed};

    #[test]
    fn what_fits_is_what_is_needed_turned_round() {
        for slots in [1_u32, 10, 76, 10_000] {
            assert_eq!(fitting(needed(slots)), u64::from(slots));
            assert_eq!(fitting(needed(slots) - 1), u64::from(slots) - 1);
        }
        assert_eq!(fitting(3), 0);
    }
}
