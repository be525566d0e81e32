//! Counts that pages share.

use outlast_core::job::State;
use outlast_core::time::Timestamp;

use crate::http::App;
use crate::http::error::ApiError;

/// How many jobs have each state.
pub(super) struct Totals {
    pub(super) counts: Vec<(State, u64)>,
    pub(super) at: Timestamp,
}

pub(super) async fn totals(app: &App) -> Result<Totals, ApiError> {
    let queues = app.engine.store().queues().await?;
    let at = app.now().await?;
    let mut counts: Vec<(State, u64)> = State::ALL.map(|state| (state, 0)).to_vec();
    for mut queue in queues {
        for (state, count) in &mut counts {
            *count += *queue.count_mut(*state);
        }
    }
    Ok(Totals { counts, at })
}
