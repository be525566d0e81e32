//! Two stores side by side: what they answered, and all that can be read.

use std::fmt::Debug;

use outlast_core::job::{DeadLetterReason, State};
use outlast_store::browser_session::SessionQuery;
use outlast_store::command::{Batch, ClassId};
use outlast_store::error::StoreError;
use outlast_store::event::{EventPage, EventQuery, NewestPage, NewestQuery};
use outlast_store::limit::GateQuery;
use outlast_store::operation::{OperationQuery, OperationRecord};
use outlast_store::query::{JobPage, JobQuery, LetterFilter, LogQuery, Page};
use outlast_store::record::WorkerBrief;
use outlast_store::reply::{Applied, Pruned, Reply};
use outlast_store::schedule::ScheduleQuery;
use outlast_store::store::Store;
use outlast_store::workflow::{ItemQuery, WhichItems, WorkflowItemRun, WorkflowLook};

use super::resolve::{job_id, queue_name, worker_id};
use super::script::{Filter, JOBS};
use crate::conformance::Harness;
use crate::conformance::browser_session::hash;
use crate::conformance::workflow::workflow_id;
use crate::model::ModelStore;

fn same<T: PartialEq + Debug>(what: &str, model: &T, store: &T) -> Result<(), String> {
    if model == store {
        return Ok(());
    }
    Err(format!("{what} differs\n  model: {model:#?}\n  store: {store:#?}"))
}

pub(super) fn replies(batch: &Batch, model: &Applied, store: &Applied) -> Result<(), String> {
    same("time", &model.at, &store.at)?;
    same("number of replies", &model.replies.len(), &store.replies.len())?;
    let pairs = model.replies.iter().zip(&store.replies);
    for (n, ((model, store), command)) in pairs.zip(&batch.commands).enumerate() {
        let name = format!("reply {n} to {command:#?}");
        match (model, store) {
            // A store says of a class that it is blocked as far as it looked.
            (Reply::Claimed(Ok(model)), Reply::Claimed(Ok(store))) => {
                same(&name, &model.jobs, &store.jobs)?;
            }
            // Whether there is more depends on gates too, and a store may keep them for longer.
            (Reply::Pruned(Ok(model)), Reply::Pruned(Ok(store))) => {
                same(&name, &Pruned { more: store.more, ..*model }, store)?;
            }
            (model, store) => same(&name, model, store)?,
        }
    }
    Ok(())
}

fn of_filter(filter: &Filter) -> JobQuery {
    let [abandoned, timed_out, started] = filter.flags;
    JobQuery {
        states: filter.states.iter().map(|n| State::ALL[*n]).collect(),
        queue: filter.queue.map(queue_name),
        worker: filter.worker.map(worker_id),
        abandoned,
        timed_out,
        started,
        ..JobQuery::all(Page { limit: filter.limit, cursor: None })
    }
}

fn all() -> JobQuery {
    JobQuery::all(Page { limit: 100, cursor: None })
}

/// Compares every read of both stores.
pub(super) fn reads<H: Harness>(
    harness: &H,
    model: &ModelStore,
    store: &H::Store,
    filter: &Filter,
) -> Result<(), String> {
    let both = Both { harness, model, store };
    for query in [all(), of_filter(filter)] {
        let name = format!("jobs of {query:?}");
        // Cursors are each store's own; whether there is one is not.
        let plain = |page: JobPage| (page.jobs, page.next.is_some(), page.total);
        both.same(&name, |it| it.jobs(query.clone()), |it| it.jobs(query.clone()), plain)?;
    }
    for id in JOBS.map(job_id) {
        both.same("job", |it| it.job(id), |it| it.job(id), |job| job)?;
        both.same("attempts", |it| it.attempts(id), |it| it.attempts(id), |all| all)?;
        let logs = LogQuery { job: id, after: 0, limit: 100 };
        both.same("logs", |it| it.logs(logs), |it| it.logs(logs), |page| page)?;
    }
    both.same("workers", ModelStore::workers, H::Store::workers, |all| all)?;
    let by_id = |mut all: Vec<WorkerBrief>| {
        all.sort_by_key(|worker| worker.id);
        all
    };
    both.same("fleet", ModelStore::fleet, H::Store::fleet, by_id)?;
    both.same(
        "unhandled letters",
        |it| it.unhandled_letters(100),
        |it| it.unhandled_letters(100),
        |all| all,
    )?;
    both.same("standing orders", ModelStore::standing_orders, H::Store::standing_orders, |all| {
        all
    })?;
    both.same("live workers", ModelStore::live_workers, H::Store::live_workers, |all| all)?;
    let workers = harness.block_on(model.workers()).map_err(|error| error.to_string())?;
    for id in workers.into_iter().map(|row| row.id) {
        both.same("held", |it| it.in_flight_of(id), |it| it.in_flight_of(id), |all| all)?;
    }
    both.same("backlog", ModelStore::backlog, H::Store::backlog, |all| all)?;
    both.same("tally", ModelStore::tally, H::Store::tally, |all| all)?;
    let some = || vec![ClassId(2), ClassId(i64::MAX), ClassId(1)];
    both.same("tally of some", |it| it.tally_of(some()), |it| it.tally_of(some()), |all| all)?;
    for queue in harness.block_on(model.queues()).map_err(|error| error.to_string())? {
        let name = || queue.name.clone();
        both.counts_of(&queue.name)?;
        both.same("queue", |it| it.queue(name()), |it| it.queue(name()), |all| all)?;
    }
    both.schedules()?;
    both.workflows()?;
    both.sessions()?;
    both.operations()?;
    both.limits()?;
    // A batch that leaves a gate counting wrongly is a bug, which the audit must not hide.
    for miscounted in [
        harness.block_on(model.miscounted_gates(None, 10)),
        harness.block_on(store.miscounted_gates(None, 10)),
    ] {
        same("miscounted gates", &Ok(Vec::new()), &miscounted.map_err(|error| error.to_string()))?;
    }
    both.same("settings", ModelStore::queue_settings, H::Store::queue_settings, |all| all)?;
    both.same("queues", ModelStore::queues, H::Store::queues, |all| all)?;
    both.dead_letters(filter)?;
    let query = || EventQuery::all(10_000);
    let plain =
        |page: EventPage| -> Vec<_> { page.events.into_iter().map(|(_, event)| event).collect() };
    both.same("events", |it| it.events(query()), |it| it.events(query()), plain)?;
    both.rare_events()?;
    both.next_due()
}

