//! How full bounded queues are.
//!
//! A batch that stores jobs in a bounded queue locks the queue's row and then sums up how many jobs
//! wait in it, both in one message: no other batch stores jobs in the queue that could be refused
//! until the batch ends, and what others have stored is committed and counted. Each server counts for
//! every queue, bounded or not, in rows of its own and with the live counts by class. So whatever moves
//! jobs needs no lock and cannot forget to count, and a bound is right from the moment it is set.
//!
//! Which queues are bounded is remembered, so that a batch for other queues asks nothing. A queue
//! that gets its first bound is not known to other servers. So the batch that sets it changes a
//! number in the rows of all servers, and of their slots: it waits for their batches under way, and
//! the next one of each finds the number changed, is rolled back and asks again. The check costs
//! nothing, as every batch writes the row of its slot anyway.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use outlast_core::id::JobId;
use outlast_core::queue::{Change, Depth};
use outlast_store::Batch;
use outlast_store::command::Command;
use outlast_store::queue::QueueRecord;
use outlast_store_rules::codec;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::row::get;
use crate::writer::Tx;

/// The bounded queues, and the number that changes when another queue gets a bound.
const BOUNDED: &str = "select b.bounds,
         (select array_agg(q.name) from queue q
          where q.settings::jsonb -> 'max_depth' is not null)
     from server_batch b where b.server = $1";

/// Keeps other servers from beginning slots.
pub(super) const LOCK_SERVERS: &str = "select 1 from server_batch order by server for update";

/// Waits for the batches that other servers have under way, and holds up their next.
pub(super) const LOCK_SLOTS: &str = "select 1 from server_batch b
     join batch_slot s on s.server = any(array[b.server]) and s.slot = any(array[b.slot])
     order by b.server for update of s";

/// Lets no server believe any longer what it remembers.
const CHANGED: &str = "with servers as (
         update server_batch set bounds = bounds + 1 returning server, slot, bounds)
     update batch_slot s set bounds = b.bounds from servers b
     where s.server = any(array[b.server]) and s.slot = any(array[b.slot])";

/// In one order, so that servers do not wait for each other in a ring.
const LOCK: &str = "select q.name, q.settings from queue q where q.name = any($1::text[])
     order by q.name for no key update";

const COUNT: &str = "select d.queue, sum(d.n)::bigint from live_depth d
     where d.queue = any($1::text[]) group by d.queue";

/// Deletes the rows of keys for which those of all servers add up to nothing, unless a batch is changing
/// one of them.
macro_rules! delete_nothing {
    ($table:literal, $key:literal) => {
        concat!(
            "with none as materialized (
                 select t.",
            $key,
            " as key from ",
            $table,
            " t group by 1 having sum(t.n) = 0 order by 1 limit $1),
             locked as materialized (
                 select t.ctid as place, t.",
            $key,
            " as key, t.n from ",
            $table,
            " t where t.",
            $key,
            " = any(array(select key from none))
                 order by t.",
            $key,
            ", t.server for update skip locked),
             whole as (
                 select l.key, array_agg(l.place) as places from locked l group by l.key
                 having sum(l.n) = 0
                     and count(*) = (select count(*) from ",
            $table,
            " t where t.",
            $key,
            " = l.key))
             delete from ",
            $table,
            " where ctid = any(array(
                 select place from whole cross join lateral unnest(places) place))"
        )
    };
}
pub(super) use delete_nothing;

/// Queues of which no job waits.
const NONE: &str = delete_nothing!("depth", "queue");

const KNOWN: &str = "select id from job_row where id = any($1::uuid[])";

/// What a server remembers from batch to batch.
#[derive(Debug)]
pub(super) struct KnownBounds {
    /// That of the server's row when it was read.
    pub(super) number: i64,
    queues: HashSet<String>,
}

/// What a batch knows of bounded queues.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// Which queues are bounded; `None` to ask. The writer has it back once the batch has taken
    /// effect.
    pub(super) known: Option<Arc<KnownBounds>>,
    /// Those that its new jobs are for.
    wanted: BTreeSet<String>,
    /// The ids of its new jobs, until it is known which are stored.
    new: Vec<Uuid>,
    held: HashMap<String, Held>,
}

impl Bounds {
    pub(super) fn of(known: Option<Arc<KnownBounds>>) -> Self {
        Self { known, ..Self::default() }
    }
}

/// A queue in which only this batch stores jobs.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// `None` if it is bounded no longer.
    max: Option<u32>,
    /// How many jobs waited before the batch.
    before: i64,
}

/// Whether a batch bounds queues, so that other servers must not be storing jobs meanwhile.
pub(super) fn bounds_queues(command: &Command) -> bool {
    matches!(command, Command::SetQueue(order) if matches!(order.change.max_depth, Change::Set(_)))
}

/// Asks which queues are bounded.
pub(super) fn asking(server: Uuid) -> Statement {
    Statement::new(BOUNDED, values![server])
}

