//! Tests of the store on a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail loudly")]

mod contract;
