//! The task that carries one attempt from its launch to its ending.
//!
//! It waits on the shim, the handles and its own timers together, and never on the job: input
//! and output have tasks of their own. Every way out goes through [`AttemptTask::conclude`].

use std::io;
use std::time::Duration;

use outlast_core::limits;
use outlast_core::resources::Usage;
use outlast_core::time::{BootTime, Span};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::AttemptSpec;
use super::end::{AttemptEnd, EndKind};
use super::output::{Output, Readers};
use super::proof::TreeHandle;
use super::stop::{Cause, Command, KillSequence, Step};
use crate::clock::boot_now;
use crate::process::containment::Containment;
use crate::process::launch::{Launched, Reports, assign, launch};
use crate::process::protocol::{
    ContainedIn, ExceededLimit, MainExit, Oom, Order, Report, ShimSpec, ShimTask, StartFailure,
    Used,
};
use crate::process::resources::LimitPlan;
use crate::process::shim_process::ShimProcess;
use crate::warm::{Taken, WarmProcess};

/// Orders to the shim that may wait while it is busy or stopped.
const ORDER_QUEUE: usize = 32;

/// How long a tree that was given up on has to prove that it ended after all.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Exit codes of a program that stopped because it was asked to: EX_TEMPFAIL of sysexits.h, "run me
/// again", and what a shell makes of SIGTERM.
const INTERRUPTED_CODES: [i32; 2] = [75, 128 + 15];

/// How long a shim that reported an empty tree has to be gone.
const REAP_MAX: Duration = Duration::from_secs(1);

/// Runs one attempt to its ending.
pub(super) async fn run(
    mut spec: AttemptSpec,
    mut commands: mpsc::Receiver<Command>,
    chunks: mpsc::UnboundedSender<Output>,
) -> AttemptEnd {
    let started = boot_now();
    let (launched, placed) = match prepare(&mut spec).await {
        Ok(launched) => launched,
        Err(error) => {
            return never_started(started, StartFailure::of_call("cannot launch a shim", &error));
        }
    };
    // A launch may have taken seconds: the lease was renewed since, or is over.
    let asked = asked_meanwhile(&mut spec, &mut commands);
    if spec.deadline.is_some_and(|deadline| deadline <= boot_now()) {
        launched.process.kill_group();
        launched.process.reap(REAP_MAX).await;
        return never_started(started, StartFailure::of_host("its lease was over before it began"));
    }
    let (mut task, stdin) =
        AttemptTask::arm(&spec, launched, &placed.contained_in, commands, chunks);
    task.started = started;
    for command in asked {
        task.obey(Some(command), Instant::now());
    }
    // Only now, with everything armed that can end the attempt, does anything flow to it.
    let feeder = task.feed(spec, placed, stdin);
    let tree_empty = task.until_empty().await;
    feeder.abort();
    task.conclude(tree_empty).await
}

/// Takes the latest deadline that has been ordered by now, and returns what else was.
fn asked_meanwhile(spec: &mut AttemptSpec, commands: &mut mpsc::Receiver<Command>) -> Vec<Command> {
    let mut others = Vec::new();
    while let Ok(command) = commands.try_recv() {
        match command {
            Command::Deadline(deadline) => spec.deadline = Some(deadline),
            other => others.push(other),
        }
    }
    others
}

async fn prepare(spec: &mut AttemptSpec) -> io::Result<(Launched, Placed)> {
    let contained_in = assign(spec.containment, &spec.shim)?;
    let limits = spec.enforcement.plan(&spec.resources, &contained_in, &spec.shim)?;
    let placed = Placed { contained_in, limits };
    // No other containment has what warm interpreters need.
    let warm = spec.warm.take().filter(|_| spec.containment == Containment::Pidns);
    if let Some(warm) = warm {
        match warm.take().await {
            Taken::Shim(launched) => {
                spec.warm = Some(warm);
                return Ok((*launched, placed));
            }
            Taken::Forks => spec.warm = Some(warm),
            Taken::Gone => {}
        }
    }
    let control = spec.warm.as_ref().and_then(WarmProcess::control);
    Ok((launch(&spec.shim, &spec.label, control).await?, placed))
}

/// What an attempt is held in.
struct Placed {
    contained_in: ContainedIn,
    limits: LimitPlan,
}

