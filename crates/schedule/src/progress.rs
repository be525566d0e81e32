//! How a schedule stands, and what a look at it does.
//!
//! A store keeps [`Progress`] as JSON beside the definition. A server reads both, asks here what
//! is due, and writes the next progress together with the jobs, if no other server has done so in
//! between. So these functions decide, and whichever server comes first carries it out.

#[cfg(test)]
mod tests;

use outlast_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::catch_up::{CatchUp, Due, DueTimes, GRACE};
use crate::expression::Expression;
use crate::jitter::jitter;
use crate::overlap::Overlap;
use crate::timetable::Timetable;
use crate::zone::Zone;

/// Most jobs of a schedule with `overlap: queue` that have not ended.
pub const QUEUED_MAX: usize = 1_000;

/// How soon a server looks again whether the job has ended that others wait for.
pub const TURN_LOOK: Span = Span::from_secs(1);

/// When a schedule fires and when it does not, as its owner set it.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// The times.
    pub expression: Expression,
    /// The clock that they are read on.
    pub zone: Zone,
    /// What becomes of fires that were missed in an outage.
    pub catch_up: CatchUp,
    /// What a fire does while an earlier job has not ended.
    pub overlap: Overlap,
    /// Most that a fire is put off, so that many do not come at once.
    pub jitter: Span,
    /// The last moment at which it fires.
    pub until: Option<Timestamp>,
}

/// How a schedule stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Where `@every` counts from.
    #[serde(with = "ms")]
    pub anchor: Timestamp,
    /// The next time of the timetable that has neither fired nor been left out; `None` if there is
    /// no more.
    #[serde(with = "ms_opt")]
    pub next: Option<Timestamp>,
    /// The next time, if it is one of the times that its owner has replaced while it was due: it fires
    /// all the same.
    #[serde(with = "ms_opt", skip_serializing_if = "Option::is_none")]
    pub owed: Option<Timestamp>,
    /// Set while it is paused.
    pub paused: Option<Pause>,
    /// How many jobs it has made.
    pub fired: u64,
    /// How many fires were left out.
    pub skipped: u64,
    /// The latest fire that made a job.
    pub last_fire: Option<LastFire>,
    /// The latest fire that was left out.
    pub last_skip: Option<LastSkip>,
    /// The jobs that are not known to have ended, oldest first. With `overlap: allow` none are
    /// added.
    pub open: Vec<Uuid>,
    /// Jobs that the latest fire has replaced: they are cancelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Uuid>,
}

/// Why a schedule does not fire now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Why, in its owner's words; may be empty.
    pub reason: String,
    /// Who paused it.
    pub by: String,
    /// When.
    #[serde(with = "ms")]
    pub at: Timestamp,
}

/// A fire that made a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFire {
    /// The time that the timetable has.
    #[serde(with = "ms")]
    pub fire_time: Timestamp,
    /// When the job was stored.
    #[serde(with = "ms")]
    pub at: Timestamp,
    /// The job, or the workflow.
    pub job: Uuid,
    /// Whether that is a workflow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_workflow: bool,
}

/// A fire that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSkip {
    /// The time that the timetable has; of several, the last one.
    #[serde(with = "ms")]
    pub fire_time: Timestamp,
    /// When it was left out.
    #[serde(with = "ms")]
    pub at: Timestamp,
    /// Why, in words.
    pub reason: String,
}

/// What a fire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its job is stored, to run at once.
    Fire,
    /// Its job is stored, and runs when those before it have ended.
    Wait,
    /// The jobs before it are cancelled; then its job is stored, to run at once.
    Replace,
    /// It makes no job: one before it has not ended.
    SkipForOpen,
    /// It makes no job: a later fire is due as well, and takes its place.
    SkipForLater,
    /// It makes no job: too many wait already.
    SkipForFull,
}

