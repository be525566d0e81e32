pub fn router<S: outlast_store::Store>(engine: crate::Engine<S>) -> axum::Router {
    drop(engine);
    axum::Router::new()
}
