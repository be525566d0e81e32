//! What the store alone can do on this machine: enqueue, claim and finish in batches of
//! 100 on a real file with every commit on the disk, on an empty store and over a backlog.
//!
//! `cargo run --release -p outlast-store-sqlite --example throughput -- [WAITING] [FOLDER]`
//! prints jobs a second and the CPU
//! time each took. WAITING is the size of the backlog (1,000,000); FOLDER decides
//! which disk is measured (the current one).
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use outlast_core::budget::{Budgets, ScheduledTimeout};
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::Rules;
use outlast_core::keys::Keys;
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Attach, Claim, ClaimFrom, Claimant, ClassId, ClassKey, EndDetail, Fence, Finish,
    First, NewJob, Origin, Payload, Registration, ReportedOutcome, Reporter, Route, WorkerRole,
};
use outlast_store::{Batch, BatchId, Command, Reply, Store as _, StoreError};
use outlast_store_sqlite::{Options, SqliteStore};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

const BATCH: usize = 100;
const JOBS: usize = 100_000;
const WORKER: WorkerId = WorkerId(Uuid::from_u128(7));
const CLASS: ClassId = ClassId(1);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let waiting: usize = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder = args.next().unwrap_or_else(|| ".".into());
    let folder = tempfile::tempdir_in(folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let store = SqliteStore::open(&folder.path().join("outlast.db"), &Options::default())?;
    runtime.block_on(measure(&mut Hand { store, batches: 0, ids: 0 }, waiting))
}

async fn measure(hand: &mut Hand, waiting: usize) -> Result<(), Failure> {
    hand.register().await?;
    report("enqueue, empty store", JOBS, hand.enqueue(JOBS).await?);
    report("claim + finish, 1 in flight batch", JOBS, hand.drain(JOBS, 1).await?);
    hand.enqueue(JOBS).await?;
    report("claim + finish, 10 in flight batches", JOBS, hand.drain(JOBS, 10).await?);
    if waiting > 0 {
        report("enqueue of the backlog", waiting, hand.enqueue(waiting).await?);
        report("claim + finish, over the backlog", JOBS, hand.drain(JOBS, 1).await?);
    }
    let begun = Spent::now();
    hand.store.queues().await?;
    println!("{:<40} {:>9.1} ms", "queue counts", begun.since().seconds * 1000.0);
    hand.store.close().await?;
    Ok(())
}

fn report(what: &str, jobs: usize, spent: Spent) {
    let jobs = f64::from(u32::try_from(jobs).unwrap_or(u32::MAX));
    let rate = jobs / spent.seconds;
    println!("{what:<40} {rate:>9.0} jobs/s {:>7.1} µs of CPU a job", spent.cpu * 1e6 / jobs);
}

fn read(clock: ClockId) -> f64 {
    std::time::Duration::try_from(clock_gettime(clock)).map_or(0.0, |since| since.as_secs_f64())
}

/// What a measurement took. On a machine that does other things, only `cpu` compares.
#[derive(Clone, Copy)]
struct Spent {
    seconds: f64,
    cpu: f64,
}

impl Spent {
    fn now() -> Self {
        Self { seconds: read(ClockId::Monotonic), cpu: read(ClockId::ProcessCPUTime) }
    }

    fn since(self) -> Self {
        let now = Self::now();
        Self { seconds: now.seconds - self.seconds, cpu: now.cpu - self.cpu }
    }
}

/// What a server would do, without the server.
struct Hand {
    store: SqliteStore,
    batches: u64,
    ids: u128,
}

