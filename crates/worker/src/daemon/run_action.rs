//! One delivery, from its parameters to its end.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_packs::environment::InUse;
use outlast_packs::{Action, OnDrain, PARAMETER_FILE_VARIABLE, PackSet};
use outlast_sdk::{
    AttemptContext, Control, Delivery, Ends, EvidenceCode, Handler, LogStream, Outcome, Resources,
    Stage, StopReason, WorkerId,
};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};

use super::actions::{Actions, FoundProgram, runtime_of};
use super::catalog::Catalog;
use super::checks::CheckedWorker;
use super::cover::Cover;
use super::crash_point::{CrashPoint, Place};
use super::disk::{DiskThreads, FolderGuard, FolderPermit};
use super::health::Health;
use super::report::{self, Bounds};
use crate::OwnProgram;
use crate::attempt::{Attempt, AttemptEnd, AttemptHandle, AttemptSpec, Output, Stream};
use crate::environment::{HostEnvironment, JobIdentity};
use crate::folder::{CheckpointError, WorkFolder};
use crate::guardian::Announcer;
use crate::mask::{Mask, MaskError, Masking};
use crate::probe::Probe;
use crate::resources::{Enforcement, LimitedBy};
use crate::warm::{WarmKey, WarmProcess, WarmProcesses, WarmRequest};

/// A result up to this size is read on the engine's thread: larger ones would delay others.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Runs deliveries as attempts of actions.
#[derive(Debug)]
pub(super) struct ActionRunner {
    pub(super) catalog: Arc<Catalog>,
    pub(super) announcer: Announcer,
    pub(super) crash_point: CrashPoint,
    /// Where the worker is in its life.
    pub(super) stage: watch::Sender<Stage>,
    pub(super) control: Control,
    /// Asks for the packs to be reloaded.
    pub(super) reload: Arc<Notify>,
    pub(super) host: HostEnvironment,
    pub(super) containment: Probe,
    pub(super) cover: Cover,
    /// By what attempts are limited on this host.
    pub(super) enforcement: Enforcement,
    pub(super) program: OwnProgram,
    pub(super) packs_folder: PathBuf,
    pub(super) attempts_folder: PathBuf,
    pub(super) disk: DiskThreads,
    pub(super) health: Health,
    /// The server's address as jobs may know it; nothing if it holds a password.
    pub(super) server: Option<String>,
    pub(super) warm: WarmProcesses,
}

/// Everything that an attempt of an action needs.
struct Prepared {
    action: Arc<Action>,
    folder: Arc<FolderGuard>,
    spec: AttemptSpec,
    mask: Mask,
    /// Not to be removed while the attempt runs.
    environment: Option<InUse>,
}

/// An attempt that has ended, before its outcome is made.
struct EndedAttempt {
    action: Arc<Action>,
    ending: AttemptEnd,
    bounds: Bounds,
    stop: Option<StopReason>,
    mask: Mask,
}

/// What a job left for the next attempt, or why that is not kept.
type Checkpoint = Result<Option<Vec<u8>>, CheckpointError>;

impl Handler for ActionRunner {
    fn keeps_time(&self) -> bool {
        true
    }

    /// Its guardian needs to know, in case it has to report a death.
    fn registers_as(&self, worker: WorkerId) {
        self.announcer.registers_as(worker);
    }

    fn deregistered(&self) {
        self.announcer.deregistered();
    }

    /// No engine follows one that drains. A stage after draining is part of the drain, or of an end
    /// without an order.
    fn entered(&self, stage: Stage) {
        self.stage.send_replace(stage);
        if stage == Stage::Draining {
            self.announcer.drains();
        }
    }

    /// Shims keep the deadline, and only they know when a tree is gone.
    fn ends(&self) -> Ends {
        Ends::ByItself
    }

    async fn run(&self, delivery: Delivery, context: AttemptContext) -> Outcome {
        self.crash_point.reach(Place::Claimed);
        if context.stop_reason().is_some() {
            return Outcome::not_started("stopped before it started");
        }
        let Some(permit) = self.disk.permit(context.stopped()).await else {
            return Outcome::not_started("stopped while it waited for room for its folder");
        };
        let outcome = match self.prepare(&delivery, &context, permit) {
            Ok(prepared) => self.run_attempt(prepared, &delivery, context).await,
            Err(outcome) => *outcome,
        };
        self.crash_point.reach(Place::Exited);
        if outcome.executed {
            self.health.recovered();
        } else if outcome.evidence_code == Some(EvidenceCode::Host) {
            self.health.fault(&outcome.evidence);
        }
        outcome
    }
}

