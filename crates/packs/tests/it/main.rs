//! Packs from the outside: as a user writes them, as a script receives them.

mod core_pack;
mod delivery;
mod faults;
mod fixture;
mod loading;
mod materialise;
mod output;
mod parameters;
mod secrets;
