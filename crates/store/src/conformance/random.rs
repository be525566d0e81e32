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
mod resolve;
mod script;

use std::sync::Arc;

use outlast_core::budget::{Budgets, InterruptionCharge};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use uuid::Uuid;

use crate::command::{Batch, BatchId};
use crate::conformance::Harness;
use crate::conformance::world::START;
use crate::model::ModelStore;
use crate::store::{ManualClock, Store as _};
use laws::Laws;
use script::Script;

/// Seeds of every run: a failure repeats.
const SEEDS: [u64; 3] = [1, 2, 3];
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
    let config = Config {
        cases: scripts,
        failure_persistence: None,
        // A store that is slow is given few scripts, and few tries to shorten one.
        max_shrink_iters: scripts * scripts * 16,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4));
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner
        .run(&script::scripts(), |script| play(harness, &script).map_err(TestCaseError::fail));
    if let Err(failure) = result {
        panic!("seed {seed}: {failure}");
    }
}

fn budgets(script: &Script) -> Budgets {
    let interruption_charge =
        if script.charge { InterruptionCharge::Charge } else { InterruptionCharge::Free };
    Budgets { losses: 2, interruptions: 2, interruption_charge }
}

fn play<H: Harness>(harness: &H, script: &Script) -> Result<(), String> {
    let clock = ManualClock::at(START);
    let model = ModelStore::new(Arc::new(clock.clone()));
    let mut store = harness.open(Arc::new(clock.clone()));
    let mut laws = Laws::default();
    for (step, n) in script.steps.iter().zip(1_u64..) {
        clock.advance(step.wait);
        let commands = resolve::commands(harness, &model, step);
        let id = BatchId { server: Uuid::from_u128(1 << 64), n };
        let batch = Batch { id, jitter_seed: n, budgets: budgets(script), commands };
        let told = || format!("batch {n}, at {:?}: {:#?}", step.wait, batch.commands);
        let expected = model.apply_now(&batch).map_err(|error| error.to_string())?;
        let applied = harness
            .block_on(store.apply(batch.clone()))
            .map_err(|error| format!("{error}\n{}", told()))?;
        compare::replies(&batch, &expected, &applied)?;
        if step.crash {
            store = harness.reopen(store, Arc::new(clock.clone()));
        }
        compare::reads(harness, &model, &store, &step.query)
            .map_err(|difference| format!("{difference}\n{}", told()))?;
        laws.hold(harness, &model).map_err(|broken| format!("{broken}\n{}", told()))?;
    }
    harness.block_on(store.close()).map_err(|error| error.to_string())
}
