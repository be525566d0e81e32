//! One job: what it wrote down against what the API says.
//!
//! Running twice is allowed where a worker was killed or drained under the first run, and only
//! there. One committed outcome is demanded always.

use std::collections::{BTreeMap, BTreeSet};

use super::super::ledger::{Line, Mark};
use super::Account;

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compared {
    /// It completed, once.
    pub(super) completed: bool,
    /// It is in a terminal state.
    pub(super) has_ended: bool,
    /// What must not be, each to be read after "job ID".
    pub(super) faults: Vec<String>,
}

pub(super) fn compare(account: &Account, lines: &[Line]) -> Compared {
    let mut faults = Vec::new();
    let status = account.status.as_str();
    if status != "completed" {
        faults.push(format!("is {status} by the API"));
    }
    let outcomes: BTreeMap<u64, &str> =
        account.attempts.iter().map(|attempt| (attempt.epoch, attempt.outcome.as_str())).collect();
    let died: BTreeSet<u64> =
        account.attempts.iter().filter(|one| one.killed).map(|one| one.epoch).collect();
    if outcomes.len() != account.attempts.len() {
        faults.push("has two attempts of one epoch".to_owned());
    }
    let committed: Vec<u64> =
        outcomes.iter().filter(|(_, outcome)| **outcome == "completed").map(|(e, _)| *e).collect();
    match committed.as_slice() {
        [epoch] => committed_ran_whole(*epoch, lines, &mut faults),
        all if status == "completed" => {
            faults.push(format!("completed by {} attempts", all.len()));
        }
        _ => {}
    }
    for (number, line) in lines.iter().enumerate() {
        let before = lines.iter().take(number);
        let same = |other: &&Line| other.epoch == line.epoch && other.mark == line.mark;
        if before.clone().any(|other| same(&other)) {
            faults.push(format!("wrote a line twice at epoch {}", line.epoch));
        }
        if line.mark == Mark::Start && before.clone().any(|other| other.epoch > line.epoch) {
            faults.push(format!("started epoch {} after a later one", line.epoch));
        }
        match outcomes.get(&line.epoch).copied() {
            Some("completed" | "lost" | "interrupted") => {}
            // Killed between the program's line and telling the server that it started.
            Some("undelivered") if died.contains(&line.epoch) => {}
            Some(outcome) => {
                faults.push(format!("ran at epoch {}, which the API calls {outcome}", line.epoch));
            }
            None => faults.push(format!("ran at epoch {}, unknown to the API", line.epoch)),
        }
    }
    let terminal = ["completed", "failed", "timeout", "cancelled", "abandoned"];
    Compared {
        completed: status == "completed" && committed.len() == 1,
        has_ended: terminal.contains(&status),
        faults,
    }
}

fn committed_ran_whole(epoch: u64, lines: &[Line], faults: &mut Vec<String>) {
    let wrote = |mark| lines.iter().any(|line| line.epoch == epoch && line.mark == mark);
    if !wrote(Mark::Start) || !wrote(Mark::End) {
        faults.push(format!("completed at epoch {epoch} by the API, but not by the ledger"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Attempt;
    use super::{Account, Compared, Line, Mark, compare};
    use outlast_cli_core::clock;

    fn check(attempts: &[(u64, &str)], lines: &[(u64, Mark)]) -> Compared {
        check_on(false, attempts, lines)
    }

    fn check_on(killed: bool, attempts: &[(u64, &str)], lines: &[(u64, Mark)]) -> Compared {
        let attempt = |(epoch, outcome): &(u64, &str)| Attempt {
            epoch: *epoch,
            outcome: (*outcome).to_owned(),
            killed,
        };
        let seen = clock::moment();
        let line = |(epoch, mark): &(u64, Mark)| Line { epoch: *epoch, mark: *mark, seen };
        let account = Account {
            status: "completed".to_owned(),
            attempts: attempts.iter().map(attempt).collect(),
        };
        compare(&account, &lines.iter().map(line).collect::<Vec<_>>())
    }

    const WHOLE: [(u64, Mark); 2] = [(1, Mark::Start), (1, Mark::End)];

    #[test]
    fn one_whole_run_is_fine() {
        let compared = check(&[(1, "completed")], &WHOLE);
        assert_eq!(compared, Compared { completed: true, has_ended: true, faults: Vec::new() });
    }

    #[test]
    fn a_second_run_needs_a_reason() {
        let lines = [(1, Mark::Start), (2, Mark::Start), (2, Mark::End)];
        assert_eq!(check(&[(1, "lost"), (2, "completed")], &lines).faults.len(), 0);
        assert_eq!(check(&[(1, "interrupted"), (2, "completed")], &lines).faults.len(), 0);
        assert_eq!(check(&[(1, "failed"), (2, "completed")], &lines).faults.len(), 1);
        assert_eq!(check(&[(2, "completed")], &lines).faults.len(), 1);
    }

    #[test]
    fn only_a_killed_worker_may_begin_a_run_that_nobody_heard_of() {
        let lines = [(1, Mark::Start), (2, Mark::Start), (2, Mark::End)];
        let attempts = [(1, "undelivered"), (2, "completed")];
        assert_eq!(check_on(true, &attempts, &lines).faults.len(), 0);
        assert_eq!(check_on(false, &attempts, &lines).faults.len(), 1);
    }

    #[test]
    fn an_outcome_without_a_run_is_a_fault() {
        assert!(!check(&[(1, "completed")], &[]).faults.is_empty());
        assert!(!check(&[(1, "completed")], &[(1, Mark::Start)]).faults.is_empty());
    }

    #[test]
    fn two_outcomes_or_none_are_a_fault() {
        let twice = [(1, Mark::Start), (1, Mark::End), (2, Mark::Start), (2, Mark::End)];
        assert!(!check(&[(1, "completed"), (2, "completed")], &twice).faults.is_empty());
        assert!(!check(&[(1, "lost")], &WHOLE).faults.is_empty());
    }

    #[test]
    fn one_attempt_that_starts_twice_is_a_fault() {
        let lines = [(1, Mark::Start), (1, Mark::Start), (1, Mark::End)];
        assert!(!check(&[(1, "completed")], &lines).faults.is_empty());
    }
}
