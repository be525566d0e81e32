//! The rows of workers.

use std::sync::LazyLock;

use outlast_core::evidence::Evidence;
use outlast_core::id::WorkerId;
use outlast_core::time::Span;
use outlast_core::worker::liveness::{Liveness, Standing};
use outlast_store::StoreError;
use outlast_store::command::Registration;
use outlast_store_rules::apply::loaded::{KnownWorker, Loaded};
use outlast_store_rules::apply::worker::{replaced_columns, standing_words};
use outlast_store_rules::backend::{StandingChange, WorkerChange};
use outlast_store_rules::codec::json;
use rusqlite::{OptionalExtension as _, params};

use crate::row::{self, failed, int};
use crate::writer::Tx;

static UPSERT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "insert into worker (id, name, worker_role, status, state, last_heartbeat, created,
             updated, phase, liveness, concurrency, queues, runtimes, labels, renewal_seq,
             session_seq, lease_ms, lease_until_ms, last_heartbeat_ms, created_ms, updated_ms,
             evidence, about, plain_id, ordered, ordered_ms, previous)
         values (?1, ?2, ?3, ?4, ?5, strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
             strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
             strftime('%Y-%m-%dT%H:%M:%fZ', ?6 / 1000.0, 'unixepoch'),
             ?7, ?8, ?9, ?10, ?11, ?12, 1, 0, ?13, ?14, ?6, ?6, ?6, 'registered', ?15, ?16, ?17,
             ?18, ?19)
         on conflict (id) do update set renewal_seq = renewal_seq + 1,
             last_heartbeat = excluded.last_heartbeat, updated = excluded.updated, {}",
        replaced_columns()
    )
});

