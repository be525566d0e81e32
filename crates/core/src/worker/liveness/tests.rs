use super::*;

fn all() -> impl Iterator<Item = Standing> {
    Phase::ALL.into_iter().flat_map(|phase| {
        Liveness::ALL.into_iter().map(move |liveness| Standing { phase, liveness })
    })
}

#[test]
fn lapsed_and_gone_workers_never_come_back() {
    for worker in all().filter(|worker| !worker.holds_lease()) {
        for event in WorkerEvent::ALL {
            let next = decide(worker, event);
            assert!(next.is_err() || next.is_ok_and(|next| !next.holds_lease()), "{event:?}");
        }
    }
}

#[test]
fn death_of_a_lapsed_worker_is_news_once() {
    for worker in all().filter(|worker| worker.liveness == Liveness::Lapsed) {
        let gone = decide(worker, WorkerEvent::Died).unwrap();
        assert_eq!(gone.state(), "stopped");
        assert_eq!(decide(gone, WorkerEvent::Died), Err(WorkerRefusal::Gone));
    }
}

#[test]
fn drain_is_never_undone() {
    for worker in all().filter(|worker| worker.phase == Phase::Draining) {
        for event in WorkerEvent::ALL {
            if let Ok(next) = decide(worker, event) {
                assert_eq!(next.phase, Phase::Draining, "{worker:?} {event:?}");
            }
        }
    }
}

#[test]
fn drain_and_quiet_never_look_like_death() {
    for event in [WorkerEvent::Quiet, WorkerEvent::Drain] {
        let next = decide(Standing::NEW, event).unwrap();
        assert!(!next.is_active() && next.holds_lease(), "{event:?}");
    }
}

#[test]
fn beat_and_attachment_restore_a_suspect() {
    let suspect = decide(Standing::NEW, WorkerEvent::Drop).unwrap();
    assert!(!suspect.is_active());
    for event in [WorkerEvent::Beat, WorkerEvent::Attach] {
        assert_eq!(decide(suspect, event), Ok(Standing::NEW), "{event:?}");
    }
}
