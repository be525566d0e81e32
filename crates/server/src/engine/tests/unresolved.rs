use std::sync::Mutex;

use super::*;

/// No client held the jobs of such a claim: they came back when their visibility was over, after
/// half an hour.
#[tokio::test]
async fn jobs_of_a_plain_claim_that_got_no_answer_are_handed_out_again_when_the_store_is_back() {
    let failures = Arc::new(Mutex::new(None::<u32>));
    let left = Arc::clone(&failures);
    let is_claim = |command: &Command| matches!(command, Command::Claim(_));
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(move |batch| {
        let mut left = left.lock().unwrap();
        match &mut *left {
            None if batch.commands.iter().any(is_claim) => {
                *left = Some(3);
                Some(StoreError::Ambiguous("lost".into()))
            }
            None | Some(0) => None,
            Some(left) => {
                *left -= 1;
                Some(StoreError::Unavailable("away".into()))
            }
        }
    });
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let engine = Engine::start(Arc::new(store), settings);
    engine.submit(Command::Enqueue(Box::new(noop_job(1)))).await.unwrap();
    engine.claim_plain(one_of_default(), None).await.unwrap_err();
    let sweep = || engine.submit(Command::Sweep(Sweep { limit: 0, watched: Span::ZERO }));
    // Nothing goes on before it is known what that batch did.
    for _ in 0..3 {
        sweep().await.unwrap_err();
    }
    sweep().await.unwrap();
    let again = engine.claim_plain(one_of_default(), Some(Span::from_secs(20))).await.unwrap();
    let ids: Vec<_> = again.iter().map(|job| (job.job.id, job.epoch)).collect();
    assert_eq!(ids, [(JobId(Uuid::from_u128(1)), Epoch(2))]);
    assert_eq!(*failures.lock().unwrap(), Some(0));
}

/// The lock of such a batch was taken for that of another session: contact with the store counted as
/// unbroken, and workers as silent.
#[tokio::test]
async fn contact_is_broken_until_it_is_known_what_a_batch_without_claims_did() {
    let batches = Arc::new(Mutex::new(0));
    let count = Arc::clone(&batches);
    let store = ModelStore::new(Arc::new(ManualClock::at(Timestamp(1_000))));
    let store = store.failing(move |batch| {
        let mut count = count.lock().unwrap();
        let resolves = batch.commands.is_empty();
        let is_job = |command: &Command| matches!(command, Command::Enqueue(_));
        match *count {
            0 if batch.commands.iter().any(is_job) => {
                *count = 1;
                Some(StoreError::Ambiguous("lost".into()))
            }
            1 if resolves => {
                *count = 2;
                Some(StoreError::Locked("by ourselves".into()))
            }
            _ => None,
        }
    });
    let settings = Settings::with_packs(Arc::new(PackSet::embedded_core().unwrap()));
    let engine = Engine::start(Arc::new(store), settings);
    engine.submit(Command::Enqueue(Box::new(noop_job(1)))).await.unwrap_err();
    let sweep = || engine.submit(Command::Sweep(Sweep { limit: 0, watched: Span::ZERO }));
    let refused = sweep().await.unwrap_err();
    assert!(refused.reason.contains("undecided"), "{refused}");
    let health = &engine.shared().store_health;
    assert!(health.is_down() && health.unbroken_for(boot_time()) == Span::ZERO);
    sweep().await.unwrap();
    assert!(!health.is_down());
    assert_eq!(*batches.lock().unwrap(), 2);
}