impl ActionRunner {
    /// What checks of the worker's health need of it.
    pub(super) fn checked(&self, folder: PathBuf) -> CheckedWorker {
        CheckedWorker {
            complaints: self.health.complaints().clone(),
            disk: self.disk.clone(),
            folder,
            host: self.host.clone(),
            containment: self.containment.ordinary,
            program: self.program.clone(),
        }
    }

    fn prepare(
        &self,
        delivery: &Delivery,
        context: &AttemptContext,
        permit: FolderPermit,
    ) -> Result<Prepared, Box<Outcome>> {
        let absent = || {
            let message = format!("this worker has no action {}", delivery.job_type);
            Box::new(Outcome::not_started(message))
        };
        let actions = self.catalog.actions().ok_or_else(absent)?;
        let action = actions.get(&delivery.job_type).ok_or_else(absent)?;
        if let Some(why) = actions.pack_refusal(action, &delivery.pack_digest) {
            return Err(Box::new(Outcome::not_started(why)));
        }
        context.runs_pack(actions.digest(action));
        let parameters = parameters(action, delivery)?;
        let secrets = self
            .catalog
            .host
            .secrets
            .resolve(action)
            .map_err(|error| self.not_offered(action, &error))?;
        let no_folder = |error| Box::new(self.no_folder(&error));
        let name = format!("{}-{}", delivery.attempt.job, delivery.attempt.epoch);
        let folder = WorkFolder::create(&self.attempts_folder, &name).map_err(no_folder)?;
        let mut rendered = action.render(&parameters);
        if let Some(body) = &rendered.file {
            let path = folder.write_parameters(body).map_err(no_folder)?;
            let path = path.to_string_lossy().into_owned();
            rendered.env.push((PARAMETER_FILE_VARIABLE.to_owned(), path));
        }
        if !delivery.checkpoint.is_empty() {
            folder.write_checkpoint(&delivery.checkpoint).map_err(no_folder)?;
        }
        let mut env = self.environment(delivery, &folder, &rendered.env)?;
        let named = action.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        set(&mut env, named.chain(secrets.variables.iter().cloned()));
        for (name, value) in &secrets.files {
            let path = folder.write_secret(name, value).map_err(no_folder)?;
            set(&mut env, [(name.clone(), path_text(&path))].into_iter());
        }
        let hidden = action.secret_values(&parameters);
        let hidden = hidden.iter().map(String::as_bytes).chain(secrets.values());
        let mask = Mask::of(hidden).map_err(|error| Box::new(unmasked(&error)))?;
        let program = action.program(&self.packs_folder);
        self.ensure_written(&program.script)?;
        let found = self.find_program(&actions, action)?;
        say_stale(&actions, action, &found, context);
        let line = actions
            .command_line(action, &self.catalog.host, found.own)
            .map_err(|missing| Box::new(host_fault(missing.to_string())))?;
        let containment = if delivery.overlap_forbidden {
            self.containment.chosen
        } else {
            self.containment.ordinary
        };
        let mut spec = AttemptSpec {
            args: line.args,
            env,
            cwd: program.folder,
            stdin: rendered.stdin.unwrap_or_default(),
            timeout: delivery.timeout.or(action.timeout),
            deadline: context.deadline(),
            containment,
            resources: delivery.resources,
            enforcement: self.enforcement,
            hidden: self.cover.now(),
            private_folder: Some(folder.path().to_owned()),
            shim: self.program.clone(),
            ..AttemptSpec::new(delivery.attempt.job.to_string(), path_text(&line.program))
        };
        spec.warm = self.warm_process(&actions, action, &spec, found.environment.as_ref());
        let folder = Arc::new(self.disk.guard(folder, permit));
        let environment = found.environment;
        Ok(Prepared { action: Arc::clone(action), folder, spec, mask, environment })
    }

