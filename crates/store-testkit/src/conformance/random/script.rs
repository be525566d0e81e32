//! What random scripts are made of. Ids come from small spaces, so that things meet.

use std::ops::Range;

use outlast_core::worker::liveness::WorkerEvent;
use outlast_core::worker::order::WorkerOrder;
use outlast_store::command::{LapseScope, Stream};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};

/// Jobs that scripts talk about.
pub(super) const JOBS: Range<u8> = 0..10;
/// Native workers.
pub(super) const WORKERS: Range<u8> = 0..4;
/// Plain clients.
const CLIENTS: Range<u8> = 0..2;

/// A random test: what happens, in order.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) charge: bool,
    pub(super) steps: Vec<Step>,
}

/// One batch, and what surrounds it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Milliseconds that pass before it.
    pub(super) wait: u32,
    pub(super) wishes: Vec<Wish>,
    /// Whether the store under test crashes after it.
    pub(super) crash: bool,
    pub(super) query: Filter,
}

/// A command, but for what depends on the moment.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Enqueue(Vec<Spec>),
    EnqueueOnce {
        key: u8,
        request: u8,
        specs: Vec<Spec>,
    },
    Claim {
        worker: u8,
        max: u32,
        sort: ClaimSort,
    },
    Fetch {
        client: Option<u8>,
        max: u32,
        both: bool,
        tenant: bool,
    },
    Start {
        job: u8,
        as_who: AsWho,
    },
    /// A worker says that it was given the job.
    Adopt {
        job: u8,
        worker: u8,
    },
    Finish {
        job: u8,
        as_who: AsWho,
        how: How,
        detail: Detail,
    },
    Progress {
        job: u8,
        as_who: AsWho,
    },
    /// Without jobs, they are only counted.
    Extend {
        client: u8,
        jobs: Vec<u8>,
        count: u32,
    },
    Renew {
        worker: u8,
    },
    Register {
        worker: u8,
        plain: Option<u8>,
    },
    Attach {
        worker: u8,
        late: bool,
    },
    Tell {
        worker: u8,
        event: WorkerEvent,
        session: Option<bool>,
        /// Whether an operator orders it.
        ordered: bool,
    },
    Lapse {
        worker: u8,
        watched: bool,
        scope: LapseScope,
        mass: bool,
    },
    ReportHealth {
        worker: u8,
        unhealthy: bool,
    },
    /// To all workers, or to some by their labels.
    OrderWorkers {
        which: u8,
        order: WorkerOrder,
    },
    Order {
        job: u8,
        order: Order,
        tenant: bool,
    },
    Sweep {
        watched: u64,
    },
    Strand {
        class: i64,
        ago: u64,
        limit: u32,
    },
    Queue {
        queue: u8,
        paused: bool,
    },
    /// Bounds a queue, or removes its bound.
    Bound {
        queue: u8,
        max: Option<u32>,
    },
    /// Sets what a queue asks of workers: a label, the absence of one, or nothing.
    Ask {
        queue: u8,
        labels: Option<bool>,
    },
    /// Sets a limit, or removes it.
    Limit {
        which: u8,
        most: Option<u32>,
    },
    /// Makes, fires or removes a schedule, as it is or as it was before.
    Schedule {
        which: u8,
        stale: bool,
        due: Option<u16>,
        remove: bool,
        specs: Vec<Spec>,
    },
    /// Makes or changes a workflow, as it is or as it was before.
    Workflow {
        which: u8,
        stale: bool,
        due: Option<u16>,
        ended: bool,
        specs: Vec<Spec>,
    },
    /// Begins, renews or ends a session of a browser.
    Session {
        n: u8,
        token: u8,
        what: u8,
    },
    /// Begins, takes a step of or ends an operation, as it is or as it was before.
    Operation {
        which: u8,
        how: u8,
        stale: bool,
        jobs: Vec<u8>,
        replay: bool,
    },
    Log {
        job: u8,
        n: u32,
        stream: Stream,
    },
    ForgetWorker {
        worker: u8,
    },
    Leadership {
        server: u8,
        hold: Option<u64>,
    },
    Prune {
        ago: i64,
        limit: u32,
        stale: bool,
    },
}

/// How a native worker claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimSort {
    /// Everything, for a worker without a free slot.
    Prefetch,
    Everything,
    PlainOnly,
    Stale,
}

