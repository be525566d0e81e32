//! Packs from the outside: as a user writes them, as a script receives them.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be set up fails its test")]

mod core_pack;
mod delivery;
mod documentation;
mod environments;
mod faults;
mod fixture;
mod keys;
mod loading;
mod materialise;
mod output;
mod parameters;
mod secrets;
mod workflows;