impl Tx<'_> {
    pub(super) fn known_worker(&self, worker: WorkerId) -> Result<Option<KnownWorker>, StoreError> {
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness, session_seq, renewal_seq, lease_until_ms, attachment,
                     plain_id is not null, unhealthy is not null, ordered, ordered_ms, previous,
                     evidence_code, updated_ms, followed_by
                 from worker where id = ?",
            )
            .map_err(failed)?;
        select
            .query_row([worker.to_string()], |row| {
                Ok(KnownWorker {
                    standing: row::standing(row.get(0)?, row.get(1)?),
                    session: row.get(2)?,
                    renewal: row.get(3)?,
                    lease_until: row::time(row, 4)?,
                    attachment: row.get(5)?,
                    plain: row.get(6)?,
                    unhealthy: row.get(7)?,
                    given: row::given_order(row, 8)?,
                    previous: row::worker_text_opt(row, 10)?,
                    ended_by: row::evidence_code(row, 11)?,
                    updated: row::time(row, 12)?,
                    followed_by: row::worker_text_opt(row, 13)?,
                })
            })
            .optional()
            .map_err(failed)
    }

    /// Returns how the latest incarnation of a plain worker stands; one that lives goes before
    /// any that does not.
    pub(super) fn plain_standing(&self, plain: &str) -> Result<Option<Standing>, StoreError> {
        let (live, suspect) =
            (row::liveness_number(Liveness::Live), row::liveness_number(Liveness::Suspect));
        let mut select = self
            .db
            .prepare_cached(
                "select phase, liveness from worker where plain_id = ?1
                 order by liveness in (?2, ?3) desc, created_ms desc, id desc limit 1",
            )
            .map_err(failed)?;
        select
            .query_row(params![plain, live, suspect], |row| {
                Ok(row::standing(row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(failed)
    }

    pub(super) fn update_worker(
        &self,
        worker: WorkerId,
        change: WorkerChange<'_>,
    ) -> Result<(), StoreError> {
        match change {
            WorkerChange::Registered(registration, known) => self.upsert(registration, known),
            WorkerChange::Renewed(known, lease) => self.update_lease(worker, known, lease),
            WorkerChange::Attached(known) => {
                let session = (int(known.session), int(known.attachment), worker.to_string());
                let sql = "update worker set session_seq = ?, attachment = ? where id = ?";
                self.execute(sql, session).map(|_| ())
            }
            WorkerChange::Moved(standing, evidence) => {
                self.update_standing(worker, standing, evidence)
            }
            WorkerChange::Ordered(given) => {
                let sql = "update worker set ordered = ?, ordered_ms = ? where id = ?";
                let values = (given.order.as_str(), given.at.0, worker.to_string());
                self.execute(sql, values).map(|_| ())
            }
            WorkerChange::Followed(heir) => {
                let sql = "update worker set followed_by = ? where id = ?";
                self.execute(sql, (heir.to_string(), worker.to_string())).map(|_| ())
            }
            WorkerChange::Health(unhealthy) => {
                let sql = "update worker set unhealthy = ?2, unhealthy_since_ms =
                     case when ?2 is not null then coalesce(unhealthy_since_ms, ?3) end
                     where id = ?1";
                let values = (worker.to_string(), unhealthy, self.batch.context.now.0);
                self.execute(sql, values).map(|_| ())
            }
            WorkerChange::Forgotten => {
                let sql = "delete from worker where id = ?";
                self.execute(sql, [worker.to_string()]).map(|_| ())
            }
        }
    }

    fn upsert(&self, registration: &Registration, known: &KnownWorker) -> Result<(), StoreError> {
        let KnownWorker { standing, lease_until, given, previous, .. } = *known;
        let (status, state) = standing_words(standing);
        self.execute(
            &UPSERT,
            rusqlite::params![
                registration.id.to_string(),
                registration.name,
                registration.role.as_str(),
                status,
                state,
                self.batch.context.now.0,
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                registration.concurrency,
                json(&registration.queues)?,
                json(&registration.runtimes)?,
                json(&registration.labels)?,
                int(registration.lease.0),
                lease_until.0,
                registration.about,
                registration.plain_id,
                given.map(|given| given.order.as_str()),
                given.map(|given| given.at.0),
                previous.map(|previous| previous.to_string()),
            ],
        )?;
        Ok(())
    }

    fn update_lease(
        &self,
        worker: WorkerId,
        known: &KnownWorker,
        lease: Span,
    ) -> Result<(), StoreError> {
        let (status, state) = standing_words(known.standing);
        let renewed = self.execute(
            "update worker set renewal_seq = renewal_seq + 1, lease_ms = ?2, lease_until_ms = ?3,
                 last_heartbeat_ms = ?4,
                 last_heartbeat = strftime('%Y-%m-%dT%H:%M:%fZ', ?4 / 1000.0, 'unixepoch'),
                 status = ?5, state = ?6, liveness = ?7
             where id = ?1 and renewal_seq = ?8 - 1",
            (
                worker.to_string(),
                int(lease.0),
                known.lease_until.0,
                self.batch.context.now.0,
                status,
                state,
                row::liveness_number(known.standing.liveness),
                int(known.renewal),
            ),
        )?;
        if renewed != 1 {
            return Err(StoreError::Corrupt(format!("worker {worker} moved while renewed")));
        }
        Ok(())
    }

    fn update_standing(
        &self,
        worker: WorkerId,
        standing: Standing,
        evidence: &Evidence,
    ) -> Result<(), StoreError> {
        let (status, state) = standing_words(standing);
        self.execute(
            "update worker set phase = ?2, liveness = ?3, status = ?4, state = ?5, evidence = ?6,
                 evidence_code = ?8, updated_ms = ?7,
                 updated = strftime('%Y-%m-%dT%H:%M:%fZ', ?7 / 1000.0, 'unixepoch')
             where id = ?1",
            (
                worker.to_string(),
                row::phase_number(standing.phase),
                row::liveness_number(standing.liveness),
                status,
                state,
                &evidence.text,
                self.batch.context.now.0,
                evidence.word(),
            ),
        )?;
        Ok(())
    }

    pub(super) fn update_standing_order(
        &self,
        change: StandingChange<'_>,
    ) -> Result<(), StoreError> {
        match change {
            StandingChange::Stands(order) => self.execute(
                "insert or replace into worker_order (selector, kind, set_by, set_at)
                 values (?, ?, ?, ?)",
                (order.selector.to_string(), order.order.as_str(), &order.set_by, order.set_at.0),
            ),
            StandingChange::Lifted(selector) => {
                self.execute("delete from worker_order where selector = ?", [selector.to_string()])
            }
            StandingChange::AllLifted => self.execute("delete from worker_order", []),
        }
        .map(|_| ())
    }

    pub(super) fn load_plain_attempts(&self, worker: WorkerId) -> Result<Vec<Loaded>, StoreError> {
        self.load_all(
            "select a.seq from active a join worker w on w.id = ?1 and a.plain = w.plain_id
             where not exists (select 1 from worker o
                 where o.plain_id = w.plain_id and o.liveness in (?2, ?3))
             order by a.seq",
            (
                worker.to_string(),
                row::liveness_number(Liveness::Live),
                row::liveness_number(Liveness::Suspect),
            ),
        )
    }
}
