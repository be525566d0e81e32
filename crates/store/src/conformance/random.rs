//! Random batches.
