//! The verdict: compares the ledger with the API, job by job.

mod compare;

use std::collections::HashSet;
use std::time::Duration;

use outlast_cli_core::client::Client;
use outlast_cli_core::clock::Moment;
use outlast_cli_core::exit::Failure;
use outlast_cli_core::output::{Table, span, text_at};
use serde_json::Value;

use self::compare::{Compared, compare};
use super::fixture::KILLED;
use super::ledger::{Ledger, Mark};
use super::load::Load;

/// How long the API may lag behind the ledger: a job writes its last line before it ends.
const SETTLE_LOOKS: u32 = 500;
const SETTLE_EVERY: Duration = Duration::from_millis(20);

/// What the API says about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) status: String,
    pub(super) attempts: Vec<Attempt>,
}

/// What the API says about an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) epoch: u64,
    pub(super) outcome: String,
    /// Its worker was killed: a program may have started before the server heard of it.
    pub(super) killed: bool,
}

/// How the demo ended.
#[derive(Debug, Default)]
pub(super) struct Summary {
    accepted: usize,
    completed: usize,
    lost: usize,
    rerun_after_kill: usize,
    rerun_after_drain: usize,
    interrupted: usize,
    first_again: Option<Duration>,
    last_again: Option<Duration>,
    /// Broken guarantees, a line each.
    pub(super) faults: Vec<String>,
    /// How long it took in all.
    pub(super) took: Duration,
}

/// Compares every job of the load with the ledger.
pub(super) async fn verify(
    client: &Client,
    load: &Load,
    ledger: &mut Ledger,
    killed_at: Moment,
) -> Result<Summary, Failure> {
    let mut summary = Summary { accepted: load.accepted().len(), ..Summary::default() };
    for id in load.accepted() {
        let account = account(client, id).await?;
        // A superseded attempt may have written one more line in the meantime.
        ledger.read()?;
        summary.add(id, &account, ledger, killed_at);
    }
    let accepted: HashSet<&str> = load.accepted().iter().map(String::as_str).collect();
    for stranger in ledger.jobs().filter(|job| !accepted.contains(job)) {
        summary.faults.push(format!("job {stranger} ran but was never accepted"));
    }
    for line in ledger.malformed() {
        summary.faults.push(format!("the ledger has a torn line: {line:?}"));
    }
    Ok(summary)
}

/// Asks about a job until it has ended, for a bounded time.
async fn account(client: &Client, id: &str) -> Result<Account, Failure> {
    let mut status = String::new();
    for _ in 0..SETTLE_LOOKS {
        let answer = client.get(&["api", "v1", "executions", id], &[]).await?;
        let job = crate::output::data(answer);
        status = text_at(&job, "status");
        if super::super::follow::has_ended(&job) {
            break;
        }
        tokio::time::sleep(SETTLE_EVERY).await;
    }
    let answer = client.get(&["api", "v1", "executions", id, "attempts"], &[]).await?;
    let attempts = answer.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let attempt = |attempt: &Value| Attempt {
        epoch: attempt.get("epoch").and_then(Value::as_u64).unwrap_or(0),
        outcome: text_at(attempt, "outcome"),
        killed: text_at(attempt, "worker.name") == KILLED,
    };
    Ok(Account { status, attempts: attempts.iter().map(attempt).collect() })
}

impl Summary {
    fn add(&mut self, id: &str, account: &Account, ledger: &Ledger, killed_at: Moment) {
        let lines = ledger.of(id);
        let Compared { completed, has_ended, faults } = compare(account, lines);
        self.faults.extend(faults.into_iter().map(|fault| format!("job {id} {fault}")));
        self.completed += usize::from(completed);
        self.lost += usize::from(!has_ended);
        let outcome = |wanted: &str| account.attempts.iter().any(|one| one.outcome == wanted);
        let died = account.attempts.iter().any(|one| one.killed && one.outcome == "undelivered");
        self.interrupted += usize::from(outcome("interrupted"));
        let starts = lines.iter().filter(|line| line.mark == Mark::Start);
        if starts.count() < 2 {
            return;
        }
        if !outcome("lost") && !died {
            self.rerun_after_drain += usize::from(outcome("interrupted"));
            return;
        }
        self.rerun_after_kill += 1;
        let again = lines.iter().filter(|line| line.mark == Mark::Start && line.seen > killed_at);
        if let Some(again) = again.map(|line| line.seen.since(killed_at)).min() {
            self.first_again = Some(self.first_again.map_or(again, |first| first.min(again)));
            self.last_again = Some(self.last_again.map_or(again, |last| last.max(again)));
        }
    }

    /// The table that ends the demo.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new(&[]);
        let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        row("accepted", self.accepted.to_string());
        row("completed", self.completed.to_string());
        row("lost", self.lost.to_string());
        let (kill, drain) = (self.rerun_after_kill, self.rerun_after_drain);
        let all = kill + drain;
        let twice =
            format!("{all}: {kill} their worker was killed, {drain} the drain handed them on");
        row("run more than once", twice);
        row("interrupted", format!("{} by the drain, no retry spent", self.interrupted));
        let again = match (self.first_again, self.last_again) {
            (Some(first), Some(last)) => format!("{} to {}", span(first), span(last)),
            _ => "no job was running on the killed worker".to_owned(),
        };
        row("kill to re-run", again);
        row("took", span(self.took));
        let summary = match self.faults.len() {
            0 => "ledger and API agree".to_owned(),
            count => format!("{count} faults"),
        };
        row("verdict", summary);
        format!("\n{table}")
    }
}
