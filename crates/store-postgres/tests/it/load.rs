//! Random work of every sort from several servers at once.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_cluster::Database;
use outlast_core::gate::Rate;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::limit::{Limit, LimitName, Scope};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    AskedByQueues, Claim, ClaimFrom, Claimant, ClassId, EndDetail, Fence, Finish, First,
    ForgetWorker, JobAction, LeadershipFence, LeadershipRequest, LogChunk, NewJob, Progress, Prune,
    QueueOrder, RETENTION, RemoveLimit, ReportedOutcome, Reporter, SetLimit, Start, Strand, Stream,
    Sweep,
};
use outlast_store::extend::{Extend, Holds, JobCount};
use outlast_store::idempotency::EnqueueOnce;
use outlast_store::reply::Claimed;
use outlast_store::{Command, Reply, StoreError};
use tokio::time::Instant;

use crate::hand::{
    LEASE, Server, arrival, check_gates, check_places, enqueue, finish, forget, goodbye, job,
    lapse, limit, new_id, number, of_tenant, order, per_tenant, renew, run, sql,
};

/// Numbers that look random and are the same for the same seed.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// What all servers of a test know of.
#[derive(Debug, Default)]
pub(crate) struct World {
    jobs: Vec<JobId>,
    workers: Vec<WorkerId>,
    held: Vec<(Option<WorkerId>, JobId, Epoch)>,
    /// Epoch of the leader of retention, as seen last.
    leadership: u64,
    /// How often it was pruned, and how often that was refused.
    pruned: [u32; 2],
}

impl World {
    /// Workers say what they hold, also what a server gave out without knowing.
    pub(crate) fn reconcile(&mut self, held: Vec<(Option<WorkerId>, JobId, Epoch)>) {
        self.held = held;
    }
}

#[derive(Debug)]
pub(crate) struct Player {
    server: Server,
    dice: Dice,
    world: Arc<Mutex<World>>,
    /// Jobs that the present batch names: it may name each once.
    named: HashSet<JobId>,
}

const PLAIN: &str = "plain-1";
/// The limit on the whole queue, and the one that is a rate.
const WHOLE: &str = "whole";
pub(crate) const RATE: &str = "rate";

impl Player {
    pub(crate) fn new(server: Server, seed: u64, world: &Arc<Mutex<World>>) -> Self {
        let dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { server, dice, world: Arc::clone(world), named: HashSet::new() }
    }

    pub(crate) async fn play_until(&mut self, end: Instant) {
        while Instant::now() < end {
            self.play().await;
        }
    }

    /// Applies one batch, which must go through.
    pub(crate) async fn play(&mut self) {
        let now = outlast_store::Store::now(&self.server.store).await.unwrap();
        let commands = self.batch(now);
        let replies = self.server.apply(commands.clone()).await;
        self.take_in(&commands, replies);
    }

    /// Applies one batch, which PostgreSQL may fail at any moment; returns what became of it.
    pub(crate) async fn try_to_play(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let commands = self.batch(now);
        let applied = self.server.try_apply(commands.clone()).await?;
        self.take_in(&commands, applied.replies);
        Ok(())
    }

    fn batch(&mut self, now: Timestamp) -> Vec<Command> {
        self.named.clear();
        let count = 1 + self.dice.below(8);
        let mut commands = Vec::new();
        while commands.len() < count {
            commands.extend(self.some(now));
        }
        commands
    }

    fn take_in(&self, commands: &[Command], replies: Vec<Reply>) {
        let claimants: Vec<Option<WorkerId>> = commands.iter().map(claimant).collect();
        let mut world = self.world.lock().unwrap();
        for (reply, claimant) in replies.into_iter().zip(claimants) {
            match reply {
                Reply::Claimed(Ok(claimed)) => {
                    let attempt = |it: &Claimed| (claimant, it.job.id, it.epoch);
                    world.held.extend(claimed.jobs.iter().map(attempt));
                }
                Reply::Leadership(Ok(leadership)) => {
                    world.leadership = world.leadership.max(leadership.epoch.0)
                }
                Reply::Pruned(pruned) => world.pruned[usize::from(pruned.is_err())] += 1,
                _ => {}
            }
        }
        let excess = world.held.len().saturating_sub(200);
        world.held.drain(..excess);
        let excess = world.jobs.len().saturating_sub(2_000);
        world.jobs.drain(..excess);
    }