    /// The interpreter that is warm for an attempt, if its action asks for one and there is one.
    fn warm_process(
        &self,
        actions: &Actions,
        action: &Action,
        spec: &AttemptSpec,
        environment: Option<&InUse>,
    ) -> Option<WarmProcess> {
        let warm = action.warm.as_ref()?;
        let (script, options) = spec.args.split_last()?;
        // What an interpreter takes for the folder of a script.
        let real = Path::new(script).canonicalize().ok()?;
        let mut variables = self.host.variables();
        let named = action.environment.iter();
        set(&mut variables, named.map(|(name, value)| (name.clone(), value.clone())));
        let key = WarmKey {
            runtime: runtime_of(action.runner),
            pack: action.pack.clone(),
            digest: actions.digest(action),
            program: PathBuf::from(&spec.program),
            options: options.to_vec(),
            environment: environment.map(|it| it.folder().to_owned()),
            preload: warm.preload.clone(),
            imports: real.extension().is_some_and(|ending| ending == "mjs"),
            folder: real.parent()?.to_owned(),
            cwd: spec.cwd.clone(),
            variables,
            idle: warm.idle,
        };
        self.warm.find(WarmRequest {
            key,
            environment: action.environment_of_pack.clone(),
            variables: &spec.env,
            containment: spec.containment,
            hidden: spec.hidden.clone(),
        })
    }

    /// Nothing that a job asks for is passed over in silence.
    fn say_unlimited(&self, resources: &Resources, context: &AttemptContext) {
        if resources.cpu_millis().is_some() && self.enforcement.cpu == LimitedBy::Nothing {
            let line = "[the limit on cpu is not kept: this worker has no cgroup for it]\n";
            context.log_now(LogStream::Worker, line);
        }
    }

    /// Writes built-in packs again where they are gone: a system that cleans temporary folders
    /// removes what was not used for days.
    fn ensure_written(&self, script: &Path) -> Result<(), Box<Outcome>> {
        if script.exists() {
            return Ok(());
        }
        let written = PackSet::load(&[]).and_then(|packs| packs.materialise(&self.packs_folder));
        written.map_err(|error| Box::new(host_fault(format!("pack cannot be written: {error}"))))
    }

    fn environment(
        &self,
        delivery: &Delivery,
        folder: &WorkFolder,
        delivered: &[(String, String)],
    ) -> Result<Vec<(String, String)>, Box<Outcome>> {
        let identity = JobIdentity {
            job_id: delivery.attempt.job.to_string(),
            attempt: delivery.attempt_number,
            epoch: delivery.attempt.epoch.0,
            idempotency_key: delivery.idempotency_key.clone(),
            checkpoint: folder.checkpoint(),
        };
        let mut env = self.host.for_job(&identity, delivered).map_err(|refused| {
            Box::new(not_retryable(unstarted("invalid_parameters", refused.to_string())))
        })?;
        // What a job leaves in its temporary folder goes with the attempt.
        env.retain(|(name, _)| name != "TMPDIR");
        env.push(("TMPDIR".to_owned(), path_text(&folder.working())));
        // Scripts written for Attune ask for the server under this name.
        env.extend(self.server.iter().map(|url| ("ATTUNE_API_URL".to_owned(), url.clone())));
        Ok(env)
    }

    fn find_program(
        &self,
        actions: &Actions,
        action: &Action,
    ) -> Result<FoundProgram, Box<Outcome>> {
        let found = self.catalog.host.find_program(action);
        let found = found.map_err(|missing| self.not_offered(action, &missing))?;
        self.find_interpreter(actions, action)?;
        Ok(found)
    }

    /// Without any interpreter the worker can run nothing and goes quiet. Without one of several
    /// it only stops offering what needs that one.
    fn find_interpreter(&self, actions: &Actions, action: &Action) -> Result<(), Box<Outcome>> {
        let Err(missing) = actions.find_interpreter(action) else { return Ok(()) };
        let runs_anything = self.catalog.host.runs_anything();
        runs_anything.map_err(|nothing| Box::new(host_fault(nothing)))?;
        Err(self.not_offered(action, &missing))
    }

    /// The job is not charged for what the worker lacks: it is handed back, and the worker stops
    /// offering the action until nothing is missing. Its other actions may lack nothing.
    fn not_offered(&self, action: &Action, lacking: &impl Display) -> Box<Outcome> {
        tracing::error!("handing the job back: {lacking}");
        if let Some(left) = self.catalog.withdraw(&action.reference) {
            self.control.offer(left.types(), self.catalog.describe(&left));
        }
        self.reload.notify_one();
        Box::new(Outcome::not_started(lacking.to_string()))
    }

