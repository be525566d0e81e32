//! The writer's transaction as [`outlast_store_rules::backend`] sees it.

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::DeadLetterReason;
use outlast_core::leadership::Leadership;
use outlast_core::limit::{GateId, LimitName};
use outlast_core::operation::OperationId;
use outlast_core::queue::Depth;
use outlast_core::schedule::ScheduleName;
use outlast_core::time::Timestamp;
use outlast_core::worker::order::StandingOrder;
use outlast_core::workflow::WorkflowId;
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
use outlast_store::reply::{EnqueueRefusal, Enqueued, MoveRefusal, Pruned, Reply};
use outlast_store::schedule::ScheduleRecord;
use outlast_store::unique::KeyHolder;
use outlast_store::workflow::{ItemRecord, StepRecord, WorkflowRecord};
use outlast_store_rules::apply::batch::BatchState;
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

use uuid::Uuid;

use crate::connection::values;
use crate::failure::{Conflict, Failure};
use crate::row::{self, text};
use crate::writer::Tx;
use crate::writer::leadership::{FOUND, FOUND_AND_LOCKED};
use crate::writer::workers::PlainOnes;
use crate::writer::write_set::CheckpointRow;

impl Transaction for Tx<'_> {
    type Error = Failure;

    fn batch(&mut self) -> &mut BatchState {
        &mut self.batch
    }
}

impl JobTables for Tx<'_> {
    async fn find(&mut self, id: JobId) -> Result<Option<Loaded>, Failure> {
        self.take_loaded(id).await
    }

    async fn find_free(&mut self, id: JobId) -> Result<Free, Failure> {
        self.take_free(id).await
    }

    fn forget(&mut self, loaded: &Loaded) {
        self.seen.jobs.remove(&loaded.stored.id);
        self.seen.remembered.remove(&loaded.stored.id);
        self.cache.attempt_cache.forget(loaded.stored.id);
        self.seen.in_flight.clear();
    }

    async fn twin(&mut self, class: ClassId, isolated: bool) -> Result<ClassId, Failure> {
        self.twin_of(class, isolated).await
    }

    fn write_step(&mut self, loaded: &Loaded, rows: &Step<'_>) -> Result<(), Failure> {
        self.remember_started(loaded, &rows.removal);
        self.note_step(rows);
        Ok(())
    }

    async fn insert(&mut self, job: &NewJob) -> Result<Option<Enqueued>, Failure> {
        if self.seen.stored.contains(&job.id) {
            return Ok(None);
        }
        self.insert_job(job, None).await.map(Some)
    }

    fn is_stored(&mut self, id: JobId) -> Result<bool, Failure> {
        Ok(self.seen.stored.contains(&id))
    }

    fn confirm_enqueue_refusal(&self, refusal: EnqueueRefusal) -> Result<EnqueueRefusal, Failure> {
        if self.locks.come_first {
            return Ok(refusal);
        }
        // A job before it may be stored already, and the first fault is reported.
        Err(Failure::Again(Conflict::Key, refusal.to_string()))
    }

    async fn enqueue_arrived(
        &mut self,
        order: &EnqueueArrived,
    ) -> Result<EnqueuedArrived, Failure> {
        self.take_arrivals(order).await
    }

    fn confirm_refusal(
        &self,
        loaded: &Loaded,
        refusal: MoveRefusal,
    ) -> Result<MoveRefusal, Failure> {
        if self.seen.remembered.contains(&loaded.stored.id) {
            let words = format!("what was remembered refuses: {refusal:?}");
            return Err(Failure::Again(Conflict::Stale, words));
        }
        Ok(refusal)
    }

    fn write_checkpoint(&mut self, loaded: &Loaded, bytes: &[u8]) -> Result<(), Failure> {
        self.write_set.checkpoints.push(CheckpointRow { seq: loaded.seq, bytes: bytes.to_vec() });
        if loaded.attempt().is_some_and(|attempt| attempt.worker.is_some() && !attempt.cancelled) {
            self.seen.fresh.push(Loaded { checkpoint: true, ..loaded.clone() });
        }
        Ok(())
    }

    fn write_log(&mut self, chunk: &LogChunk) -> Result<(), Failure> {
        self.note_log(chunk);
        Ok(())
    }

    async fn take_dead_letter(&mut self, seq: i64) -> Result<Option<DeadLetterReason>, Failure> {
        let sql = "delete from dead_letter_row where seq = $1 returning reason";
        let gone = self.query(sql, values![seq]).await?;
        let reason = gone.first().map(|row| row::parsed(row, 0, DeadLetterReason::parse));
        Ok(reason.transpose()?)
    }

    async fn handle_letters(&mut self, letters: &[LetterKey]) -> Result<(), Failure> {
        let jobs: Vec<Uuid> = letters.iter().map(|letter| letter.job.0).collect();
        let lives: Vec<i64> = letters.iter().map(|letter| i64::from(letter.life.get())).collect();
        let sql = "update dead_letter_row d set unhandled = false
             from unnest($1::uuid[], $2::bigint[]) k(id, life)
             join job_row j on j.id = k.id
             join finished f on f.seq = j.seq and f.life = k.life
             where d.seq = j.seq and d.unhandled";
        self.query(sql, values![jobs, lives]).await.map(|_| ())
    }

    async fn due(&mut self, due: Due, sweep: &Sweep) -> Result<Found, Failure> {
        self.load_due(due, sweep).await
    }

    async fn stranded(&mut self, strand: &Strand) -> Result<Vec<Loaded>, Failure> {
        self.load_stranded(strand).await
    }

    async fn next_stranded(&mut self, strand: &Strand) -> Result<Option<Timestamp>, Failure> {
        self.next_strand(strand).await
    }
}

