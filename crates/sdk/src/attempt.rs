//! One attempt inside the SDK: a handler's run, and what joins it to the engine.
//!
//! ```text
//! engine ─▶ [`run`]: the handler's task ──context──▶ handler
//!    ▲                    │                             │ clones, threads, tasks
//!    └──── [`events`] ◀── [`guard`]: held by all of it ◀┘
//! ```

pub(crate) mod context;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod run;
