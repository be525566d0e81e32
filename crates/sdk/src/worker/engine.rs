//! The worker's loop. Everything it knows is touched by it alone; other tasks and the
//! heartbeat's thread send it messages.
//!
//! ```text
//! wait for one thing ─▶ handle it ─▶ start what may start, gather what ends meanwhile
//!       ▲                                                       │
//!       └──── send what is ready, in as few messages as fit ◀── look at the clock
//! ```
//!
//! Nothing is started or reported while the lease may have passed: after a freeze or a
//! partition a beat or an attachment must be accepted first.
//!
//! - `server`: what the server says
//! - `attempts`: what attempts say, and starting them
//! - `stages`: quiet, drain, leave

mod attempts;
mod server;
mod stages;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast_core::time::{BootTime, Span};
use outlast_core::worker::lifecycle::Stage;
use outlast_proto::v1;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::clock::{boot_now, duration, sleep_until, span};
use crate::context::{AttemptEvent, LOG_BYTES_WAITING, Outlet};
use crate::delivery::AttemptId;
use crate::handler::Handler;
use crate::heartbeat::{Beaten, Heart};
use crate::session::link::{Link, LinkEvent};
use crate::session::request_deadline;
use crate::worker::control::{ControlQueue, Notice};
use crate::worker::in_flight::InFlight;
use crate::worker::outbox::Outbox;
use crate::worker::slots::{Busy, Slots};
use crate::worker::summary::{RunError, Summary};
use crate::worker::{Patience, Profile, Worker};
use crate::worker_state::{Terms, WorkerState};

/// The lease assumed before the server has said one: its usual multiple of the interval.
const LEASE_BEATS: u64 = 3;

/// How often the loop turns when nothing happens, so that it can be seen to live: a part of
/// the heartbeat interval, within these bounds.
const TICK_MIN: Span = Span::from_millis(20);
const TICK_MAX: Span = Span::from_millis(250);

/// What is said of a worker whose guardian is gone.
const GUARDIAN_KILLED: &str = "the worker's guardian was killed";

/// A loop that did not turn for a heartbeat interval, and at least for so long, was frozen.
const FREEZE_MIN: Span = Span::from_millis(300);

pub(crate) struct Engine<H> {
    handler: Arc<H>,
    profile: Profile,
    patience: Patience,
    state: Arc<WorkerState>,
    outlet: Arc<Outlet>,
    control: ControlQueue,
    events: mpsc::UnboundedReceiver<AttemptEvent>,
    beaten: mpsc::UnboundedReceiver<Beaten>,
    heart: Heart,
    link: Link,
    stage: Stage,
    in_flight: InFlight,
    slots: Slots,
    outbox: Outbox,
    /// When running attempts are to be told of as started, in order.
    announcements: VecDeque<(BootTime, AttemptId)>,
    session: SessionState,
    /// A beat was asked for because the lease may have passed.
    asked_for_beat: bool,
    /// After a freeze: how long the beat that it held up may take.
    thawed_until: Option<BootTime>,
    /// The latest freeze.
    stood_still: Option<StoodStill>,
    /// When every attempt is looked at again.
    look_again_at: BootTime,
    drain: DrainState,
    /// Why nothing can be run here just now.
    fault: Option<Fault>,
    /// How long the next fault that nobody looks after lasts.
    fault_wait: Span,
    /// An attempt that cannot be stopped, and when the process ends with it.
    unstoppable: Option<(BootTime, AttemptId)>,
    summary: Summary,
    fatal: Option<RunError>,
    exit: Option<Exit>,
}

/// What the server knows of us.
#[derive(Debug, Default)]
struct SessionState {
    /// This identity was welcomed before.
    resumed: bool,
    /// Of the store, as the last welcome said.
    store_generation: u64,
    /// Since when the server turns us away although it welcomed us before.
    denied_since: Option<BootTime>,
    /// How many hellos this identity has said.
    attachment: u64,
    /// What the last hello said.
    hello_phase: v1::Phase,
    /// The phase that the server last heard or ordered.
    told_phase: v1::Phase,
    /// We resumed while away: the quiet that the server is about to order is our own old one.
    overrules_quiet: bool,
    capacity: Option<v1::Capacity>,
}

/// A freeze that is over.
#[derive(Clone, Copy, Debug)]
struct StoodStill {
    length: std::time::Duration,
    /// Attempts that end for want of a lease until then do so because of it.
    until: BootTime,
}

