//! What a server would ask of a store, for tests that need a real file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use outlast_core::budget::Budgets;
use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::time::Span;
use outlast_store::command::{
    AskedByQueues, Attach, Claim, ClaimFrom, Claimant, ClassId, EndDetail, Fence, Finish, NewJob,
    Origin, Registration, ReportedOutcome, Reporter, Route, WorkerRole,
};
use outlast_store::{Batch, BatchId, Command};
use outlast_store_testkit::job::plain_job;
use uuid::Uuid;

pub(crate) const LEASE: Span = Span::from_secs(15);

pub(crate) fn batch(n: u64, commands: Vec<Command>) -> Batch {
    let id = BatchId { server: Uuid::from_u128(1), n };
    Batch { id, jitter_seed: n, budgets: Budgets::DEFAULT, commands }
}

/// The batch that makes a worker known and attaches its first session.
pub(crate) fn arrival(worker: WorkerId) -> Vec<Command> {
    let registration = Registration {
        id: worker,
        name: "shell-1".into(),
        role: WorkerRole::Action,
        concurrency: 10,
        queues: vec!["default".into()],
        runtimes: vec!["shell".into()],
        labels: BTreeMap::new(),
        lease: LEASE,
        about: "{}".into(),
        plain_id: None,
        previous: Vec::new(),
    };
    let attach = Attach { worker, attachment: 1, lease: LEASE };
    vec![Command::Register(Box::new(registration)), Command::Attach(attach)]
}

pub(crate) fn enqueue(id: JobId) -> Command {
    let mut job = NewJob { origin: Origin::Execution, ..plain_job(id) };
    job.class.job_type = "core.noop".into();
    job.class.route =
        Route::Action { runtime: "shell".into(), labels: BTreeMap::new(), proof: false };
    job.payload.args = "[{}]".into();
    Command::Enqueue(Box::new(job))
}

pub(crate) fn claim(worker: WorkerId, max: NonZeroU32) -> Command {
    let claimant = Claimant::Native { worker, session: 1 };
    Command::Claim(Claim {
        claimant,
        from: ClaimFrom::Classes([ClassId(1)].into()),
        max,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    })
}

pub(crate) fn complete(worker: WorkerId, job: JobId, epoch: Epoch) -> Command {
    let fence = Fence { epoch: Some(epoch), worker: Some(Reporter::Native(worker)), attempt: None };
    Command::Finish(Box::new(Finish {
        job,
        fence,
        reported: ReportedOutcome::Completed,
        detail: EndDetail { result: Some(format!("\"{job}\"")), ..EndDetail::default() },
        by: format!("worker {worker}"),
    }))
}
