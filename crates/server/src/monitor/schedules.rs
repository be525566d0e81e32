//! Fires schedules. Every server may: the first one that writes a schedule has fired it. One server leads,
//! so that the others do not come in its way; they fire what it has left for a moment.

use futures_util::StreamExt as _;
use futures_util::stream;
use outlast_core::time::{Span, Timestamp};
use outlast_store::schedule::ScheduleRecord;

use crate::clock::millis;
use crate::engine::Engine;
use crate::engine::trouble_log::log_trouble;
use crate::monitor::leadership::{Candidate, NotLeading};
use crate::schedules::fire;
use crate::schedules::service::{ScheduleError, readable};

/// How far ahead a look sees what is due, and longest pause between two looks. A schedule that someone
/// sets meanwhile may be due before the next look, and fires this late at most.
const AHEAD: Span = Span::from_secs(1);
/// How many schedules a look reads.
const AT_ONCE: u32 = 2_000;
/// How many are fired side by side; their commands share transactions.
const SIDE_BY_SIDE: usize = 256;
/// Shortest pause while something is due that could not be fired.
const PAUSE_MIN: Span = Span(50);
/// How long a server that does not lead leaves what is due to the leader.
const STEP_IN: Span = Span(600);
/// How long the leader leads.
const LEASE: Span = Span::from_secs(10);
/// How long a server that does not lead does not ask again.
const ASK_AGAIN: Span = Span::from_secs(3);

/// Looks again and again at what is due.
pub(super) async fn run(engine: Engine) {
    let mut leading = Leading {
        candidate: Candidate::new(engine.clone(), "schedules", LEASE),
        not_before: Timestamp::default(),
    };
    loop {
        let pause = match look(&engine, &mut leading).await {
            Ok(pause) => pause,
            Err(error) => {
                let shared = engine.shared();
                log_trouble!(warn, shared, error, "failed to look at schedules; retrying");
                AHEAD
            }
        };
        tokio::time::sleep(millis(pause)).await;
    }
}

/// Whether this server leads, asked only while something is due.
struct Leading {
    candidate: Candidate,
    /// When it asks again, by the store's clock.
    not_before: Timestamp,
}

impl Leading {
    async fn is_sure(&mut self, now: Timestamp) -> bool {
        if now < self.not_before {
            return false;
        }
        match self.candidate.acquire().await {
            Ok(_fence) => true,
            Err(NotLeading::Elsewhere(sure)) => {
                self.not_before = now.after(sure.min(ASK_AGAIN));
                false
            }
            Err(NotLeading::Failed) => false,
        }
    }
}

/// Fires what is due; returns how long to wait then.
async fn look(engine: &Engine, leading: &mut Leading) -> Result<Span, ScheduleError> {
    let now = engine.now().await?;
    let found = engine.store().due_schedules(now.after(AHEAD), AT_ONCE).await?;
    if found.is_empty() {
        return Ok(AHEAD);
    }
    let patience = if leading.is_sure(now).await { Span::ZERO } else { STEP_IN };
    let when = |record: &ScheduleRecord| record.state.due.map(|due| due.after(patience));
    let next = found.iter().filter_map(when).filter(|at| *at > now).min();
    let is_ripe = |record: &ScheduleRecord| when(record).is_some_and(|at| at <= now);
    let (ripe, _): (Vec<_>, Vec<_>) = found.into_iter().partition(is_ripe);
    let is_full = ripe.len() >= usize::try_from(AT_ONCE).unwrap_or(usize::MAX);
    let looks = ripe.into_iter().filter_map(readable).map(|schedule| async move {
        // Others may have gone first.
        let now = engine.shared().store_time().unwrap_or(now);
        let looked = fire::look(engine, &schedule, now).await;
        (schedule.name().clone(), looked)
    });
    let mut looks = stream::iter(looks).buffer_unordered(SIDE_BY_SIDE);
    let (mut did_something, mut trouble) = (false, None);
    while let Some((name, looked)) = looks.next().await {
        match looked {
            Ok(looked) => {
                did_something |= looked.fired > 0 || looked.skipped > 0;
                engine.counters().looked_at_schedule(&looked);
            }
            Err(error @ ScheduleError::Unavailable(_)) => trouble = Some(error),
            Err(error) => tracing::warn!(schedule = %name, %error, "schedule was not fired"),
        }
    }
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    let wait = next.map_or(AHEAD, |next| next.since(engine.shared().store_time().unwrap_or(now)));
    let least = if is_full && did_something { Span::ZERO } else { PAUSE_MIN };
    Ok(if is_full { least } else { wait.clamp(Span(1), AHEAD) })
}
