//! What every store does between reading a job and writing it back: pure, and shared, so
//! that the model and the databases decide and tell the same.

use outlast_core::budget::Budgets;
use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::id::WorkerId;
use outlast_core::job::{
    Answer, Event as JobEvent, EventKind, Hold, Job, Outcome, Refusal, State, Transition, decide,
    fence,
};
use outlast_core::leadership::{self, Leadership, LeadershipRefusal};
use outlast_core::limit::LimitName;
use outlast_core::limits;
use outlast_core::operation::OperationStatus;
use outlast_core::retry::Jitter;
use outlast_core::schedule::ScheduleName;
use outlast_core::selector::Selector;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_core::worker::order::WorkerOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::browser_session::{BeginSession, BrowserSession};
use outlast_store::command::{
    EndDetail, Fence, Finish, LeadershipRequest, Origin, ReportedOutcome, Reporter, Stream,
};
use outlast_store::event::{Event, EventName};
use outlast_store::limit::Miscount;
use outlast_store::operation::OperationRecord;
use outlast_store::queue::QueueRecord;
use outlast_store::record::StoredJob;
use outlast_store::reply::MoveRefusal;
use outlast_store::schedule::ScheduleEvent;
use outlast_store::workflow::WorkflowEvent;
use serde_json::json;

use crate::apply::queue;

/// Marks a report by a plain client that named no worker.
pub const UNATTRIBUTED: &str = "unattributed";

/// Who corrects what gates count, in the event log.
const AUDIT: &str = "audit";

/// Where and when a decision is made.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The operator's budgets.
    pub budgets: Budgets,
    /// The batch's seed.
    pub seed: u64,
    /// Position of the command in the batch.
    pub command: usize,
    /// The store's time.
    pub now: Timestamp,
}

impl Context {
    /// Returns the jitter for the `nth` job that this command moves.
    #[must_use]
    pub fn jitter(&self, nth: usize) -> Jitter {
        let place = u64::try_from(self.command).unwrap_or(0) << 32;
        let word = mix(self.seed ^ place ^ u64::try_from(nth).unwrap_or(0));
        Jitter::from_thousandths(u16::try_from(word % 1000).unwrap_or(500))
    }

    /// Returns the lane from which on this batch looks at the lanes of a class: another one each
    /// time, so that each is looked at in the end, however many there are.
    #[must_use]
    pub fn first_lane(&self) -> i64 {
        i64::try_from(mix(self.seed) >> 1).unwrap_or(0)
    }

