//! Client and worker against the real server.

mod client;
mod worker;

use outlast_e2e::Scene;

/// Runs `test` beside a server of its own. The harness blocks, so it stays outside of the
/// runtime.
pub(crate) fn with_server(test: impl AsyncFnOnce(&mut Scene)) {
    let mut scene = Scene::start();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test(&mut scene));
    runtime.shutdown_background();
}