    /// The disk is full or broken: the job goes elsewhere, and others must not meet the same
    /// end.
    fn no_folder(&self, error: &io::Error) -> Outcome {
        let folder = self.attempts_folder.display();
        host_fault(format!("work folder {folder} cannot be written: {error}"))
    }

    async fn run_attempt(
        &self,
        prepared: Prepared,
        delivery: &Delivery,
        context: AttemptContext,
    ) -> Outcome {
        let Prepared { action, folder, spec, mask, environment: _environment } = prepared;
        let bounds =
            Bounds { time: spec.timeout.unwrap_or(Duration::MAX), resources: spec.resources };
        self.say_unlimited(&spec.resources, &context);
        let mut attempt = Attempt::spawn(spec);
        let handle = attempt.handle();
        let output = attempt.take_output();
        let ends = async { tokio::join!(attempt.finished(), pump(output, &context, &mask)).0 };
        let ending = tokio::select! {
            ending = ends => ending,
            never = forward_orders(&handle, &context) => match never {},
            never = self.stop_on_drain(&action, &handle) => match never {},
        };
        let ended = EndedAttempt { action, ending, bounds, stop: context.stop_reason(), mask };
        let (mut outcome, kept) = self.read_outcome(ended, folder).await;
        match kept {
            Ok(Some(kept)) if kept != delivery.checkpoint => outcome.checkpoint = kept.into(),
            Ok(_) => {}
            Err(error) => {
                let line = format!("[checkpoint not kept: {error}]\n");
                context.log_now(LogStream::Worker, line);
            }
        }
        outcome
    }

    /// Asks an attempt whose action wants that to stop as soon as the worker drains.
    async fn stop_on_drain(&self, action: &Action, handle: &AttemptHandle) -> Infallible {
        let mut stage = self.stage.subscribe();
        let drains = |stage: &Stage| *stage == Stage::Draining;
        if action.on_drain == OnDrain::Stop && stage.wait_for(drains).await.is_ok() {
            handle.ask_to_stop();
        }
        std::future::pending().await
    }

    /// Makes the outcome and reads what the job left. Nearly all leave little; what takes a
    /// while to read is read on another thread. The folder is removed later, without waiting.
    async fn read_outcome(
        &self,
        done: EndedAttempt,
        folder: Arc<FolderGuard>,
    ) -> (Outcome, Checkpoint) {
        let is_small = done.ending.output.stdout.bytes.len() <= INLINE_BYTES_MAX && !left(&folder);
        let AttemptEnd { code: exit_code, tree_empty, executed, usage, .. } = done.ending;
        let read = move || {
            let mut done = done;
            report::drop_cut_values(&mut done.ending, &done.mask);
            let mut outcome =
                report::outcome_of(&done.action, &done.ending, &done.bounds, done.stop, &done.mask);
            report::hide(&mut outcome, &done.mask);
            (outcome, folder.folder().map_or(Ok(None), WorkFolder::read_checkpoint))
        };
        if is_small {
            return read();
        }
        let account = self.disk.read(read).await;
        account.unwrap_or_else(|| {
            let message = "its account could not be read";
            let outcome = Outcome::interrupted(message).because("account_unread", message);
            let outcome = outcome.known_by(EvidenceCode::Host);
            (Outcome { exit_code, tree_empty, executed, usage, ..outcome }, Ok(None))
        })
    }
}

/// What a script cannot import is easier to find with this in its output.
fn say_stale(actions: &Actions, action: &Action, found: &FoundProgram, context: &AttemptContext) {
    let folder = found.environment.as_ref().map(InUse::folder);
    let stale = actions.stale(action).filter(|stale| stale.folder.as_deref() == folder);
    if let Some(stale) = stale {
        let line = format!("[the environment is stale: {}]\n", stale.why);
        context.log_now(LogStream::Worker, line);
    }
}

