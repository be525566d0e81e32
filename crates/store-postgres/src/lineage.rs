//! Whether the store still has what was acknowledged, after a standby took the primary's place.
//!
//! With asynchronous replication, the standby may lack the last commits. Each server remembers the
//! number of its latest batch, and for a while what its batches acknowledged. PostgreSQL's timeline
//! rises with every promotion, so that a server sees it on its next connection:
//!
//! ```text
//! new timeline ─▶ is my latest batch there? ─yes─▶ say so, wait for the others ─▶ go on
//!                     │ no
//!                     ▼
//!                 note again what workers hold, name what is lost, raise the generation ─▶ say so
//! generation was raised ─▶ every server starts again: what it remembers is of the log that is gone
//! ```
//!
//! No server writes before all that were alive have said what they found, or a few seconds have
//! passed: a job whose claim was lost would be given out twice.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outlast_core::budget::Budgets;
use outlast_core::id::JobId;
use outlast_store::command::{Claim, Claimant, Lost, LostFact, Reporter};
use outlast_store::idempotency::EnqueuedOnce;
use outlast_store::reply::{Enqueued, Moved};
use outlast_store::{Applied, Batch, BatchId, Command, Reply};
use tokio::time::Instant;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::error::OpenError;
use crate::row::int;

/// Most facts that are remembered: of some seconds at full load. About 10 MB.
const FACTS_MAX: usize = 100_000;
/// How long a batch may be missed: a server's row is deleted long after its last batch.
const MISSED_FOR: Duration = Duration::from_hours(1);
/// How long servers wait for others that were alive.
const AWAIT_MS: i64 = 5_000;
/// How long they wait for one that names what it lost.
const AWAIT_LOSER_MS: i64 = 10_000;
/// A server that wrote this shortly before the last batch of all was alive.
const ALIVE_MS: i64 = 15_000;
/// Keeps servers from looking at the same time. Any number that nothing else uses.
const LOCK: i64 = 119_200_062_993_524;

/// The latest batch of each of these servers.
const LATEST: &str = "select b.server, greatest(b.n, s.n) from outlast.server_batch b
    left join outlast.batch_slot s on s.server = b.server and s.slot = b.slot
    where b.server = any($1)";
/// Notes, when the first server looks, who was alive: all of them have to look.
const EXPECT: &str = "insert into outlast.failover (timeline, server, at, lost, settled)
    select $1, server, (extract(epoch from clock_timestamp()) * 1000)::bigint, false, false
    from outlast.batch_slot
    where at > (select max(at) from outlast.batch_slot) - $2
        and not exists (select 1 from outlast.failover where timeline = $1)
    on conflict (timeline, server) do nothing";
/// Notes that servers have looked.
const SAY: &str = "insert into outlast.failover as f (timeline, server, at, lost, settled)
    select $1, server, (extract(epoch from clock_timestamp()) * 1000)::bigint, not $3, $3
    from unnest($2::uuid[]) server
    on conflict (timeline, server) do update
    set at = case when f.lost then f.at else excluded.at end,
        lost = excluded.lost, settled = excluded.settled
    where not f.settled";
/// Notes that servers are still dealing with a loss.
const RENEW: &str = "update outlast.failover
    set at = (extract(epoch from clock_timestamp()) * 1000)::bigint
    where timeline = $1 and server = any($2::uuid[]) and lost and not settled";
/// Forgets other timelines: of before, or of another cluster that the data came from.
const FORGET: &str = "delete from outlast.failover where timeline <> $1";
/// Asks for how many there is to wait: those that were alive, and those that deal with a loss.
const AWAITED: &str = "select count(*) from outlast.failover
    where timeline = $1 and not settled
        and at + case when lost then $3::bigint else $2::bigint end
            > (extract(epoch from clock_timestamp()) * 1000)::bigint";
/// How often lanes are closed, and the pause in between.
const LANES_TRIES: u32 = 20;
const LANES_PAUSE: Duration = Duration::from_millis(25);
/// Closes the lanes of all servers but one.
const CLOSE: &str = "select outlast.close_lanes($1, 9223372036854775807)";
const OPEN_LANES: &str = "select count(*) from outlast.server_batch where lane is not null";