impl KeyTables for Tx<'_> {
    async fn look_at_keys(&mut self, keys: Vec<Fingerprint>) -> Result<(), Failure> {
        self.load_key_holders(keys).await
    }

    async fn key_holder(&mut self, key: &Fingerprint) -> Result<Option<KeyHolder>, Failure> {
        Ok(self.seen.keys.get(key).copied())
    }

    fn take_key(
        &mut self,
        key: &Fingerprint,
        stored: &Enqueued,
        before: Option<JobId>,
    ) -> Result<(), Failure> {
        self.note_key_taken(*key, stored, before);
        Ok(())
    }

    async fn key(&mut self, key: &Fingerprint) -> Result<Key, Failure> {
        self.load_key(key).await
    }

    async fn jobs_of_key(&mut self, key: &Fingerprint) -> Result<Vec<JobId>, Failure> {
        self.load_jobs_of_key(key).await
    }

    fn write_key(
        &mut self,
        once: &EnqueueOnce,
        stored: &[Enqueued],
        expired: bool,
    ) -> Result<(), Failure> {
        self.note_key(once, stored, expired);
        Ok(())
    }
}

impl WorkerTables for Tx<'_> {
    fn worker(&mut self, worker: WorkerId) -> Result<Option<KnownWorker>, Failure> {
        Ok(self.known_worker(worker))
    }

    async fn count_in_flight(&mut self, worker: WorkerId) -> Result<u32, Failure> {
        Ok(self.counts_of(worker).await?.0)
    }

    async fn holds_one(&mut self, worker: WorkerId) -> Result<bool, Failure> {
        Ok(self.counts_of(worker).await?.1 == 1)
    }

    async fn prefetch_attempts(&mut self, workers: &[WorkerId]) -> Result<(), Failure> {
        self.prefetch_attempts_of(workers).await
    }

    fn forget_prefetched(&mut self) {
        self.seen.attempts.clear();
        self.seen.plain = PlainOnes::default();
    }

    async fn attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, Failure> {
        self.load_attempts(worker).await
    }

    async fn plain_attempts_of(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, Failure> {
        self.load_plain_attempts(worker).await
    }

    fn write_worker(&mut self, id: WorkerId, change: WorkerChange<'_>) -> Result<(), Failure> {
        Ok(self.note_worker(id, change)?)
    }

    async fn standing_orders(&mut self) -> Result<Vec<StandingOrder>, Failure> {
        Ok(self.seen.orders.values().cloned().collect())
    }

    fn write_workers(
        &mut self,
        workers: &[WorkerId],
        change: WorkerChange<'_>,
    ) -> Result<(), Failure> {
        match change {
            _ if workers.is_empty() => {}
            WorkerChange::Moved(standing, evidence) => {
                self.note_standing(workers, standing, evidence);
            }
            WorkerChange::Ordered(given) => self.note_order(workers, given),
            _ => workers.iter().try_for_each(|worker| self.note_worker(*worker, change))?,
        }
        Ok(())
    }

    async fn living_or_changed(
        &mut self,
        since: Timestamp,
    ) -> Result<Vec<(WorkerId, Labels)>, Failure> {
        Ok(self.known_living_or_changed(since))
    }

    fn write_standing_order(&mut self, change: StandingChange<'_>) -> Result<(), Failure> {
        self.note_standing_order(change);
        Ok(())
    }
}

impl QueueTables for Tx<'_> {
    fn has_bounds(&self) -> bool {
        self.may_have_bounds()
    }

    async fn depth(&mut self, queue: &str) -> Result<Option<Depth>, Failure> {
        self.depth_of(queue).await
    }

    fn write_pause(&mut self, order: &QueueOrder) -> Result<(), Failure> {
        self.write(
            "insert into queue (name, paused) values ($1, $2)
             on conflict (name) do update set paused = excluded.paused",
            values![text(&order.queue), order.paused],
        );
        Ok(())
    }

    async fn find_queue(&mut self, queue: &str) -> Result<Option<QueueRecord>, Failure> {
        self.lock_settings(queue).await
    }

    fn write_queue(
        &mut self,
        record: &QueueRecord,
        found: Option<&QueueRecord>,
    ) -> Result<(), Failure> {
        self.put_settings(record);
        self.bound_changed(record, found);
        Ok(())
    }
}

