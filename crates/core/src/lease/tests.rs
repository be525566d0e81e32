use super::*;
use crate::worker::liveness::Liveness;
use uuid::Uuid;

const PATIENCE: Patience =
    Patience { lease: Span::from_secs(15), reconnect_window: Span::from_secs(5) };

fn worker() -> WorkerId {
    WorkerId(Uuid::from_u128(7))
}

fn at(secs: u64) -> BootTime {
    BootTime(secs * 1000)
}

const fn stored(renewal: u64, liveness: Liveness, asked: BootTime) -> StoredLease {
    StoredLease { renewal, liveness, asked }
}

fn watching_since(secs: u64) -> Watch {
    let mut watch = Watch::default();
    watch.observe(worker(), stored(1, Liveness::Live, at(secs)), at(secs));
    watch
}

#[test]
fn silence_for_the_whole_lease_lapses() {
    let watch = watching_since(100);
    assert_eq!(watch.judge(worker(), PATIENCE, at(114)), Expiry::WaitUntil(at(115)));
    assert_eq!(watch.judge(worker(), PATIENCE, at(115)), Expiry::LeasePassed);
}

#[test]
fn renewal_starts_the_watch_anew() {
    let mut watch = watching_since(100);
    watch.observe(worker(), stored(2, Liveness::Live, at(110)), at(110));
    assert_eq!(watch.judge(worker(), PATIENCE, at(120)), Expiry::WaitUntil(at(125)));
}

#[test]
fn same_renewal_seen_again_does_not_prolong() {
    let mut watch = watching_since(100);
    watch.observe(worker(), stored(1, Liveness::Live, at(114)), at(114));
    assert_eq!(watch.judge(worker(), PATIENCE, at(115)), Expiry::LeasePassed);
}

#[test]
fn drop_shortens_to_the_reconnect_window() {
    let mut watch = watching_since(100);
    watch.dropped(worker(), at(102));
    assert_eq!(watch.judge(worker(), PATIENCE, at(106)), Expiry::WaitUntil(at(107)));
    assert_eq!(watch.judge(worker(), PATIENCE, at(107)), Expiry::WindowPassed);
    assert_eq!(watch.judge(worker(), PATIENCE, at(115)), Expiry::LeasePassed);
}

#[test]
fn beat_or_attachment_after_a_drop_takes_the_suspicion_back() {
    for restore in [
        (|watch: &mut Watch| watch.observe(worker(), stored(2, Liveness::Live, at(103)), at(103)))
            as fn(&mut Watch),
        |watch| watch.attached(worker()),
    ] {
        let mut watch = watching_since(100);
        watch.dropped(worker(), at(102));
        restore(&mut watch);
        assert!(matches!(watch.judge(worker(), PATIENCE, at(107)), Expiry::WaitUntil(_)));
    }
}

/// Workers killed shortly after a beat once kept their work for the whole lease.
#[test]
fn beat_from_before_a_drop_that_is_seen_after_it_is_no_sign_of_life() {
    let mut watch = watching_since(100);
    watch.dropped(worker(), at(105));
    watch.observe(worker(), stored(2, Liveness::Suspect, at(105)), at(105));
    assert_eq!(watch.judge(worker(), PATIENCE, at(109)), Expiry::WaitUntil(at(110)));
    assert_eq!(watch.judge(worker(), PATIENCE, at(110)), Expiry::WindowPassed);
    // What may not overlap waits for the lease that this beat renewed.
    assert_eq!(watch.judge(worker(), PATIENCE, at(120)), Expiry::LeasePassed);
    assert_ne!(watch.judge(worker(), PATIENCE, at(119)), Expiry::LeasePassed);
}

/// A read that was under way while the connection dropped once took the drop back: the worker kept
/// its work for the whole lease.
#[test]
fn read_that_began_before_a_drop_says_nothing_about_it() {
    let mut watch = watching_since(100);
    watch.dropped(worker(), at(105));
    watch.observe(worker(), stored(2, Liveness::Live, at(104)), at(106));
    assert_eq!(watch.judge(worker(), PATIENCE, at(110)), Expiry::WindowPassed);
    // The worker came back before that read showed its renewal.
    watch.observe(worker(), stored(2, Liveness::Live, at(107)), at(107));
    assert!(matches!(watch.judge(worker(), PATIENCE, at(111)), Expiry::WaitUntil(_)));
}

#[test]
fn lost_contact_with_the_store_lapses_nobody() {
    let mut watch = watching_since(100);
    watch.lost_contact();
    assert!(matches!(watch.judge(worker(), PATIENCE, at(500)), Expiry::WaitUntil(_)));
    watch.observe(worker(), stored(1, Liveness::Live, at(500)), at(500));
    assert_eq!(watch.judge(worker(), PATIENCE, at(501)), Expiry::WaitUntil(at(515)));
}

#[test]
fn drop_seen_before_the_first_renewal_number_counts() {
    let mut watch = Watch::default();
    watch.dropped(worker(), at(100));
    watch.observe(worker(), stored(7, Liveness::Live, at(99)), at(101));
    assert_eq!(watch.judge(worker(), PATIENCE, at(105)), Expiry::WindowPassed);
}

#[test]
fn welcomes_without_a_word_for_a_whole_lease_mean_that_nothing_is_heard() {
    let lease = Span::from_secs(15);
    let mut watch = Watch::default();
    watch.welcomed(worker(), at(0));
    watch.welcomed(worker(), at(14));
    assert!(!watch.is_unheard(worker(), lease, at(14)));
    assert!(watch.is_unheard(worker(), lease, at(15)), "the first welcome counts");
    watch.heard(worker());
    assert!(!watch.is_unheard(worker(), lease, at(100)));
    watch.welcomed(worker(), at(100));
    watch.lost_contact();
    assert!(!watch.is_unheard(worker(), lease, at(200)), "the silence may have been ours");
}

#[test]
fn a_lease_that_ended_before_it_was_watched_ended_in_an_outage() {
    let watch = watching_since(100);
    let lease = PATIENCE.lease;
    // Heartbeats that were last taken 16 s and 14 s before the watch began.
    assert!(watch.began_too_late(worker(), lease, Span::from_secs(31), at(115)));
    assert!(!watch.began_too_late(worker(), lease, Span::from_secs(29), at(115)));
    assert!(!watch.began_too_late(worker(), lease, Span::from_secs(16), at(115)));
    let other = WorkerId(Uuid::from_u128(8));
    assert!(!watch.began_too_late(other, lease, Span::from_secs(99), at(115)));
}
