//! A worker's death, reported by another process in its stead.

use std::time::Duration;

use outlast_proto::v1::DeathReply;
use outlast_sdk::{DeathNotReported, EvidenceCode, Tls, WorkerDeath, WorkerId, report_death};
use tonic::Status;

use crate::support::Server;

fn death() -> WorkerDeath {
    WorkerDeath {
        worker: WorkerId(uuid::Uuid::from_u128(7)),
        code: EvidenceCode::EngineKilled,
        why: "killed by signal 9".to_owned(),
    }
}

async fn report(url: &str, limit: Duration) -> Result<(), DeathNotReported> {
    report_death(url, None, &Tls::new(), &death(), limit).await
}

#[tokio::test]
async fn death_is_reported_again_until_the_server_takes_it() {
    let server = Server::start();
    let unavailable = || Err(Status::unavailable("the store does not answer"));
    let accepted = Ok(DeathReply { accepted: true, ..DeathReply::default() });
    server.deaths.lock().unwrap().answers.extend([unavailable(), unavailable(), accepted]);
    report(&server.url, Duration::from_secs(10)).await.unwrap();
    let deaths = server.deaths.lock().unwrap();
    assert_eq!(deaths.reports.len(), 3);
    let last = &deaths.reports[2];
    assert_eq!(*last.worker_id, *death().worker.0.as_bytes());
    assert_eq!((&*last.evidence_code, &*last.why), ("engine_killed", "killed by signal 9"));
}

#[tokio::test]
async fn death_of_a_worker_that_was_given_up_before_needs_no_second_report() {
    let server = Server::start();
    server.deaths.lock().unwrap().answers.push_back(Ok(DeathReply::default()));
    report(&server.url, Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.deaths.lock().unwrap().reports.len(), 1);
}

#[tokio::test]
async fn server_that_will_never_take_a_report_is_not_asked_again() {
    for refusal in [Status::permission_denied("no"), Status::unimplemented("what?")] {
        let server = Server::start();
        server.deaths.lock().unwrap().answers.push_back(Err(refusal));
        let result = report(&server.url, Duration::from_secs(10)).await;
        assert!(matches!(result, Err(DeathNotReported::Refused(_))), "{result:?}");
        assert_eq!(server.deaths.lock().unwrap().reports.len(), 1);
    }
}

#[tokio::test]
async fn report_that_nobody_takes_ends_in_time() {
    let result = report("http://127.0.0.1:1", Duration::from_millis(300)).await;
    assert!(matches!(result, Err(DeathNotReported::OutOfReach(_))), "{result:?}");
}
