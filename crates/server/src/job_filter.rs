//! What statuses are in the store: which jobs have one.

use outlast_core::job::State;
use outlast_store::query::{JobQuery, StatusFilter};
use outlast_wire::execution::status::Status;

/// Limits a query to the jobs that have one of some statuses, if there are any.
pub(crate) fn narrowed(query: JobQuery, statuses: &[Status]) -> JobQuery {
    // Each once.
    let statuses: Vec<Status> =
        Status::ALL.into_iter().filter(|status| statuses.contains(status)).collect();
    let mut filters = statuses.iter().map(|status| filter(*status));
    match (filters.next(), filters.next()) {
        (None, _) => query,
        (Some(one), None) => JobQuery {
            states: one.states,
            abandoned: one.abandoned,
            timed_out: one.timed_out,
            started: one.started,
            ..query
        },
        (Some(_), Some(_)) => {
            let filters = alike(statuses.iter().map(|it| filter(*it)).collect());
            let is_wanted = |state: &State| filters.iter().any(|it| it.states.contains(state));
            let states = State::ALL.into_iter().filter(is_wanted).collect();
            // What is a state and nothing else is faster to find.
            let is_plain = |it: &StatusFilter| {
                it.abandoned.is_none() && it.timed_out.is_none() && it.started.is_none()
            };
            let statuses = if filters.iter().all(is_plain) { Vec::new() } else { filters };
            JobQuery { states, statuses, ..query }
        }
    }
}

/// Puts statuses together that are a whole state: those of an active job, and those of a discarded one.
fn alike(mut filters: Vec<StatusFilter>) -> Vec<StatusFilter> {
    for (state, count) in [(State::Active, 2), (State::Discarded, 3)] {
        let of_state = |it: &StatusFilter| it.states == [state];
        if filters.iter().filter(|it| of_state(it)).count() == count {
            filters.retain(|it| !of_state(it));
            filters.push(StatusFilter { states: vec![state], ..StatusFilter::default() });
        }
    }
    filters
}

/// Which jobs have a status; the other way round is `executions::status`.
fn filter(status: Status) -> StatusFilter {
    let of = |states: &[State]| StatusFilter { states: states.to_vec(), ..Default::default() };
    let discarded = of(&[State::Discarded]);
    match status {
        Status::Requested => {
            of(&[State::Available, State::Scheduled, State::Pending, State::Retryable])
        }
        Status::Scheduled => StatusFilter { started: Some(false), ..of(&[State::Active]) },
        Status::Running => StatusFilter { started: Some(true), ..of(&[State::Active]) },
        Status::Completed => of(&[State::Completed]),
        Status::Cancelled => of(&[State::Cancelled]),
        Status::Failed => {
            StatusFilter { abandoned: Some(false), timed_out: Some(false), ..discarded }
        }
        Status::Timeout => {
            StatusFilter { abandoned: Some(false), timed_out: Some(true), ..discarded }
        }
        Status::Abandoned => StatusFilter { abandoned: Some(true), ..discarded },
    }
}

#[cfg(test)]
mod tests {
    use outlast_store::query::Page;

    use super::*;

    /// All that may be cancelled, or retried, is found by the live counts, which know states only.
    #[test]
    fn statuses_that_are_whole_states_are_looked_for_as_states() {
        let of = |statuses: &[Status]| {
            let query = JobQuery::all(Page { limit: 1, cursor: None });
            let JobQuery { states, statuses, .. } = narrowed(query, statuses);
            (states, statuses.len())
        };
        let live =
            [State::Scheduled, State::Available, State::Pending, State::Active, State::Retryable];
        let (requested, held) = (Status::Requested, [Status::Scheduled, Status::Running]);
        assert_eq!(of(&[requested, held[0], held[1]]), (live.to_vec(), 0));
        assert_eq!(of(&[requested, held[1]]), (live.to_vec(), 2));
        let failed = [Status::Failed, Status::Timeout, Status::Abandoned];
        assert_eq!(of(&failed), (vec![State::Discarded], 0));
        assert_eq!(of(&failed[..2]), (vec![State::Discarded], 2));
    }
}
