//! The Store trait, its executable model, and the contract every store must keep.