fn parameters(action: &Action, delivery: &Delivery) -> Result<Value, Box<Outcome>> {
    let unreadable = |error: serde_json::Error| {
        Box::new(not_retryable(unstarted("invalid_parameters", error.to_string())))
    };
    let args: Vec<Value> = if delivery.args_json.is_empty() {
        Vec::new()
    } else {
        serde_json::from_slice(&delivery.args_json).map_err(unreadable)?
    };
    let given = args.into_iter().next().unwrap_or(Value::Null);
    action.check_again(&given).map_err(|violations| {
        let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
        Box::new(not_retryable(unstarted("invalid_parameters", list.join("; "))))
    })
}

/// Whether the job left a checkpoint.
fn left(folder: &FolderGuard) -> bool {
    folder.folder().is_some_and(|folder| folder.checkpoint().symlink_metadata().is_ok())
}

/// The worker lacks what the attempt needs: not a failure of the job.
fn host_fault(reason: String) -> Outcome {
    Outcome::not_started(reason).known_by(EvidenceCode::Host)
}

/// What cannot be masked must not run: its output would show the values.
fn unmasked(error: &MaskError) -> Outcome {
    not_retryable(unstarted("secrets_too_long", error.to_string()))
}

/// A failure before anything was executed.
fn unstarted(error_type: &str, message: String) -> Outcome {
    Outcome { executed: false, ..Outcome::failed(error_type, message) }
}

fn not_retryable(mut outcome: Outcome) -> Outcome {
    if let Some(failure) = &mut outcome.failure {
        failure.retryable = false;
    }
    outcome
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Sets variables, replacing those of the same names.
fn set(env: &mut Vec<(String, String)>, named: impl Iterator<Item = (String, String)>) {
    for (name, value) in named {
        env.retain(|(known, _)| *known != name);
        env.push((name, value));
    }
}

/// Passes output on until it ends, with secret values hidden.
async fn pump(
    output: Option<mpsc::UnboundedReceiver<Output>>,
    context: &AttemptContext,
    mask: &Mask,
) {
    let Some(mut output) = output else { return };
    let (mut stdout, mut stderr) = (Masking::new(mask), Masking::new(mask));
    while let Some(piece) = output.recv().await {
        match piece {
            Output::Chunk { stream: Stream::Stdout, bytes } => {
                log(context, LogStream::Stdout, stdout.next(bytes));
            }
            Output::Chunk { stream: Stream::Stderr, bytes } => {
                log(context, LogStream::Stderr, stderr.next(bytes));
            }
            Output::Truncated { dropped } => {
                stdout.cut();
                stderr.cut();
                let mark = format!("[output limit reached: {dropped} bytes were dropped]\n");
                context.log_now(LogStream::Worker, mark);
            }
            Output::GivenUp { stream } => {
                let (name, masking) = match stream {
                    Stream::Stdout => ("standard output", &mut stdout),
                    Stream::Stderr => ("standard error", &mut stderr),
                };
                masking.cut();
                let mark =
                    format!("[{name} was still open after the end: the rest was not read]\n");
                context.log_now(LogStream::Worker, mark);
            }
        }
    }
    log(context, LogStream::Stdout, stdout.end());
    log(context, LogStream::Stderr, stderr.end());
}

/// Passes on a piece of output unless it is empty. It never waits: output for which there is no
/// room on the way to the server is dropped there, and marked.
fn log(context: &AttemptContext, stream: LogStream, bytes: Vec<u8>) {
    if !bytes.is_empty() {
        context.log_now(stream, bytes);
    }
}

/// Passes on orders and renewed deadlines for as long as the attempt lasts.
async fn forward_orders(handle: &AttemptHandle, context: &AttemptContext) -> Infallible {
    let mut was_asked_to_stop = false;
    let mut forced = false;
    let mut deadline = context.deadline().unwrap_or_default();
    loop {
        tokio::select! {
            reason = context.stopped(), if !was_asked_to_stop => {
                was_asked_to_stop = true;
                match reason {
                    StopReason::Cancelled | StopReason::Stale => handle.cancel(),
                    StopReason::DeadlineNear | StopReason::Interrupted => handle.interrupt(),
                    StopReason::Forced => handle.kill_now(),
                }
            }
            () = context.forced(), if !forced => {
                forced = true;
                handle.kill_now();
            }
            later = context.deadline_after(deadline) => {
                deadline = later;
                handle.extend_deadline(later);
            }
        }
    }
}
