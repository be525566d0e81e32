//! The contract as tests: what every store must do, on the model and on each database.
//!
//! - cases: short sentences about one operation family each, run by [`check`]
//! - [`random`]: random batches applied to the model and the store under test, with every
//!   reply and every read compared
//!
//! A store's crate implements [`Harness`] and calls one function a family:
//!
//! ```text
//! #[test]
//! fn claims() { conformance::check(&MyHarness, &conformance::claim::cases()) }
//! ```
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests that other crates run"
)]

/// Lists a family's cases by the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// Returns the family's cases.
        #[must_use]
        pub fn cases<H: $crate::conformance::Harness>() -> Vec<$crate::conformance::Case<H>> {
            vec![$($crate::conformance::Case { name: stringify!($name), run: $name }),*]
        }
    };
}

pub mod browser_session;
pub mod bytes;
pub mod claim;
pub mod crowd;
pub mod depth;
pub mod durable;
pub mod enqueue;
pub mod events;
pub mod failover;
pub mod fair;
pub mod fixture;
pub mod idempotency;
pub mod keys;
pub mod lanes;
pub mod large;
pub mod leadership;
pub mod limit;
pub mod operation;
pub mod order;
pub mod placement;
pub mod plain;
pub mod queue;
pub mod race;
pub mod random;
pub mod read;
pub mod recount;
pub mod report;
pub mod schedule;
pub mod standing;
pub mod sweep;
pub mod unique;
pub mod worker;
pub mod workflow;
pub mod workflow_lists;
mod world;

use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;

use outlast_store::event::EventName;
use outlast_store::store::{Clock, Store};

pub use world::{Hand, World};

/// How the suite gets at a kind of store.
pub trait Harness {
    /// The store.
    type Store: Store + Clone;

    /// Opens a new, empty store that reads `clock`.
    fn open(&self, clock: Arc<dyn Clock>) -> Self::Store;

    /// Ends a store as abruptly as the kind allows and opens what it left.
    fn reopen(&self, store: Self::Store, clock: Arc<dyn Clock>) -> Self::Store;

    /// Makes every gate count `by` attempts more, which no command ever does. Only cases need it.
    fn miscount(&self, store: &Self::Store, by: i32) {
        panic!("{store:?} cannot be made to count {by} more");
    }

    /// Makes every event of this name one that this build does not know, as a later build stores
    /// them beside this one. Only cases need it.
    fn misname(&self, store: &Self::Store, name: EventName) {
        panic!("{store:?} cannot be made to store other events than {name:?}");
    }

    /// After how many batches of a random script everything is read and compared. A difference stays,
    /// so a store whose reads are slow may be looked at less often.
    fn batches_per_look(&self) -> u64 {
        1
    }

    /// Waits for a call of the store.
    fn block_on<F: Future>(&self, call: F) -> F::Output;
}

/// One sentence of the contract.
#[derive(Debug)]
pub struct Case<H: Harness> {
    /// The sentence.
    pub name: &'static str,
    /// What it does, on an empty store.
    pub run: fn(&mut World<'_, H>),
}

/// Runs cases, each on an empty store; panics with the name of the first that fails.
pub fn check<H: Harness>(harness: &H, cases: &[Case<H>]) {
    assert!(!cases.is_empty(), "a family without cases tests nothing");
    for case in cases {
        let _telling = Telling(case.name);
        (case.run)(&mut World::new(harness));
    }
}

/// Runs every named case.
pub fn check_all<H: Harness>(harness: &H) {
    for family in [
        enqueue::cases(),
        keys::cases(),
        placement::cases(),
        events::cases(),
        idempotency::cases(),
        unique::cases(),
        claim::cases(),
        report::cases(),
        race::cases(),
        standing::cases(),
        worker::cases(),
        workflow::cases(),
        workflow_lists::cases(),
        plain::cases(),
        order::cases(),
        operation::cases(),
        failover::cases(),
        sweep::cases(),
        leadership::cases(),
        lanes::cases(),
        crowd::cases(),
        limit::cases(),
        schedule::cases(),
        browser_session::cases(),
        recount::cases(),
        queue::cases(),
        fair::cases(),
        depth::cases(),
        read::cases(),
        bytes::cases(),
        durable::cases(),
    ] {
        check(harness, &family);
    }
}

/// Says which case failed.
struct Telling(&'static str);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "failed case: {}", self.0);
        }
    }
}
