//! Random batches, applied to the model and to the store under test: every reply and
//! every read must be the same, whatever happened before.
//!
//! A failure is shrunk to the shortest script that still fails, and named by its seed.
//!
//! ```text
//! seed ─▶ script (waits, wishes, crashes) ─▶ commands, by what the model holds now
//!      ─▶ both stores ─▶ replies, reads, laws compared after every batch
//! ```

mod compare;
mod laws;
mod new_job;
mod resolve;
mod script;
mod writes;

use std::sync::Arc;

use outlast_core::budget::{Budgets, InterruptionCharge};
use outlast_store::command::{Batch, BatchId};
use outlast_store::store::{ManualClock, Store as _};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use uuid::Uuid;

use crate::conformance::Harness;
use crate::conformance::world::START;
use crate::model::ModelStore;
use laws::Laws;
use script::{Limited, Script};

/// Seeds of every run: a failure repeats.
const SEEDS: [u64; 3] = [1, 2, 3];
/// The server that plays them.
pub const SERVER: Uuid = Uuid::from_u128(1 << 64);
/// Scripts for each seed.
const SCRIPTS: u32 = 16;

/// Plays random scripts from fixed seeds; panics with the seed and the shortest script
/// that fails.
pub fn check<H: Harness>(harness: &H) {
    for seed in SEEDS {
        check_seed(harness, seed, SCRIPTS);
    }
}

/// Plays `scripts` random scripts from one seed.
pub fn check_seed<H: Harness>(harness: &H, seed: u64, scripts: u32) {
    check_scripts(harness, seed, scripts, Limited::Yes);
}

/// Plays `scripts` random scripts, most of which set limits, from one seed on a store that looks less
/// far ([`ScanBudget::SHORT`]). It may take other jobs than the model would, which takes the same ones if
/// they may start, and in their order.
///
/// [`ScanBudget::SHORT`]: outlast_store_rules::apply::claim::scan_budget::ScanBudget::SHORT
pub fn check_seed_of_short_looks<H: Harness>(harness: &H, seed: u64, scripts: u32) {
    check_scripts(harness, seed, scripts, Limited::Often);
}

/// As [`check_seed`], without limits: what these count is not moved with a store.
pub fn check_seed_of_moved<H: Harness>(harness: &H, seed: u64, scripts: u32) {
    check_scripts(harness, seed, scripts, Limited::No);
}

fn check_scripts<H: Harness>(harness: &H, seed: u64, scripts: u32, limits: Limited) {
    let config = Config {
        cases: scripts,
        failure_persistence: None,
        // A store that is slow is given few scripts, and few tries to shorten one.
        max_shrink_iters: scripts * scripts * 16,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, chance(seed));
    let result = runner.run(&script::scripts(limits), |script| {
        let store = play(harness, &script, limits).map_err(TestCaseError::fail)?;
        harness.block_on(store.close()).map_err(|error| TestCaseError::fail(error.to_string()))
    });
    if let Err(failure) = result {
        panic!("seed {seed}: {failure}");
    }
}

/// Returns a store in which a random script of some length was played.
pub fn fill<H: Harness>(harness: &H, seed: u64) -> H::Store {
    let mut runner = TestRunner::new_with_rng(Config::default(), chance(seed));
    loop {
        let script =
            script::scripts(Limited::Yes).new_tree(&mut runner).expect("a script").current();
        if script.steps.len() > 80 {
            return play(harness, &script, Limited::Yes)
                .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        }
    }
}

fn chance(seed: u64) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4))
}

fn budgets(script: &Script) -> Budgets {
    let interruption_charge =
        if script.charge { InterruptionCharge::Charge } else { InterruptionCharge::Free };
    Budgets { losses: 2, interruptions: 2, interruption_charge }
}

fn play<H: Harness>(harness: &H, script: &Script, limits: Limited) -> Result<H::Store, String> {
    let clock = ManualClock::at(START);
    let model = ModelStore::new(Arc::new(clock.clone()));
    let mut store = harness.open(Arc::new(clock.clone()));
    let mut laws = Laws::default();
    for (step, n) in script.steps.iter().zip(1_u64..) {
        clock.advance(step.wait);
        let commands = resolve::commands(harness, &model, step);
        let id = BatchId { server: SERVER, n };
        let batch = Batch { id, jitter_seed: n, budgets: budgets(script), commands };
        let context = || format!("batch {n}, at {:?}: {:#?}", step.wait, batch.commands);
        let applied = harness
            .block_on(store.apply(batch.clone().into()))
            .map_err(|error| format!("{error}\n{}", context()))?;
        let expected = match limits {
            Limited::No | Limited::Yes => model.apply_now(&batch).map_err(|it| it.to_string()),
            Limited::Often => model.follow(&batch, &applied),
        };
        let expected = expected.map_err(|fault| format!("{fault}\n{}", context()))?;
        compare::replies(&batch, &expected, &applied)?;
        if step.crash {
            store = harness.reopen(store, Arc::new(clock.clone()));
        }
        let is_last = n == script.steps.len() as u64;
        if is_last || n.is_multiple_of(harness.batches_per_look()) {
            compare::reads(harness, &model, &store, &step.query)
                .map_err(|difference| format!("{difference}\n{}", context()))?;
        }
        laws.hold(harness, &model).map_err(|broken| format!("{broken}\n{}", context()))?;
    }
    Ok(store)
}