impl Tx<'_> {
    /// Keeps what was answered.
    pub(super) fn learn_bounds(&mut self, rows: &[Row]) -> Result<(), Failure> {
        let Some(row) = rows.first() else { return Ok(()) };
        let queues: Option<Vec<String>> = get(row, 1)?;
        let queues = queues.unwrap_or_default().into_iter().collect();
        self.bounds.known = Some(Arc::new(KnownBounds { number: get(row, 0)?, queues }));
        Ok(())
    }

    /// Notes which bounded queues the jobs of a batch are for; `more` if it may bound others.
    pub(super) fn note_bounded(&mut self, batch: &Batch, more: bool) {
        let Bounds { known, wanted, new, .. } = &mut self.bounds;
        let Some(known) = known.as_ref() else { return };
        if known.queues.is_empty() && !more {
            return;
        }
        for job in batch.commands.iter().flat_map(Command::new_jobs) {
            new.push(job.id.0);
            if known.queues.contains(&job.class.queue) && !wanted.contains(&job.class.queue) {
                wanted.insert(job.class.queue.clone());
            }
        }
    }

    pub(super) fn may_have_bounds(&self) -> bool {
        self.bounds.known.as_ref().is_none_or(|known| !known.queues.is_empty())
    }

    pub(super) async fn depth_of(&mut self, queue: &str) -> Result<Option<Depth>, Failure> {
        // The batch itself has changed them.
        if self.bounds.known.is_none() {
            let Statement { sql, values } = asking(self.server);
            let rows = self.query(sql, values).await?;
            self.learn_bounds(&rows)?;
        }
        if !self.bounds.known.as_ref().is_some_and(|known| known.queues.contains(queue)) {
            return Ok(None);
        }
        if !self.bounds.held.contains_key(queue) {
            self.hold_queues(queue).await?;
        }
        let Some(Held { max: Some(max), before }) = self.bounds.held.get(queue).copied() else {
            return Ok(None);
        };
        let changes: Vec<_> = self.batch.outbox.tally.more_waiting().collect();
        self.learn_classes(changes.iter().map(|(class, _)| *class)).await?;
        let of_queue = |class| self.cache.classes.key(class).is_ok_and(|key| key.queue == queue);
        let more = changes.iter().filter(|(class, _)| of_queue(*class)).map(|(_, more)| more);
        let jobs = before.saturating_add(more.sum());
        Ok(Some(Depth { jobs: u64::try_from(jobs).unwrap_or(0), max }))
    }

    /// Locks this queue and all others that the batch's jobs are for, counts the jobs that wait in
    /// them, and looks up which ids are taken.
    async fn hold_queues(&mut self, queue: &str) -> Result<(), Failure> {
        let mut queues = std::mem::take(&mut self.bounds.wanted);
        queues.insert(queue.to_owned());
        queues.retain(|queue| !self.bounds.held.contains_key(queue));
        let queues: Vec<String> = queues.into_iter().collect();
        let new = std::mem::take(&mut self.bounds.new);
        let statements = vec![
            Statement::new(LOCK, values![queues.clone()]),
            Statement::new(COUNT, values![queues.clone()]),
            Statement::new(KNOWN, values![new]),
        ];
        let read = self.query_all(statements).await?;
        let rows = |at: usize| read.get(at).map_or(&[][..], Vec::as_slice);
        let mut held: HashMap<String, Held> =
            queues.into_iter().map(|queue| (queue, Held { max: None, before: 0 })).collect();
        for row in rows(0) {
            let settings: Option<&str> = get(row, 1)?;
            let settings = settings.map(codec::settings_of).transpose()?.unwrap_or_default();
            if let Some(held) = held.get_mut(get::<&str>(row, 0)?) {
                held.max = settings.max_depth;
            }
        }
        for row in rows(1) {
            if let Some(held) = held.get_mut(get::<&str>(row, 0)?) {
                held.before = get(row, 1)?;
            }
        }
        for row in rows(2) {
            self.seen.stored.insert(JobId(get(row, 0)?));
        }
        self.bounds.held.extend(held);
        Ok(())
    }

    /// Deletes rows of queues in which no job waits.
    pub(super) fn leave_empty_depths(&mut self, limit: i64) {
        self.write(NONE, values![limit]);
    }

    /// Counts again: all was deleted.
    pub(super) fn forget_depths(&mut self) {
        self.bounds.held.clear();
    }

    /// Notes that settings of a queue are written.
    pub(super) fn bound_changed(&mut self, record: &QueueRecord, found: Option<&QueueRecord>) {
        self.bounds.held.remove(&record.queue);
        let before = found.and_then(|found| found.settings.max_depth);
        if before.is_none() && record.settings.max_depth.is_some() {
            self.write(CHANGED, values![]);
            self.bounds.known = None;
        }
    }
}
