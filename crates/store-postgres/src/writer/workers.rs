//! The rows of workers. Those of every worker that a batch names are locked when the batch begins.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use outlast_core::evidence::Evidence;
use outlast_core::id::WorkerId;
use outlast_core::time::{Span, Timestamp};
use outlast_core::worker::liveness::{Liveness, Standing};
use outlast_core::worker::order::GivenOrder;
use outlast_store::StoreError;
use outlast_store::command::Registration;
use outlast_store_rules::apply::loaded::{KnownWorker, Loaded};
use outlast_store_rules::apply::worker::{replaced_columns, standing_words};
use outlast_store_rules::backend::{Labels, StandingChange, WorkerChange};
use outlast_store_rules::codec::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Statement, values};
use crate::failure::Failure;
use crate::floors::look::Columns;
use crate::read::worker::standing_orders_of;
use crate::row::{self, get, int, moving_columns, text};
use crate::writer::Tx;
use crate::writer::load::{moving, of_active, select_active};
use crate::writer::write_set::{Renewal, Renewals};

/// Reads the columns id, phase, liveness, `session_seq`, `renewal_seq`, `lease_until_ms`,
/// attachment, whether it is plain and unhealthy, ordered, `ordered_ms`, previous, `evidence_code`,
/// `updated_ms` and `followed_by`.
pub(super) fn known_of(row: &Row) -> Result<KnownWorker, StoreError> {
    Ok(KnownWorker {
        standing: row::standing(get(row, 1)?, get(row, 2)?),
        session: row::count(row, 3)?,
        renewal: row::count(row, 4)?,
        lease_until: row::time(row, 5)?,
        attachment: row::count(row, 6)?,
        plain: get(row, 7)?,
        unhealthy: get(row, 8)?,
        given: row::given_order(row, 9)?,
        previous: get::<Option<Uuid>>(row, 11)?.map(WorkerId),
        ended_by: row::evidence_code(row, 12)?,
        updated: row::time(row, 13)?,
        followed_by: get::<Option<Uuid>>(row, 14)?.map(WorkerId),
    })
}

/// Held shared by batches that register workers, and alone by one that orders them something:
/// `orders` as a number.
pub(super) const ORDERS_LOCK: i64 = 0x6f72_6465_7273;

/// Counts the attempts that workers hold, and those of them that are not cancelled. Bounds on the
/// number alone would also fit the primary key, which holds the attempts of all workers; and a scan
/// that is given a worker begins with its first entry, whatever pair it is to begin with.
const COUNT_IN_FLIGHT: &str = "select w.id, sum(a.held)::bigint, sum(a.live)::bigint
     from unnest($1::uuid[], $2::bigint[], $3::bigint[]) w(id, seq, to_seq)
     cross join lateral (
         select count(*) as held, count(*) filter (where not a.cancelled) as live
         from active a where a.worker is not null and (a.worker, a.seq) >= (w.id, w.seq)
             and (a.worker, a.seq) < (w.id, w.to_seq)) a
     group by w.id";

const IN_FLIGHT_OF_WORKER: &str =
    select_active!("where a.worker = $1 order by a.seq + 0 for update of a");
const IN_FLIGHT_OF_WORKERS: &str =
    select_active!("where a.worker = any($1::uuid[]) order by a.worker, a.seq for update of a");
const IN_FLIGHT_OF_PLAIN: &str =
    select_active!("where a.plain = $1 order by a.seq + 0 for update of a");
const IN_FLIGHT_OF_ALL_PLAIN: &str =
    select_active!("where a.plain = any($1::text[]) order by a.seq + 0 for update of a");
/// Plain workers, each with the others of its id that hold a lease.
const PLAIN_IDS: &str = "select w.id, w.plain_id, o.living
     from unnest($1::uuid[]) k(id)
     cross join lateral (
         select w.id, w.plain_id from worker w
         where w.id = k.id and w.plain_id is not null offset 0) w
     cross join lateral (
         select array(select o.id from worker o where o.plain_id = w.plain_id
             and o.liveness in ($2, $3) and o.id <> w.id) as living) o";
/// The worker's own row is written earlier in the batch, and stands as it will.
const SILENT_PLAIN_ID: &str =
    "select w.plain_id from worker w where w.id = $1 and w.plain_id is not null
     and not exists (select 1 from worker o where o.plain_id = w.plain_id
         and o.liveness in ($2, $3) and o.id <> w.id)";

static UPSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into worker as w (id, name, worker_role, status, state, phase, liveness,
             concurrency, queues, runtimes, labels, renewal_seq, session_seq, attachment,
             lease_ms, lease_until_ms, last_heartbeat_ms, created_ms, updated_ms, evidence,
             about, plain_id, ordered, ordered_ms, previous)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1, 0, 0, $12, $13, $14, $14,
                 $14, 'registered', $15, $16, $17, $18, $19)
         on conflict (id) do update set renewal_seq = w.renewal_seq + 1, {}",
        replaced_columns()
    )
});

