//! How many jobs go before a job of a fair queue in its share, in words.

use std::collections::{HashMap, HashSet};

use outlast_core::id::JobId;
use outlast_store::query::AheadQuery;
use outlast_store::record::JobRecord;
use outlast_store::{Store, StoreError};

/// Most jobs that are counted before one.
const AHEAD_MAX: u32 = 10_000;
/// Most jobs of which one response says it.
const JOBS_MAX: usize = 20;

/// Returns whose turn it is before these jobs, of those that wait in fair queues.
pub(crate) async fn turns(
    store: &dyn Store,
    jobs: &[&JobRecord],
) -> Result<HashMap<JobId, String>, StoreError> {
    let mut turns = HashMap::new();
    if jobs.is_empty() {
        return Ok(turns);
    }
    let settings = store.queue_settings().await?;
    let fair = settings.iter().filter(|record| record.settings.fair.is_some());
    let fair: HashSet<&str> = fair.map(|record| record.queue.as_str()).collect();
    let of_fair = jobs.iter().filter(|job| {
        fair.contains(job.job.key.queue.as_str()) && !job.isolated && !job.job.key.isolated
    });
    for job in of_fair.take(JOBS_MAX) {
        let (stored, max) = (&job.job, AHEAD_MAX);
        let (class, lane, priority) = (stored.class, stored.keys.lane(), stored.priority);
        let query = AheadQuery { job: stored.id, class, lane, priority, max };
        turns.insert(stored.id, words(store.ahead(query).await?));
    }
    Ok(turns)
}

fn words(ahead: u64) -> String {
    match ahead {
        0 => "its turn: first in its share".to_owned(),
        many if many >= u64::from(AHEAD_MAX) => {
            format!("its turn: more than {} before it in its share", thousands(many))
        }
        some => format!("its turn: {} before it in its share", thousands(some)),
    }
}

/// Writes a number below a million with a comma.
fn thousands(number: u64) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn turn_is_a_number_or_a_bound() {
        assert_eq!(words(0), "its turn: first in its share");
        assert_eq!(words(7), "its turn: 7 before it in its share");
        assert_eq!(words(1_204), "its turn: 1,204 before it in its share");
        assert_eq!(words(10_000), "its turn: more than 10,000 before it in its share");
    }
}
