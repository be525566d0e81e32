//! Real processes, real signals: what holds when jobs, shims, engines and guardians are
//! killed, frozen, flooded and escaped from.

mod containment;
mod guardian;
mod memory;
mod output;
mod runtime;
mod starting;
mod stopping;
mod support;
