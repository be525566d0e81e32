//! Tasks that one server does for all of them.

use outlast_core::duty::{self, Duty, DutyRefusal};

use super::Backend;
use crate::command::{DutyAsk, DutyFence};
use crate::rules::answer_duty;

pub(super) async fn duty<B: Backend>(
    backend: &mut B,
    ask: &DutyAsk,
) -> Result<Result<Duty, DutyRefusal>, B::Error> {
    let found = backend.find_duty(&ask.name, false).await?;
    let duty = match answer_duty(found, ask, backend.context().now) {
        Ok(duty) => duty,
        Err(refusal) => return Ok(Err(refusal)),
    };
    backend.write_duty(ask, found, duty).await?;
    Ok(Ok(duty))
}

/// Checks that a server still has a duty, and keeps it from changing hands until the batch ends.
///
/// # Errors
/// Returns what ends the batch.
pub async fn check<B: Backend>(
    backend: &mut B,
    fence: &DutyFence,
) -> Result<Result<(), DutyRefusal>, B::Error> {
    let found = backend.find_duty(&fence.name, true).await?;
    Ok(duty::check(found, fence.holder, fence.epoch))
}
