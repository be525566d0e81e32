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

use outlast_core::id::WorkerId;
use outlast_core::time::{BootTime, Span};
use outlast_core::worker::lifecycle::Stage;
use outlast_proto::v1;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::attempt::events::{AttemptEvent, LOG_BYTES_WAITING, Outlet};
use crate::clock::{boot_now, duration, sleep_until, span};
use crate::delivery::AttemptId;
use crate::handler::Handler;
use crate::heartbeat::{BeatAnswer, Heartbeat};
use crate::session::connection::{Connection, ConnectionEvent};
use crate::session::request_deadline;
use crate::worker::control::{ControlQueue, Notice};
use crate::worker::in_flight::InFlight;
use crate::worker::outbox::Outbox;
use crate::worker::slots::{Busy, Slots};
use crate::worker::summary::{RunError, Summary};
use crate::worker::{Profile, Timeouts, Worker};
use crate::worker_state::{Terms, WorkerState};

/// The lease assumed before the server has said one: its usual multiple of the interval.
const LEASE_BEATS: u64 = 3;

/// How often the loop turns when nothing happens, so that it can be seen to live: a part of
/// the heartbeat interval, within these bounds.
const TICK_MIN: Span = Span::from_millis(20);
const TICK_MAX: Span = Span::from_millis(250);

/// A loop that did not turn for a heartbeat interval, and at least for so long, was frozen.
const FREEZE_MIN: Span = Span::from_millis(300);

pub(crate) struct Engine<H> {
    handler: Arc<H>,
    profile: Profile,
    timeouts: Timeouts,
    state: Arc<WorkerState>,
    outlet: Arc<Outlet>,
    inbox: Inbox,
    session: SessionState,
    lifecycle: Lifecycle,
    work: Work,
    lease: LeaseState,
    faults: FaultState,
    exit: ExitState,
}

/// Where messages for the loop arrive.
struct Inbox {
    control: ControlQueue,
    events: mpsc::UnboundedReceiver<AttemptEvent>,
    beaten: mpsc::UnboundedReceiver<BeatAnswer>,
    /// The heartbeat's thread has ended, which it does not by itself.
    heartbeat_gone: bool,
}

/// The attempts, and what is to be sent about them.
struct Work {
    in_flight: InFlight,
    slots: Slots,
    outbox: Outbox,
    /// When running attempts are reported as started, in order.
    announcements: VecDeque<(BootTime, AttemptId)>,
    /// When every attempt is looked at again.
    next_check_at: BootTime,
}

/// What renews the lease, and what is known about it beside its end.
struct LeaseState {
    heartbeat: Heartbeat,
    /// A beat was asked for because the lease may have passed.
    asked_for_beat: bool,
    /// After a freeze: how long the beat that it held up may take.
    thawed_until: Option<BootTime>,
    last_freeze: Option<Freeze>,
}

impl LeaseState {
    const fn new(heartbeat: Heartbeat) -> Self {
        Self { heartbeat, asked_for_beat: false, thawed_until: None, last_freeze: None }
    }
}

/// Faults of the process or its host.
struct FaultState {
    /// Why nothing can be run here just now.
    current: Option<Fault>,
    /// How long the next fault lasts that no one watches over.
    next_wait: Span,
}

/// Whether and how the loop ends.
#[derive(Default)]
struct ExitState {
    how: Option<Exit>,
    /// Why the worker cannot go on.
    fatal: Option<RunError>,
    /// An attempt that cannot be stopped, and when the process ends with it.
    unstoppable: Option<(BootTime, AttemptId)>,
    summary: Summary,
}

/// What the server knows of us.
struct SessionState {
    connection: Connection,
    /// This identity was welcomed before.
    resumed: bool,
    /// The identities before this one, oldest first, until this one is welcomed: what the latest one
    /// that the server knows was ordered still holds.
    previous: Vec<WorkerId>,
    /// Of the store, as the last welcome said.
    store_generation: u64,
    /// Since when the server turns us away although it welcomed us before.
    denied_since: Option<BootTime>,
    /// How many hellos this identity has said.
    attachment: u64,
    /// What the last hello said.
    hello_phase: v1::Phase,
    /// The phase that the server last heard or ordered.
    announced_phase: v1::Phase,
    /// We resumed while away: the quiet that the server is about to order is our own old one.
    overrules_quiet: bool,
    capacity: Option<v1::Capacity>,
}

impl SessionState {
    fn new(connection: Connection, previous: Vec<WorkerId>) -> Self {
        Self {
            connection,
            resumed: false,
            previous,
            store_generation: 0,
            denied_since: None,
            attachment: 0,
            hello_phase: v1::Phase::Running,
            announced_phase: v1::Phase::Running,
            overrules_quiet: false,
            capacity: None,
        }
    }
}