/// Something is wrong with the process or its host, and not with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    reason: String,
    /// When it is tried again; `None` if somebody watches, and says so.
    until: Option<BootTime>,
}

/// How long a worker is quiet after a fault that nobody looks after: longer each time, until
/// something runs again.
const FAULT_FIRST: Span = Span::from_secs(1);
const FAULT_MAX: Span = Span::from_secs(30);

/// Timers of a drain.
#[derive(Debug, Default)]
struct DrainState {
    grace_over_at: Option<BootTime>,
    say_remaining_at: Option<BootTime>,
    /// Since when nothing runs any more.
    empty_since: Option<BootTime>,
}

/// How the loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// With a last beat and a goodbye.
    Leave,
    AtOnce,
}

/// What woke the loop.
#[derive(Debug)]
enum Wake {
    Control(Notice),
    Beaten(Beaten),
    Attempt(AttemptEvent),
    Link(LinkEvent),
    /// The transport takes messages again.
    Room,
    Tick,
}

impl<H: Handler> Engine<H> {
    pub(crate) fn new(
        worker: Worker,
        handler: Arc<H>,
        control: ControlQueue,
    ) -> Result<Self, RunError> {
        let Worker { profile, patience, address, handlers: _ } = worker;
        let interval = span(patience.heartbeat_interval);
        let terms = Terms { interval, lease: Span(interval.0.saturating_mul(LEASE_BEATS)) };
        let (tell_engine, events) = mpsc::unbounded_channel();
        let (tell_beaten, beaten) = mpsc::unbounded_channel();
        let deadline = watch::Sender::new(BootTime::default());
        let state = WorkerState::new(terms, deadline.clone());
        let heart = Heart::start(address.clone(), Arc::clone(&state), tell_beaten, handler.ends())
            .map_err(RunError::Heartbeat)?;
        let outlet = Outlet {
            events: tell_engine,
            log_room: Arc::new(Semaphore::new(LOG_BYTES_WAITING)),
            attached: watch::Sender::new(false),
            leftovers: AtomicU32::new(0),
            deadline,
        };
        Ok(Self {
            handler,
            slots: Slots::new(profile.concurrency),
            profile,
            patience,
            in_flight: InFlight::new(Arc::clone(&state)),
            state,
            outlet: Arc::new(outlet),
            control,
            events,
            beaten,
            heart,
            link: Link::new(address),
            stage: Stage::Running,
            outbox: Outbox::default(),
            announcements: VecDeque::new(),
            session: SessionState::default(),
            asked_for_beat: false,
            thawed_until: None,
            stood_still: None,
            look_again_at: BootTime::default(),
            drain: DrainState::default(),
            fault: None,
            fault_wait: FAULT_FIRST,
            unstoppable: None,
            summary: Summary::default(),
            fatal: None,
            exit: None,
        })
    }

