//! The executions API.
//!
//! Every path is served under `/api/v1` and, as the systems it comes from call it, without.

mod create;
mod detail;
mod list;
mod view;

use outlast_store::Store;

use super::route::{Routes, get, post};
use crate::access::Need;

pub(super) fn routes<S: Store>() -> Routes<S> {
    ["/api/v1/executions", "/executions"].into_iter().map(below).fold(Routes::new(), Routes::merge)
}

fn below<S: Store>(root: &'static str) -> Routes<S> {
    let path = |rest: &str| format!("{root}{rest}");
    Routes::new()
        .add(post(root, Need::Produce, "Enqueues an execution of an action"), create::create)
        .add(get(root, Need::Read, "Lists executions"), list::list)
        .add(get(path("/{id}"), Need::Read, "Shows an execution"), detail::show)
        .add(post(path("/{id}/cancel"), Need::Produce, "Cancels an execution"), detail::cancel)
        .add(post(path("/{id}/retry"), Need::Operate, "Gives it a new life"), detail::retry)
        .add(get(path("/{id}/logs"), Need::Read, "Shows its output"), detail::logs)
        .add(get(path("/{id}/events"), Need::Read, "Lists its events"), detail::events)
        .add(get(path("/{id}/attempts"), Need::Read, "Lists its attempts"), detail::attempts)
}