impl Hand {
    async fn apply(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, StoreError> {
        self.batches += 1;
        let id = BatchId { server: Uuid::from_u128(1), n: self.batches };
        let batch = Batch { id, jitter_seed: self.batches, budgets: Budgets::DEFAULT, commands };
        Ok(self.store.apply(batch.into()).await?.replies)
    }

    async fn register(&mut self) -> Result<(), StoreError> {
        let lease = Span::from_secs(600);
        let registration = Registration {
            id: WORKER,
            name: "shell-1".into(),
            role: WorkerRole::Action,
            concurrency: 1_000,
            queues: vec!["default".into()],
            runtimes: vec!["shell".into()],
            labels: BTreeMap::new(),
            lease,
            about: "{}".into(),
            plain_id: None,
            previous: Vec::new(),
        };
        let attach = Command::Attach(Attach { worker: WORKER, attachment: 1, lease });
        self.apply(vec![Command::Register(Box::new(registration)), attach]).await?;
        Ok(())
    }

    async fn enqueue(&mut self, jobs: usize) -> Result<Spent, StoreError> {
        let begun = Spent::now();
        for _ in 0..jobs / BATCH {
            let batch = (0..BATCH).map(|_| Command::Enqueue(Box::new(self.job()))).collect();
            self.apply(batch).await?;
        }
        Ok(begun.since())
    }

    fn job(&mut self) -> NewJob {
        // Bits of a UUIDv7 whose time rises by one for each job.
        self.ids += 1;
        let id = Uuid::from_u128((self.ids << 80) | 0x7000_8000_0000_0000_0000 | self.ids);
        NewJob {
            id: JobId(id),
            class: ClassKey {
                queue: "default".into(),
                job_type: "core.noop".into(),
                route: Route::Action {
                    runtime: "shell".into(),
                    labels: BTreeMap::new(),
                    proof: false,
                },
                tenant: None,
                isolated: false,
                keyed: false,
                placement: Default::default(),
            },
            keys: Keys::default(),
            priority: 0,
            payload: Payload {
                args: format!("[{{\"message\":\"job number {}\"}}]", self.ids),
                meta: String::new(),
                extra: String::new(),
            },
            rules: Rules::standard(),
            first: First::Now,
            timeout: None,
            visibility: None,
            scheduled_timeout: ScheduledTimeout::After(Span::from_secs(300)),
            origin: Origin::Execution,
            by: String::new(),
            unique: None,
        }
    }

    /// Claims and finishes, with `depth` batches of jobs held at any time. A batch holds
    /// the finishes and the next claim, as the server's do.
    async fn drain(&mut self, jobs: usize, depth: usize) -> Result<Spent, StoreError> {
        let begun = Spent::now();
        let mut held = std::collections::VecDeque::new();
        let mut done = 0;
        while done < jobs {
            let mut commands = Vec::with_capacity(BATCH + 1);
            if held.len() >= depth
                && let Some(batch) = held.pop_front()
            {
                commands = batch;
            }
            done += commands.len();
            commands.push(claim());
            let replies = self.apply(commands).await?;
            held.push_back(replies.iter().flat_map(finishes).collect());
        }
        for commands in held {
            self.apply(commands).await?;
        }
        Ok(begun.since())
    }
}

fn claim() -> Command {
    Command::Claim(Claim {
        claimant: Claimant::Native { worker: WORKER, session: 1 },
        from: ClaimFrom::Classes([CLASS].into()),
        max: NonZeroU32::MIN.saturating_add(u32::try_from(BATCH - 1).unwrap_or(0)),
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    })
}

fn finishes(reply: &Reply) -> Vec<Command> {
    match reply {
        Reply::Claimed(Ok(claims)) => {
            claims.jobs.iter().map(|claimed| finish(claimed.job.id, claimed.epoch)).collect()
        }
        Reply::Moved(Err(refusal)) => {
            println!("a finish was refused: {refusal}");
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn finish(job: JobId, epoch: Epoch) -> Command {
    let worker = Some(Reporter::Native(WORKER));
    Command::Finish(Box::new(Finish {
        job,
        fence: Fence { epoch: Some(epoch), worker, attempt: None },
        reported: ReportedOutcome::Completed,
        detail: EndDetail { result: Some("{\"ok\":true}".into()), ..EndDetail::default() },
        by: format!("worker {WORKER}"),
    }))
}
