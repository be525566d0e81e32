//! Tasks that one server does for all of them.

use outlast_core::leadership::{self, Leadership, LeadershipRefusal};
use outlast_store::command::{LeadershipFence, LeadershipRequest};

use super::Backend;
use crate::rules::answer_leadership;

pub(super) async fn leadership<B: Backend>(
    backend: &mut B,
    ask: &LeadershipRequest,
) -> Result<Result<Leadership, LeadershipRefusal>, B::Error> {
    let found = backend.find_leadership(&ask.name, false).await?;
    let leadership = match answer_leadership(found, ask, backend.context().now) {
        Ok(leadership) => leadership,
        Err(refusal) => return Ok(Err(refusal)),
    };
    backend.write_leadership(ask, found, leadership).await?;
    Ok(Ok(leadership))
}

/// Checks that a server still leads, and keeps it so until the batch ends.
pub(super) async fn check<B: Backend>(
    backend: &mut B,
    fence: &LeadershipFence,
) -> Result<Result<(), LeadershipRefusal>, B::Error> {
    let found = backend.find_leadership(&fence.name, true).await?;
    Ok(leadership::check(found, fence.holder, fence.epoch))
}
