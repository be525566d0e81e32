//! Reports of holders about their attempts.

use outlast_store::command::{Finish, NoteSkew, Progress, Start};
use outlast_store::reply::{MoveRefusal, Moved};

use super::{Backend, carry_out};
use crate::apply::report;
use crate::rules::refusal_of;

type Outcome = Result<Moved, MoveRefusal>;

pub(super) async fn start<B: Backend>(backend: &mut B, start: &Start) -> Result<Outcome, B::Error> {
    let Some(loaded) = backend.find(start.job).await? else {
        return Ok(Err(MoveRefusal::NotFound));
    };
    match report::start(&loaded, start, &backend.context()) {
        Ok(decided) => carry_out(backend, &loaded, &decided).await.map(Ok),
        Err(refusal) => backend.confirm_refusal(&loaded, refusal).map(Err),
    }
}

pub(super) fn note_skew<B: Backend>(backend: &mut B, note: &NoteSkew) {
    let now = backend.context().now;
    backend.outbox().events.push(report::skew(note, now));
}

pub(super) async fn finish<B: Backend>(
    backend: &mut B,
    finish: &Finish,
) -> Result<Outcome, B::Error> {
    let Some(mut loaded) = backend.find(finish.job).await? else {
        return Ok(Err(MoveRefusal::NotFound));
    };
    let worker = loaded.attempt().and_then(|attempt| attempt.worker);
    let alone = match worker.filter(|_| report::needs_alone(finish)) {
        Some(worker) => backend.holds_one(worker).await?,
        None => false,
    };
    let decided = match report::finish(&mut loaded, finish, alone, &backend.context()) {
        Ok(decided) => decided,
        Err(refusal) => return backend.confirm_refusal(&loaded, refusal).map(Err),
    };
    let moved = carry_out(backend, &loaded, &decided).await?;
    let refusal = refusal_of(&decided.transition);
    Ok(refusal.map_or(Ok(moved), |refusal| Err(refusal.into())))
}

pub(super) async fn progress<B: Backend>(
    backend: &mut B,
    progress: &Progress,
) -> Result<Outcome, B::Error> {
    let Some(loaded) = backend.find(progress.job).await? else {
        return Ok(Err(MoveRefusal::NotFound));
    };
    let moved = report::progress(&loaded, progress, &backend.context());
    if let (Ok(_), Some(bytes)) = (&moved, &progress.checkpoint) {
        backend.write_checkpoint(&loaded, bytes)?;
    }
    Ok(moved)
}