fn never_started(started: BootTime, failure: StartFailure) -> AttemptEnd {
    AttemptEnd {
        kind: EndKind::SpawnFailed(failure),
        tree_empty: true,
        executed: false,
        started,
        duration: Duration::from_millis(boot_now().since(started).as_millis()),
        ..AttemptEnd::unknown("")
    }
}

struct AttemptTask {
    shim: ShimProcess,
    reports: Reports,
    /// Closed at the last: both halves of the shim see that.
    orders: Option<mpsc::Sender<Order>>,
    order_queue: Option<(OwnedWriteHalf, mpsc::Receiver<Order>)>,
    commands: mpsc::Receiver<Command>,
    handles_left: bool,
    readers: Readers,
    tree: TreeHandle,
    kill_sequence: KillSequence,
    /// Whether it was asked to stop, without a limit.
    asked: bool,
    timeout_at: Option<Instant>,
    started: BootTime,
    seen: Seen,
    /// The warm interpreter, until it is known whether it has served.
    warm: Option<WarmProcess>,
}

/// What the shim has reported.
#[derive(Default)]
struct Seen {
    /// The job may have been executed, as far as is known.
    starting: bool,
    executed: bool,
    spawn_failure: Option<StartFailure>,
    exit: Option<MainExit>,
}

/// What woke the task.
enum Wake {
    Report(Option<Report>),
    Command(Option<Command>),
    Timeout,
    Step,
}

impl AttemptTask {
    fn arm(
        spec: &AttemptSpec,
        launched: Launched,
        contained_in: &ContainedIn,
        commands: mpsc::Receiver<Command>,
        chunks: mpsc::UnboundedSender<Output>,
    ) -> (Self, pipe::Sender) {
        let Launched { process, reports, orders: to_shim, stdin, stdout, stderr, namespace } =
            launched;
        let mut tree = TreeHandle::new(contained_in);
        tree.watch_init(namespace);
        let (orders, order_queue) = mpsc::channel(ORDER_QUEUE);
        let task = Self {
            shim: process,
            reports,
            orders: Some(orders),
            order_queue: Some((to_shim, order_queue)),
            commands,
            handles_left: true,
            readers: Readers::start(stdout, stderr, spec.limits, chunks),
            tree,
            kill_sequence: KillSequence::new(spec.kill_after),
            asked: false,
            timeout_at: spec.timeout.map(|timeout| Instant::now() + timeout),
            started: BootTime::default(),
            seen: Seen::default(),
            warm: spec.warm.clone(),
        };
        (task, stdin)
    }

    /// Starts to write the spec and later orders to the shim, and the input to the job.
    fn feed(&mut self, spec: AttemptSpec, placed: Placed, stdin: pipe::Sender) -> Feeder {
        let shim_spec = ShimSpec {
            label: spec.label,
            program: spec.program,
            args: spec.args,
            env: spec.env,
            cwd: spec.cwd,
            contained_in: placed.contained_in,
            limits: placed.limits,
            hidden: spec.hidden,
            private_folder: spec.private_folder,
            deadline_boot_ms: spec.deadline.map(|deadline| deadline.0),
        };
        let input = tokio::spawn(write_input(stdin, spec.stdin));
        let orders = self.order_queue.take().map(|(socket, queue)| {
            let task = ShimTask::Attempt(Box::new(shim_spec));
            tokio::spawn(write_orders(socket, task, queue))
        });
        Feeder { input, orders }
    }

    /// Serves the attempt until its tree is empty; false if that could not be proved.
    async fn until_empty(&mut self) -> bool {
        loop {
            let wake = self.next_wake().await;
            let now = Instant::now();
            match wake {
                Wake::Report(Some(Report::Empty)) => return true,
                Wake::Report(Some(report)) => self.note(report, now),
                Wake::Report(None) => return self.without_shim(now).await,
                Wake::Command(command) => self.obey(command, now),
                Wake::Timeout => {
                    self.timeout_at = None;
                    let step = self.kill_sequence.stop(Cause::TimedOut, now);
                    self.take(step);
                }
                Wake::Step => {
                    let step = self.kill_sequence.advance(now);
                    if step == Some(Step::GiveUp) {
                        self.shim.kill();
                        return self.tree.prove_empty(now + LAST_LOOK).await;
                    }
                    self.take(step);
                }
            }
        }
    }

