//! When a schedule fires, as plain functions of (expression, zone, time).
//!
//! Nothing here reads a clock or asks the system for a time zone: time is an argument, and the
//! time zone database is part of the binary. Every server gives the same answer.
//!
//! ```text
//! "30 2 * * *" ─▶ Expression ┐
//! "Europe/Vienna" ─▶ Zone    ├─▶ Timetable ─▶ next_after, latest, count, upcoming
//!                   anchor   ┘       └──────▶ catch_up: what to fire now, and when to look again
//! ```
//!
//! Map:
//! - [`expression`]: what users write, and what is wrong with it
//! - [`zone`]: places whose clocks a schedule follows
//! - [`timetable`]: the instants at which a schedule fires, also where the clock changes
//! - [`mod@catch_up`]: which fires are made up for after an outage
//! - [`overlap`]: what a fire does while the last one's job runs
//! - [`mod@jitter`]: how fires of one instant are spread
//! - [`progress`]: how a schedule stands, and what a look at it does
#![warn(missing_docs)]

pub mod catch_up;
pub mod expression;
pub mod jitter;
pub mod overlap;
pub mod progress;
pub mod timetable;
pub mod zone;

pub use catch_up::{CatchUp, Due, catch_up};
pub use expression::{Expression, ExpressionError};
pub use jitter::jitter;
pub use overlap::Overlap;
pub use timetable::{Note, Timetable, Upcoming};
pub use zone::{Zone, ZoneError};
