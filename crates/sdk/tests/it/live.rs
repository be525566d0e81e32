//! Client and worker against the real server.

mod client;
mod roles;
mod schedules;
mod servers;
mod transaction;
mod worker;

use outlast_e2e::{Scene, ServerOptions};

/// Runs `test` beside a server of its own. The harness blocks, so it stays outside of the
/// runtime.
pub(crate) fn with_server(test: impl AsyncFnOnce(&mut Scene)) {
    with_options(ServerOptions::default(), test);
}

/// As [`with_server`], with a server that is set up in a certain way.
pub(crate) fn with_options(options: ServerOptions, test: impl AsyncFnOnce(&mut Scene)) {
    beside(&mut Scene::with(options), test);
}

/// Runs `test` beside a server that runs.
pub(crate) fn beside(scene: &mut Scene, test: impl AsyncFnOnce(&mut Scene)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(scene));
    runtime.shutdown_background();
}