/// A freeze that is over.
#[derive(Clone, Copy, Debug)]
struct Freeze {
    length: std::time::Duration,
    /// Attempts that end for want of a lease until then do so because of it.
    until: BootTime,
}

/// Something is wrong with the process or its host, and not with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    reason: String,
    /// When to try again; `None` if a watcher reports the recovery.
    until: Option<BootTime>,
}

impl Fault {
    /// Whether it is the same but for numbers, such as how much room is left: those change all the
    /// time, and are no news.
    fn is_like(&self, other: &Self) -> bool {
        let words = |reason: &str| reason.replace(|c: char| c.is_ascii_digit(), "");
        self.until == other.until && words(&self.reason) == words(&other.reason)
    }
}

/// How long a worker is quiet after a fault that has no watcher: longer each time, until
/// something runs again.
const FAULT_FIRST: Span = Span::from_secs(1);
const FAULT_MAX: Span = Span::from_secs(30);

/// How far the worker has come, and the timers of its drain.
#[derive(Debug)]
struct Lifecycle {
    stage: Stage,
    grace_over_at: Option<BootTime>,
    say_remaining_at: Option<BootTime>,
    /// Since when nothing runs any more.
    empty_since: Option<BootTime>,
    /// It has lapsed: its attempts are void, but not what they have printed.
    owes_output: bool,
}

