//! From wishes to commands, by what the model holds at the moment.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use outlast_core::evidence::{Evidence, EvidenceCode};
use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::State;
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::queue::{Change, QueueChange};
use outlast_core::resources::Usage;
use outlast_core::selector::Selector;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::WorkerEvent;
use outlast_core::worker::order::WorkerOrder;
use outlast_store::command::{
    Adopt, AskedByQueues, Attach, Claim, ClaimFrom, Claimant, ClassId, Command, EndDetail, Fence,
    Finish, ForgetDeadLetter, ForgetWorker, HandleLetters, JobAction, JobOrder, Lapse,
    LeadershipFence, LeadershipRequest, LetterKey, LogChunk, NewJob, OrderWorkers, Progress, Prune,
    QueueOrder, RETENTION, Registration, RemoveLimit, Renew, ReportHealth, ReportedOutcome,
    Reporter, Route, SetLimit, SetQueue, Start, Strand, Sweep, WorkerMove, WorkerRole,
};
use outlast_store::extend::{Extend, Holds, JobCount};
use outlast_store::idempotency::EnqueueOnce;
use outlast_store::record::WorkerRecord;
use outlast_store::schedule::ScheduleState;
use outlast_store::store::Store as _;
use outlast_store::workflow::WorkflowState;
use outlast_store_rules::apply::limit::Limits;
use uuid::Uuid;

use super::new_job::new_job;
use super::script::{AsWho, ClaimSort, Detail, How, JOBS, Order, Spec, Step, Wish};
use super::writes::session;
use crate::conformance::Harness;
use crate::conformance::schedule::state;
use crate::conformance::workflow;
use crate::model::ModelStore;

const LEASE: Span = Span(1000);

pub(super) fn job_id(n: u8) -> JobId {
    JobId(Uuid::from_u128(0x1000 + u128::from(n)))
}

/// The first worker of that name; later ones count on from it.
pub(super) fn worker_id(n: u8) -> WorkerId {
    WorkerId(Uuid::from_u128(0x2000 + (u128::from(n) << 8)))
}

fn server_id(n: u8) -> Uuid {
    Uuid::from_u128(0x3000 + u128::from(n))
}

pub(super) fn queue_name(n: u8) -> String {
    format!("queue-{n}")
}

fn worker_name(n: u8) -> String {
    format!("worker-{n}")
}

fn client(n: u8) -> String {
    format!("client-{n}")
}

/// The commands of a step. A job appears in at most one of them, as the contract asks.
pub(super) fn commands<H: Harness>(harness: &H, model: &ModelStore, step: &Step) -> Vec<Command> {
    let view = View { harness, model };
    let mut seen = BTreeSet::new();
    step.wishes
        .iter()
        .map(|wish| view.command(wish))
        .filter(|command| {
            let jobs = jobs_of(command);
            let meets = jobs.iter().any(|job| seen.contains(job));
            seen.extend(jobs);
            !meets
        })
        .collect()
}

fn jobs_of(command: &Command) -> Vec<JobId> {
    match command {
        Command::Enqueue(job) => vec![job.id],
        Command::EnqueueAll(jobs) => jobs.iter().map(|job| job.id).collect(),
        Command::EnqueueOnce(once) => once.jobs.iter().map(|job| job.id).collect(),
        Command::WriteSchedule(write) => write.jobs.iter().map(|job| job.id).collect(),
        Command::WriteWorkflow(write) => write.jobs.iter().map(|job| job.id).collect(),
        Command::Start(start) => vec![start.job],
        Command::Adopt(adopt) => vec![adopt.job],
        Command::Finish(finish) => vec![finish.job],
        Command::Progress(progress) => vec![progress.job],
        Command::Log(chunk) => vec![chunk.job],
        Command::Extend(Extend { holds: Holds::Jobs(jobs), .. }) => jobs.clone(),
        Command::Order(order) => vec![order.job],
        Command::ForgetDeadLetter(order) => vec![order.job],
        Command::WriteOperation(write) => write.orders.iter().map(|it| it.job).collect(),
        Command::HandleLetters(handled) => handled.letters.iter().map(|it| it.job).collect(),
        Command::Claim(_)
        | Command::EnqueueArrived(_)
        | Command::Extend(_)
        | Command::NoteLoss(_)
        | Command::NoteSkew(_)
        | Command::Renew(_)
        | Command::Register(_)
        | Command::Attach(_)
        | Command::Worker(_)
        | Command::Lapse(_)
        | Command::OrderWorkers(_)
        | Command::ReportHealth(_)
        | Command::Sweep(_)
        | Command::Strand(_)
        | Command::Queue(_)
        | Command::SetQueue(_)
        | Command::SetLimit(_)
        | Command::RemoveLimit(_)
        | Command::Recount(_)
        | Command::ForgetWorker(_)
        | Command::BeginSession(_)
        | Command::RenewSession(_)
        | Command::EndSessions(_)
        | Command::Leadership(_)
        | Command::Prune(_)
        | Command::Reset => Vec::new(),
    }
}

