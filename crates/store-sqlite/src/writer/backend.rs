//! The writer's transaction as [`outlast_store_rules::backend`] sees it. Nothing here waits: what
//! SQLite is asked, it answers at once.

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::job::DeadLetterReason;
use outlast_core::leadership::Leadership;
use outlast_core::limit::{GateId, LimitName};
use outlast_core::operation::OperationId;
use outlast_core::queue::Depth;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
use outlast_store::StoreError;
use outlast_store::arrival::{EnqueueArrived, EnqueuedArrived};
use outlast_store::browser_session::{BrowserSession, WhichSessions};
use outlast_store::command::{
    ClassId, Command, LeadershipRequest, LetterKey, LogChunk, NewJob, Prune, QueueOrder, SetLimit,
    Strand, Sweep,
};
use outlast_store::idempotency::{EnqueueOnce, Fingerprint};
use outlast_store::limit::Miscount;
use outlast_store::operation::OperationRecord;
use outlast_store::queue::QueueRecord;
use outlast_store::reply::{Enqueued, Pruned, Reply};
use outlast_store::schedule::ScheduleRecord;
use outlast_store::unique::KeyHolder;
use outlast_store::workflow::{ItemRecord, StepRecord, WorkflowRecord};
use outlast_store_rules::apply::batch::BatchState;
use outlast_store_rules::apply::claim::fair::Shares;
use outlast_store_rules::apply::claim::lane::LaneGate;
use outlast_store_rules::apply::limit::Limits;
use outlast_store_rules::apply::loaded::{KnownWorker, Loaded};
use outlast_store_rules::apply::step::Step;
use outlast_store_rules::apply::sweep::Due;
use outlast_store_rules::backend::unique::Free;
use outlast_store_rules::backend::{
    Backend, Found, FoundLimit, JobTables, Key, KeyTables, Labels, LeaderTables, LimitTables,
    OperationTables, QueueTables, ScheduleTables, SessionTables, StandingChange, Transaction,
    WorkerChange, WorkerTables, WorkflowTables,
};
use rusqlite::OptionalExtension as _;
use uuid::Uuid;

use crate::read;
use crate::row::{self, failed, int};
use crate::writer::Tx;
use crate::writer::classes::Classes;

impl Transaction for Tx<'_> {
    type Error = StoreError;

    fn batch(&mut self) -> &mut BatchState {
        &mut self.batch
    }
}

impl JobTables for Tx<'_> {
    async fn find(&mut self, id: JobId) -> Result<Option<Loaded>, StoreError> {
        self.load_by_id(id)
    }

    /// Nothing else writes at the same time.
    async fn find_free(&mut self, id: JobId) -> Result<Free, StoreError> {
        Ok(self.load_by_id(id)?.map_or(Free::Gone, |loaded| Free::Loaded(Box::new(loaded))))
    }

    async fn twin(&mut self, class: ClassId, isolated: bool) -> Result<ClassId, StoreError> {
        self.cache.classes.twin(self.db, class, isolated)
    }

    fn write_step(&mut self, _loaded: &Loaded, rows: &Step<'_>) -> Result<(), StoreError> {
        self.write(rows)
    }

    /// The insert itself finds a known id; but no class may be created for it.
    async fn insert(&mut self, job: &NewJob) -> Result<Option<Enqueued>, StoreError> {
        if !self.cache.classes.has(&job.stored_in()) && self.seq_of(job.id)?.is_some() {
            return Ok(None);
        }
        self.insert_job(job)
    }

    fn is_stored(&mut self, id: JobId) -> Result<bool, StoreError> {
        Ok(self.seq_of(id)?.is_some())
    }

    /// An embedded store has no arrivals.
    async fn enqueue_arrived(
        &mut self,
        order: &EnqueueArrived,
    ) -> Result<EnqueuedArrived, StoreError> {
        Ok(EnqueuedArrived::all_gone(order))
    }

    fn write_checkpoint(&mut self, loaded: &Loaded, bytes: &[u8]) -> Result<(), StoreError> {
        self.put_checkpoint(loaded.seq, bytes)
    }

    fn write_log(&mut self, chunk: &LogChunk) -> Result<(), StoreError> {
        self.insert_log(chunk)
    }

    async fn take_dead_letter(&mut self, seq: i64) -> Result<Option<DeadLetterReason>, StoreError> {
        let sql = "delete from dead_letter_row where seq = ? returning reason";
        let mut delete = self.db.prepare_cached(sql).map_err(failed)?;
        let reason = |row: &rusqlite::Row<'_>| row::parsed(row, 0, DeadLetterReason::parse);
        delete.query_row([seq], reason).optional().map_err(failed)
    }

    async fn handle_letters(&mut self, letters: &[LetterKey]) -> Result<(), StoreError> {
        let sql = "update dead_letter_row set unhandled = 0
             where seq = (select j.seq from job_row j join finished f on f.seq = j.seq
                 where j.id = ? and f.life = ?)";
        for letter in letters {
            self.execute(sql, (letter.job.0.as_bytes().as_slice(), letter.life.get()))?;
        }
        Ok(())
    }

    async fn due(&mut self, due: Due, sweep: &Sweep) -> Result<Found, StoreError> {
        self.load_due(due, sweep)
    }

    async fn stranded(&mut self, strand: &Strand) -> Result<Vec<Loaded>, StoreError> {
        self.load_stranded(strand)
    }

    async fn next_stranded(&mut self, strand: &Strand) -> Result<Option<Timestamp>, StoreError> {
        self.next_strand(strand)
    }
}

