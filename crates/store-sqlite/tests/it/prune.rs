//! How much one prune deletes: the one writer stands still meanwhile.

use std::num::NonZeroU32;

use outlast_core::id::{Epoch, JobId, WorkerId};
use outlast_core::limits::{LOG_CHUNK_BYTES_MAX, PRUNE_BYTES_MAX};
use outlast_core::time::{Span, Timestamp};
use outlast_store::command::{
    LeadershipFence, LeadershipRequest, LogChunk, Prune, RETENTION, Stream,
};
use outlast_store::{Command, Reply, Store as _};
use outlast_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;
use uuid::Uuid;

use crate::hand::{arrival, batch, claim, complete, enqueue};

const JOBS: u32 = 3;
/// Pieces of output of each job: more than two prunes may delete.
const PIECES: u32 = 150;

fn number(db: &Connection, sql: &str) -> usize {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// 120 jobs with 9 MB of output each once went in one prune, and an enqueue waited for more than a
/// second.
#[tokio::test]
async fn a_prune_deletes_long_output_by_slices_and_all_of_it_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path, &Options::default()).unwrap();
    let worker = WorkerId(Uuid::from_u128(7));
    let mut n = 0;
    let mut apply = async |commands: Vec<Command>| {
        n += 1;
        store.apply(batch(n, commands).into()).await.unwrap().replies
    };
    apply(arrival(worker)).await;
    let job = |i: u32| JobId(Uuid::from_u128(u128::from(i) + 100));
    apply((0..JOBS).map(|i| enqueue(job(i))).collect()).await;
    apply(vec![claim(worker, NonZeroU32::new(JOBS).unwrap())]).await;
    for i in 0..JOBS {
        let piece = |n: u32| {
            let (stream, bytes) = (Stream::Stdout, vec![b'x'; LOG_CHUNK_BYTES_MAX]);
            Command::Log(LogChunk { job: job(i), epoch: Epoch(1), n, stream, bytes })
        };
        apply((0..PIECES).map(piece).collect()).await;
        apply(vec![complete(worker, job(i), Epoch(1))]).await;
    }
    let (name, holder) = (RETENTION.to_owned(), Uuid::from_u128(1));
    let hold = Some(Span::from_secs(600));
    let request = LeadershipRequest { name: name.clone(), holder, hold };
    let replies = apply(vec![Command::Leadership(request)]).await;
    let Some(Reply::Leadership(Ok(leadership))) = replies.first() else {
        panic!("another server leads: {replies:?}")
    };
    let leadership = LeadershipFence { name, holder, epoch: leadership.epoch };
    let later = Timestamp(i64::MAX / 2_000);
    let db = Connection::open(&path).unwrap();
    let output = || number(&db, "select coalesce(sum(octet_length(bytes)), 0) from log");
    let (mut before, mut prunes) = (output(), 0);
    assert_eq!(before, JOBS as usize * PIECES as usize * LOG_CHUNK_BYTES_MAX);
    loop {
        let prune = Prune {
            leadership: leadership.clone(),
            finished_before: later,
            workers_before: Timestamp(0),
            limit: 200,
            from_start: prunes == 0,
        };
        let replies = apply(vec![Command::Prune(prune)]).await;
        let Some(Reply::Pruned(Ok(pruned))) = replies.first() else { panic!("{replies:?}") };
        let after = output();
        assert!(before - after <= PRUNE_BYTES_MAX, "{} bytes in one prune", before - after);
        (before, prunes) = (after, prunes + 1);
        if !pruned.more {
            break;
        }
    }
    let left = ["job_row", "finished", "log", "log_size", "attempt_row"]
        .map(|table| number(&db, &format!("select count(*) from {table}")));
    assert_eq!(left, [0; 5]);
    assert!(prunes >= 7, "{prunes}");
}
