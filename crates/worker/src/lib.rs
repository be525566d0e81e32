//! The worker daemon: guardian, engine, and one shim per attempt.