/// A job to enqueue.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) job: u8,
    pub(super) class: u8,
    pub(super) keys: Option<u8>,
    pub(super) priority: i8,
    pub(super) max_attempts: u32,
    pub(super) flags: [bool; 4],
    pub(super) expires: Option<i64>,
    pub(super) first: Option<i64>,
    pub(super) timeout: Option<u64>,
    pub(super) visibility: Option<u64>,
    pub(super) patience: Option<u64>,
    /// Which unique key, and what the policy says.
    pub(super) unique: Option<(u8, u8)>,
}

/// Whose word a report pretends to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum AsWho {
    Holder,
    EpochBehind,
    EpochOnly,
    OtherWorker(u8),
    Client(u8),
    Attempt(u32),
    NoReporter,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Completed,
    Failed { retryable: bool, forbidden: bool },
    TimedOut,
    Interrupted,
    NotStarted,
    Requeued,
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub(super) started: Option<i64>,
    pub(super) error: bool,
    pub(super) checkpoint: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Cancel,
    Activate,
    RunNow,
    Replay,
    ForgetDeadLetter,
    HandleLetter,
}

/// A list's filters.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) states: Vec<usize>,
    pub(super) queue: Option<u8>,
    pub(super) worker: Option<u8>,
    pub(super) flags: [Option<bool>; 3],
    pub(super) limit: u32,
}

fn specs() -> impl Strategy<Value = Spec> {
    let times = (
        option::weighted(0.15, 1..2500_i64),
        option::weighted(0.3, -10..1500_i64),
        option::weighted(0.2, 1..900_u64),
        option::weighted(0.3, 1..900_u64),
        option::weighted(0.3, 1..900_u64),
    );
    let unique = option::weighted(0.3, (0..3_u8, any::<u8>()));
    let class = (0..12_u8, option::weighted(0.3, 0..3_u8), unique);
    (JOBS, class, -1..=1_i8, 1..4_u32, any::<[bool; 4]>(), times).prop_map(
        |(job, (class, keys, unique), priority, max_attempts, flags, times)| {
            let (expires, first, timeout, visibility, patience) = times;
            Spec {
                job,
                class,
                keys,
                priority,
                max_attempts,
                flags,
                expires,
                first,
                timeout,
                visibility,
                patience,
                unique,
            }
        },
    )
}

fn as_who() -> impl Strategy<Value = AsWho> {
    prop_oneof![
        12 => Just(AsWho::Holder),
        1 => Just(AsWho::EpochBehind),
        1 => Just(AsWho::EpochOnly),
        1 => WORKERS.prop_map(AsWho::OtherWorker),
        1 => CLIENTS.prop_map(AsWho::Client),
        1 => (1..3_u32).prop_map(AsWho::Attempt),
        1 => Just(AsWho::NoReporter),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        2 => Just(How::Completed),
        3 => (any::<bool>(), any::<bool>())
            .prop_map(|(retryable, forbidden)| How::Failed { retryable, forbidden }),
        1 => Just(How::TimedOut),
        2 => Just(How::Interrupted),
        1 => Just(How::NotStarted),
        1 => Just(How::Requeued),
        1 => Just(How::Lost),
    ]
}

fn detail() -> impl Strategy<Value = Detail> {
    (option::of(0..20_i64), any::<bool>(), option::weighted(0.2, any::<u8>()))
        .prop_map(|(started, error, checkpoint)| Detail { started, error, checkpoint })
}

/// Most are of one class and have a key, so that the class has several lanes.
fn of_few_classes(spec: Spec) -> Spec {
    let own = (spec.job > 0).then_some(spec.job % 6);
    let keys = spec.keys.or(own);
    Spec { class: u8::from(spec.class > 9), keys, unique: None, ..spec }
}