pub(super) struct View<'a, H> {
    pub(super) harness: &'a H,
    pub(super) model: &'a ModelStore,
}

impl<H: Harness> View<'_, H> {
    pub(super) fn now(&self) -> Timestamp {
        self.harness.block_on(self.model.now()).expect("the model is open")
    }

    /// The latest worker of that name.
    fn worker(&self, n: u8) -> Option<WorkerRecord> {
        let workers = self.harness.block_on(self.model.workers()).expect("the model is open");
        workers.into_iter().filter(|row| row.name == worker_name(n)).max_by_key(|row| row.id)
    }

    fn worker_id(&self, n: u8) -> WorkerId {
        self.worker(n).map_or_else(|| worker_id(n), |row| row.id)
    }

    /// The number of the worker's next attachment.
    fn next_attachment(&self, n: u8) -> u64 {
        self.worker(n).map_or(1, |row| row.attachment + 1)
    }

    /// The worker's id, or another one when it can never come back.
    fn registering(&self, n: u8) -> WorkerId {
        match self.worker(n) {
            Some(row) if !row.standing.holds_lease() => {
                WorkerId(Uuid::from_u128(row.id.0.as_u128() + 1))
            }
            Some(row) => row.id,
            None => worker_id(n),
        }
    }

    /// The job, or for most of them one in a state in which the wish makes sense.
    fn aimed(&self, job: u8, states: &[State]) -> JobId {
        let fitting: Vec<JobId> = JOBS
            .map(job_id)
            .filter(|id| {
                let found = self.harness.block_on(self.model.job(*id));
                let record = found.expect("the model is open");
                record.is_some_and(|record| states.contains(&record.state))
            })
            .collect();
        let at = usize::from(job).checked_rem(fitting.len());
        at.filter(|_| job > 1).map_or_else(|| job_id(job), |at| fitting[at])
    }

    fn fence(&self, job: JobId, as_who: AsWho) -> Fence {
        let record = self.harness.block_on(self.model.job(job)).expect("the model is open");
        let epoch = record.as_ref().map_or(Epoch::ZERO, |record| record.epoch);
        let holder = record.and_then(|record| record.holder);
        let anonymous = Fence::default();
        match as_who {
            AsWho::Holder => {
                let reporter = holder.and_then(|holder| match holder.worker {
                    Some(worker) => Some(Reporter::Native(worker)),
                    None => holder.name.map(Reporter::Plain),
                });
                Fence { epoch: Some(epoch), worker: reporter, attempt: None }
            }
            AsWho::EpochBehind => {
                Fence { epoch: Some(Epoch(epoch.0.saturating_sub(1))), ..anonymous }
            }
            AsWho::EpochOnly => Fence { epoch: Some(epoch), ..anonymous },
            AsWho::OtherWorker(n) => {
                let worker = Some(Reporter::Native(self.worker_id(n)));
                Fence { epoch: Some(epoch), worker, attempt: None }
            }
            AsWho::Client(n) => Fence { worker: Some(Reporter::Plain(client(n))), ..anonymous },
            AsWho::Attempt(n) => Fence { attempt: Some(n), ..anonymous },
            AsWho::NoReporter => anonymous,
        }
    }

    fn command(&self, wish: &Wish) -> Command {
        match wish {
            Wish::Enqueue(specs) => self.enqueue(specs),
            Wish::EnqueueOnce { key, request, specs } => self.enqueue_once(*key, *request, specs),
            Wish::Claim { worker, max, sort } => self.claim(*worker, *max, *sort),
            Wish::Fetch { client: who, max, both, tenant } => {
                let mut queues = vec![queue_name(1), queue_name(0)];
                queues.truncate(if *both { 2 } else { 1 });
                let tenant = tenant.then(|| "acme".to_owned());
                let claimant = Claimant::Plain { worker: who.map(client), visibility: Span(500) };
                claim(claimant, ClaimFrom::Queues { queues, tenant }, *max)
            }
            Wish::Adopt { job, worker } => self.adopt(*job, *worker),
            Wish::Start { job, as_who } => {
                let job = self.aimed(*job, &[State::Active]);
                let fence = self.fence(job, *as_who);
                let pack_digest = (fence.epoch.is_some()).then(|| "first".into());
                Command::Start(Start { job, fence, pack_digest })
            }
            Wish::Finish { job, as_who, how, detail } => self.finish(*job, *as_who, *how, detail),
            Wish::Progress { job, as_who } => {
                let checkpoint = Some(vec![*job]);
                let job = self.aimed(*job, &[State::Active]);
                let fence = self.fence(job, *as_who);
                Command::Progress(Box::new(Progress { job, fence, checkpoint }))
            }
            Wish::Extend { client: who, jobs, count } => {
                let named: Vec<_> = jobs.iter().map(|job| job_id(*job)).collect();
                let holds = if named.is_empty() {
                    let (jobs, report) = (*count, vec![job_id(0), job_id(1)]);
                    Holds::Count(JobCount { jobs, arrived: self.now(), report })
                } else {
                    Holds::Jobs(named)
                };
                Command::Extend(Extend { worker: client(*who), holds })
            }
            Wish::Order { job, order, tenant } => self.give_order(*job, *order, *tenant),
            Wish::Log { job, n, stream } => Command::Log(LogChunk {
                job: job_id(*job),
                epoch: Epoch(1),
                n: *n,
                stream: *stream,
                bytes: vec![*job, 0xff],
            }),
            Wish::Renew { .. }
            | Wish::Register { .. }
            | Wish::Attach { .. }
            | Wish::Tell { .. }
            | Wish::Lapse { .. }
            | Wish::OrderWorkers { .. }
            | Wish::ReportHealth { .. }
            | Wish::ForgetWorker { .. } => self.about_worker(wish),
            Wish::Sweep { .. }
            | Wish::Strand { .. }
            | Wish::Queue { .. }
            | Wish::Bound { .. }
            | Wish::Ask { .. }
            | Wish::Limit { .. }
            | Wish::Schedule { .. }
            | Wish::Workflow { .. }
            | Wish::Session { .. }
            | Wish::Operation { .. }
            | Wish::Leadership { .. }
            | Wish::Prune { .. } => self.about_time(wish),
        }
    }

    fn about_worker(&self, wish: &Wish) -> Command {
        let by = "someone".to_owned();
        let evidence = Evidence::of(EvidenceCode::Frozen, "they said so");
        match wish {
            Wish::Renew { worker } => Command::Renew(Renew {
                worker: self.worker_id(*worker),
                lease: LEASE,
                in_flight: 0,
            }),
            Wish::Attach { worker, late } => {
                let attachment = if *late { 0 } else { self.next_attachment(*worker) };
                Command::Attach(Attach {
                    worker: self.worker_id(*worker),
                    attachment,
                    lease: LEASE,
                })
            }
            Wish::Tell { worker, event, session, ordered: is_ordered } => {
                let current = self.worker(*worker).map_or(0, |row| row.session);
                let session = session.map(|right| if right { current } else { current + 1 });
                let (worker, event) = (self.worker_id(*worker), *event);
                let ordered = [WorkerOrder::Quiet, WorkerOrder::Resume, WorkerOrder::Drain]
                    .into_iter()
                    .find(|order| *is_ordered && order.event() == event);
                let code = (event == WorkerEvent::Died).then_some(EvidenceCode::EngineKilled);
                let evidence = Evidence { code, ..evidence };
                Command::Worker(WorkerMove { worker, event, ordered, session, by, evidence })
            }
            Wish::Lapse { worker, watched, scope, mass } => {
                let current = self.worker(*worker).map_or(0, |row| row.renewal);
                let renewal = if *watched { current } else { current + 1 };
                let (worker, scope, mass) = (self.worker_id(*worker), *scope, *mass);
                Command::Lapse(Lapse { worker, renewal, scope, mass, by, evidence })
            }
            Wish::ReportHealth { worker, unhealthy } => {
                let (worker, unhealthy) = (self.worker_id(*worker), *unhealthy);
                let unhealthy = unhealthy.then(|| "no memory".to_owned());
                Command::ReportHealth(ReportHealth { worker, unhealthy })
            }
            Wish::OrderWorkers { which, order } => {
                let selector = match which {
                    0 => Selector::default(),
                    1 => "zone=a".parse().expect("a selector"),
                    _ => "zone in (a, b), !gpu".parse().expect("a selector"),
                };
                Command::OrderWorkers(Box::new(OrderWorkers { selector, order: *order, by }))
            }
            Wish::ForgetWorker { worker } => {
                let (name, by) = ("forgotten".into(), "operator".into());
                Command::ForgetWorker(ForgetWorker { worker: self.worker_id(*worker), name, by })
            }
            Wish::Register { worker, plain } => Command::Register(Box::new(Registration {
                id: self.registering(*worker),
                name: worker_name(*worker),
                role: WorkerRole::Sdk,
                concurrency: u32::from(*worker),
                queues: vec![queue_name(0)],
                runtimes: vec!["shell".into()],
                labels: [("zone".to_owned(), "a".to_owned())].into(),
                lease: LEASE,
                about: "{\"pid\":1}".into(),
                plain_id: plain.map(client),
                // Some workers go on in the same process.
                previous: self
                    .worker(*worker)
                    .map(|row| row.id)
                    .filter(|_| worker % 2 == 1)
                    .into_iter()
                    .collect(),
            })),
            other => panic!("not about a worker: {other:?}"),
        }
    }

    fn about_time(&self, wish: &Wish) -> Command {
        let now = self.now();
        match wish {
            // Which rows a store looks at first when there are too many is its own affair.
            Wish::Sweep { watched } => {
                Command::Sweep(Sweep { limit: 100, watched: Span(*watched) })
            }
            Wish::Strand { class, ago, limit } => Command::Strand(Strand {
                class: ClassId(*class),
                since: Timestamp(now.0 - i64::try_from(*ago).unwrap_or(0)),
                reason: "no worker is here".into(),
                limit: *limit,
            }),
            Wish::Queue { queue, paused } => {
                let by = "api: someone (test) from 192.0.2.7".into();
                let queue = queue_name(*queue);
                Command::Queue(QueueOrder { queue, paused: *paused, by })
            }
            Wish::Bound { queue, max } => {
                let max_depth = max.map_or(Change::Unset, Change::Set);
                let change = QueueChange { max_depth, ..QueueChange::default() };
                let (queue, by) = (queue_name(*queue), "operator".into());
                Command::SetQueue(Box::new(SetQueue { queue, change, by }))
            }
            Wish::Ask { queue, labels } => {
                let requires = labels.map_or(Change::Unset, |labels| {
                    let selector = if labels { "gpu" } else { "!spot" };
                    Change::Set(selector.parse().expect("a selector"))
                });
                let change = QueueChange { requires, ..QueueChange::default() };
                let (queue, by) = (queue_name(*queue), "operator".into());
                Command::SetQueue(Box::new(SetQueue { queue, change, by }))
            }
            Wish::Limit { which, most } => limit(*which, *most),
            Wish::Schedule { which, stale, due, remove, specs } => {
                let state = ScheduleState {
                    due: due.map(|ms| now.after(Span(ms.into()))),
                    ..state(u64::from(*which))
                };
                let to = (!remove).then_some(state);
                self.write_schedule(*which, *stale, to, specs)
            }
            Wish::Workflow { which, stale, due, ended, specs } => {
                let to = WorkflowState {
                    due: due.map(|ms| now.after(Span(ms.into()))),
                    finished: ended.then_some(now),
                    ..workflow::state(u64::from(*which))
                };
                self.write_workflow(*which, *stale, to, specs)
            }
            Wish::Session { n, token, what } => session(*n, *token, *what),
            Wish::Operation { which, how, stale, jobs, replay } => {
                let order = if *replay { Order::Replay } else { Order::Cancel };
                let orders = jobs.iter().map(|job| self.give_order(*job, order, false));
                self.write_operation(*which, *how, *stale, orders)
            }
            Wish::Leadership { server, hold } => {
                let (name, holder) = (RETENTION.to_owned(), server_id(*server));
                Command::Leadership(LeadershipRequest { name, holder, hold: hold.map(Span) })
            }
            Wish::Prune { ago, limit, stale } => {
                let before = Timestamp(now.0 - ago);
                Command::Prune(Prune {
                    leadership: self.leadership(*stale),
                    finished_before: before,
                    workers_before: before,
                    limit: *limit,
                    from_start: true,
                })
            }
            other => panic!("not about time: {other:?}"),
        }
    }

    /// The lease of retention as it is now, or as it was one epoch ago.
    fn leadership(&self, stale: bool) -> LeadershipFence {
        let found = self.model.leadership(RETENTION).expect("the model is open");
        let (holder, epoch) = found.map_or_else(|| (server_id(0), 1), |it| (it.holder, it.epoch.0));
        let epoch = Epoch(epoch - u64::from(stale));
        LeadershipFence { name: RETENTION.to_owned(), holder, epoch }
    }

    fn claim(&self, worker: u8, max: u32, sort: ClaimSort) -> Command {
        let session =
            self.worker(worker).map_or(0, |row| row.session) + u64::from(sort == ClaimSort::Stale);
        let classes = self.harness.block_on(self.model.backlog()).expect("the model is open");
        let wanted = classes
            .iter()
            .filter(|class| sort != ClaimSort::PlainOnly || class.key.route == Route::Plain)
            .map(|class| class.id);
        let claimant = Claimant::Native { worker: self.worker_id(worker), session };
        let from = ClaimFrom::Classes(wanted.collect());
        let max = NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN);
        let is_prefetch = sort == ClaimSort::Prefetch;
        Command::Claim(Claim {
            claimant,
            from,
            max,
            is_prefetch,
            avoids: Vec::new(),
            asked: self.asked(),
        })
    }

    /// What queues ask of workers now.
    fn asked(&self) -> AskedByQueues {
        let settings = self.harness.block_on(self.model.queue_settings());
        Limits::of(Vec::new(), settings.expect("the model is open")).asked()
    }

    fn finish(&self, job: u8, as_who: AsWho, how: How, detail: &Detail) -> Command {
        let reported = match how {
            How::Completed => ReportedOutcome::Completed,
            How::Failed { retryable, forbidden } => {
                let error_type = if forbidden { "auth.expired" } else { "error" };
                ReportedOutcome::Failed { error_type: error_type.into(), retryable }
            }
            How::TimedOut => ReportedOutcome::TimedOut,
            How::Interrupted => ReportedOutcome::Interrupted,
            How::NotStarted => ReportedOutcome::NotStarted,
            How::Requeued => ReportedOutcome::Requeued,
            How::Lost => ReportedOutcome::Lost,
        };
        let now = self.now();
        // It decides what a loss is charged to.
        let code = if detail.error { EvidenceCode::Lease } else { EvidenceCode::Oom };
        let detail = EndDetail {
            result: matches!(how, How::Completed).then(|| "[1]".to_owned()),
            error: detail.error.then(|| "{\"type\":\"error\"}".to_owned()),
            started: detail.started.map(|ago| Timestamp(now.0 - ago)),
            exit_code: detail.error.then_some(3),
            checkpoint: detail.checkpoint.map(|byte| vec![byte]),
            evidence: Evidence::of(code, "exit code"),
            pack_digest: detail.error.then(|| "second".into()),
            usage: Usage {
                peak_memory: detail.checkpoint.map(|byte| u64::from(byte) << 20),
                cpu: detail.started.map(|ago| Span(ago.unsigned_abs())),
            },
        };
        let job = self.aimed(job, &[State::Active, State::Cancelled]);
        let (fence, by) = (self.fence(job, as_who), "reporter".into());
        Command::Finish(Box::new(Finish { job, fence, reported, detail, by }))
    }

    fn adopt(&self, job: u8, worker: u8) -> Command {
        let waits = [State::Available, State::Retryable, State::Scheduled, State::Pending];
        let job = self.aimed(job, &waits);
        let record = self.harness.block_on(self.model.job(job)).expect("the model is open");
        // One that is skipped is an attempt that no store knows of.
        let epoch = record.map_or(0, |record| record.epoch.0) + 1;
        let worker = self.worker_id(worker);
        Command::Adopt(Adopt { job, epoch: Epoch(epoch), worker, by: "server".to_owned() })
    }

    fn give_order(&self, job: u8, order: Order, tenant: bool) -> Command {
        let life = job.is_multiple_of(3).then_some(NonZeroU32::MIN);
        let tenant = tenant.then(|| "acme".to_owned());
        let job = match order {
            Order::Cancel => job_id(job),
            Order::Activate => self.aimed(job, &[State::Pending]),
            Order::RunNow => self.aimed(job, &[State::Scheduled, State::Retryable]),
            Order::Replay | Order::ForgetDeadLetter | Order::HandleLetter => {
                self.aimed(job, &[State::Discarded])
            }
        };
        let by = "someone".to_owned();
        let action = match order {
            Order::Cancel => JobAction::Cancel,
            Order::Activate => JobAction::Activate,
            Order::RunNow => JobAction::RunNow,
            Order::Replay => JobAction::Replay,
            Order::HandleLetter => {
                let life = life.unwrap_or(NonZeroU32::MIN);
                return Command::HandleLetters(HandleLetters {
                    letters: vec![LetterKey { job, life }],
                });
            }
            Order::ForgetDeadLetter => {
                return Command::ForgetDeadLetter(ForgetDeadLetter { job, tenant, by, life });
            }
        };
        Command::Order(JobOrder { job, action, tenant, by, expected: None })
    }

    /// Mostly the same request for a key; the key is kept for less than a script lasts.
    fn enqueue_once(&self, key: u8, request: u8, specs: &[Spec]) -> Command {
        let now = self.now();
        Command::EnqueueOnce(Box::new(EnqueueOnce {
            key: [key; 32],
            request: [request / 7; 32],
            keep: Span(2000),
            jobs: specs.iter().map(|spec| new_job(spec, now)).collect(),
        }))
    }

    fn enqueue(&self, specs: &[Spec]) -> Command {
        let now = self.now();
        let mut jobs: Vec<NewJob> = specs.iter().map(|spec| new_job(spec, now)).collect();
        match jobs.len() {
            1 => Command::Enqueue(Box::new(jobs.remove(0))),
            _ => Command::EnqueueAll(jobs),
        }
    }
}

fn claim(claimant: Claimant, from: ClaimFrom, max: u32) -> Command {
    let max = NonZeroU32::new(max).unwrap_or(NonZeroU32::MIN);
    Command::Claim(Claim {
        claimant,
        from,
        max,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    })
}

fn limit(which: u8, most: Option<u32>) -> Command {
    let by = "operator".to_owned();
    let name = LimitName::new(&format!("limit-{which}")).unwrap();
    let Some(most) = most else {
        return Command::RemoveLimit(RemoveLimit { name, configured: false, by });
    };
    let (scope, rate) = match which {
        0 => (Scope::Key("tenant".into()), None),
        1 => (Scope::Queue(queue_name(0)), None),
        _ => (Scope::Key("tenant".into()), Rate::new(most, Span(300))),
    };
    let concurrency = rate.is_none().then_some(most);
    let limit = Limit { name, scope, concurrency, rate };
    Command::SetLimit(Box::new(SetLimit { limit, configured: false, by }))
}