impl LimitTables for Tx<'_> {
    async fn find_limit(&mut self, name: &LimitName) -> Result<FoundLimit, Failure> {
        self.lock_limit(name).await
    }

    fn write_limit(&mut self, order: &SetLimit) -> Result<(), Failure> {
        self.put_limit(order);
        Ok(())
    }

    fn delete_limit(&mut self, name: &LimitName) -> Result<(), Failure> {
        self.remove_limit(name);
        Ok(())
    }

    async fn limits_in_force(&mut self) -> Result<Limits, Failure> {
        self.hold_limits().await
    }

    async fn pass(&mut self, gates: &[LaneGate]) -> Result<(), Failure> {
        self.pass_gates(gates).await
    }

    async fn recount(&mut self, gates: &[GateId]) -> Result<Vec<Miscount>, Failure> {
        self.lock_and_recount(gates).await
    }
}

impl WorkflowTables for Tx<'_> {
    async fn find_workflow(&mut self, id: WorkflowId) -> Result<Option<WorkflowRecord>, Failure> {
        Ok(self.seen.workflows.get(&id).cloned())
    }

    fn make_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Failure> {
        self.insert_workflow(record);
        Ok(())
    }

    fn start_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Failure> {
        self.insert_workflow_once(record);
        Ok(())
    }

    fn change_workflow(&mut self, record: &WorkflowRecord) -> Result<(), Failure> {
        self.update_workflow(record);
        Ok(())
    }

    fn write_steps(&mut self, id: WorkflowId, steps: &[StepRecord]) -> Result<(), Failure> {
        self.put_steps(id, steps);
        Ok(())
    }

    fn write_items(&mut self, id: WorkflowId, items: Vec<ItemRecord>) -> Result<(), Failure> {
        self.put_items(id, &items);
        Ok(())
    }

    fn take_ends(&mut self, id: WorkflowId, numbers: &[i64]) -> Result<(), Failure> {
        self.delete_ends(id, numbers);
        Ok(())
    }
}

impl ScheduleTables for Tx<'_> {
    async fn find_schedule(
        &mut self,
        name: &ScheduleName,
    ) -> Result<Option<ScheduleRecord>, Failure> {
        Ok(self.seen.schedules.get(name).cloned())
    }

    async fn count_schedules(&mut self) -> Result<usize, Failure> {
        self.stored_schedules().await
    }

    fn write_schedule(
        &mut self,
        record: &ScheduleRecord,
        found: Option<&ScheduleRecord>,
    ) -> Result<(), Failure> {
        self.put_schedule(record, found);
        Ok(())
    }

    fn delete_schedule(&mut self, name: &ScheduleName) -> Result<(), Failure> {
        self.remove_schedule(name);
        Ok(())
    }
}

impl SessionTables for Tx<'_> {
    async fn insert_session(
        &mut self,
        session: &BrowserSession,
    ) -> Result<Vec<BrowserSession>, Failure> {
        self.put_session(session).await
    }

    fn renew_session(&mut self, id: Uuid, now: Timestamp) -> Result<(), Failure> {
        self.use_session(id, now);
        Ok(())
    }

    async fn delete_sessions(
        &mut self,
        which: &WhichSessions,
    ) -> Result<Vec<BrowserSession>, Failure> {
        self.take_sessions(which).await
    }
}

impl OperationTables for Tx<'_> {
    async fn find_operation(
        &mut self,
        id: OperationId,
    ) -> Result<Option<OperationRecord>, Failure> {
        Ok(self.seen.operations.get(&id).cloned())
    }

    async fn count_running_operations(&mut self) -> Result<usize, Failure> {
        self.running_operations().await
    }

    fn make_operation(&mut self, record: &OperationRecord) -> Result<(), Failure> {
        self.insert_operation(record);
        Ok(())
    }

    fn change_operation(&mut self, record: &OperationRecord) -> Result<(), Failure> {
        self.update_operation(record);
        Ok(())
    }
}

impl LeaderTables for Tx<'_> {
    async fn find_leadership(
        &mut self,
        name: &str,
        lock: bool,
    ) -> Result<Option<Leadership>, Failure> {
        let sql = if lock { FOUND_AND_LOCKED } else { FOUND };
        let rows = self.query(sql, values![text(name)]).await?;
        Ok(rows.first().map(row::leadership).transpose()?)
    }

    async fn write_leadership(
        &mut self,
        statement: &LeadershipRequest,
        found: Option<Leadership>,
        leadership: Leadership,
    ) -> Result<(), Failure> {
        self.compare_and_set_leadership(&statement.name, found, leadership).await
    }
}

impl Backend for Tx<'_> {
    async fn claims(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        self.claim_all(commands).await
    }

    async fn extends(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        self.extend_all(commands).await
    }

    async fn prune(&mut self, prune: &Prune) -> Result<Pruned, Failure> {
        self.delete_old(prune).await
    }

    async fn reset(&mut self) -> Result<(), Failure> {
        self.delete_all().await
    }
}
