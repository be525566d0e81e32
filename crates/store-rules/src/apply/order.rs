//! What an operator or a producer orders about one job.

use std::borrow::Cow;

use outlast_core::job::EventKind;
use outlast_store::command::{EndDetail, JobOrder};
use outlast_store::reply::MoveRefusal;

use super::Decided;
use super::loaded::Loaded;
use crate::rules::Context;

/// Whether an order that is limited to a tenant may see the job at all.
#[must_use]
pub fn may_see(tenant: Option<&str>, loaded: &Loaded) -> bool {
    tenant.is_none() || loaded.stored.key.tenant.as_deref() == tenant
}

/// Decides what an order does.
///
/// # Errors
/// Returns why the job stays as it is.
pub fn order<'a>(
    loaded: &Loaded,
    order: &'a JobOrder,
    context: &Context,
) -> Result<Decided<'a>, MoveRefusal> {
    if !order.still_meets(&loaded.job) {
        return Err(MoveRefusal::Moved);
    }
    let event = order.action.event();
    let kind = event.kind();
    Ok(Decided {
        transition: context.decide(&loaded.job, event, 0)?,
        kind,
        by: Cow::Borrowed(&order.by),
        detail: Cow::Owned(EndDetail::default()),
        ended_by: if kind == EventKind::Cancel { "cancelled" } else { "" },
        gates: Vec::new(),
    })
}
