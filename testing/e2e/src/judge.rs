//! The judge: compares what was accepted, what the API says, what the ledger says, and which
//! processes there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::ledger::Trace;
use crate::process_table;
use crate::wait::poll;

/// Execution statuses that never change again.
pub const TERMINAL: [&str; 5] = ["completed", "failed", "timeout", "cancelled", "abandoned"];

/// From the end of a job to the end of the last process of its tree: SIGTERM, then SIGKILL.
const TREE_BOUND: Duration = Duration::from_secs(20);
/// The ledger's clock counts in hundredths of a second.
const CLOCK_STEP: Duration = Duration::from_millis(10);

/// A job that the server accepted, and what was promised about it.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Two of its attempts never run at the same time.
    pub never_overlaps: bool,
    /// It leaves a trace in the ledger.
    pub leaves_trace: bool,
    /// The epoch it had when its cancellation was confirmed.
    pub cancelled_at_epoch: Option<u64>,
}

/// What the API says about one job.
#[derive(Clone, Debug)]
pub struct Account {
    /// The execution.
    pub execution: Value,
    /// Its attempts by epoch.
    pub attempts: Vec<Value>,
}

/// Compares; returns everything that is wrong.
#[must_use]
pub fn discrepancies(
    accepted: &BTreeMap<String, Accepted>,
    accounts: &BTreeMap<String, Account>,
    traces: &BTreeMap<String, Vec<Trace>>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, promised) in accepted {
        let Some(account) = accounts.get(id) else {
            wrong.push(format!("{id}: accepted, and unknown to the API"));
            continue;
        };
        let empty = Vec::new();
        let found = one_job(promised, account, traces.get(id).unwrap_or(&empty));
        wrong.extend(found.into_iter().map(|what| format!("{id}: {what}")));
    }
    for id in traces.keys().filter(|id| !accepted.contains_key(*id)) {
        wrong.push(format!("{id}: ran, and was never accepted"));
    }
    wrong
}

fn one_job(promised: &Accepted, account: &Account, traces: &[Trace]) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = account.execution["status"].as_str().unwrap_or_default();
    let epoch = account.execution["epoch"].as_u64().unwrap_or_default();
    if !TERMINAL.contains(&status) {
        wrong.push(format!("ended as {status:?}, which is no end"));
    }
    wrong.extend(attempts_wrong(status, epoch, &account.attempts));
    for pair in traces.windows(2) {
        if pair[0].epoch >= pair[1].epoch {
            wrong.push(format!("epoch {} ran after epoch {}", pair[1].epoch, pair[0].epoch));
        }
        if promised.never_overlaps && pair[1].first + CLOCK_STEP < pair[0].last {
            wrong.push(format!("overlapping attempts: {pair:?}"));
        }
    }
    for trace in traces {
        if trace.starts != 1 {
            wrong.push(format!("epoch {} began {} times", trace.epoch, trace.starts));
        }
        if trace.epoch > epoch {
            wrong.push(format!("epoch {} ran, the API knows {epoch}", trace.epoch));
        }
        if promised.cancelled_at_epoch.is_some_and(|last| trace.epoch > last) {
            wrong.push(format!("epoch {} ran after the cancellation", trace.epoch));
        }
    }
    if promised.cancelled_at_epoch.is_some() && status != "cancelled" {
        wrong.push(format!("its cancellation was confirmed, and it is {status:?}"));
    }
    let committed = traces.iter().find(|trace| trace.epoch == epoch);
    if promised.leaves_trace && status == "completed" && !committed.is_some_and(|t| t.ended) {
        wrong.push(format!("completed at epoch {epoch}, and the ledger says {traces:?}"));
    }
    wrong
}

fn attempts_wrong(status: &str, epoch: u64, attempts: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let epochs: Vec<u64> =
        attempts.iter().filter_map(|attempt| attempt["epoch"].as_u64()).collect();
    if epochs.windows(2).any(|pair| pair[0] >= pair[1]) {
        wrong.push(format!("epochs do not rise: {epochs:?}"));
    }
    if epochs.last().is_some_and(|last| *last > epoch) {
        wrong.push(format!("attempts {epochs:?} go beyond epoch {epoch}"));
    }
    let completed: Vec<u64> = attempts
        .iter()
        .filter(|attempt| attempt["outcome"] == "completed")
        .filter_map(|attempt| attempt["epoch"].as_u64())
        .collect();
    let expected: &[u64] = if status == "completed" { &[epoch] } else { &[] };
    if completed != expected {
        wrong.push(format!("{status} at epoch {epoch}, completed attempts {completed:?}"));
    }
    if let Some(open) = attempts.iter().find(|attempt| attempt["outcome"].is_null()) {
        wrong.push(format!("{status}, and an attempt is still open: {open}"));
    }
    wrong
}

