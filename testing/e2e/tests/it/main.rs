//! End-to-end tests: the real binary, real processes, real signals, real HTTP.
//!
//! Every test has a server, a store and a ledger of its own, so they may run side by side.
//! Bounds are upper bounds for waits, with room for a loaded machine; what is asserted is what
//! happened, never how fast.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the whole target is tests, helpers included"
)]

mod access;
mod affinity;
mod bad_input;
mod bench;
mod bounds;
mod clients;
mod clock_jumps;
mod connections;
mod containment;
mod crash_points;
mod damaged_store;
mod dashboard;
mod dead_letters;
mod deployment;
mod dispatch_across_servers;
mod doctor;
mod documentation;
mod drains;
mod durability;
mod environments;
mod evidence;
mod exclusivity;
mod exit_codes;
mod failover;
mod fairness;
mod fleet;
mod foreign_pack;
mod frozen_worker;
mod healing;
mod health;
mod host_faults;
mod idempotency;
mod inherited_signals;
mod json_shapes;
mod keys;
mod languages;
mod letter_handlers;
mod limits;
mod lost_answers;
mod migrations;
mod moving;
mod network;
mod no_worker;
mod ojs_conformance;
mod operations;
mod output;
mod packs;
mod page_settings;
mod paused_server;
mod pipeline;
mod placement;
mod plain_beats;
mod process_one;
mod queue_placement;
mod quiet_outages;
mod races;
mod real_races;
mod resources;
mod runtimes;
mod schedules;
mod secrets;
mod server_restart;
mod servers;
mod settings;
mod shutdown;
mod sign_in;
mod signals;
mod silent_connections;
mod stalls;
mod standing_orders;
mod streams;
mod tls;
mod transactions;
mod unique;
mod unread_log;
mod upgrade;
mod waits;
mod warm;
mod work_folder;
mod worker_death;
mod workflows;
