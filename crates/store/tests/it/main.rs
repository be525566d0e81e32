//! The contract suite, run by the model store.

mod model;
