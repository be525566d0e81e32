//! Real processes, real signals: what holds when jobs, shims, engines and guardians are
//! killed, frozen, flooded and escaped from.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what tests share may fail loudly too"
)]

mod containment;
mod guardian;
mod kills;
mod memory;
mod output;
mod resources;
mod runtime;
mod spawner;
mod starting;
mod stopping;
mod support;
mod warm;
