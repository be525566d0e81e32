//! Workers: registration, leases, and what happens to the jobs of a worker that is gone.

use outlast_core::evidence::Evidence;
use outlast_core::id::WorkerId;
use outlast_core::worker::liveness::{Standing, WorkerRefusal};
use outlast_core::worker::order::in_force;
use outlast_store::command::{
    Attach, Command, ForgetWorker, Lapse, Registration, Renew, ReportHealth, WorkerMove,
};
use outlast_store::event::EventName;
use outlast_store::reply::{
    Attached, Moved, NotFound, RenewRefusal, Renewed, Reply, WorkerMoveRefusal, WorkerMoved,
};

use super::{Backend, WorkerChange, carry_out};
use crate::apply::loaded::KnownWorker;
use crate::apply::worker::{self, Before, Release};
use crate::rules::worker_event;

pub(super) async fn register<B: Backend>(
    backend: &mut B,
    registration: &Registration,
) -> Result<Result<Standing, WorkerRefusal>, B::Error> {
    let found = backend.worker(registration.id)?;
    let mut previous = None;
    for id in registration.previous.iter().rev() {
        if let Some(known) = backend.worker(*id)? {
            previous = Some((*id, known.given));
            break;
        }
    }
    let orders = backend.standing_orders().await?;
    let order = in_force(&orders, &registration.labels);
    let before = Before { found: found.as_ref(), previous, order };
    let now = backend.context().now;
    let known = match worker::register(before, registration, now, backend.outbox()) {
        Ok(known) => known,
        Err(refusal) => return Ok(Err(refusal)),
    };
    backend.write_worker(registration.id, WorkerChange::Registered(registration, &known))?;
    if let (None, Some((followed, _))) = (found, previous) {
        backend.write_worker(followed, WorkerChange::Followed(registration.id))?;
    }
    Ok(Ok(known.standing))
}

pub(super) async fn renew<B: Backend>(
    backend: &mut B,
    renew: &Renew,
) -> Result<Result<Renewed, RenewRefusal>, B::Error> {
    let found = backend.worker(renew.worker)?;
    let known = match worker::renew(found.as_ref(), renew.lease, backend.context().now) {
        Ok(known) => known,
        Err(refusal) => return Ok(Err(refusal)),
    };
    backend.write_worker(renew.worker, WorkerChange::Renewed(&known, renew.lease))?;
    let in_flight = backend.count_in_flight(renew.worker).await?;
    let KnownWorker { renewal, standing, unhealthy, .. } = known;
    Ok(Ok(Renewed { renewal, standing, in_flight, unhealthy }))
}

pub(super) fn health<B: Backend>(backend: &mut B, said: &ReportHealth) -> Result<(), B::Error> {
    let found = backend.worker(said.worker)?;
    let now = backend.context().now;
    if worker::health(found.as_ref(), said, now, backend.outbox()) {
        let change = WorkerChange::Health(said.unhealthy.as_deref());
        backend.write_worker(said.worker, change)?;
    }
    Ok(())
}

pub(super) fn attach<B: Backend>(
    backend: &mut B,
    attach: &Attach,
) -> Result<Result<Attached, RenewRefusal>, B::Error> {
    let found = backend.worker(attach.worker)?;
    let now = backend.context().now;
    let known = match worker::attach(found.as_ref(), attach, now, backend.outbox()) {
        Ok(known) => known,
        Err(refusal) => return Ok(Err(refusal)),
    };
    backend.write_worker(attach.worker, WorkerChange::Renewed(&known, attach.lease))?;
    backend.write_worker(attach.worker, WorkerChange::Attached(&known))?;
    Ok(Ok(Attached { session: known.session, standing: known.standing, given: known.given }))
}