    fn new_job(&mut self, now: Timestamp) -> NewJob {
        let soon = |ms: usize| Timestamp(now.0 + i64::try_from(ms).unwrap());
        let mut new = match self.dice.below(6) {
            0..2 => job(),
            tenant => of_tenant(&format!("t{tenant}")),
        };
        new.class.job_type = format!("work-{}", self.dice.below(3));
        new.first = match self.dice.below(8) {
            0 => First::At(soon(self.dice.below(200))),
            1 => First::OnActivation,
            _ => First::Now,
        };
        if self.dice.below(6) == 0 {
            new.rules.expires_at = Some(soon(50 + self.dice.below(1_000)));
        }
        if self.dice.below(4) == 0 {
            new.timeout = Some(Span(u64::try_from(self.dice.below(300)).unwrap()));
            let after = Span(u64::try_from(100 * self.dice.below(4)).unwrap());
            new.scheduled_timeout = outlast_core::budget::ScheduledTimeout::After(after);
        }
        self.world.lock().unwrap().jobs.push(new.id);
        self.named.insert(new.id);
        new
    }

    fn a_worker(&mut self) -> Option<WorkerId> {
        let world = self.world.lock().unwrap();
        let recent = world.workers.len().saturating_sub(6);
        let workers = world.workers.get(recent..)?;
        (!workers.is_empty()).then(|| workers[self.dice.below(workers.len())])
    }

    fn a_job(&mut self) -> Option<JobId> {
        let world = self.world.lock().unwrap();
        let count = world.jobs.len();
        let id = (count > 0).then(|| world.jobs[self.dice.below(count)])?;
        self.named.insert(id).then_some(id)
    }

    /// An attempt that some server once saw begin.
    fn an_attempt(&mut self) -> Option<(Option<WorkerId>, JobId, Epoch)> {
        let world = self.world.lock().unwrap();
        let count = world.held.len();
        let attempt = (count > 0).then(|| world.held[self.dice.below(count)])?;
        self.named.insert(attempt.1).then_some(attempt)
    }

    fn some(&mut self, now: Timestamp) -> Vec<Command> {
        match self.dice.below(30) {
            0..4 => vec![enqueue(self.new_job(now))],
            4 => vec![Command::EnqueueAll((0..4).map(|_| self.new_job(now)).collect())],
            5 => vec![self.once(now)],
            6 => self.arriving(),
            7..11 => self.claiming(),
            11..21 => self.about_an_attempt(),
            21..24 => self.ordering(),
            24..27 => self.about_a_worker(now),
            _ => self.of_time(now),
        }
    }

    fn once(&mut self, now: Timestamp) -> Command {
        let key = [u8::try_from(self.dice.below(40)).unwrap(); 32];
        let keep = Span(300);
        let jobs = vec![self.new_job(now)];
        Command::EnqueueOnce(Box::new(EnqueueOnce { key, request: [1; 32], keep, jobs }))
    }

    fn arriving(&mut self) -> Vec<Command> {
        let worker = WorkerId(new_id());
        self.world.lock().unwrap().workers.push(worker);
        // Some are silent from the beginning, so that they may lapse.
        arrival(worker, if self.dice.below(2) == 0 { Span(0) } else { LEASE })
    }

