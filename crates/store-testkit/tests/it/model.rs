use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use outlast_store::Clock;
use outlast_store::event::EventName;
use outlast_store_testkit::conformance::{self, Harness, check};
use outlast_store_testkit::model::ModelStore;

struct Model;

impl Harness for Model {
    type Store = ModelStore;

    fn open(&self, clock: Arc<dyn Clock>) -> ModelStore {
        ModelStore::new(clock)
    }

    fn reopen(&self, store: ModelStore, _clock: Arc<dyn Clock>) -> ModelStore {
        store.reopen()
    }

    fn miscount(&self, store: &ModelStore, by: i32) {
        assert!(store.miscount(by).is_ok());
    }

    fn misname(&self, store: &ModelStore, name: EventName) {
        assert!(store.misname(name).is_ok());
    }

    /// The model answers at once: a call that waits is a bug.
    fn block_on<F: Future>(&self, call: F) -> F::Output {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(call).poll(&mut context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("the model store waits for something"),
        }
    }
}

#[test]
fn events_are_read_as_the_contract_says() {
    check(&Model, &conformance::events::cases());
}

#[test]
fn jobs_are_stored_as_the_contract_says() {
    check(&Model, &conformance::enqueue::cases());
}

#[test]
fn keys_of_jobs_are_kept_as_the_contract_says() {
    check(&Model, &conformance::keys::cases());
}

#[test]
fn jobs_of_a_key_are_stored_once_as_the_contract_says() {
    check(&Model, &conformance::idempotency::cases());
}

#[test]
fn what_jobs_and_queues_ask_of_workers_is_kept_as_the_contract_says() {
    check(&Model, &conformance::placement::cases());
}

#[test]
fn settings_of_queues_are_kept_as_the_contract_says() {
    check(&Model, &conformance::queue::cases());
}

#[test]
fn shares_take_turns_as_the_contract_says() {
    check(&Model, &conformance::fair::cases());
}

#[test]
fn unique_jobs_are_stored_once_as_the_contract_says() {
    check(&Model, &conformance::unique::cases());
}

#[test]
fn bounded_queues_refuse_what_the_contract_says() {
    check(&Model, &conformance::depth::cases());
}

#[test]
fn limits_hold_back_what_the_contract_says() {
    check(&Model, &conformance::limit::cases());
}

#[test]
fn gates_are_counted_again_as_the_contract_says() {
    check(&Model, &conformance::recount::cases());
}

#[test]
fn open_lanes_of_very_many_are_found_as_the_contract_says() {
    check(&Model, &conformance::crowd::cases());
}

#[test]
fn lanes_are_looked_at_as_the_contract_says() {
    check(&Model, &conformance::lanes::cases());
}

#[test]
fn jobs_are_claimed_as_the_contract_says() {
    check(&Model, &conformance::claim::cases());
}

#[test]
fn reports_count_as_the_contract_says() {
    check(&Model, &conformance::report::cases());
}

#[test]
fn one_end_wins_as_the_contract_says() {
    check(&Model, &conformance::race::cases());
}

#[test]
fn orders_hold_for_workers_that_start_later_as_the_contract_says() {
    check(&Model, &conformance::standing::cases());
}

#[test]
fn workers_live_and_lapse_as_the_contract_says() {
    check(&Model, &conformance::worker::cases());
}

#[test]
fn plain_attempts_are_held_as_the_contract_says() {
    check(&Model, &conformance::plain::cases());
}

#[test]
fn operations_go_step_by_step_as_the_contract_says() {
    check(&Model, &conformance::operation::cases());
}

#[test]
fn orders_are_obeyed_as_the_contract_says() {
    check(&Model, &conformance::order::cases());
    check(&Model, &conformance::failover::cases());
}

#[test]
fn time_passes_as_the_contract_says() {
    check(&Model, &conformance::sweep::cases());
}

#[test]
fn leadership_is_taken_as_the_contract_says() {
    check(&Model, &conformance::leadership::cases());
}

#[test]
fn reads_tell_what_the_contract_says() {
    check(&Model, &conformance::read::cases());
}

#[test]
fn reads_are_bounded_in_bytes_as_the_contract_says() {
    check(&Model, &conformance::bytes::cases());
}

#[test]
fn crashes_leave_what_the_contract_says() {
    check(&Model, &conformance::durable::cases());
}

/// The model agrees with itself, of course; the laws are what is tested here.
#[test]
fn laws_hold_along_random_sequences() {
    conformance::random::check(&Model);
}
