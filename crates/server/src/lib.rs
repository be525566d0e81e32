//! The server: HTTP, worker sessions, batching, monitors.
