//! The contract suite, run by the model store.
#![expect(clippy::panic, reason = "these are tests")]

mod model;