/// What was prefetched of plain workers that are about to be given up.
#[derive(Debug, Default)]
pub(super) struct PlainOnes {
    /// Each with its id, and the others of that id that held a lease.
    ids: HashMap<WorkerId, (String, Vec<WorkerId>)>,
    /// Attempts of ids of which no other worker will hold a lease.
    attempts: HashMap<String, Vec<Loaded>>,
}

fn ids_of(workers: &[WorkerId]) -> Vec<Uuid> {
    workers.iter().map(|worker| worker.0).collect()
}

impl Tx<'_> {
    pub(super) fn known_worker(&self, worker: WorkerId) -> Option<KnownWorker> {
        self.seen.workers.get(&worker).copied().flatten()
    }

    /// Returns how the latest incarnation of a plain worker stands; one that lives goes before
    /// any that does not.
    pub(super) async fn plain_standing(
        &mut self,
        plain: &str,
    ) -> Result<Option<Standing>, Failure> {
        let rows = self
            .query(
                "select phase, liveness from worker where plain_id = $1
                 order by liveness in ($2, $3) desc, created_ms desc, id desc limit 1",
                values![
                    text(plain),
                    row::liveness_number(Liveness::Live),
                    row::liveness_number(Liveness::Suspect),
                ],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(row::standing(get(row, 0)?, get(row, 1)?)))
    }

    /// Returns how many attempts a worker holds, and how many of them are not cancelled.
    pub(super) async fn counts_of(&mut self, worker: WorkerId) -> Result<(u32, u32), Failure> {
        if let Some(counts) = self.seen.in_flight.get(&worker) {
            return Ok(*counts);
        }
        if let Some(attempts) = self.seen.attempts.get(&worker) {
            let cancelled =
                |loaded: &&Loaded| loaded.attempt().is_some_and(|attempt| attempt.cancelled);
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let live = attempts.len() - attempts.iter().filter(cancelled).count();
            return Ok((count(attempts.len()), count(live)));
        }
        // It may decide that the worker holds nothing: no floor is believed.
        let values = values![vec![worker.0], vec![i64::MIN], vec![i64::MAX]];
        let rows = self.query(COUNT_IN_FLIGHT, values).await?;
        self.take_counts(&rows)?;
        Ok(self.seen.in_flight.get(&worker).copied().unwrap_or_default())
    }

    /// Counts the attempts of workers that have a session here: no other server gives them any.
    pub(super) fn counting(&self, workers: &[Uuid]) -> Statement {
        let ranges = self.holds.active.floors().ranges(workers.iter().copied());
        let w = Columns::of(&ranges);
        Statement::new(COUNT_IN_FLIGHT, values![w.keys, w.seqs, w.to_seqs])
    }

    /// Keeps counts; they hold until the batch moves a job.
    pub(super) fn take_counts(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let counted = |at: usize| -> Result<u32, StoreError> {
                Ok(u32::try_from(row::count(row, at)?).unwrap_or(u32::MAX))
            };
            self.seen.in_flight.insert(WorkerId(get(row, 0)?), (counted(1)?, counted(2)?));
        }
        Ok(())
    }

    pub(super) fn note_worker(
        &mut self,
        worker: WorkerId,
        change: WorkerChange<'_>,
    ) -> Result<(), StoreError> {
        if matches!(change, WorkerChange::Registered(..) | WorkerChange::Attached(_)) {
            // It may come from another server, which gave it jobs.
            self.holds.active.floors().forget_key(worker.0);
        }
        match change {
            WorkerChange::Registered(registration, known) => {
                self.note_registration(registration, known)?;
            }
            WorkerChange::Renewed(known, lease) => self.note_renewal(worker, *known, lease),
            WorkerChange::Attached(known) => self.write(
                "update worker set session_seq = $2, attachment = $3 where id = $1",
                values![worker.0, int(known.session), int(known.attachment)],
            ),
            WorkerChange::Moved(standing, evidence) => {
                self.note_standing(&[worker], standing, evidence);
            }
            WorkerChange::Ordered(given) => self.note_order(&[worker], given),
            WorkerChange::Followed(heir) => {
                let sql = "update worker set followed_by = $2 where id = $1";
                self.write(sql, values![worker.0, heir.0]);
                if let Some(Some(known)) = self.seen.workers.get_mut(&worker) {
                    known.followed_by = Some(heir);
                }
            }
            WorkerChange::Health(unhealthy) => {
                self.write(
                    "update worker set unhealthy = $2::text, unhealthy_since_ms =
                         case when $2::text is not null
                             then coalesce(unhealthy_since_ms, $3::bigint) end
                     where id = $1",
                    values![worker.0, unhealthy.map(text), self.batch.context.now.0],
                );
                if let Some(Some(known)) = self.seen.workers.get_mut(&worker) {
                    known.unhealthy = unhealthy.is_some();
                }
            }
            WorkerChange::Forgotten => {
                self.write("delete from worker where id = $1", values![worker.0]);
                self.seen.workers.insert(worker, None);
            }
        }
        Ok(())
    }

    fn note_registration(
        &mut self,
        registration: &Registration,
        known: &KnownWorker,
    ) -> Result<(), StoreError> {
        let KnownWorker { standing, lease_until, given, previous, .. } = *known;
        let (status, state) = standing_words(standing);
        self.write(
            &UPSERT,
            values![
                registration.id.0,
                text(&registration.name),
                registration.role.as_str(),
                status,
                state,
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                i64::from(registration.concurrency),
                json(&registration.queues)?,
                json(&registration.runtimes)?,
                json(&registration.labels)?,
                int(registration.lease.0),
                lease_until.0,
                self.batch.context.now.0,
                text(&registration.about),
                registration.plain_id.as_deref().map(text),
                given.map(|given| given.order.as_str()),
                given.map(|given| given.at.0),
                previous.map(|previous| previous.0),
            ],
        );
        self.seen.workers.insert(registration.id, Some(*known));
        self.seen.labels.insert(registration.id, registration.labels.clone());
        Ok(())
    }

    /// Returns the workers that hold a lease, those that have lapsed and were ordered something, and
    /// those whose rows have changed since this time, locked, with their labels.
    pub(super) fn known_living_or_changed(&self, since: Timestamp) -> Vec<(WorkerId, Labels)> {
        let is_wanted = |known: KnownWorker| {
            known.standing.holds_lease()
                || known.updated >= since
                || known.standing.liveness == Liveness::Lapsed && known.given.is_some()
        };
        let wanted = self
            .seen
            .labels
            .iter()
            .filter(|(id, _)| self.known_worker(**id).is_some_and(is_wanted));
        wanted.map(|(id, labels)| (*id, labels.clone())).collect()
    }

    /// Keeps the orders that hold for workers to come.
    pub(super) fn take_orders(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for order in standing_orders_of(rows)? {
            self.seen.orders.insert(order.selector.clone(), order);
        }
        Ok(())
    }

    pub(super) fn note_standing_order(&mut self, change: StandingChange<'_>) {
        match change {
            StandingChange::Stands(order) => {
                self.write(
                    "insert into worker_order (selector, kind, set_by, set_at)
                     values ($1, $2, $3, $4)
                     on conflict (selector) do update set kind = excluded.kind,
                         set_by = excluded.set_by, set_at = excluded.set_at",
                    values![
                        order.selector.to_string(),
                        order.order.as_str(),
                        text(&order.set_by),
                        order.set_at.0,
                    ],
                );
                self.seen.orders.insert(order.selector.clone(), order.clone());
            }
            StandingChange::Lifted(selector) => {
                let sql = "delete from worker_order where selector = $1";
                self.write(sql, values![selector.to_string()]);
                self.seen.orders.remove(selector);
            }
            StandingChange::AllLifted => {
                self.write("delete from worker_order", values![]);
                self.seen.orders.clear();
            }
        }
    }

    /// Notes a renewed lease: one row, whatever the worker runs.
    fn note_renewal(&mut self, worker: WorkerId, known: KnownWorker, lease: Span) {
        let (status, state) = standing_words(known.standing);
        let renewal = Renewal {
            id: worker.0,
            renewal: int(known.renewal) - 1,
            lease_ms: int(lease.0),
            lease_until: known.lease_until.0,
            at: self.batch.context.now.0,
            status,
            state,
            liveness: row::liveness_number(known.standing.liveness),
        };
        // Renewals of different workers are one statement, if nothing was said about a worker
        // before in this batch.
        if !self.write_set.others.is_empty() || self.write_set.renewals.has(worker.0) {
            self.write_set.others.extend(Renewals::of(renewal).into_statement());
        } else {
            self.write_set.renewals.push(renewal);
        }
        self.seen.workers.insert(worker, Some(known));
    }

    pub(super) fn note_order(&mut self, workers: &[WorkerId], given: GivenOrder) {
        self.write(
            "update worker set ordered = $2, ordered_ms = $3 where id = any($1::uuid[])",
            values![ids_of(workers), given.order.as_str(), given.at.0],
        );
        for worker in workers {
            if let Some(Some(known)) = self.seen.workers.get_mut(worker) {
                known.given = Some(given);
            }
        }
    }

    pub(super) fn note_standing(
        &mut self,
        workers: &[WorkerId],
        standing: Standing,
        evidence: &Evidence,
    ) {
        let (status, state) = standing_words(standing);
        self.write(
            "update worker set phase = $2, liveness = $3, status = $4, state = $5, evidence = $6,
                 evidence_code = $8, updated_ms = $7
             where id = any($1::uuid[])",
            values![
                ids_of(workers),
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                status,
                state,
                text(&evidence.text),
                self.batch.context.now.0,
                evidence.word(),
            ],
        );
        let now = self.batch.context.now;
        for worker in workers {
            if let Some(Some(known)) = self.seen.workers.get_mut(worker) {
                *known = KnownWorker { standing, ended_by: evidence.code, updated: now, ..*known };
            }
        }
    }

    pub(super) async fn load_attempts(&mut self, worker: WorkerId) -> Result<Vec<Loaded>, Failure> {
        if let Some(prefetched) = self.seen.attempts.remove(&worker) {
            return Ok(prefetched);
        }
        let rows = self.query(IN_FLIGHT_OF_WORKER, values![worker.0]).await?;
        self.load_rows(&rows, Self::of_active).await
    }

    pub(super) async fn prefetch_attempts_of(
        &mut self,
        workers: &[WorkerId],
    ) -> Result<(), Failure> {
        let ids: Vec<Uuid> = workers.iter().map(|worker| worker.0).collect();
        let rows = self.query(IN_FLIGHT_OF_WORKERS, values![ids]).await?;
        let mut attempts: HashMap<WorkerId, Vec<Loaded>> =
            workers.iter().map(|worker| (*worker, Vec::new())).collect();
        for loaded in self.load_rows(&rows, Self::of_active).await? {
            if let Some(worker) = loaded.attempt().and_then(|attempt| attempt.worker) {
                attempts.entry(worker).or_default().push(loaded);
            }
        }
        self.seen.attempts = attempts;
        self.prefetch_plain_attempts_of(workers).await
    }

    async fn prefetch_plain_attempts_of(&mut self, workers: &[WorkerId]) -> Result<(), Failure> {
        let is_plain = |id: &&WorkerId| self.known_worker(**id).is_some_and(|it| it.plain);
        let plain: Vec<Uuid> = workers.iter().filter(is_plain).map(|id| id.0).collect();
        if plain.is_empty() {
            return Ok(());
        }
        let ending: HashSet<Uuid> = plain.iter().copied().collect();
        let living = [Liveness::Live, Liveness::Suspect].map(row::liveness_number);
        let rows = self.query(PLAIN_IDS, values![plain, living[0], living[1]]).await?;
        let (mut ones, mut silent) = (PlainOnes::default(), Vec::with_capacity(rows.len()));
        for row in &rows {
            let (name, others): (String, Vec<Uuid>) = (get(row, 1)?, get(row, 2)?);
            if others.iter().all(|other| ending.contains(other)) {
                silent.push(name.clone());
            }
            let others = others.into_iter().map(WorkerId).collect();
            ones.ids.insert(WorkerId(get(row, 0)?), (name, others));
        }
        let rows = self.query(IN_FLIGHT_OF_ALL_PLAIN, values![silent]).await?;
        for loaded in self.load_rows(&rows, Self::of_active).await? {
            if let Some(name) = loaded.attempt().and_then(|attempt| attempt.plain.clone()) {
                ones.attempts.entry(name).or_default().push(loaded);
            }
        }
        self.seen.plain = ones;
        Ok(())
    }

    pub(super) async fn load_plain_attempts(
        &mut self,
        worker: WorkerId,
    ) -> Result<Vec<Loaded>, Failure> {
        if let Some((name, others)) = self.seen.plain.ids.remove(&worker) {
            // Those that were given up before it in this batch are known to be gone.
            let is_gone = |other: &WorkerId| {
                self.known_worker(*other).is_some_and(|it| !it.standing.holds_lease())
            };
            let attempts =
                others.iter().all(is_gone).then(|| self.seen.plain.attempts.remove(&name));
            return Ok(attempts.flatten().unwrap_or_default());
        }
        let living = values![
            worker.0,
            row::liveness_number(Liveness::Live),
            row::liveness_number(Liveness::Suspect),
        ];
        let plain = self.query(SILENT_PLAIN_ID, living).await?;
        let Some(plain) = plain.first() else { return Ok(Vec::new()) };
        let plain: String = get(plain, 0)?;
        let rows = self.query(IN_FLIGHT_OF_PLAIN, values![plain]).await?;
        self.load_rows(&rows, Self::of_active).await
    }
}
