//! Why the engine cannot do what a caller asks.

use outlast_core::time::Span;
use outlast_store::reply::{ClaimRefusal, WorkerMoveRefusal};
use outlast_store::{Reply, Request};

/// The server cannot do this now; the same request may succeed later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// Why, for the caller to read.
    pub reason: String,
    /// When to try again.
    pub retry_after: Span,
    /// Whether it is for want of room on the store's disk.
    pub disk_full: bool,
    /// Whether the command is why: the store takes others.
    pub is_alone: bool,
}

impl Unavailable {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        let retry_after = Span::from_secs(1);
        Self { reason: reason.into(), retry_after, disk_full: false, is_alone: false }
    }

    /// Of a command that the store does not take while it takes others.
    pub(crate) fn alone(reason: impl Into<String>) -> Self {
        Self { is_alone: true, ..Self::new(reason) }
    }

    pub(crate) fn stopping() -> Self {
        Self::new("server is stopping")
    }
}

/// Why a plain fetch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The server cannot do this now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The claimant may not claim.
    #[error(transparent)]
    Refused(#[from] ClaimRefusal),
}

/// Why an order to a worker was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The server cannot do this now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The worker's state does not allow the order.
    #[error(transparent)]
    Refused(#[from] WorkerMoveRefusal),
}

/// Returns the reply of a request.
pub(super) fn reply_of<R: Request>(reply: Reply) -> Result<R::Reply, Unavailable> {
    R::reply(reply).map_err(|reply| {
        tracing::error!(?reply, "store returned a reply of the wrong kind");
        wrong_reply::<R>()
    })
}

/// The store mixed up replies: a defect of it.
pub(super) fn wrong_reply<R: Request>() -> Unavailable {
    let asked = std::any::type_name::<R>();
    Unavailable::new(format!("internal error: the store answered something else than {asked}"))
}