pub(super) async fn move_worker<B: Backend>(
    backend: &mut B,
    step: &WorkerMove,
) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, B::Error> {
    let found = backend.worker(step.worker)?;
    let now = backend.context().now;
    match worker::move_worker(found.as_ref(), step, now, backend.outbox()) {
        Ok(moved) => end_move(backend, step.worker, found, &moved, &step.evidence).await.map(Ok),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Executes the lapses at the start of `commands`. Thousands of workers may be lost at once, so
/// what they hold is loaded together.
pub(super) async fn lapses<B: Backend>(
    backend: &mut B,
    commands: &[Command],
    replies: &mut Vec<Reply>,
) -> Result<(), B::Error> {
    let run = || {
        commands.iter().map_while(|command| match command {
            Command::Lapse(lapse) => Some(lapse),
            _ => None,
        })
    };
    let mut due = Vec::new();
    for lapse in run() {
        let found = backend.worker(lapse.worker)?;
        if found.is_some_and(|found| found.renewal == lapse.renewal) {
            due.push(lapse.worker);
        }
    }
    if due.len() > 1 {
        backend.prefetch_attempts(&due).await?;
    }
    for one in run() {
        backend.batch().context.command = replies.len();
        replies.push(Reply::WorkerMoved(lapse(backend, one).await?));
    }
    backend.forget_prefetched();
    Ok(())
}

/// The worker's row is locked and its renewal compared first; then its jobs follow in the same
/// transaction. A sweep that joined jobs to workers could take jobs whose renewal was committed
/// meanwhile.
async fn lapse<B: Backend>(
    backend: &mut B,
    lapse: &Lapse,
) -> Result<Result<WorkerMoved, WorkerMoveRefusal>, B::Error> {
    let found = backend.worker(lapse.worker)?;
    let in_flight = if worker::lapse_needs_count(found.as_ref(), lapse) {
        backend.count_in_flight(lapse.worker).await?
    } else {
        0
    };
    let now = backend.context().now;
    match worker::lapse(found.as_ref(), lapse, in_flight, now, backend.outbox()) {
        Ok(moved) => end_move(backend, lapse.worker, found, &moved, &lapse.evidence).await.map(Ok),
        Err(refusal) => Ok(Err(refusal)),
    }
}

async fn end_move<B: Backend>(
    backend: &mut B,
    worker: WorkerId,
    found: Option<KnownWorker>,
    moved: &worker::Moved<'_>,
    evidence: &Evidence,
) -> Result<WorkerMoved, B::Error> {
    let worker::Moved { standing, changed, given, release } = moved;
    if *changed {
        backend.write_worker(worker, WorkerChange::Moved(*standing, evidence))?;
    }
    if let Some(given) = given {
        backend.write_worker(worker, WorkerChange::Ordered(*given))?;
    }
    let (moved, kept) = match release {
        Some(release) => {
            let plain = found.is_some_and(|found| found.plain);
            take_back(backend, worker, plain, release).await?
        }
        None => (Vec::new(), backend.count_in_flight(worker).await?),
    };
    Ok(WorkerMoved { worker, standing: *standing, moved, kept })
}

/// Takes back what a worker holds; returns also how many attempts it keeps.
async fn take_back<B: Backend>(
    backend: &mut B,
    worker: WorkerId,
    plain: bool,
    release: &Release<'_>,
) -> Result<(Vec<Moved>, u32), B::Error> {
    let in_flight = backend.attempts_of(worker).await?;
    let alone = in_flight.iter().filter(|loaded| !loaded.job.state.is_terminal()).count() == 1;
    let mut moved = Vec::new();
    for (nth, loaded) in in_flight.iter().enumerate() {
        if let Some(decided) = release.in_flight(loaded, alone, nth, &backend.context())? {
            moved.push(carry_out(backend, loaded, &decided).await?);
        }
    }
    let kept = u32::try_from(in_flight.len() - moved.len()).unwrap_or(u32::MAX);
    if plain {
        for loaded in &backend.plain_attempts_of(worker).await? {
            if let Some(decided) = release.plain(loaded, moved.len(), &backend.context()) {
                moved.push(carry_out(backend, loaded, &decided).await?);
            }
        }
    }
    Ok((moved, kept))
}

pub(super) async fn forget<B: Backend>(
    backend: &mut B,
    order: &ForgetWorker,
) -> Result<Result<(), NotFound>, B::Error> {
    let ForgetWorker { worker, name, by } = order;
    let Some(known) = backend.worker(*worker)? else { return Ok(Err(NotFound)) };
    let in_flight = backend.count_in_flight(*worker).await?;
    if !worker::may_forget(&known, in_flight) {
        return Ok(Err(NotFound));
    }
    backend.write_worker(*worker, WorkerChange::Forgotten)?;
    let now = backend.context().now;
    let event = worker_event(*worker, EventName::WorkerForgotten, now, by, name.as_str());
    backend.outbox().events.push(event);
    Ok(Ok(()))
}