/// Raises the generation, and lets new lanes of the event log begin beyond those that were lost.
const RAISE: &str = "with lanes as (
        update outlast.event_lane set latest = latest + $1 returning 1)
    update outlast.generation set number = number + 1 where exists (select 1 from lanes)";

/// What a server remembers of its batches. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Lineage {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The timeline on which everything that this server acknowledged is accounted for.
    settled: AtomicU32,
    /// Stands for a server that has acknowledged nothing yet.
    stand_in: Uuid,
    journal: Mutex<Journal>,
}

/// The latest batches, by server number.
#[derive(Debug, Default)]
struct Journal {
    latest: HashMap<Uuid, (u64, Instant)>,
    recent: VecDeque<Entry>,
    facts: usize,
    /// Whether some are forgotten.
    has_forgotten: bool,
    budgets: Option<Budgets>,
    loss: Option<Arc<Loss>>,
}

#[derive(Debug)]
struct Entry {
    id: BatchId,
    facts: Box<[Lost]>,
}

/// What a new primary lacks.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) timeline: u32,
    /// How many batches.
    pub(crate) batches: u64,
    /// What they acknowledged, as far as it is remembered.
    pub(crate) facts: Vec<Lost>,
    /// Whether all of it is remembered.
    pub(crate) is_complete: bool,
    pub(crate) budgets: Budgets,
}

/// What a server found on a new timeline.
#[derive(Debug)]
pub(crate) enum Found {
    /// Everything is accounted for.
    Settled,
    /// Others have yet to look.
    Others(String),
    /// Some of its own batches are gone.
    Loss,
}

/// Begins a transaction that no other server has at the same time.
fn begin() -> String {
    format!("begin; select pg_advisory_xact_lock({LOCK})")
}