impl Lifecycle {
    const fn new() -> Self {
        Self {
            stage: Stage::Running,
            grace_over_at: None,
            say_remaining_at: None,
            empty_since: None,
            owes_output: false,
        }
    }
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
    /// `None` if there will be no more beats.
    Beaten(Option<BeatAnswer>),
    Attempt(AttemptEvent),
    Connection(ConnectionEvent),
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
        let Worker { profile, timeouts, address, handlers: _ } = worker;
        let interval = span(timeouts.heartbeat_interval);
        let terms = Terms { interval, lease: Span(interval.0.saturating_mul(LEASE_BEATS)) };
        let (engine_events, events) = mpsc::unbounded_channel();
        let (beat_results, beaten) = mpsc::unbounded_channel();
        let deadline = watch::Sender::new(BootTime::default());
        let state = WorkerState::new(terms, deadline.clone());
        control.show(&state);
        let heartbeat =
            Heartbeat::start(address.clone(), Arc::clone(&state), beat_results, handler.ends())
                .map_err(RunError::Heartbeat)?;
        let outlet = Outlet {
            events: engine_events,
            log_room: Arc::new(Semaphore::new(LOG_BYTES_WAITING)),
            attached: watch::Sender::new(false),
            leftovers: AtomicU32::new(0),
            deadline,
        };
        Ok(Self {
            handler,
            inbox: Inbox { control, events, beaten, heartbeat_gone: false },
            session: SessionState::new(Connection::new(address), profile.follows.clone()),
            lifecycle: Lifecycle::new(),
            work: Work {
                in_flight: InFlight::new(Arc::clone(&state)),
                slots: Slots::new(profile.concurrency),
                outbox: Outbox::default(),
                announcements: VecDeque::new(),
                next_check_at: BootTime::default(),
            },
            lease: LeaseState::new(heartbeat),
            faults: FaultState { current: None, next_wait: FAULT_FIRST },
            exit: ExitState::default(),
            profile,
            timeouts,
            state,
            outlet: Arc::new(outlet),
        })
    }

    pub(crate) async fn run(mut self) -> Result<Summary, RunError> {
        tracing::info!(
            name = self.profile.name,
            heartbeat_interval = ?self.timeouts.heartbeat_interval,
            shutdown_timeout = ?self.timeouts.shutdown_timeout,
            concurrency = self.profile.concurrency,
            "starting worker"
        );
        loop {
            let wake = self.wait().await;
            let now = boot_now();
            self.detect_freeze(now);
            self.state.turned(now);
            self.handle(wake, now);
            self.advance().await;
            match self.exit.how {
                Some(Exit::Leave) => return self.leave().await,
                Some(Exit::AtOnce) => {
                    self.exit.summary.left_at_once = true;
                    return Ok(self.exit.summary);
                }
                None => {}
            }
        }
    }

    async fn wait(&mut self) -> Wake {
        let now = boot_now();
        let due = self.next_due(now);
        // Whatever could be sent was sent: what is left waits for room.
        let full = self
            .session
            .connection
            .outgoing()
            .filter(|_| self.work.outbox.has_next(self.trusts_lease(now)));
        let full = full.cloned();
        tokio::select! {
            biased;
            order = self.inbox.control.next() => Wake::Control(order),
            beaten = self.inbox.beaten.recv(), if !self.inbox.heartbeat_gone => Wake::Beaten(beaten),
            Some(event) = self.inbox.events.recv() => Wake::Attempt(event),
            event = self.session.connection.next() => Wake::Connection(event),
            () = room(full) => Wake::Room,
            () = sleep_until(due) => Wake::Tick,
        }
    }

    fn next_due(&self, now: BootTime) -> BootTime {
        let interval = self.state.reported().terms.interval;
        let tick = now.after(Span(interval.0 / 4).clamp(TICK_MIN, TICK_MAX));
        let announcement = self.work.announcements.front().map(|(due, _)| *due);
        let recovery = self.faults.current.as_ref().and_then(|fault| fault.until);
        [announcement, recovery, self.lifecycle.grace_over_at, self.lifecycle.say_remaining_at]
            .into_iter()
            .flatten()
            .fold(tick, BootTime::min)
    }

    /// Finds out from the clock that the process stood still: no signal says so. What the
    /// server thinks of it by now is asked before anything is ended for want of a renewal.
    fn detect_freeze(&mut self, now: BootTime) {
        let stood = self.state.turn_age(now);
        let interval = self.state.reported().terms.interval;
        if stood < Span(interval.0.max(FREEZE_MIN.0)) {
            return;
        }
        tracing::warn!(stood_still = ?duration(stood), "worker process was frozen");
        self.lease.thawed_until = Some(now.after(span(request_deadline(duration(interval)))));
        let until = now.after(span(self.timeouts.stop_window));
        self.lease.last_freeze = Some(Freeze { length: duration(stood), until });
        self.lease.heartbeat.beat_now();
    }

    fn handle(&mut self, wake: Wake, now: BootTime) {
        match wake {
            Wake::Control(Notice::Stage(event)) => self.on_control(event, now),
            Wake::Control(Notice::Offer { types, about_json }) => self.offer(types, about_json),
            Wake::Control(Notice::Fault(reason)) => self.begin_fault(Fault { reason, until: None }),
            Wake::Control(Notice::Recovered) => self.end_fault(),
            Wake::Control(Notice::ReadToken) => self.session.connection.read_token_again(),
            Wake::Beaten(Some(beaten)) => self.on_beaten(beaten, now),
            Wake::Beaten(None) => self.on_heartbeat_gone(now),
            Wake::Attempt(event) => self.on_attempt(event),
            Wake::Connection(event) => self.on_connection(event, now),
            Wake::Room | Wake::Tick => {}
        }
    }

    /// Brings everything in line with what was just learnt, and sends what is ready.
    async fn advance(&mut self) {
        let now = boot_now();
        self.on_time(now);
        self.start_and_collect(now).await;
        self.sync_capacity();
        self.check_lease(now);
        self.flush(now);
        self.leave_when_empty(now);
    }

    /// Says whether the lease is known to hold: then attempts may be started and spoken for.
    fn trusts_lease(&self, now: BootTime) -> bool {
        now < self.state.lease_end()
    }

    fn check_lease(&mut self, now: BootTime) {
        let unsure = self.session.connection.session_number().is_some() && !self.trusts_lease(now);
        if unsure && !self.lease.asked_for_beat {
            tracing::warn!("lease may have expired: holding reports until it is renewed");
            self.lease.heartbeat.beat_now();
        }
        self.lease.asked_for_beat = unsure;
    }

    /// What takes up slots: attempts, and what others left at work.
    fn busy(&self) -> Busy {
        let busy = self.work.in_flight.busy();
        Busy { running: busy.running.saturating_add(self.leftovers()), ..busy }
    }

    fn leftovers(&self) -> u32 {
        self.outlet.leftovers.load(Ordering::Acquire)
    }

    fn sync_capacity(&mut self) {
        let capacity = if self.takes_work() {
            let slots = self.work.slots.concurrency().saturating_sub(self.leftovers());
            v1::Capacity {
                slots,
                prefetch: if slots == 0 { 0 } else { self.work.slots.prefetch() },
            }
        } else {
            v1::Capacity { slots: 0, prefetch: 0 }
        };
        self.state.reported().free_slots =
            capacity.slots.saturating_sub(self.work.in_flight.busy().running);
        if self.session.connection.session_number().is_some()
            && self.session.capacity != Some(capacity)
        {
            self.session.capacity = Some(capacity);
            self.work.outbox.capacity(capacity);
        }
    }

    fn flush(&mut self, now: BootTime) {
        let trusted = self.trusts_lease(now);
        let Some(outgoing) = self.session.connection.outgoing() else { return };
        while self.work.outbox.has_next(trusted) {
            // Full: the rest grows into larger messages. Closed: the link will say so.
            let Ok(permit) = outgoing.try_reserve() else { return };
            let Some(next) = self.work.outbox.next(trusted, now) else { return };
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
