//! The rules of workflows, as plain functions of (definition, state, event).
//!
//! Nothing here is async, does IO, reads a clock or draws a random number. A store keeps the state and
//! the results of steps, a server carries out effects; here is decided what follows from what.
//!
//! ```text
//!  YAML, JSON, the standard's forms ─▶ Definition ┐
//!                      WorkflowState, in the store ├─▶ advance ─▶ new state, effects in order
//!  end of a job, cancel, retry, replay ─▶ Event    ┘      │
//!                 results of steps ─▶ Values ◀── reads ───┘
//! ```
//!
//! Map:
//! - [`definition`]: what users write, and what is wrong with it
//! - [`expression`]: CEL between `${{` and `}}`, bounded in work and size
//! - [`template`]: JSON with expressions in its texts
//! - [`state`]: how far a workflow is, as counters
//! - [`mod@advance`]: what follows from what happened; the table of `when`
//! - [`mod@draw`]: a workflow as text for a terminal
//! - [`limits`]: every bound with its reason
//!
//! Invariant: a workflow never waits for something that cannot come. Either it has ended, or an item
//! of it is enqueued and has not ended.
#![warn(missing_docs)]

pub mod advance;
pub mod definition;
pub mod draw;
pub mod expression;
mod fault;
pub mod limits;
pub mod state;
pub mod template;

pub use advance::{Advance, Effect, Event, Inputs, ItemEnd, Refusal, Values, advance, reads};
pub use definition::{Definition, Form, OnFailure, StepDefinition, Target, When};
pub use draw::draw;
pub use expression::Expression;
pub use fault::Fault;
pub use state::{Outcome, StepState, StepStatus, WorkflowState, WorkflowStatus};