    async fn next_wake(&mut self) -> Wake {
        let (timeout_at, due) = (self.timeout_at, self.kill_sequence.due());
        tokio::select! {
            // What happened comes before what is asked: an end that was reported already
            // wins against a timeout or a cancel that comes at the same moment.
            biased;
            line = self.reports.next_line() => Wake::Report(
                // A broken line is as bad as a broken stream.
                line.ok().flatten().and_then(|line| serde_json::from_str(&line).ok())
            ),
            command = self.commands.recv(), if self.handles_left => Wake::Command(command),
            () = until(due) => Wake::Step,
            () = until(timeout_at) => Wake::Timeout,
        }
    }

    fn note(&mut self, report: Report, now: Instant) {
        match report {
            Report::Holding { init } => self.tree.learn_init(init),
            Report::NotServed(reason) => {
                if let Some(warm) = self.warm.take() {
                    warm.has_not_served(&reason);
                }
            }
            Report::Starting => self.seen.starting = true,
            Report::Started { pid } => {
                self.seen.executed = true;
                if let Some(warm) = self.warm.take() {
                    warm.has_served();
                }
                self.tree.learn_job(pid);
            }
            Report::SpawnFailed(failure) => {
                self.seen.spawn_failure = Some(failure);
                self.kill_sequence.main_ended(now);
            }
            Report::DeadlinePassed => {
                // The shim has sent SIGKILL already; this only counts the time from here.
                let _ = self.kill_sequence.kill(Cause::DeadlinePassed, now);
            }
            Report::Exited(exit) => {
                self.seen.exit = Some(exit);
                self.timeout_at = None;
                self.tree.main_ended();
                self.kill_sequence.main_ended(now);
            }
            Report::Launched { .. }
            | Report::Waiting { .. }
            | Report::Unfit { .. }
            | Report::Here
            | Report::Empty => {}
        }
    }

    fn obey(&mut self, command: Option<Command>, now: Instant) {
        let step = match command {
            Some(Command::Cancel) => self.kill_sequence.stop(Cause::Cancelled, now),
            Some(Command::Interrupt) => self.kill_sequence.stop(Cause::Interrupted, now),
            Some(Command::Ask) => {
                if self.kill_sequence.cause().is_none() && !self.asked {
                    self.asked = true;
                    self.order(Order::Term);
                }
                None
            }
            Some(Command::KillNow) => self.kill_sequence.kill(Cause::Interrupted, now),
            Some(Command::Deadline(deadline)) => {
                self.order(Order::Deadline { boot_ms: deadline.0 });
                None
            }
            None => {
                // Every handle is gone, and with them anyone who could stop it.
                self.handles_left = false;
                self.kill_sequence.kill(Cause::Interrupted, now)
            }
        };
        self.take(step);
    }

    fn take(&mut self, step: Option<Step>) {
        match step {
            Some(Step::Terminate) => self.order(Order::Term),
            Some(Step::Kill) => self.order(Order::Kill),
            Some(Step::Force) => {
                self.tree.kill();
                // An inner half that is stopped does not see it; the outer half does, and ends
                // what is left with proof.
                self.orders = None;
            }
            Some(Step::GiveUp) | None => {}
        }
    }

    fn order(&self, order: Order) {
        // Full only for a shim that takes nothing: it is bypassed when the next step is due.
        let _ = self.orders.as_ref().map(|orders| orders.try_send(order));
    }

    /// The shim ended without saying that the tree is empty: it was killed from outside.
    async fn without_shim(&mut self, now: Instant) -> bool {
        self.shim.kill();
        let confirm = Duration::from_millis(limits::KILL_CONFIRM_MAX.as_millis());
        let by = self.kill_sequence.gives_up_at().unwrap_or(now + confirm);
        self.tree.prove_empty(by).await
    }

