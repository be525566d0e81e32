//! The executions API.
//!
//! Every path is served under `/api/v1` and, as the systems it comes from call it, without.

mod create;
mod detail;
mod list;
mod view;

use axum::Router;
use outlast_store::Store;

use super::{App, get, post};

pub(super) fn routes<S: Store>() -> Router<App<S>> {
    let mut router = Router::new();
    for root in ["/api/v1/executions", "/executions"] {
        let path = |rest: &str| format!("{root}{rest}");
        router = router
            .route(root, post(create::create).merge(get(list::list)))
            .route(&path("/{id}"), get(detail::show))
            .route(&path("/{id}/cancel"), post(detail::cancel))
            .route(&path("/{id}/retry"), post(detail::retry))
            .route(&path("/{id}/logs"), get(detail::logs))
            .route(&path("/{id}/events"), get(detail::events))
            .route(&path("/{id}/attempts"), get(detail::attempts));
    }
    router
}