    fn claiming(&mut self) -> Vec<Command> {
        let max = NonZeroU32::new(1 + u32::try_from(self.dice.below(5)).unwrap()).unwrap();
        if self.dice.below(4) == 0 {
            let queues = vec!["default".to_owned()];
            let from = ClaimFrom::Queues { queues, tenant: None };
            let visibility = Span(u64::try_from(self.dice.below(400)).unwrap());
            let claimant = Claimant::Plain { worker: Some(PLAIN.into()), visibility };
            return vec![Command::Claim(Claim {
                claimant,
                from,
                max,
                is_prefetch: false,
                avoids: Vec::new(),
                asked: AskedByQueues::default(),
            })];
        }
        let Some(worker) = self.a_worker() else { return Vec::new() };
        let from = ClaimFrom::Classes((1..=12).map(ClassId).collect());
        let claimant = Claimant::Native { worker, session: 1 };
        vec![Command::Claim(Claim {
            claimant,
            from,
            max,
            is_prefetch: self.dice.below(4) == 0,
            avoids: Vec::new(),
            asked: AskedByQueues::default(),
        })]
    }

    fn about_an_attempt(&mut self) -> Vec<Command> {
        let Some((worker, job, epoch)) = self.an_attempt() else { return Vec::new() };
        let plain = || Reporter::Plain(PLAIN.into());
        let reporter = Some(worker.map_or_else(plain, Reporter::Native));
        let fence = Fence { epoch: Some(epoch), worker: reporter, attempt: None };
        let reported = match self.dice.below(10) {
            0 => return vec![Command::Start(Start { job, fence, pack_digest: None })],
            1 => {
                let checkpoint = Some(vec![1, 2, 3]);
                return vec![Command::Progress(Box::new(Progress { job, fence, checkpoint }))];
            }
            2 => {
                let n = u32::try_from(self.dice.below(5)).unwrap();
                let (stream, bytes) = (Stream::Stdout, b"hello".to_vec());
                return vec![Command::Log(LogChunk { job, epoch, n, stream, bytes })];
            }
            3 => ReportedOutcome::Failed { error_type: "error".into(), retryable: true },
            4 => ReportedOutcome::Failed { error_type: "error".into(), retryable: false },
            5 => ReportedOutcome::Interrupted,
            6 => ReportedOutcome::Lost,
            _ => ReportedOutcome::Completed,
        };
        if let Some(worker) = worker {
            return vec![finish(worker, job, epoch, reported)];
        }
        let detail = EndDetail::default();
        vec![Command::Finish(Box::new(Finish { job, fence, reported, detail, by: PLAIN.into() }))]
    }

    fn ordering(&mut self) -> Vec<Command> {
        let Some(job) = self.a_job() else { return Vec::new() };
        vec![match self.dice.below(6) {
            0 => Command::Order(order(JobAction::Activate, job)),
            1 | 2 => Command::Order(order(JobAction::Replay, job)),
            3 => Command::ForgetDeadLetter(forget(job)),
            _ => Command::Order(order(JobAction::Cancel, job)),
        }]
    }

    fn about_a_worker(&mut self, now: Timestamp) -> Vec<Command> {
        let Some(worker) = self.a_worker() else { return Vec::new() };
        vec![match self.dice.below(8) {
            0 => goodbye(worker),
            1 => {
                Command::ForgetWorker(ForgetWorker { worker, name: "w".into(), by: "test".into() })
            }
            2 | 3 => lapse(worker, 2 + u64::try_from(self.dice.below(3)).unwrap()),
            4 => extend(Holds::Count(JobCount { jobs: 9, arrived: now, report: Vec::new() })),
            5 => {
                let jobs = self.an_attempt().into_iter().map(|(_, job, _)| job).collect();
                extend(Holds::Jobs(jobs))
            }
            _ => renew(worker),
        }]
    }

    fn of_time(&mut self, now: Timestamp) -> Vec<Command> {
        vec![match self.dice.below(9) {
            0 => {
                let before = Timestamp(now.0 - 500);
                return self.retention(before);
            }
            1 => {
                let class = ClassId(1 + i64::try_from(self.dice.below(3)).unwrap());
                let (since, reason) = (Timestamp(now.0 - 300), "no worker".to_owned());
                Command::Strand(Strand { class, since, reason, limit: 10 })
            }
            2 => return vec![self.limiting()],
            3 => {
                let (queue, by) = ("default".to_owned(), "operator".to_owned());
                Command::Queue(QueueOrder { queue, paused: self.dice.below(3) == 0, by })
            }
            _ => Command::Sweep(Sweep { limit: 20, watched: Span(60_000) }),
        }]
    }