fn about_jobs(specs: BoxedStrategy<Spec>) -> BoxedStrategy<Wish> {
    let order = prop_oneof![
        4 => Just(Order::Cancel),
        1 => Just(Order::Activate),
        2 => Just(Order::RunNow),
        3 => Just(Order::Replay),
        1 => Just(Order::ForgetDeadLetter),
        1 => Just(Order::HandleLetter),
    ];
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr), Just(Stream::Worker)];
    prop_oneof![
        10 => vec(specs.clone(), 1..4).prop_map(Wish::Enqueue),
        3 => (0..3_u8, 0..8_u8, vec(specs, 1..3)).prop_map(|(key, request, specs)| {
            Wish::EnqueueOnce { key, request, specs }
        }),
        2 => (JOBS, WORKERS).prop_map(|(job, worker)| Wish::Adopt { job, worker }),
        8 => (JOBS, as_who()).prop_map(|(job, as_who)| Wish::Start { job, as_who }),
        16 => (JOBS, as_who(), how(), detail()).prop_map(|(job, as_who, how, detail)| {
            Wish::Finish { job, as_who, how, detail }
        }),
        2 => (JOBS, as_who()).prop_map(|(job, as_who)| Wish::Progress { job, as_who }),
        6 => (JOBS, order, any::<bool>())
            .prop_map(|(job, order, tenant)| Wish::Order { job, order, tenant }),
        2 => (JOBS, 0..3_u32, stream).prop_map(|(job, n, stream)| Wish::Log { job, n, stream }),
    ]
    .boxed()
}

fn about_workers() -> BoxedStrategy<Wish> {
    let event = prop_oneof![
        4 => Just(WorkerEvent::Drop),
        1 => Just(WorkerEvent::Quiet),
        2 => Just(WorkerEvent::Resume),
        1 => Just(WorkerEvent::Drain),
        1 => Just(WorkerEvent::Goodbye),
        2 => Just(WorkerEvent::Died),
    ];
    let sort = prop_oneof![
        8 => Just(ClaimSort::Everything),
        4 => Just(ClaimSort::PlainOnly),
        4 => Just(ClaimSort::Prefetch),
        1 => Just(ClaimSort::Stale),
    ];
    // What is never resumed makes the rest idle.
    let order = prop_oneof![
        2 => Just(WorkerOrder::Quiet),
        5 => Just(WorkerOrder::Resume),
        1 => Just(WorkerOrder::Drain),
    ];
    let scope = prop_oneof![Just(LapseScope::OverlapAllowed), Just(LapseScope::Everything)];
    prop_oneof![
        16 => (WORKERS, 1..4_u32, sort).prop_map(|(worker, max, sort)| {
            Wish::Claim { worker, max, sort }
        }),
        8 => (WORKERS, option::weighted(0.2, CLIENTS))
            .prop_map(|(worker, plain)| Wish::Register { worker, plain }),
        3 => (WORKERS, any::<u8>())
            .prop_map(|(worker, n)| Wish::Attach { worker, late: n < 40 }),
        3 => WORKERS.prop_map(|worker| Wish::Renew { worker }),
        5 => (WORKERS, event, option::of(any::<bool>()), any::<bool>()).prop_map(
            |(worker, event, session, ordered)| Wish::Tell { worker, event, session, ordered }
        ),
        4 => (WORKERS, any::<u8>(), scope, any::<bool>()).prop_map(|(worker, n, scope, mass)| {
            Wish::Lapse { worker, watched: n > 25, scope, mass }
        }),
        1 => WORKERS.prop_map(|worker| Wish::ForgetWorker { worker }),
        2 => (WORKERS, any::<bool>())
            .prop_map(|(worker, unhealthy)| Wish::ReportHealth { worker, unhealthy }),
        2 => (0..3_u8, order).prop_map(|(which, order)| Wish::OrderWorkers { which, order }),
    ]
    .boxed()
}

fn about_the_rest() -> BoxedStrategy<Wish> {
    let schedule = (0..2_u8, any::<u8>(), option::of(any::<u16>()), vec(specs(), 0..3));
    let workflow = (0..2_u8, any::<u8>(), option::of(any::<u16>()), vec(specs(), 0..3));
    prop_oneof![
        5 => (option::of(CLIENTS), 1..4_u32, any::<bool>(), any::<u8>()).prop_map(
            |(client, max, both, n)| Wish::Fetch { client, max, both, tenant: n < 50 }
        ),
        2 => (CLIENTS, vec(JOBS, 0..3), 0..4_u32)
            .prop_map(|(client, jobs, count)| Wish::Extend { client, jobs, count }),
        8 => prop_oneof![Just(0_u64), 1..900_u64, Just(10_000)]
            .prop_map(|watched| Wish::Sweep { watched }),
        3 => (1..6_i64, 0..2000_u64, 1..4_u32)
            .prop_map(|(class, ago, limit)| Wish::Strand { class, ago, limit }),
        1 => (0..2_u8, any::<bool>()).prop_map(|(queue, paused)| Wish::Queue { queue, paused }),
        1 => (0..2_u8, option::weighted(0.6, any::<bool>()))
            .prop_map(|(queue, labels)| Wish::Ask { queue, labels }),
        2 => (0..3_u8, option::weighted(0.8, 0..1500_u64))
            .prop_map(|(server, hold)| Wish::Leadership { server, hold }),
        2 => (-1..3000_i64, 1..4_u32, any::<u8>()).prop_map(|(ago, limit, n)| {
            Wish::Prune { ago, limit, stale: n < 50 }
        }),
        1 => schedule.prop_map(|(which, n, due, specs)| {
            Wish::Schedule { which, stale: n < 50, due, remove: n > 200, specs }
        }),
        1 => workflow.prop_map(|(which, n, due, specs)| {
            Wish::Workflow { which, stale: n < 50, due, ended: n > 200, specs }
        }),
    ]
    .boxed()
}

