//! Workflows: how they begin, move on, are cancelled, retried and shown.
//!
//! ```text
//!  a job of an item ends ─▶ its end is noted in the same transaction ─▶ wanted
//!                                                                         │
//!  request: begin, cancel, retry ─▶ look: read ◀── monitor: wanted, due ◀─┘
//!                                    ├─ outlast_workflow decides what follows
//!                                    └─▶ WriteWorkflow: state, items, jobs; ends are taken; or nothing
//! ```
//!
//! Every server looks. The first one that writes a workflow has moved it on; one that loses reads again,
//! and finds what was noted meanwhile. Expressions are evaluated before the write, in no transaction.
//!
//! - [`stored`]: the texts that a store keeps; [`known`]: what a workflow is, read from them
//! - [`look`]: one look at a workflow; [`draft`]: what it will write; [`job`]: the job of an item
//! - [`service`]: requests; [`view`]: a workflow as answers show it
//! - [`unnoted`]: ends that were never noted
//! - [`wanted`]: which workflows this server is to look at

mod draft;
mod job;
mod known;
pub(crate) mod look;
pub(crate) mod service;
mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod unnoted;
pub(crate) mod view;
pub(crate) mod wanted;

pub(crate) use job::item_of;
pub(crate) use service::Scheduled;
pub(crate) use stored::StoredFire;
