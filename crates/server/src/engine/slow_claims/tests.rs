use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outlast_core::id::WorkerId;
use outlast_core::time::Timestamp;
use outlast_packs::PackSet;
use outlast_store::command::{AskedByQueues, Claimant};
use outlast_store::error::SlowStatement;
use outlast_store::store::ManualClock;
use outlast_store::{Batch, Command, StoreError};
use outlast_store_testkit::model::ModelStore;
use uuid::Uuid;

use super::*;
use crate::engine::Engine;
use crate::engine::output::Output;
use crate::engine::tests::{attach_sdk_worker, noop_job};
use crate::settings::Settings;

const CLASS: ClassId = ClassId(7);

fn job(n: u128) -> JobId {
    JobId(Uuid::from_u128(n))
}

fn chosen(jobs: &[u128]) -> Vec<ChosenJob> {
    jobs.iter().map(|n| ChosenJob { job: job(*n), class: CLASS }).collect()
}

fn next(slow: &SlowClaims, now: BootTime) -> Option<JobId> {
    slow.due(|class| class == CLASS, now).map(|(job, _)| job)
}

fn avoided(slow: &SlowClaims, class: ClassId, but: Option<JobId>) -> Vec<JobId> {
    let mut claim = Claim {
        claimant: Claimant::Plain { worker: None, visibility: Span::from_secs(30) },
        from: ClaimFrom::Classes(Arc::from([class])),
        max: NonZeroU32::MIN,
        is_prefetch: false,
        avoids: Vec::new(),
        asked: AskedByQueues::default(),
    };
    slow.avoid(&mut claim, but);
    claim.avoids.sort_unstable();
    claim.avoids
}

#[test]
fn jobs_of_a_slow_claim_are_set_aside_until_each_was_tried_by_itself() {
    let (slow, now) = (SlowClaims::default(), BootTime(1_000));
    assert!(slow.set_aside(&chosen(&[1, 2, 3]), now));
    assert_eq!(avoided(&slow, CLASS, None), [job(1), job(2), job(3)]);
    assert_eq!(avoided(&slow, ClassId(8), None), []);
    assert_eq!(next(&slow, now), Some(job(1)));
    assert_eq!(avoided(&slow, CLASS, Some(job(1))), [job(2), job(3)]);
    slow.gone([job(1)].into_iter());
    // The second is the slow one.
    assert!(slow.set_aside(&chosen(&[2]), now));
    assert_eq!(next(&slow, now), Some(job(3)));
    slow.gone([job(3)].into_iter());
    assert_eq!(next(&slow, now), None);
    assert_eq!(avoided(&slow, CLASS, None), [job(2)]);
    let words = slow.reason(job(2), now).unwrap();
    assert!(words.contains("once") && words.contains("tried again in 5 s"), "{words}");
    assert_eq!(slow.reason(job(3), now), None);
}

#[test]
fn job_that_stays_slow_is_tried_less_and_less_often() {
    let (slow, mut now) = (SlowClaims::default(), BootTime(1_000));
    for seconds in [5, 10, 20, 40, 80, 160, 240, 240] {
        assert!(slow.set_aside(&chosen(&[1]), now));
        let due = now.after(Span::from_secs(seconds));
        assert_eq!(next(&slow, BootTime(due.0 - 1)), None, "{seconds}");
        assert_eq!(next(&slow, due), Some(job(1)), "{seconds}");
        now = due;
    }
}

// A claim that could not leave the job out was made again at once, and again.
#[test]
fn job_that_is_chosen_although_it_is_avoided_is_no_reason_for_another_claim() {
    let (slow, now) = (SlowClaims::default(), BootTime(1_000));
    assert!(slow.set_aside(&chosen(&[1]), now));
    assert!(!slow.set_aside(&chosen(&[1]), now));
    assert!(slow.set_aside(&chosen(&[1, 2]), now), "the other is new");
}

#[test]
fn job_that_is_never_met_again_is_forgotten() {
    let (slow, mut now) = (SlowClaims::default(), BootTime(1_000));
    slow.set_aside(&chosen(&[1, 2]), now);
    slow.gone([job(2)].into_iter());
    for _ in 0..MISSED_MAX {
        assert_eq!(next(&slow, now), Some(job(1)));
        slow.tried(job(1), now);
        now = now.after(MISSED_PAUSE);
    }
    assert!(slow.is_empty());
}

#[test]
fn jobs_that_are_set_aside_are_bounded() {
    let (slow, now) = (SlowClaims::default(), BootTime(1_000));
    let many: Vec<u128> = (0..JOBS_MAX as u128 + 9).collect();
    assert!(slow.set_aside(&chosen(&many), now));
    assert_eq!(avoided(&slow, CLASS, None).len(), JOBS_MAX);
    assert!(!slow.set_aside(&chosen(&[9_999]), now), "nothing would change");
}

/// A store in which taking job 1 is slow, and how often that was tried.
fn store() -> (ModelStore, Arc<AtomicUsize>) {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(move |batch: &Batch| {
        let takes = |claim: &Claim| {
            let ClaimFrom::Classes(classes) = &claim.from else { return None };
            (!claim.avoids(job(1))).then(|| *classes.first().unwrap())
        };
        let class = batch.commands.iter().find_map(|command| match command {
            Command::Claim(claim) => takes(claim),
            _ => None,
        })?;
        AtomicUsize::fetch_add(&count, 1, Ordering::Relaxed);
        let chosen = vec![ChosenJob { job: job(1), class }];
        Some(StoreError::Slow(SlowStatement { words: "a statement".into(), chosen }))
    });
    (store, tries)
}

/// Its whole queue once waited with it.
#[tokio::test]
async fn job_that_is_slow_to_claim_keeps_no_other_from_a_worker() {
    let (store, tries) = store();
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let engine = Engine::start(Arc::new(store), settings);
    let mut outputs = attach_sdk_worker(&engine, WorkerId(Uuid::from_u128(1)), 100).await;
    let jobs = (1..=20).map(noop_job).collect();
    let stored = engine.submit(Command::EnqueueAll(jobs)).await;
    assert!(stored.is_ok(), "{stored:?}");
    let mut got = Vec::new();
    let receiving = async {
        while got.len() < 19 {
            let output = outputs.recv().await.unwrap().output;
            if let Output::Deliveries(claimed) = output {
                got.extend(claimed.iter().map(|it| it.job.id));
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), receiving).await.expect("the others");
    got.sort_unstable();
    assert_eq!(got, (2..=20).map(job).collect::<Vec<_>>());
    assert!(tries.load(Ordering::Relaxed) <= 4, "{tries:?}");
    let reason = engine.shared().slow_claims.reason(job(1), crate::clock::boot_time());
    assert!(reason.is_some());
}
