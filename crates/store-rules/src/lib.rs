//! What every database does the same way: rules between loading and writing, and how things are
//! kept.
//!
//! ```text
//! command ─▶ backend: load and lock ─▶ apply: decide, without a database ─▶ backend: write
//! ```
//!
//! Map:
//! - [`apply`]: the decisions; [`apply::claim`]: which jobs a claim takes
//! - [`backend`]: the trait of a database in a batch, and the order of loading and writing
//! - [`rules`]: events and outcomes; [`codec`]: how values are written as text
//! - [`list`]: how a page of a list is found; [`cursor`]: where a reader of events is
//! - [`prune`], [`retire`]: deleting old history, and classes that are not used
//! - [`migration`]: which migrations a store has
//! - [`transfer`]: moving all that a store holds into another one
#![warn(missing_docs)]

pub mod apply;
pub mod backend;
pub mod codec;
pub mod cursor;
pub mod list;
pub mod migration;
pub mod prune;
pub mod retire;
pub mod rules;
pub mod transfer;
