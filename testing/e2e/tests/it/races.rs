//! F26: cancel, complete, lapse and timeout, every pair at the same moment.
//!
//! Plain OJS jobs, so that both sides of a race can be fired from here to the millisecond: a
//! visibility or time limit of `LIMIT` ends around the time at which a report or a cancellation
//! arrives, a little earlier or later in each lane. Each race has one winner; the loser is refused,
//! and the outcome does not change.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use outlast_e2e::wait::{SWEEP, eventually, within};
use outlast_e2e::{Api, Scene};
use serde_json::{Value, json};

const LANES: u64 = 12;
const ROUNDS: usize = 3;
const LIMIT_MS: u64 = 200;
const LIMIT: Duration = Duration::from_millis(LIMIT_MS);
/// How far the lanes of a race lie apart: they cover the limit, the sweep and some time after.
const LANE_STEP: Duration = Duration::from_millis(20);

/// One claimed job in a queue of its own.
struct Lane {
    api: Api,
    id: String,
    queue: String,
    claimed: Value,
    number: u64,
}

impl Lane {
    fn new(api: &Api, queue: String, mut options: Value, number: u64) -> Self {
        options["queue"] = json!(queue);
        let id = api.ojs_enqueue("race.work", &options);
        let claimed = api.ojs_fetch(&queue, "racer", 1).pop().expect("the job just enqueued");
        assert_eq!(claimed["id"], json!(id));
        Self { api: api.clone(), id, queue, claimed, number }
    }

    fn ack(&self) -> u16 {
        let attempt = &self.claimed["attempt"];
        let body = json!({"job_id": self.id, "worker_id": "racer", "attempt": attempt});
        self.report("ack", &body)
    }

    /// Reports, and returns the status. A report that comes after a cancel is answered 200 so
    /// that no client stumbles over it, and says that it does not count: 409 here.
    fn report(&self, how: &str, body: &Value) -> u16 {
        let reply = self.api.post(&format!("/ojs/v1/workers/{how}"), body);
        let counts = reply.body["acknowledged"] != json!(false);
        if reply.status == 200 && !counts { 409 } else { reply.status }
    }

    fn cancel(&self) -> u16 {
        self.api.delete(&format!("/ojs/v1/jobs/{}", self.id)).status
    }

    fn state(&self) -> String {
        self.api.ojs_job(&self.id)["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until shortly before or after the limit, depending on the lane.
    fn approach_limit(&self) {
        let from_middle = LANE_STEP * u32::try_from(self.number).unwrap();
        thread::sleep(LIMIT - LANE_STEP * 3 + from_middle);
    }

    /// Checks that the job is in `state` for good.
    fn settled(&self, state: &str) {
        eventually(&format!("job {} is {state}", self.id), within(LIMIT + SWEEP), || {
            (self.state() == state).then_some(())
        });
        assert!(self.api.ojs_fetch(&self.queue, "vulture", 1).is_empty(), "{state} jobs end");
        assert_eq!(self.state(), state);
    }
}

/// Runs a race in many lanes at once, several times.
fn race(name: &str, options: &Value, lane: impl Fn(&Lane) + Sync) {
    let scene = Scene::start();
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            for number in 0..LANES {
                let (scene, lane) = (&scene, &lane);
                let queue = format!("{name}-{round}-{number}");
                scope.spawn(move || lane(&Lane::new(scene.api(), queue, options.clone(), number)));
            }
        });
    }
}

#[test]
fn cancel_against_complete() {
    race("cancel-complete", &json!({}), |lane| {
        let start = Barrier::new(2);
        let (acked, cancelled) = thread::scope(|scope| {
            let ack = scope.spawn(|| {
                start.wait();
                lane.ack()
            });
            start.wait();
            let cancelled = lane.cancel();
            (ack.join().unwrap(), cancelled)
        });
        match (acked, cancelled) {
            (200, 409) => lane.settled("completed"),
            (409, 200) => lane.settled("cancelled"),
            other => panic!("no winner, or two: ack and cancel answered {other:?}"),
        }
    });
}

#[test]
fn complete_against_lapse() {
    let options = json!({"visibility_timeout_ms": LIMIT_MS, "retry": {"max_attempts": 1}});
    race("complete-lapse", &options, |lane| {
        lane.approach_limit();
        match lane.ack() {
            200 => lane.settled("completed"),
            409 => lane.settled("discarded"),
            other => panic!("ack answered {other}"),
        }
    });
}

#[test]
fn complete_against_timeout() {
    let options = json!({"timeout_ms": LIMIT_MS, "retry": {"max_attempts": 1}});
    race("complete-timeout", &options, |lane| {
        lane.approach_limit();
        match lane.ack() {
            200 => lane.settled("completed"),
            409 => lane.settled("discarded"),
            other => panic!("ack answered {other}"),
        }
    });
}

#[test]
fn cancel_against_lapse() {
    // Two attempts: the lapse makes the job available again, and cancelled all the same.
    let options = json!({"visibility_timeout_ms": LIMIT_MS, "retry": {"max_attempts": 2}});
    race("cancel-lapse", &options, |lane| {
        lane.approach_limit();
        assert_eq!(lane.cancel(), 200);
        lane.settled("cancelled");
    });
}

#[test]
fn cancel_against_timeout() {
    let options = json!({"timeout_ms": LIMIT_MS, "retry": {"max_attempts": 1}});
    race("cancel-timeout", &options, |lane| {
        lane.approach_limit();
        match lane.cancel() {
            200 => lane.settled("cancelled"),
            409 => lane.settled("discarded"),
            other => panic!("cancel answered {other}"),
        }
    });
}

#[test]
fn lapse_against_timeout() {
    let options = json!({
        "timeout_ms": LIMIT_MS, "visibility_timeout_ms": LIMIT_MS, "retry": {"max_attempts": 1},
    });
    race("lapse-timeout", &options, |lane| {
        lane.settled("discarded");
        let outcomes = lane.api.outcomes(&lane.id);
        assert_eq!(outcomes.len(), 1, "one attempt, one end: {outcomes:?}");
        assert_eq!(lane.ack(), 409);
    });
}

#[test]
fn three_reports_of_one_attempt_have_one_winner() {
    race("triple", &json!({}), |lane| {
        let start = Barrier::new(3);
        let nack = || {
            let error = json!({"code": "handler_error", "message": "no", "retryable": false});
            let body = json!({"job_id": lane.id, "worker_id": "racer", "error": error});
            lane.report("nack", &body)
        };
        let statuses: Vec<u16> = thread::scope(|scope| {
            let ack = scope.spawn(|| {
                start.wait();
                lane.ack()
            });
            let nack = scope.spawn(|| {
                start.wait();
                nack()
            });
            start.wait();
            let cancel = lane.cancel();
            vec![ack.join().unwrap(), nack.join().unwrap(), cancel]
        });
        let state = lane.state();
        match statuses[..] {
            [200, 409, 409] => assert_eq!(state, "completed"),
            [409, 200, 409] => assert_eq!(state, "discarded"),
            [409, 409, 200] => assert_eq!(state, "cancelled"),
            _ => panic!("ack, nack and cancel answered {statuses:?}; the job is {state}"),
        }
    });
}