/// Waits until no process of these jobs is left; returns what survived.
#[must_use]
pub fn survivors(jobs: &BTreeSet<String>) -> Vec<String> {
    let gone = || process_table::of_jobs(jobs).is_empty().then_some(());
    if poll(TREE_BOUND, gone).is_some() {
        return Vec::new();
    }
    let described = |(pid, job): (i32, String)| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        format!("{job}: process {pid} survived: {command}")
    };
    process_table::of_jobs(jobs).into_iter().map(described).collect()
}

/// Writes a list of what is wrong for a panic message.
#[must_use]
pub fn verdict(wrong: &[String]) -> String {
    let mut text = format!("{} things are wrong:", wrong.len());
    for line in wrong {
        // Writing to a string cannot fail.
        let _written = write!(text, "\n  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trace(epoch: u64, first: u64, last: u64) -> Trace {
        let ms = Duration::from_millis;
        Trace { epoch, starts: 1, first: ms(first), last: ms(last), ended: true }
    }

    fn account(status: &str, outcomes: &[&str]) -> Account {
        let attempt = |(n, outcome): (usize, &&str)| json!({"epoch": n + 1, "outcome": outcome});
        let attempts: Vec<Value> = outcomes.iter().enumerate().map(attempt).collect();
        Account { execution: json!({"status": status, "epoch": outcomes.len()}), attempts }
    }

    fn check(promised: Accepted, account: Account, traces: Vec<Trace>, expected: usize) {
        let accepted = BTreeMap::from([("a".to_owned(), promised)]);
        let accounts = BTreeMap::from([("a".to_owned(), account)]);
        let traces = BTreeMap::from([("a".to_owned(), traces)]);
        let found = discrepancies(&accepted, &accounts, &traces);
        assert_eq!(found.len(), expected, "{found:?}");
    }

    fn traced() -> Accepted {
        Accepted { leaves_trace: true, ..Accepted::default() }
    }

    #[test]
    fn a_job_that_was_lost_once_and_completed_is_in_order() {
        let traces = vec![trace(1, 0, 100), trace(2, 200, 300)];
        check(traced(), account("completed", &["lost", "completed"]), traces, 0);
    }

    #[test]
    fn each_broken_promise_is_found() {
        let ran = || vec![trace(1, 0, 100)];
        check(traced(), account("running", &["running"]), ran(), 1);
        check(traced(), account("completed", &["completed"]), Vec::new(), 1);
        check(traced(), account("completed", &["completed", "completed"]), vec![trace(2, 0, 1)], 1);
        check(traced(), account("failed", &["failed"]), vec![trace(2, 0, 1)], 1);
        let mut twice = ran();
        twice[0].starts = 2;
        check(traced(), account("completed", &["completed"]), twice, 1);
        let backwards = vec![trace(2, 0, 100), trace(1, 200, 300)];
        check(traced(), account("completed", &["lost", "completed"]), backwards, 1);
    }

    #[test]
    fn overlapping_attempts_are_wrong_only_where_that_was_promised() {
        let overlapping = || vec![trace(1, 0, 300), trace(2, 200, 400)];
        let forbidden = Accepted { never_overlaps: true, ..traced() };
        check(forbidden, account("completed", &["lost", "completed"]), overlapping(), 1);
        check(traced(), account("completed", &["lost", "completed"]), overlapping(), 0);
    }

    #[test]
    fn a_cancelled_job_that_runs_again_is_found() {
        let cancelled = Accepted { cancelled_at_epoch: Some(1), ..traced() };
        let traces = vec![trace(1, 0, 100), trace(2, 200, 300)];
        check(cancelled, account("cancelled", &["cancelled", "cancelled"]), traces, 1);
    }

    #[test]
    fn accepted_and_unknown_or_run_and_never_accepted_is_found() {
        let accepted = BTreeMap::from([("a".to_owned(), Accepted::default())]);
        let traces = BTreeMap::from([("b".to_owned(), vec![trace(1, 0, 1)])]);
        assert_eq!(discrepancies(&accepted, &BTreeMap::new(), &traces).len(), 2);
    }
}