impl Lineage {
    pub(crate) fn new() -> Self {
        let inner = Inner {
            settled: AtomicU32::new(0),
            stand_in: Uuid::now_v7(),
            journal: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.inner.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a batch that is acknowledged from now on.
    pub(crate) fn applied(&self, batch: &Batch, applied: &Applied) {
        let facts = facts_of(batch, applied);
        let mut journal = self.journal();
        journal.latest.insert(batch.id.server, (batch.id.n, Instant::now()));
        journal.budgets = Some(batch.budgets);
        if facts.is_empty() {
            return;
        }
        journal.facts += facts.len();
        journal.recent.push_back(Entry { id: batch.id, facts: facts.into() });
        while journal.facts > FACTS_MAX {
            let Some(oldest) = journal.recent.pop_front() else { break };
            journal.facts -= oldest.facts.len();
            journal.has_forgotten = true;
        }
    }

    /// Remembers a batch that turned out to have taken effect.
    pub(crate) fn resolved(&self, id: BatchId) {
        self.journal().latest.insert(id.server, (id.n, Instant::now()));
    }

    /// Whether a loss has yet to be dealt with.
    pub(crate) fn has_loss(&self) -> bool {
        self.journal().loss.is_some()
    }

    /// Returns the loss that has yet to be dealt with.
    pub(crate) fn loss(&self) -> Option<Arc<Loss>> {
        self.journal().loss.clone()
    }

    /// Whether a server looked at this timeline already, and nothing is left to be done.
    pub(crate) fn is_settled(&self, timeline: u32) -> bool {
        self.inner.settled.load(Ordering::Acquire) == timeline
    }

    /// Looks whether a new primary has all that this server acknowledged, and whether the others
    /// have looked.
    pub(crate) async fn look(&self, client: &Client, timeline: u32) -> Result<Found, OpenError> {
        client.batch_execute(&begin()).await?;
        let mut servers = self.servers();
        let line = i64::from(timeline);
        client.execute(FORGET, &[&line]).await?;
        client.execute(EXPECT, &[&line, &ALIVE_MS]).await?;
        let latest = client.query(LATEST, &[&servers]).await?;
        let mut stored = HashMap::new();
        for row in latest {
            stored.insert(row.try_get::<_, Uuid>(0)?, row.try_get::<_, i64>(1)?);
        }
        let lost = self.journal().missing(&stored, timeline);
        servers.push(self.inner.stand_in);
        client.execute(SAY, &[&line, &servers, &lost.is_none()]).await?;
        let row = client.query_one(AWAITED, &[&line, &AWAIT_MS, &AWAIT_LOSER_MS]).await?;
        let awaited: i64 = row.try_get(0)?;
        client.batch_execute("commit").await?;
        if let Some(loss) = lost {
            self.journal().loss.get_or_insert_with(|| Arc::new(loss));
            return Ok(Found::Loss);
        }
        if awaited > 0 {
            let words = format!(
                "a standby took the primary's place (timeline {timeline}): waiting until all \
                 servers have looked whether it lacks anything"
            );
            return Ok(Found::Others(words));
        }
        self.inner.settled.store(timeline, Ordering::Release);
        Ok(Found::Settled)
    }

    fn servers(&self) -> Vec<Uuid> {
        self.journal().latest.keys().copied().collect()
    }

    /// Says that the loss is still being dealt with.
    pub(crate) async fn renew(&self, client: &Client, loss: &Loss) -> Result<(), OpenError> {
        client.execute(RENEW, &[&i64::from(loss.timeline), &self.servers()]).await?;
        Ok(())
    }

    /// Raises the generation because of a loss that was dealt with, and lets the others go on.
    pub(crate) async fn raise(&self, client: &Client, loss: &Loss) -> Result<(), OpenError> {
        client.batch_execute(&begin()).await?;
        client.execute(RAISE, &[&outlast_store_rules::cursor::LANES_A_RESTORE]).await?;
        let mut servers = self.servers();
        servers.push(self.inner.stand_in);
        client.execute(SAY, &[&i64::from(loss.timeline), &servers, &true]).await?;
        client.batch_execute("commit").await?;
        self.end_lanes(client).await?;
        let mut journal = self.journal();
        journal.loss = None;
        journal.recent.clear();
        journal.facts = 0;
        journal.latest.clear();
        Ok(())
    }

    /// Lets every server connect again before its next batch, so that it sees the generation. A batch
    /// under way keeps its server's lane open, so this is tried several times.
    async fn end_lanes(&self, client: &Client) -> Result<(), OpenError> {
        for _ in 0..LANES_TRIES {
            client.query_one(CLOSE, &[&self.inner.stand_in]).await?;
            let open: i64 = client.query_one(OPEN_LANES, &[]).await?.try_get(0)?;
            if open == 0 {
                break;
            }
            tokio::time::sleep(LANES_PAUSE).await;
        }
        Ok(())
    }
}

impl Journal {
    /// Returns what is missing of what was acknowledged.
    fn missing(&self, stored: &HashMap<Uuid, i64>, timeline: u32) -> Option<Loss> {
        let mut batches = 0;
        let mut gone = HashMap::new();
        for (server, (latest, at)) in &self.latest {
            let there = stored.get(server).copied().unwrap_or(-1);
            if there < int(*latest) && at.elapsed() < MISSED_FOR {
                batches += u64::try_from(int(*latest) - there.max(0)).unwrap_or_default();
                gone.insert(*server, there);
            }
        }
        if gone.is_empty() {
            return None;
        }
        let is_gone = |id: BatchId| gone.get(&id.server).is_some_and(|there| int(id.n) > *there);
        let facts: Vec<Lost> = self
            .recent
            .iter()
            .filter(|entry| is_gone(entry.id))
            .flat_map(|entry| entry.facts.iter().copied())
            .collect();
        // If the oldest that is remembered is gone, older ones may be, too.
        let is_complete =
            !self.has_forgotten || self.recent.front().is_some_and(|it| !is_gone(it.id));
        let budgets = self.budgets.unwrap_or(Budgets::DEFAULT);
        Some(Loss { timeline, batches, facts, is_complete, budgets })
    }
}

/// Returns what a batch acknowledged.
fn facts_of(batch: &Batch, applied: &Applied) -> Vec<Lost> {
    let mut facts = Vec::new();
    let job = |job: JobId| Lost { job, what: LostFact::Job };
    let new = |stored: &Enqueued| (!stored.is_old()).then(|| job(stored.id));
    for (command, reply) in batch.commands.iter().zip(&applied.replies) {
        match reply {
            Reply::Enqueued(Ok(stored)) => facts.extend(new(stored)),
            Reply::EnqueuedAll(Ok(all)) | Reply::EnqueuedOnce(Ok(EnqueuedOnce::Stored(all))) => {
                facts.extend(all.iter().filter_map(new));
            }
            Reply::ScheduleWritten(Ok(written)) => {
                facts.extend(written.jobs.iter().filter_map(new))
            }
            Reply::WorkflowWritten(Ok(written)) => {
                facts.extend(written.jobs.iter().filter_map(new));
            }
            Reply::OperationWritten(Ok(written)) => {
                let ordered = |moved: &Moved| Lost { job: moved.job, what: LostFact::Order };
                facts.extend(written.moved.iter().map(ordered));
            }
            Reply::Claimed(Ok(claims)) => {
                let worker = match command {
                    Command::Claim(Claim { claimant: Claimant::Native { worker, .. }, .. }) => {
                        Some(*worker)
                    }
                    _ => None,
                };
                facts.extend(claims.jobs.iter().map(|claimed| Lost {
                    job: claimed.job.id,
                    what: LostFact::Claim { epoch: claimed.epoch, worker },
                }));
            }
            Reply::Moved(Ok(moved)) => facts.extend(fact_of_report(command, moved)),
            _ => {}
        }
    }
    facts
}

/// Returns what a report acknowledged that was accepted.
fn fact_of_report(command: &Command, moved: &Moved) -> Option<Lost> {
    let epoch = moved.epoch;
    let what = match command {
        Command::Start(_) => LostFact::Claim { epoch, worker: moved.holder },
        Command::Finish(finish) => {
            let worker = match finish.fence.worker {
                Some(Reporter::Native(worker)) => Some(worker),
                Some(Reporter::Plain(_)) | None => None,
            };
            LostFact::Result { epoch, worker }
        }
        Command::Order(_) => LostFact::Order,
        _ => return None,
    };
    Some(Lost { job: moved.job, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: Uuid, n: u64, job: u128) -> Entry {
        let lost = Lost { job: JobId(Uuid::from_u128(job)), what: LostFact::Job };
        Entry { id: BatchId { server, n }, facts: Box::new([lost]) }
    }

    fn journal(server: Uuid, upto: u64) -> Journal {
        Journal {
            latest: HashMap::from([(server, (upto, Instant::now()))]),
            recent: (1..=upto).map(|n| entry(server, n, n.into())).collect(),
            facts: usize::try_from(upto).unwrap(),
            ..Journal::default()
        }
    }

    #[test]
    fn exactly_the_batches_beyond_the_stored_one_are_missed() {
        let server = Uuid::from_u128(1);
        let missing = |there: Option<i64>| {
            let stored = there.map(|there| (server, there)).into_iter().collect();
            journal(server, 5).missing(&stored, 2)
        };
        assert!(missing(Some(5)).is_none() && missing(Some(9)).is_none());
        let loss = missing(Some(3)).unwrap();
        let jobs: Vec<u128> = loss.facts.iter().map(|lost| lost.job.0.as_u128()).collect();
        assert_eq!((loss.batches, jobs, loss.is_complete), (2, vec![4, 5], true));
        // Not even the server's own row is there.
        assert_eq!(missing(None).unwrap().facts.len(), 5);
    }

    #[test]
    fn loss_says_when_more_may_be_gone_than_is_remembered() {
        let server = Uuid::from_u128(1);
        let full = Journal { has_forgotten: true, ..journal(server, 5) };
        let stored = |there| HashMap::from([(server, there)]);
        assert!(!full.missing(&stored(0), 2).unwrap().is_complete);
        assert!(full.missing(&stored(3), 2).unwrap().is_complete);
    }
}