    /// Limits of every kind; those that are not on a key come and go, so that other jobs are
    /// claimed without any.
    fn limiting(&mut self) -> Command {
        let most = u32::try_from(1 + self.dice.below(4)).unwrap();
        let name = |name: &str| LimitName::new(name).unwrap();
        let by = "operator".to_owned();
        match self.dice.below(7) {
            0..2 => per_tenant(most),
            2 => limit(WHOLE, Scope::Queue("default".into()), 2 * most),
            3 => {
                let rate = Rate::new(10 * most, Span(500));
                let scope = Scope::Type("work-0".into());
                let limit = Limit { name: name(RATE), scope, concurrency: Some(5), rate };
                Command::SetLimit(Box::new(SetLimit { limit, configured: false, by }))
            }
            gone => {
                let of = if gone == 4 { RATE } else { WHOLE };
                Command::RemoveLimit(RemoveLimit { name: name(of), configured: false, by })
            }
        }
    }

    /// A server tries to lead and prunes as if it did: under the epoch that was seen
    /// last, or the next.
    fn retention(&mut self, before: Timestamp) -> Vec<Command> {
        let (name, holder) = (RETENTION.to_owned(), self.server.id);
        let hold = (self.dice.below(4) > 0).then_some(Span(30));
        let seen = self.world.lock().unwrap().leadership;
        let epoch = Epoch(seen + u64::try_from(self.dice.below(2)).unwrap());
        let leadership = LeadershipFence { name: name.clone(), holder, epoch };
        let (finished_before, workers_before) = (before, before);
        let prune =
            Prune { leadership, finished_before, workers_before, limit: 20, from_start: true };
        vec![Command::Leadership(LeadershipRequest { name, holder, hold }), Command::Prune(prune)]
    }
}

fn claimant(command: &Command) -> Option<WorkerId> {
    match command {
        Command::Claim(Claim { claimant: Claimant::Native { worker, .. }, .. }) => Some(*worker),
        _ => None,
    }
}

/// Every batch goes through: whatever servers do to each other is settled between them and
/// the store.
#[test]
fn random_work_of_three_servers_ends_with_every_job_in_one_place() {
    let database = Database::new().unwrap();
    run(async {
        let world: Arc<Mutex<World>> = Arc::default();
        let end = Instant::now() + Duration::from_secs(6);
        let mut playing = Vec::new();
        for seed in 1..=3 {
            let mut player = Player::new(Server::open(&database.url).await, seed, &world);
            let world = Arc::clone(&world);
            playing.push(tokio::spawn(async move {
                player.play_until(end).await;
                // A machine that has other things to do takes longer to do enough.
                let last = end + Duration::from_secs(90);
                while world.lock().unwrap().pruned.iter().any(|count| *count <= 5) {
                    assert!(Instant::now() < last, "too little was done");
                    player.play().await;
                }
            }));
        }
        for player in playing {
            player.await.unwrap();
        }
        let client = sql(&database.url).await;
        check_places(&client).await;
        check_gates(&client).await;
        let [pruned, refused] = world.lock().unwrap().pruned;
        assert!(pruned > 5 && refused > 5, "pruned {pruned} times, refused {refused} times");
        let ended = "select count(*) from attempt_row";
        assert!(number(&client, ended).await > 20, "attempts ended");
        // What becomes of an attempt is said once.
        let twice = "select count(*) from (select job, epoch from event
                         where type in ('job.completed', 'job.failed', 'job.lost')
                         group by job, epoch having count(*) > 1) x";
        assert_eq!(number(&client, twice).await, 0);
    });
}

fn extend(holds: Holds) -> Command {
    Command::Extend(Extend { worker: PLAIN.into(), holds })
}