impl KeyTables for Tx<'_> {
    async fn key_holder(&mut self, key: &Fingerprint) -> Result<Option<KeyHolder>, StoreError> {
        self.load_key_holder(key)
    }

    fn take_key(
        &mut self,
        key: &Fingerprint,
        stored: &Enqueued,
        _before: Option<JobId>,
    ) -> Result<(), StoreError> {
        self.put_key(key, stored.id)
    }

    async fn key(&mut self, key: &Fingerprint) -> Result<Key, StoreError> {
        self.load_key(key)
    }

    async fn jobs_of_key(&mut self, key: &Fingerprint) -> Result<Vec<JobId>, StoreError> {
        self.load_jobs_of_key(key)
    }

    fn write_key(
        &mut self,
        once: &EnqueueOnce,
        stored: &[Enqueued],
        expired: bool,
    ) -> Result<(), StoreError> {
        self.insert_key(once, stored, expired)
    }
}

impl WorkerTables for Tx<'_> {
    fn worker(&mut self, worker: WorkerId) -> Result<Option<KnownWorker>, StoreError> {
        self.known_worker(worker)
    }

    async fn count_in_flight(&mut self, worker: WorkerId) -> Result<u32, StoreError> {
        self.count("select count(*) from active where worker = ?", worker)
    }

    async fn holds_one(&mut self, worker: WorkerId) -> Result<bool, StoreError> {
        let sql = "select count(*) from active where worker = ? and not cancelled";
        Ok(self.count(sql, worker)? == 1)
    }

    async fn attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, StoreError> {
        let id = *worker.0.as_bytes();
        self.load_all("select seq from active where worker = ? order by seq", [id.as_slice()])
    }

    async fn plain_attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, StoreError> {
        self.load_plain_attempts(worker)
    }

    fn write_worker(&mut self, id: WorkerId, change: WorkerChange<'_>) -> Result<(), StoreError> {
        self.update_worker(id, change)
    }

    async fn standing_orders(&mut self) -> Result<Vec<StandingOrder>, StoreError> {
        read::worker::standing_orders(self.db)
    }

    async fn living_or_changed(
        &mut self,
        since: Timestamp,
    ) -> Result<Vec<(WorkerId, Labels)>, StoreError> {
        read::worker::living_or_changed(self.db, since)
    }

    fn write_standing_order(&mut self, change: StandingChange<'_>) -> Result<(), StoreError> {
        self.update_standing_order(change)
    }
}

impl QueueTables for Tx<'_> {
    fn has_bounds(&self) -> bool {
        self.cache.limits.bound_depths()
    }

    async fn depth(&mut self, queue: &str) -> Result<Option<Depth>, StoreError> {
        self.depth_of(queue)
    }

    fn write_pause(&mut self, order: &QueueOrder) -> Result<(), StoreError> {
        self.execute(
            "insert into queue (name, paused) values (?1, ?2)
             on conflict (name) do update set paused = ?2",
            (&order.queue, order.paused),
        )?;
        self.cache.classes.set_paused(&order.queue, order.paused);
        Ok(())
    }

    async fn find_queue(&mut self, queue: &str) -> Result<Option<QueueRecord>, StoreError> {
        Ok(read::queue::settings(self.db, Some(queue))?.pop())
    }

    fn write_queue(
        &mut self,
        record: &QueueRecord,
        _found: Option<&QueueRecord>,
    ) -> Result<(), StoreError> {
        self.put_settings(record)
    }
}

impl LimitTables for Tx<'_> {
    async fn find_limit(&mut self, name: &LimitName) -> Result<FoundLimit, StoreError> {
        self.load_limit(name)
    }

    fn write_limit(&mut self, order: &SetLimit) -> Result<(), StoreError> {
        self.put_limit(order)
    }

    fn delete_limit(&mut self, name: &LimitName) -> Result<(), StoreError> {
        self.remove_limit(name)
    }

    async fn limits_in_force(&mut self) -> Result<Limits, StoreError> {
        Ok(self.cache.limits.clone())
    }

    async fn pass(&mut self, gates: &[LaneGate]) -> Result<(), StoreError> {
        self.pass_gates(gates)
    }

    async fn recount(&mut self, gates: &[GateId]) -> Result<Vec<Miscount>, StoreError> {
        self.keep_gates()?;
        self.miscounts(gates)
    }
}