impl Timing {
    /// Returns the timetable of a schedule that counts from `anchor`.
    #[must_use]
    pub fn timetable(&self, anchor: Timestamp) -> Timetable {
        Timetable { expression: self.expression.clone(), zone: self.zone.clone(), anchor }
    }

    /// Returns the first fire strictly after a time, if it is not beyond the end.
    #[must_use]
    pub fn next_after(&self, anchor: Timestamp, time: Timestamp) -> Option<Timestamp> {
        self.timetable(anchor).next_after(time).filter(|next| self.is_before_end(*next))
    }

    fn is_before_end(&self, time: Timestamp) -> bool {
        self.until.is_none_or(|until| time <= until)
    }

    fn has_the_times_of(&self, other: &Self) -> bool {
        self.expression == other.expression && self.zone == other.zone
    }

    /// Decides what a fire does while `open` jobs have not ended, if `later` other fires are due
    /// behind it.
    #[must_use]
    pub const fn choose(&self, open: usize, later: usize) -> Choice {
        match self.overlap {
            Overlap::Replace if later > 0 => Choice::SkipForLater,
            Overlap::Allow => Choice::Fire,
            _ if open == 0 => Choice::Fire,
            Overlap::Skip => Choice::SkipForOpen,
            Overlap::Replace => Choice::Replace,
            Overlap::Queue if open >= QUEUED_MAX => Choice::SkipForFull,
            Overlap::Queue => Choice::Wait,
        }
    }
}

impl Progress {
    /// Returns the progress of a schedule that is made now. It does not fire by being made.
    #[must_use]
    pub fn begin(timing: &Timing, now: Timestamp) -> Self {
        let now = whole_second(now);
        Self { anchor: now, next: timing.next_after(now, now), ..Self::default() }
    }

    /// Returns the progress of the schedule `name` after its owner has set other times. What is due
    /// already is not lost, and nothing fires for the past: a fire that is at most [`GRACE`] late, or
    /// that only its jitter puts off, stays the next one.
    #[must_use]
    pub fn set(&self, name: &str, old: &Timing, new: &Timing, now: Timestamp) -> Self {
        let mut progress = self.clone();
        let is_due = |next: Timestamp| {
            let ripe = next.after(jitter(name, next, old.jitter));
            next <= now && now.since(ripe) <= GRACE && self.paused.is_none()
        };
        if new.has_the_times_of(old) {
            // The end may have moved.
            let kept = self.next.filter(|next| new.is_before_end(*next));
            progress.next = kept.or_else(|| new.next_after(self.anchor, now));
            return progress;
        }
        progress.anchor = whole_second(now);
        progress.owed = self.next.filter(|next| is_due(*next));
        progress.next = progress.owed.or_else(|| new.next_after(progress.anchor, now));
        progress
    }

    /// Returns the progress while it is paused.
    #[must_use]
    pub fn pause(&self, pause: Pause) -> Self {
        Self { paused: Some(pause), ..self.clone() }
    }

    /// Returns the progress after a pause. It does not fire by being resumed, nor for times that
    /// have passed.
    #[must_use]
    pub fn resume(&self, timing: &Timing, now: Timestamp) -> Self {
        if self.paused.is_none() {
            return self.clone();
        }
        let next = timing.next_after(self.anchor, now);
        Self { paused: None, next, owed: None, ..self.clone() }
    }

    /// Returns when a server must look at it next, if it ever must.
    #[must_use]
    pub fn due(&self, name: &str, timing: &Timing, now: Timestamp) -> Option<Timestamp> {
        let fires = self.next.filter(|_| self.paused.is_none());
        let fires = fires.map(|next| next.after(jitter(name, next, timing.jitter)));
        let waits = self.open.len() > 1 || !self.replaced.is_empty();
        let turn = waits.then(|| now.after(TURN_LOOK));
        [fires, turn].into_iter().flatten().min()
    }

