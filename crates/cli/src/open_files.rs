//! How many files this process may open: each connection of a server is one.

use outlast_server::connections::ConnectionLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than a server can use.
const FILES_MAX: u64 = 1 << 20;
/// A server that keeps fewer connections than this says so at its start.
const CONNECTIONS_FEW: usize = 900;

/// Returns how many files this process may open.
pub(crate) fn allowed() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(FILES_MAX)
}

/// Raises the soft limit as far as the hard one allows.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, current, wanted, "cannot raise the limit of open files");
    }
}

/// Says how many connections a low limit leaves.
pub(crate) fn warn_of_few(limits: ConnectionLimits) {
    if limits.total < CONNECTIONS_FEW {
        tracing::warn!(
            "this process may open {} files: it keeps {} connections, {} from one address, \
             {} of them for workers; raise the limit with LimitNOFILE=65536 in a unit, or \
             ulimit -Hn 65536",
            allowed(),
            limits.total,
            limits.per_address,
            limits.reserved()
        );
    }
}