    pub(crate) async fn run(mut self) -> Result<Summary, RunError> {
        tracing::info!(
            name = self.profile.name,
            heartbeat_interval = ?self.patience.heartbeat_interval,
            shutdown_timeout = ?self.patience.shutdown_timeout,
            concurrency = self.profile.concurrency,
            "starting worker"
        );
        loop {
            let wake = self.wait().await;
            let now = boot_now();
            self.look_for_a_freeze(now);
            self.state.turned(now);
            self.handle(wake, now);
            self.settle().await;
            match self.exit {
                Some(Exit::Leave) => return self.leave().await,
                Some(Exit::AtOnce) => {
                    self.summary.left_at_once = true;
                    return Ok(self.summary);
                }
                None => {}
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let now = boot_now();
        let due = self.next_due(now);
        // Whatever could be sent was sent: what is left waits for room.
        let full = self.link.outgoing().filter(|_| self.outbox.has_next(self.trusts_lease(now)));
        let full = full.cloned();
        tokio::select! {
            biased;
            told = self.control.next() => Wake::Control(told),
            Some(beaten) = self.beaten.recv() => Wake::Beaten(beaten),
            Some(event) = self.events.recv() => Wake::Attempt(event),
            event = self.link.next() => Wake::Link(event),
            () = room(full) => Wake::Room,
            () = sleep_until(due) => Wake::Tick,
        }
    }

    fn next_due(&self, now: BootTime) -> BootTime {
        let interval = self.state.reported().terms.interval;
        let tick = now.after(Span(interval.0 / 4).clamp(TICK_MIN, TICK_MAX));
        let announcement = self.announcements.front().map(|(due, _)| *due);
        let recovery = self.fault.as_ref().and_then(|fault| fault.until);
        [announcement, recovery, self.drain.grace_over_at, self.drain.say_remaining_at]
            .into_iter()
            .flatten()
            .fold(tick, BootTime::min)
    }

    /// Finds out from the clock that the process stood still: no signal says so. What the
    /// server thinks of it by now is asked before anything is ended for want of a renewal.
    fn look_for_a_freeze(&mut self, now: BootTime) {
        let stood = self.state.turn_age(now);
        let interval = self.state.reported().terms.interval;
        if stood < Span(interval.0.max(FREEZE_MIN.0)) {
            return;
        }
        tracing::warn!(stood_still = ?duration(stood), "worker did not run for a while");
        self.thawed_until = Some(now.after(span(request_deadline(duration(interval)))));
        let until = now.after(span(self.patience.stop_window));
        self.stood_still = Some(StoodStill { length: duration(stood), until });
        self.heart.beat_now();
    }

    fn handle(&mut self, wake: Wake, now: BootTime) {
        match wake {
            Wake::Control(Notice::Stage(event)) => self.on_control(event, now),
            Wake::Control(Notice::Offer(types)) => self.offer(types),
            Wake::Control(Notice::Fault(reason)) => self.begin_fault(Fault { reason, until: None }),
            Wake::Control(Notice::Recovered) => self.end_fault(),
            Wake::Beaten(beaten) => self.on_beaten(beaten, now),
            Wake::Attempt(event) => self.on_attempt(event),
            Wake::Link(event) => self.on_link(event, now),
            Wake::Room | Wake::Tick => {}
        }
    }

    /// Brings everything in line with what was just learnt, and sends what is ready.
    async fn settle(&mut self) {
        let now = boot_now();
        self.on_time(now);
        self.gather(now).await;
        self.sync_capacity();
        self.mind_the_lease(now);
        self.flush(now);
        self.look_whether_empty(now);
    }

    /// Says whether the lease is known to hold: then attempts may be started and spoken for.
    fn trusts_lease(&self, now: BootTime) -> bool {
        now < self.state.lease_end()
    }

    fn mind_the_lease(&mut self, now: BootTime) {
        let unsure = self.link.session_number().is_some() && !self.trusts_lease(now);
        if unsure && !self.asked_for_beat {
            tracing::warn!("lease may have passed: nothing is reported until it is renewed");
            self.heart.beat_now();
        }
        self.asked_for_beat = unsure;
    }

    /// What takes up slots: attempts, and what others left at work.
    fn busy(&self) -> Busy {
        let busy = self.in_flight.busy();
        Busy { running: busy.running.saturating_add(self.leftovers()), ..busy }
    }

    fn leftovers(&self) -> u32 {
        self.outlet.leftovers.load(Ordering::Acquire)
    }

    fn sync_capacity(&mut self) {
        let capacity = if self.takes_work() {
            let slots = self.slots.concurrency().saturating_sub(self.leftovers());
            v1::Capacity { slots, prefetch: if slots == 0 { 0 } else { self.slots.prefetch() } }
        } else {
            v1::Capacity { slots: 0, prefetch: 0 }
        };
        self.state.reported().free_slots =
            capacity.slots.saturating_sub(self.in_flight.busy().running);
        if self.link.session_number().is_some() && self.session.capacity != Some(capacity) {
            self.session.capacity = Some(capacity);
            self.outbox.capacity(capacity);
        }
    }

    fn flush(&mut self, now: BootTime) {
        let trusted = self.trusts_lease(now);
        let Some(outgoing) = self.link.outgoing() else { return };
        while self.outbox.has_next(trusted) {
            // Full: the rest grows into larger messages. Closed: the link will say so.
            let Ok(permit) = outgoing.try_reserve() else { return };
            let Some(next) = self.outbox.next(trusted) else { return };
            self.outlet.log_room.add_permits(next.room);
            permit.send(next.message);
        }
    }

    fn interval(&self) -> std::time::Duration {
        duration(self.state.reported().terms.interval)
    }
}

async fn room(outgoing: Option<mpsc::Sender<v1::WorkerMessage>>) {
    if let Some(outgoing) = outgoing
        && outgoing.reserve().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
