//! The embedded store: SQLite with one writer thread.