fn filters() -> impl Strategy<Value = Filter> {
    let flags = proptest::array::uniform3(option::weighted(0.2, any::<bool>()));
    (
        vec(0..8_usize, 0..3),
        option::weighted(0.3, 0..2_u8),
        option::weighted(0.3, WORKERS),
        flags,
        1..6_u32,
    )
        .prop_map(|(states, queue, worker, flags, limit)| Filter {
            states,
            queue,
            worker,
            flags,
            limit,
        })
}

fn about_limits() -> BoxedStrategy<Wish> {
    (0..3_u8, option::weighted(0.6, 1..4_u32))
        .prop_map(|(which, most)| Wish::Limit { which, most })
        .boxed()
}

fn about_sessions() -> BoxedStrategy<Wish> {
    (0..5_u8, 0..2_u8, 0..6_u8)
        .prop_map(|(n, token, what)| Wish::Session { n, token, what })
        .boxed()
}

fn about_operations() -> BoxedStrategy<Wish> {
    let operation = (0..2_u8, any::<u8>(), any::<u8>(), vec(JOBS, 0..4), any::<bool>());
    operation
        .prop_map(|(which, how, n, jobs, replay)| Wish::Operation {
            which,
            how,
            stale: n < 50,
            jobs,
            replay,
        })
        .boxed()
}

fn about_bounds() -> BoxedStrategy<Wish> {
    (0..2_u8, option::weighted(0.7, 1..6_u32))
        .prop_map(|(queue, max)| Wish::Bound { queue, max })
        .boxed()
}

fn steps(limits: Limited) -> impl Strategy<Value = Step> {
    let wait = prop_oneof![3 => Just(0_u32), 3 => 1..100_u32, 2 => 100..1200_u32];
    let rest = match limits {
        Limited::No => about_the_rest(),
        Limited::Yes => {
            let (sessions, operations) = (about_sessions(), about_operations());
            let others = prop_oneof![1 => about_limits(), 2 => about_bounds(), 2 => sessions];
            prop_oneof![22 => about_the_rest(), 5 => others, 3 => operations].boxed()
        }
        Limited::Often => prop_oneof![5 => about_the_rest(), 2 => about_limits()].boxed(),
    };
    let jobs = match limits {
        Limited::No | Limited::Yes => about_jobs(specs().boxed()),
        Limited::Often => about_jobs(specs().prop_map(of_few_classes).boxed()),
    };
    let wish = prop_oneof![5 => jobs, 4 => about_workers(), 3 => rest];
    (wait, vec(wish, 1..5), any::<u8>(), filters()).prop_map(|(wait, mut wishes, n, query)| {
        // A store may refuse the id of a job that the same batch forgets.
        wishes.sort_by_key(|wish| matches!(wish, Wish::Prune { .. }));
        Step { wait, wishes, crash: n < 8, query }
    })
}

/// Whether a script sets limits and bounds, and begins sessions and operations. What limits count is not
/// moved with a store, and neither are sessions and operations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limited {
    No,
    Yes,
    /// Most do, and their jobs are of few classes: claims have to look for open lanes.
    Often,
}

pub(super) fn scripts(limits: Limited) -> impl Strategy<Value = Script> {
    (any::<u8>(), vec(steps(limits), 1..100))
        .prop_map(|(n, steps)| Script { charge: n < 50, steps })
}