    /// Decides what fires at `now`, and when it fires next.
    ///
    /// With a jitter, a fire is due that much later than its time, and no earlier than one before it.
    /// How late it is, is counted from then on.
    #[must_use]
    pub fn look(&self, name: &str, timing: &Timing, now: Timestamp) -> Due {
        let nothing = Due { fires: Vec::new(), missed: 0, next: self.next };
        let Some(next) = self.next.filter(|_| self.paused.is_none()) else { return nothing };
        let table = timing.timetable(self.anchor);
        let ripe_at = |time: Timestamp| time.after(jitter(name, time, timing.jitter));
        if ripe_at(next) > now {
            return nothing;
        }
        let late = timing.jitter.0.saturating_add(GRACE.0);
        let late = now.0.saturating_sub(i64::try_from(late).unwrap_or(i64::MAX));
        // What is older is ripe, and late.
        let recent = table.latest(next.max(Timestamp(late)), now, usize::MAX);
        let Ripe { until, timely } = Ripe::of(&recent, now, ripe_at);
        let last = timing.until.map_or(until, |end| end.min(until));
        let timely = timely.into_iter().filter(|time| *time <= last).collect();
        let due = DueTimes { timetable: &table, oldest: next, last, timely };
        let mut due = due.choose(timing.catch_up);
        due.next = timing.next_after(self.anchor, until.max(next));
        if self.owed == Some(next) && table.count(next, next) == 0 {
            Self::add_owed(next, timing, now, &mut due);
        }
        due
    }

    /// Adds the fire that was due when other times were set.
    fn add_owed(owed: Timestamp, timing: &Timing, now: Timestamp, due: &mut Due) {
        let is_timely = now.since(owed.after(timing.jitter)) <= GRACE;
        let fires = match timing.catch_up {
            CatchUp::All => true,
            CatchUp::One => is_timely || due.fires.is_empty(),
            CatchUp::None => is_timely,
        };
        if fires { due.fires.insert(0, owed) } else { due.missed += 1 }
    }

    /// Returns how late a fire of the schedule `name` is.
    #[must_use]
    pub fn late(name: &str, timing: &Timing, time: Timestamp, now: Timestamp) -> Span {
        now.since(time.after(jitter(name, time, timing.jitter)))
    }

    /// Notes a fire that made a job.
    pub fn note_fire(&mut self, fire: LastFire, overlap: Overlap) {
        if overlap != Overlap::Allow {
            self.open.push(fire.job);
        }
        self.fired = self.fired.saturating_add(1);
        self.last_fire = Some(fire);
    }

    /// Notes fires that were left out.
    pub fn note_skip(&mut self, skip: LastSkip, count: u64) {
        self.skipped = self.skipped.saturating_add(count);
        self.last_skip = Some(skip);
    }
}

/// Returns the first whole second that is not earlier: `@every` counts from one, so that its fires
/// have readable times.
#[must_use]
pub fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_add(999).div_euclid(1000).saturating_mul(1000))
}

/// Which of the recent times may fire now.
struct Ripe {
    /// All times until then may.
    until: Timestamp,
    /// Those that are not late.
    timely: Vec<Timestamp>,
}

impl Ripe {
    /// What is not ripe holds back what is later, so that fires keep their order.
    fn of(recent: &[Timestamp], now: Timestamp, ripe_at: impl Fn(Timestamp) -> Timestamp) -> Self {
        let (mut ripe, mut timely) = (Timestamp(i64::MIN), Vec::new());
        for time in recent {
            ripe = ripe.max(ripe_at(*time));
            if ripe > now {
                return Self { until: Timestamp(time.0.saturating_sub(1)), timely };
            }
            if now.since(ripe) <= GRACE {
                timely.push(*time);
            }
        }
        Self { until: now, timely }
    }
}

/// Times as milliseconds since the Unix epoch.
mod ms {
    use outlast_core::time::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(at.0)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp)
    }
}

/// The same where there may be none.
mod ms_opt {
    use outlast_core::time::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes references")]
    pub(super) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(|at| at.0).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::<i64>::deserialize(from).map(|at| at.map(Timestamp))
    }
}
