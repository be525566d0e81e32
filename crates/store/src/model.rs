//! The whole contract over maps, per job, with the core's `decide`.
