//! Counts that pages share: the snapshot's, with their age.

use outlast_core::job::State;

use crate::snapshot::Snapshot;

/// How many jobs have each state.
pub(super) fn totals(snapshot: &Snapshot) -> Vec<(State, u64)> {
    let mut totals = snapshot.totals.clone();
    State::ALL.map(|state| (state, *totals.count_mut(state))).to_vec()
}