    /// Decides what `event` does to `job`.
    ///
    /// # Errors
    /// Returns why the job stays as it is.
    pub fn decide(
        &self,
        job: &Job,
        event: JobEvent<'_>,
        nth: usize,
    ) -> Result<Transition, Refusal> {
        decide(job, event, &self.budgets, self.jitter(nth), self.now)
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Checks that a report is about the current attempt; `plain` is the id that its plain
/// holder gave itself when it fetched.
///
/// # Errors
/// Returns which of the report's claims is wrong.
pub fn check_fence(job: &Job, report: &Fence, plain: Option<&str>) -> Result<(), Refusal> {
    let native = match &report.worker {
        Some(Reporter::Native(worker)) => Some(*worker),
        Some(Reporter::Plain(_)) | None => None,
    };
    fence(job, report.epoch, native)?;
    if job.holder.is_none() {
        return Ok(());
    }
    let not_holder = Err(Refusal::NotHolder { current: job.epoch });
    if let (Some(Reporter::Plain(named)), Some(holder)) = (&report.worker, plain)
        && named != holder
    {
        return not_holder;
    }
    // A native attempt is not a plain client's to report, whatever name it gives.
    let native_holder = job.holder.is_some_and(|holder| holder.worker.is_some());
    if native_holder && matches!(report.worker, Some(Reporter::Plain(_))) {
        return not_holder;
    }
    match report.attempt {
        Some(reported) if reported != job.running_attempt() => {
            Err(Refusal::OtherAttempt { reported, current: job.running_attempt() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Decides what a report of an attempt's end does. `alone` says whether the holder holds
/// nothing else.
///
/// # Errors
/// Returns why the report is refused.
pub fn decide_finish(
    job: &Job,
    finish: &Finish,
    plain: Option<&str>,
    alone: bool,
    bench: &Context,
) -> Result<Transition, MoveRefusal> {
    check_fence(job, &finish.fence, plain)?;
    Ok(bench.decide(job, event_of(finish, alone), 0)?)
}

/// Returns the event that a report of an attempt's end stands for. `alone` says whether the
/// holder holds nothing else.
#[must_use]
pub fn event_of(finish: &Finish, alone: bool) -> JobEvent<'_> {
    match &finish.reported {
        ReportedOutcome::Completed => JobEvent::Complete,
        ReportedOutcome::Failed { error_type, retryable } => {
            JobEvent::Fail { error_type, retryable: *retryable }
        }
        ReportedOutcome::TimedOut => JobEvent::TimeOut,
        ReportedOutcome::Interrupted => JobEvent::Interrupt,
        ReportedOutcome::NotStarted => JobEvent::Release,
        ReportedOutcome::Requeued => JobEvent::Requeue,
        ReportedOutcome::Lost => JobEvent::of_reported_loss(finish.detail.evidence.code, alone),
    }
}

/// Returns the refusal that a transition's answer stands for, if it is one.
#[must_use]
pub const fn refusal_of(transition: &Transition) -> Option<Refusal> {
    match transition.answer {
        Answer::Accepted => None,
        Answer::TooLate(state) => Some(Refusal::Terminal(state)),
    }
}

/// Returns the evidence to record for a report.
#[must_use]
pub fn evidence_of(finish: &Finish) -> Evidence {
    let fence = &finish.fence;
    let anonymous = fence.epoch.is_none() && fence.worker.is_none() && fence.attempt.is_none();
    let Evidence { code, text } = finish.detail.evidence.clone();
    let text = match (anonymous, text.as_str()) {
        (false, _) => text,
        (true, "") => UNATTRIBUTED.to_owned(),
        (true, text) => format!("{text} ({UNATTRIBUTED})"),
    };
    Evidence { code, text }
}

/// Returns how many bytes an attempt may have printed in all with a piece on this stream. That
/// output was cut is remarked when there is no room left for output.
#[must_use]
pub const fn output_bytes_max(stream: Stream) -> usize {
    match stream {
        Stream::Stdout | Stream::Stderr => limits::LOG_BYTES_MAX,
        Stream::Worker => limits::LOG_BYTES_MAX + limits::LOG_REMARKS_BYTES_MAX,
    }
}

/// Returns the error of an attempt whose worker was given up.
#[must_use]
pub fn lost_error(evidence: &str) -> String {
    json!({ "type": "worker_death", "message": format!("worker was lost: {evidence}") }).to_string()
}

/// Returns the error of an attempt that its worker reports as lost.
#[must_use]
pub fn reported_loss_error(evidence: &Evidence) -> String {
    if JobEvent::of_reported_loss(evidence.code, false) == JobEvent::CutOff {
        return json!({ "type": "lease_not_renewed", "message": evidence.text }).to_string();
    }
    lost_error(evidence)
}

/// Returns the detail of a plain attempt whose visibility passed.
#[must_use]
pub fn visibility_detail(visibility: Span) -> EndDetail {
    let evidence = format!("no sign of life for {}", seconds(visibility));
    let error = json!({ "type": "visibility_timeout", "message": evidence }).to_string();
    let evidence = Evidence::of(EvidenceCode::Lease, evidence);
    EndDetail { error: Some(error), evidence, ..EndDetail::default() }
}

/// Returns the detail of a plain attempt whose worker fell silent, however long its
/// visibility.
#[must_use]
fn silence_detail(evidence: &Evidence) -> EndDetail {
    let error = Some(lost_error(evidence));
    EndDetail { error, evidence: evidence.clone(), ..EndDetail::default() }
}

/// Why a plain worker's attempts are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It fell silent.
    Silence,
    /// It said that it ends: what it did not finish was interrupted, as by its own report.
    Goodbye,
}

impl Leave {
    /// Returns what happens to the attempts.
    #[must_use]
    pub const fn event(self) -> JobEvent<'static> {
        match self {
            Self::Silence => JobEvent::ExpireVisibility,
            Self::Goodbye => JobEvent::Interrupt,
        }
    }

    /// Returns what is known about their end.
    #[must_use]
    pub fn detail(self, evidence: &Evidence) -> EndDetail {
        match self {
            Self::Silence => silence_detail(evidence),
            Self::Goodbye => EndDetail { evidence: evidence.clone(), ..EndDetail::default() },
        }
    }
}

/// Returns the detail of a plain attempt whose time limit passed.
#[must_use]
pub fn timeout_detail(limit: Span) -> EndDetail {
    let evidence = format!("ran longer than its limit of {}", seconds(limit));
    let error = json!({ "type": "timeout", "message": evidence }).to_string();
    EndDetail { error: Some(error), evidence: evidence.into(), ..EndDetail::default() }
}

/// Returns the error of a job that no live worker was able to run: the fields that clients of the
/// executions API read, and the reason.
#[must_use]
pub fn strand_error(limit: Span, age: Span, reason: &str) -> String {
    // A limit in whole seconds is answered in whole seconds, as clients expect.
    let whole = limit.0.is_multiple_of(1000);
    let age = if whole { Span::from_secs(age.as_secs()) } else { age };
    json!({
        "error": format!(
            "Execution timeout: worker did not pick up task within {} seconds (scheduled for {} seconds)",
            number(limit), number(age)
        ),
        "failed_by": "execution_timeout_monitor",
        "timeout_seconds": number(limit),
        "age_seconds": number(age),
        "original_status": "requested",
        "reason": reason,
    })
    .to_string()
}

/// Whole seconds as an integer, else one decimal.
fn number(span: Span) -> serde_json::Number {
    if span.0.is_multiple_of(1000) || span.0 >= 10_000 {
        return (span.0 / 1000).into();
    }
    let tenths = u32::try_from(span.0 / 100).unwrap_or(u32::MAX);
    serde_json::Number::from_f64(f64::from(tenths) / 10.0).unwrap_or_else(|| 0.into())
}

fn seconds(span: Span) -> String {
    format!("{} s", number(span))
}

/// What a job's events tell besides the transition.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The job.
    pub job: &'a StoredJob,
    /// What happened to it.
    pub kind: EventKind,
    /// Native worker that holds or held the attempt.
    pub worker: Option<WorkerId>,
    /// Whether its attempt had started before: a start is reported again after a reconnect.
    pub has_started: bool,
    /// When the ended attempt started, or was claimed.
    pub began: Option<Timestamp>,
    /// The store's time.
    pub at: Timestamp,
    /// Who did it.
    pub by: &'a str,
    /// On what evidence.
    pub evidence: &'a Evidence,
}

/// Returns the events of one transition, in order.
#[must_use]
pub fn events_of(facts: &Facts<'_>, transition: &Transition) -> Vec<Event> {
    let mut events = Vec::with_capacity(2);
    let mut push = |kind| events.push(event(facts, transition, kind));
    match transition.hold {
        Hold::Take(holder) => {
            push(EventName::JobClaimed);
            if holder.started.is_some() {
                push(EventName::JobStarted);
            }
        }
        Hold::Keep(_) if transition.to == State::Active && !facts.has_started => {
            push(EventName::JobStarted);
        }
        Hold::Drop(outcome) => push(name_of_outcome(outcome)),
        Hold::Keep(_) | Hold::None => {}
    }
    let ended_without_attempt = !matches!(transition.hold, Hold::Drop(_));
    match (transition.to, facts.kind) {
        (State::Retryable, _) => push(EventName::JobRetrying),
        (State::Available, EventKind::Replay) => push(EventName::JobReplayed),
        (State::Available, _) if ended_without_attempt => push(EventName::JobAvailable),
        (State::Cancelled, _) if ended_without_attempt => push(EventName::JobCancelled),
        (State::Discarded, EventKind::Expire) => push(EventName::JobExpired),
        (State::Discarded, EventKind::Strand) => push(EventName::JobStranded),
        (State::Discarded, _) => push(EventName::JobDiscarded),
        _ => {}
    }
    if let Some(reason) = transition.dead_letter {
        let evidence = reason.as_str().into();
        events.push(Event { evidence, ..event(facts, transition, EventName::JobDeadLettered) });
    }
    let mut push = |kind| events.push(event(facts, transition, kind));
    if transition.alarm.is_some() {
        push(EventName::JobInterruptionBudgetSpent);
    }
    // A cancelled execution has ended when it was cancelled, not when its tree is gone.
    let ends = transition.to.is_terminal() && transition.from != transition.to;
    if ends && facts.job.origin == Origin::Execution {
        push(EventName::ExecutionCompleted);
    }
    events
}

const fn name_of_outcome(outcome: Outcome) -> EventName {
    match outcome {
        Outcome::Completed => EventName::JobCompleted,
        Outcome::Failed | Outcome::Timeout => EventName::JobFailed,
        Outcome::Interrupted => EventName::JobInterrupted,
        Outcome::Lost => EventName::JobLost,
        Outcome::Undelivered | Outcome::Requeued => EventName::JobReleased,
        Outcome::Cancelled => EventName::JobVacated,
    }
}

fn event(facts: &Facts<'_>, transition: &Transition, kind: EventName) -> Event {
    let outcome = match transition.hold {
        Hold::Drop(outcome) => Some(outcome),
        Hold::None | Hold::Take(_) | Hold::Keep(_) => None,
    };
    Event {
        at: facts.at,
        kind,
        job: Some(facts.job.id),
        worker: facts.worker,
        epoch: Some(transition.next_epoch),
        job_type: Some(facts.job.key.job_type.clone()),
        queue: Some(facts.job.key.queue.clone()),
        state: Some(transition.to),
        outcome,
        attempt: Some(transition.attempt),
        duration: outcome.and(facts.began).map(|began| facts.at.since(began)),
        by: facts.by.to_owned(),
        evidence: facts.evidence.clone(),
    }
}

/// Returns the event of a job that was stored.
#[must_use]
pub fn enqueued_event(job: &StoredJob, state: State, by: &str) -> Event {
    Event {
        at: job.created,
        kind: EventName::JobEnqueued,
        job: Some(job.id),
        worker: None,
        epoch: None,
        job_type: Some(job.key.job_type.clone()),
        queue: Some(job.key.queue.clone()),
        state: Some(state),
        outcome: None,
        attempt: Some(0),
        duration: None,
        by: by.to_owned(),
        evidence: Evidence::default(),
    }
}

/// Returns the event of a dead letter that an operator removed.
#[must_use]
pub fn purged_event(job: &StoredJob, at: Timestamp, by: &str) -> Event {
    let enqueued = enqueued_event(job, State::Discarded, by);
    Event { at, kind: EventName::JobPurged, attempt: None, ..enqueued }
}

/// Returns the event of a worker's move.
#[must_use]
pub fn worker_event(
    worker: WorkerId,
    kind: EventName,
    at: Timestamp,
    by: &str,
    evidence: impl Into<Evidence>,
) -> Event {
    Event { worker: Some(worker), ..Event::new(at, kind, by, evidence) }
}

/// Returns the event of a limit that was set or removed; the evidence names it.
#[must_use]
pub fn limit_event(limit: &LimitName, kind: EventName, at: Timestamp, by: &str) -> Event {
    let none = WorkerId(uuid::Uuid::nil());
    Event { worker: None, ..worker_event(none, kind, at, by, limit.as_str()) }
}

/// Returns an event of a schedule; the evidence names the schedule, and says more after a colon.
#[must_use]
pub fn schedule_event(
    name: &ScheduleName,
    happened: &ScheduleEvent,
    at: Timestamp,
    by: &str,
) -> Event {
    let words = match happened.words.as_str() {
        "" => name.to_string(),
        words => format!("{name}: {words}"),
    };
    Event { job: happened.job, ..Event::new(at, happened.kind, by, words) }
}

/// Returns a session of a browser that begins.
#[must_use]
pub fn begun_session(order: &BeginSession, now: Timestamp) -> BrowserSession {
    BrowserSession {
        id: order.id,
        secret: order.secret,
        token: order.token,
        name: order.name.clone(),
        address: order.address.clone(),
        agent: order.agent.clone(),
        created: now,
        used: now,
        expires: BrowserSession::expires(now, now),
    }
}

/// Returns an event of a session of a browser; the evidence names it, its token, and where it began.
#[must_use]
pub fn session_event(session: &BrowserSession, kind: EventName, at: Timestamp, by: &str) -> Event {
    let BrowserSession { id, name, address, .. } = session;
    Event::new(at, kind, by, format!("{id} of {name} from {address}"))
}

/// Returns an event of a workflow; the evidence names the workflow, and says more after a colon.
#[must_use]
pub fn workflow_event(id: WorkflowId, happened: &WorkflowEvent, at: Timestamp, by: &str) -> Event {
    let words = match happened.words.as_str() {
        "" => id.to_string(),
        words => format!("{id}: {words}"),
    };
    Event::new(at, happened.kind, by, words)
}

/// Returns the begin or the end of an operation; the evidence names it, says on which jobs it is, and at
/// its end what became of them.
#[must_use]
pub fn operation_event(
    operation: &OperationRecord,
    kind: EventName,
    at: Timestamp,
    by: &str,
) -> Event {
    let OperationRecord { id, new, status, note, .. } = operation;
    let what = format!("{id}: {} {}", new.kind.as_str(), new.about);
    let words = match status {
        OperationStatus::Running => what,
        OperationStatus::Done | OperationStatus::Stopped | OperationStatus::Failed => {
            let note = if note.is_empty() { String::new() } else { format!("; {note}") };
            format!("{what}: {}: {}{note}", status.as_str(), operation.outcome())
        }
    };
    Event::new(at, kind, by, limits::cut(words, limits::EVIDENCE_BYTES_MAX))
}

/// Returns the event of an order to all workers that `selector` chooses; the evidence says which.
#[must_use]
pub fn standing_order_event(
    order: WorkerOrder,
    selector: &Selector,
    at: Timestamp,
    by: &str,
) -> Event {
    let kind = match order {
        WorkerOrder::Resume => EventName::WorkerOrderLifted,
        WorkerOrder::Quiet | WorkerOrder::Drain => EventName::WorkerOrderSet,
    };
    let who = if selector.is_empty() { "all".to_owned() } else { selector.to_string() };
    let words = format!("{}: {who}", order.as_str());
    let none = WorkerId(uuid::Uuid::nil());
    Event { worker: None, ..worker_event(none, kind, at, by, words) }
}

/// Returns the event of a gate that counted wrongly.
#[must_use]
pub fn recount_event(of: &Miscount, at: Timestamp) -> Event {
    let Miscount { limit, value, counted, held, .. } = of;
    let limit = limit.as_ref().map_or("a limit that is not in use any more", LimitName::as_str);
    let value = value.iter().map(|value| format!(":{value}")).collect::<String>();
    let words = format!("{limit}{value} counted {counted}, and {held} held it");
    let none = WorkerId(uuid::Uuid::nil());
    Event { worker: None, ..worker_event(none, EventName::LimitRecounted, at, AUDIT, words) }
}

/// Returns the event of a queue that was paused or resumed.
#[must_use]
pub fn queue_event(queue: &str, paused: bool, at: Timestamp, by: &str) -> Event {
    let kind = if paused { EventName::QueuePaused } else { EventName::QueueResumed };
    let none = WorkerId(uuid::Uuid::nil());
    Event { worker: None, queue: Some(queue.to_owned()), ..worker_event(none, kind, at, by, "") }
}

/// Returns the event of settings of a queue that were changed; the evidence says what is set now.
#[must_use]
pub fn settings_event(record: &QueueRecord) -> Event {
    let (at, none) = (record.set_at, WorkerId(uuid::Uuid::nil()));
    let words = queue::words(&record.settings);
    let event = worker_event(none, EventName::QueueSet, at, &record.set_by, words);
    Event { worker: None, queue: Some(record.queue.clone()), ..event }
}

/// Returns the name of a worker's move in the event log; beats have none.
#[must_use]
pub const fn worker_event_name(event: WorkerEvent) -> Option<EventName> {
    match event {
        WorkerEvent::Beat => None,
        WorkerEvent::Attach => Some(EventName::WorkerAttached),
        WorkerEvent::Drop => Some(EventName::WorkerSuspect),
        WorkerEvent::Lapse => Some(EventName::WorkerLapsed),
        WorkerEvent::Quiet => Some(EventName::WorkerQuiet),
        WorkerEvent::Resume => Some(EventName::WorkerResumed),
        WorkerEvent::Drain => Some(EventName::WorkerDraining),
        WorkerEvent::Goodbye | WorkerEvent::Died => Some(EventName::WorkerStopped),
    }
}

/// Who leads a task after a server's request.
///
/// # Errors
/// Returns why it is not the asker's; nothing is to be written then.
pub fn answer_leadership(
    found: Option<Leadership>,
    ask: &LeadershipRequest,
    now: Timestamp,
) -> Result<Leadership, LeadershipRefusal> {
    match ask.hold {
        Some(span) => leadership::hold(found, ask.holder, span, now),
        None => leadership::give_back(found, ask.holder, now),
    }
}
