//! The store's clock never runs backwards.

use outlast_core::time::Timestamp;
use outlast_store::Clock as _;
use outlast_store_sqlite::BootClock;

#[test]
fn clock_starts_at_the_later_of_persisted_and_wall() {
    for (persisted, wall, least) in [(5_000, 1_000, 5_000), (1_000, 5_000, 5_000)] {
        let now = BootClock::starting_at(Timestamp(persisted), Timestamp(wall)).now();
        assert!(now >= Timestamp(least) && now < Timestamp(least + 60_000), "{now:?}");
    }
}

#[test]
fn clock_does_not_run_backwards() {
    let clock = BootClock::starting_at(Timestamp(0), Timestamp(0));
    let mut latest = clock.now();
    for _ in 0..10_000 {
        let now = clock.now();
        assert!(now >= latest);
        latest = now;
    }
}
