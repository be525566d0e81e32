//! Operations: one change of all jobs that a filter selects, which the server does step by step.
//!
//! ```text
//! request ─▶ begin: the filter is stored, with the time as of which it selects
//!              └▶ step: read jobs ─▶ decide ─▶ WriteOperation: orders, counts and place; or nothing ─┐
//!                   ▲────────────────────────────────────────────────────────────────────────────────┘
//!                   └▶ everything was looked at, or someone stopped it: end
//! ```
//!
//! Jobs are looked at from the newest to the oldest, once each. A job that was made after the begin, or
//! that may not have matched then, stays as it is. Any server goes on with an operation of which the
//! server has gone.
//!
//! - [`definition`]: what is stored of a request; [`decide`]: what becomes of a job that was found
//! - [`service`]: requests; [`count`]: how many match
//! - [`steps`]: one operation, step after step; [`pace`]: how fast

pub(crate) mod count;
pub(crate) mod decide;
pub(crate) mod definition;
pub(crate) mod pace;
pub(crate) mod service;
pub(crate) mod steps;
#[cfg(test)]
mod tests;