    async fn conclude(mut self, mut tree_empty: bool) -> AttemptEnd {
        let output = self.readers.finish().await;
        self.shim.reap(REAP_MAX).await;
        let exit = self.seen.exit.take();
        let failed = self.seen.spawn_failure.is_some();
        let began = self.seen.executed || (self.seen.starting && !failed);
        let asked = self.asked;
        let followed = || exit.as_ref().is_some_and(|exit| asked && follows_request(exit));
        let cause = self.kill_sequence.cause();
        let cause = cause.or_else(|| followed().then_some(Cause::Interrupted));
        let kind = match judge(self.seen.spawn_failure, exit.as_ref(), cause) {
            EndKind::ShimDied { .. } if !began => {
                // Both halves of it are gone, and nothing was in the tree but them.
                tree_empty = true;
                let reason = "the shim was killed before it executed the job";
                EndKind::SpawnFailed(StartFailure::of_host(reason))
            }
            EndKind::ShimDied { .. } if self.tree.is_in_reach() => EndKind::ShimKilled,
            kind => kind,
        };
        AttemptEnd {
            kind,
            code: exit.as_ref().and_then(|exit| exit.code),
            signal: exit.as_ref().and_then(|exit| exit.signal),
            usage: exit.as_ref().map_or_else(Usage::default, |exit| usage(exit.used)),
            tree_empty,
            executed: began,
            started: self.started,
            duration: Duration::from_millis(boot_now().since(self.started).as_millis()),
            output,
        }
    }
}

fn usage(used: Used) -> Usage {
    Usage { peak_memory: Some(used.peak_memory), cpu: Some(Span(used.cpu_ms)) }
}

/// Whether a job that was asked to stop did so. With another exit code it says how its work ended.
fn follows_request(exit: &MainExit) -> bool {
    exit.signal == Some(Signal::TERM.as_raw())
        || exit.code.is_some_and(|code| INTERRUPTED_CODES.contains(&code))
}

/// Decides what kind of end it was. An end that none of our signals preceded is the job's own,
/// even if it had been asked to stop by then. So is exit code 0 when the worker shuts down: the
/// program says that it has finished, and must not run again.
pub(super) fn judge(
    spawn_failure: Option<StartFailure>,
    exit: Option<&MainExit>,
    cause: Option<Cause>,
) -> EndKind {
    if let Some(failure) = spawn_failure {
        return EndKind::SpawnFailed(failure);
    }
    match (exit, cause) {
        (Some(MainExit { code: Some(0), .. }), Some(Cause::Interrupted)) => {
            EndKind::Exited { code: 0 }
        }
        (Some(MainExit { signalled_by_us: true, .. }) | None, Some(cause)) => cause.into_kind(),
        (Some(exit), _) => of_its_own(exit),
        (None, None) => EndKind::ShimDied { reason: "the shim was killed from outside".to_owned() },
    }
}

fn of_its_own(exit: &MainExit) -> EndKind {
    if exit.exceeded == Some(ExceededLimit::Processes) {
        return EndKind::TooManyProcesses;
    }
    match (exit.oom, exit.code, exit.signal) {
        (Oom::Yes, _, _) => EndKind::OomKilled,
        (oom, _, Some(signal)) => EndKind::Signalled { signal, oom },
        (_, Some(code), None) => EndKind::Exited { code },
        (_, None, None) => {
            EndKind::ShimDied { reason: "the job's end could not be read".to_owned() }
        }
    }
}

/// The tasks that write to the shim and to the job.
struct Feeder {
    input: JoinHandle<()>,
    orders: Option<JoinHandle<()>>,
}

impl Feeder {
    fn abort(&self) {
        self.input.abort();
        if let Some(orders) = &self.orders {
            orders.abort();
        }
    }
}

async fn write_input(mut stdin: pipe::Sender, bytes: Vec<u8>) {
    // A job that does not want its input closes the pipe; that is its right.
    let _ = stdin.write_all(&bytes).await;
}

async fn write_orders(
    mut socket: OwnedWriteHalf,
    task: ShimTask,
    mut queue: mpsc::Receiver<Order>,
) {
    let mut line = serde_json::to_vec(&task).unwrap_or_default();
    drop(task);
    loop {
        line.push(b'\n');
        // A shim that is gone is noticed where its reports are read.
        if socket.write_all(&line).await.is_err() {
            return;
        }
        let Some(order) = queue.recv().await else { return };
        line = serde_json::to_vec(&order).unwrap_or_default();
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