struct Both<'a, H: Harness> {
    harness: &'a H,
    model: &'a ModelStore,
    store: &'a H::Store,
}

impl<'a, H: Harness> Both<'a, H> {
    fn same<T, U, M, S>(
        &self,
        what: &str,
        of_model: impl FnOnce(&'a ModelStore) -> M,
        of_store: impl FnOnce(&'a H::Store) -> S,
        plain: impl Fn(T) -> U,
    ) -> Result<(), String>
    where
        U: PartialEq + Debug,
        M: Future<Output = Result<T, StoreError>> + 'a,
        S: Future<Output = Result<T, StoreError>> + 'a,
    {
        let failed = |error: StoreError| format!("{what}: {error}");
        let model = self.harness.block_on(of_model(self.model)).map_err(failed)?;
        let store = self.harness.block_on(of_store(self.store)).map_err(failed)?;
        same(what, &plain(model), &plain(store))
    }

    /// Those that a store finds by an index of their own, and one that it does not.
    fn rare_events(&self) -> Result<(), String> {
        let plain = |page: NewestPage| {
            let mut all: Vec<String> =
                page.events.into_iter().map(|(_, event)| format!("{event:?}")).collect();
            // Within one millisecond, a store may have them in another order.
            all.sort();
            all
        };
        let queries: [(&[&str], bool); 4] = [
            (&["job.lost"], false),
            (&["job.dead_lettered", "cron.skipped"], false),
            (&["job.lost", "job.failed"], false),
            (&[], true),
        ];
        for (names, audit) in queries {
            let query = || {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                let (queues, limit) = (Vec::new(), 10_000);
                let of = EventQuery {
                    after: None,
                    names,
                    queues,
                    job: None,
                    worker: None,
                    audit,
                    limit,
                };
                NewestQuery { of, since: None, until: None, before: None }
            };
            let of_model = |it: &'a ModelStore| it.newest_events(query());
            self.same("rare events", of_model, |it| it.newest_events(query()), plain)?;
        }
        Ok(())
    }

    fn limits(&self) -> Result<(), String> {
        self.same("limits", ModelStore::limits, H::Store::limits, |all| all)?;
        let limits = self.harness.block_on(self.model.limits());
        for limit in limits.map_err(|error| error.to_string())? {
            let query = || GateQuery { name: limit.limit.name.clone(), limit: 100 };
            self.same("gates", |it| it.gates(query()), |it| it.gates(query()), |all| all)?;
        }
        Ok(())
    }

    /// The dead letters: all, some of them, and those since and before one of them.
    fn dead_letters(&self, filter: &Filter) -> Result<(), String> {
        let all = || JobQuery::dead_letters(Page { limit: 100, cursor: None });
        let only = |letters| JobQuery { letters: Some(letters), ..all() };
        let found = self.harness.block_on(self.model.dead_letters(all()));
        let found = found.map_err(|error| error.to_string())?.letters;
        let at = found.get(found.len() / 2).map(|letter| letter.at);
        let of_reason = |reason| only(LetterFilter { reason: Some(reason), ..Default::default() });
        let mut queries: Vec<JobQuery> = DeadLetterReason::ALL.map(of_reason).into();
        queries.extend([
            all(),
            JobQuery { letters: all().letters, ..of_filter(filter) },
            only(LetterFilter { from: at, ..Default::default() }),
            only(LetterFilter { before: at, ..Default::default() }),
        ]);
        for query in queries {
            self.same(
                &format!("dead letters of {query:?}"),
                |it| it.dead_letters(query.clone()),
                |it| it.dead_letters(query.clone()),
                |page| {
                    let letters = page.letters.into_iter();
                    // Each store has its own cursors.
                    let letters = letters.map(|letter| (letter.job, letter.reason, letter.at));
                    (letters.collect::<Vec<_>>(), page.next.is_some(), page.total)
                },
            )?;
        }
        Ok(())
    }

    /// Compares the ends of items; in which order a batch noted several is up to the store, and so are
    /// their numbers.
    fn workflows(&self) -> Result<(), String> {
        for id in [workflow_id(0), workflow_id(1)] {
            let ends = |look: WorkflowLook| {
                let mut ends: Vec<String> =
                    look.ends.iter().map(|end| format!("{:?}", (&end.end, &end.item))).collect();
                ends.sort_unstable();
                (look.record, look.steps, ends)
            };
            let look = "look at a workflow";
            self.same(
                look,
                |it| it.look_at_workflow(id, true),
                |it| it.look_at_workflow(id, true),
                ends,
            )?;
            let query = ItemQuery {
                workflow: id,
                step: None,
                which: WhichItems::All,
                with_values: true,
                after: None,
                limit: 1_000,
                bytes: usize::MAX,
            };
            let items = "items of a workflow";
            self.same(
                items,
                |it| it.workflow_items(query),
                |it| it.workflow_items(query),
                |all| all,
            )?;
        }
        let unnoted = |mut all: Vec<WorkflowItemRun>| {
            all.sort_by_key(|it| (it.workflow, it.step, it.item));
            all
        };
        let ends = "ends that were not noted";
        self.same(ends, |it| it.unnoted_ends(1_000), |it| it.unnoted_ends(1_000), unnoted)?;
        let counts = "counts of workflows";
        self.same(counts, |it| it.workflow_counts(), |it| it.workflow_counts(), |it| it)
    }

    fn operations(&self) -> Result<(), String> {
        let all = OperationQuery { running: None, after: None, limit: 100 };
        self.same("operations", |it| it.operations(all), |it| it.operations(all), |all| all)?;
        let by_id = |mut all: Vec<OperationRecord>| {
            all.sort_by_key(|it| it.id);
            all
        };
        let running = "operations that run";
        self.same(running, |it| it.running_operations(), |it| it.running_operations(), by_id)
    }

    fn schedules(&self) -> Result<(), String> {
        let all = || ScheduleQuery { after: None, limit: 100 };
        self.same("schedules", |it| it.schedules(all()), |it| it.schedules(all()), |all| all)?;
        let now = self.harness.block_on(self.model.now()).map_err(|error| error.to_string())?;
        let due = "due schedules";
        self.same(due, |it| it.due_schedules(now, 100), |it| it.due_schedules(now, 100), |all| all)
    }

    fn sessions(&self) -> Result<(), String> {
        let now = self.harness.block_on(self.model.now()).map_err(|error| error.to_string())?;
        let of = |token: Option<u8>| SessionQuery {
            token: token.map(|token| hash(token, 0)),
            now,
            before: None,
            limit: 4,
        };
        for query in [of(None), of(Some(1))] {
            let query = || query.clone();
            let all = |it| it;
            self.same(
                "sessions",
                |it| it.browser_sessions(query()),
                |it| it.browser_sessions(query()),
                all,
            )?;
        }
        let one = || hash(0xff, 3);
        self.same(
            "session",
            |it| it.browser_session(one()),
            |it| it.browser_session(one()),
            |it| it,
        )
    }

    /// The counts of a queue, and of tenants in it.
    fn counts_of(&self, queue: &str) -> Result<(), String> {
        for tenant in [None, Some("acme".to_owned()), Some(String::new())] {
            self.same(
                "counts of",
                |it| it.counts_of(queue.to_owned(), tenant.clone()),
                |it| it.counts_of(queue.to_owned(), tenant.clone()),
                |counts| counts,
            )?;
        }
        Ok(())
    }

    /// A store may wake its server too early, never too late.
    fn next_due(&self) -> Result<(), String> {
        let failed = |error: StoreError| format!("next due: {error}");
        let model = self.harness.block_on(self.model.next_due()).map_err(failed)?;
        let store = self.harness.block_on(self.store.next_due()).map_err(failed)?;
        match (model, store) {
            (None, _) => Ok(()),
            (Some(model), Some(store)) if store <= model => Ok(()),
            (Some(_), _) => same("next due", &model, &store),
        }
    }
}
