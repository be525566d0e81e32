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
