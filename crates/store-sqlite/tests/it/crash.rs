//! What was acknowledged is there after kill -9, whole batches only.

use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};

use outlast_core::id::{JobId, WorkerId};
use outlast_core::job::State;
use outlast_store::{Reply, Store as _};
use outlast_store_sqlite::{Options, SqliteStore};
use uuid::Uuid;

use crate::hand::{arrival, batch, claim, complete, enqueue};

const TEST: &str = "crash::every_acknowledged_batch_survives_kill_9";
const STORE: &str = "OUTLAST_TEST_STORE";
const ROUND: &str = "OUTLAST_TEST_ROUND";
/// Jobs a batch enqueues and claims; the next batch finishes them.
const JOBS: NonZeroU32 = NonZeroU32::new(3).unwrap();
const ROUNDS: u64 = 6;
/// Batches that one round can number.
const ROUND_BATCHES: u64 = 100_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn job(n: u64, i: u32) -> JobId {
    JobId(Uuid::from_u128((u128::from(n) << 80) | 0x7000_8000_0000_0000_0000 | u128::from(i)))
}

/// The child's part: batch `n` enqueues and claims three jobs and finishes those of batch
/// `n - 1`; then it says so, and goes on until it is killed.
fn write_until_killed(path: &Path, round: u64) {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    let runtime = runtime();
    let worker = WorkerId(Uuid::from_u128(u128::from(round) + 1));
    let first = round * ROUND_BATCHES;
    runtime.block_on(store.apply(batch(first, arrival(worker)).into())).unwrap();
    let mut held = Vec::new();
    for n in first + 1..first + ROUND_BATCHES {
        let mut commands: Vec<_> = (0..JOBS.get()).map(|i| enqueue(job(n, i))).collect();
        commands.extend(held.drain(..).map(|(job, epoch)| complete(worker, job, epoch)));
        commands.push(claim(worker, JOBS));
        let applied = runtime.block_on(store.apply(batch(n, commands).into())).unwrap();
        let Some(Reply::Claimed(Ok(claimed))) = applied.replies.last() else {
            panic!("claim was refused: {:?}", applied.replies.last())
        };
        held = claimed.jobs.iter().map(|claimed| (claimed.job.id, claimed.epoch)).collect();
        // Not by `println!`, which the test harness would keep for itself.
        let line = format!("acknowledged {n}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a kill needs a process of its own")]
fn spawn(path: &Path, round: u64) -> Child {
    Process::new(std::env::current_exe().unwrap())
        .args(["--exact", TEST])
        .env(STORE, path)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the last batch that a child acknowledged before it was killed.
fn kill_after(mut child: Child, batches: u64) -> u64 {
    let mut last = None;
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(n) = line.strip_prefix("acknowledged ") else { continue };
        last = n.parse().ok();
        seen += 1;
        if seen == batches {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(
        !status.success() && seen >= batches,
        "child ended by itself: {status}, {seen} batches"
    );
    last.unwrap()
}

/// Returns the state of a batch's jobs, which must be one, or `None` when it is not there.
async fn state_of(store: &SqliteStore, n: u64) -> Option<State> {
    let mut states = Vec::new();
    for i in 0..JOBS.get() {
        let found = store.job(job(n, i)).await.unwrap();
        if let Some(record) = &found
            && record.state == State::Completed
        {
            assert_eq!(record.result, Some(format!("\"{}\"", record.job.id)));
        }
        states.push(found.map(|record| record.state));
    }
    assert!(states.iter().all(|state| *state == states[0]), "batch {n} is torn: {states:?}");
    states[0]
}

async fn check(path: &Path, first: u64, last: u64) {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    for n in first + 1..last {
        assert_eq!(state_of(&store, n).await, Some(State::Completed), "batch {n} of {last}");
    }
    // One more batch may have been committed without an answer: it counts whole.
    match (state_of(&store, last).await, state_of(&store, last + 1).await) {
        (Some(State::Active), None) | (Some(State::Completed), Some(State::Active)) => {}
        other => panic!("the last batches are {other:?}"),
    }
    assert_eq!(state_of(&store, last + 2).await, None);
    store.close().await.unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this is how the child learns what it is")]
fn every_acknowledged_batch_survives_kill_9() {
    if let (Ok(path), Ok(round)) = (std::env::var(STORE), std::env::var(ROUND)) {
        return write_until_killed(Path::new(&path), round.parse().unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outlast.db");
    let runtime = runtime();
    for round in 0..ROUNDS {
        let last = kill_after(spawn(&path, round), 20 + 17 * round);
        runtime.block_on(check(&path, round * ROUND_BATCHES, last));
    }
}