impl WorkflowTables for Tx<'_> {
    async fn find_workflow(
        &mut self,
        id: WorkflowId,
    ) -> Result<Option<WorkflowRecord>, StoreError> {
        read::workflow::one(self.db, id, false)
    }

    fn make_workflow(&mut self, record: &WorkflowRecord) -> Result<(), StoreError> {
        self.insert_workflow(record)
    }

    fn start_workflow(&mut self, record: &WorkflowRecord) -> Result<(), StoreError> {
        self.insert_workflow(record)
    }

    fn change_workflow(&mut self, record: &WorkflowRecord) -> Result<(), StoreError> {
        self.update_workflow(record)
    }

    fn write_steps(&mut self, id: WorkflowId, steps: &[StepRecord]) -> Result<(), StoreError> {
        steps.iter().try_for_each(|step| self.put_step(id, step))
    }

    fn write_items(&mut self, id: WorkflowId, items: Vec<ItemRecord>) -> Result<(), StoreError> {
        items.iter().try_for_each(|item| self.put_item(id, item))
    }

    fn take_ends(&mut self, id: WorkflowId, numbers: &[i64]) -> Result<(), StoreError> {
        numbers.iter().try_for_each(|number| self.delete_end(id, *number))
    }
}

impl ScheduleTables for Tx<'_> {
    async fn find_schedule(
        &mut self,
        name: &ScheduleName,
    ) -> Result<Option<ScheduleRecord>, StoreError> {
        read::schedule::one(self.db, name)
    }

    async fn count_schedules(&mut self) -> Result<usize, StoreError> {
        read::schedule::count(self.db)
    }

    fn write_schedule(
        &mut self,
        record: &ScheduleRecord,
        _found: Option<&ScheduleRecord>,
    ) -> Result<(), StoreError> {
        self.put_schedule(record)
    }

    fn delete_schedule(&mut self, name: &ScheduleName) -> Result<(), StoreError> {
        self.execute("delete from schedule where name = ?", [name.as_str()]).map(|_| ())
    }
}

impl SessionTables for Tx<'_> {
    async fn insert_session(
        &mut self,
        session: &BrowserSession,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        self.put_session(session)
    }

    fn renew_session(&mut self, id: Uuid, now: Timestamp) -> Result<(), StoreError> {
        self.use_session(id, now)
    }

    async fn delete_sessions(
        &mut self,
        which: &WhichSessions,
    ) -> Result<Vec<BrowserSession>, StoreError> {
        self.take_sessions(which)
    }
}

impl OperationTables for Tx<'_> {
    async fn find_operation(
        &mut self,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, StoreError> {
        read::operation::one(self.db, id)
    }

    async fn count_running_operations(&mut self) -> Result<usize, StoreError> {
        read::operation::count_running(self.db)
    }

    fn make_operation(&mut self, record: &OperationRecord) -> Result<(), StoreError> {
        self.insert_operation(record)
    }

    fn change_operation(&mut self, record: &OperationRecord) -> Result<(), StoreError> {
        self.update_operation(record)
    }
}

impl LeaderTables for Tx<'_> {
    async fn find_leadership(
        &mut self,
        name: &str,
        _lock: bool,
    ) -> Result<Option<Leadership>, StoreError> {
        let sql = "select holder, epoch, until from duty where name = ?";
        let mut select = self.db.prepare_cached(sql).map_err(failed)?;
        let found = select.query_row([name], |row| {
            let holder = Uuid::from_bytes(row.get(0)?);
            let epoch = Epoch(row.get::<_, i64>(1)?.unsigned_abs());
            Ok(Leadership { holder, epoch, until: Timestamp(row.get(2)?) })
        });
        found.optional().map_err(failed)
    }

    async fn write_leadership(
        &mut self,
        ask: &LeadershipRequest,
        _found: Option<Leadership>,
        leadership: Leadership,
    ) -> Result<(), StoreError> {
        self.execute(
            "insert or replace into duty (name, holder, epoch, until) values (?, ?, ?, ?)",
            (
                &ask.name,
                leadership.holder.as_bytes().as_slice(),
                int(leadership.epoch.0),
                leadership.until.0,
            ),
        )?;
        Ok(())
    }
}

impl Backend for Tx<'_> {
    async fn claims(&mut self, commands: &[Command]) -> Result<Vec<Reply>, StoreError> {
        let Some(Command::Claim(claim)) = commands.first() else { return Ok(Vec::new()) };
        Ok(vec![Reply::Claimed(self.claim(claim)?)])
    }

    async fn extends(&mut self, commands: &[Command]) -> Result<Vec<Reply>, StoreError> {
        let Some(Command::Extend(extend)) = commands.first() else { return Ok(Vec::new()) };
        Ok(vec![Reply::Extended(self.extend(extend)?)])
    }

    async fn prune(&mut self, prune: &Prune) -> Result<Pruned, StoreError> {
        // The numbers of jobs may come again.
        self.expired.take();
        self.delete_old(prune)
    }

    async fn reset(&mut self) -> Result<(), StoreError> {
        self.delete_all()?;
        self.cache.classes = Classes::load(self.db)?;
        self.cache.limits = Limits::default();
        self.cache.shares = Shares::default();
        self.cache.depths.clear();
        self.expired.take();
        Ok(())
    }
}
