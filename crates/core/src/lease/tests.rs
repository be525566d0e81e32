use super::*;
use crate::worker::liveness::Liveness;
use uuid::Uuid;

const PATIENCE: Patience = Patience {
    lease: Span::from_secs(15),
    reconnect_window: Span::from_secs(5),
    closed_window: Span::from_secs(1),
    attached: 10,
};

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

fn other(number: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(100 + number))
}

const fn after(secs: u64, millis: u64) -> BootTime {
    BootTime(secs * 1000 + millis)
}

/// A worker that has beaten over connection 1, and whose session and heartbeats ended then.
fn closed(session: BootTime, beats: BootTime) -> Watch {
    let mut watch = watching_since(100);
    watch.beats(worker(), 1);
    watch.session_ended(worker(), true, session);
    watch.beats_closed(worker(), 1, beats);
    watch.dropped(worker(), session);
    watch
}

#[test]
fn a_worker_whose_connections_were_closed_together_has_the_short_window() {
    for (session, beats) in [(0, 100), (100, 0), (0, 0)] {
        let watch = closed(after(102, session), after(102, beats));
        let end = after(103, session.max(beats));
        assert_eq!(watch.judge(worker(), PATIENCE, after(102, 200)), Expiry::WaitUntil(end));
        assert_eq!(watch.judge(worker(), PATIENCE, end), Expiry::WindowPassed);
        assert!(watch.is_closed(worker(), 10));
        // What may not overlap keeps the lease.
        assert_eq!(watch.judge(worker(), PATIENCE, at(115)), Expiry::LeasePassed);
    }
}

#[test]
fn connections_that_ended_otherwise_leave_the_reconnect_window() {
    let waits = |watch: &Watch| watch.judge(worker(), PATIENCE, at(104));
    let later = Expiry::WaitUntil(at(107));
    // One a while after the other.
    assert_eq!(waits(&closed(at(102), after(102, 101))), later);
    // The session was not closed: a ping was not answered, for example.
    let mut watch = watching_since(100);
    watch.beats(worker(), 1);
    watch.session_ended(worker(), false, at(102));
    watch.beats_closed(worker(), 1, at(102));
    watch.dropped(worker(), at(102));
    assert_eq!(waits(&watch), later);
    // Heartbeats go on, over a newer connection.
    let mut watch = closed(at(102), at(102));
    watch.beats(worker(), 2);
    assert_eq!(waits(&watch), later);
    watch.beats_closed(worker(), 1, at(102));
    assert_eq!(waits(&watch), later);
    // None was ever seen.
    let mut watch = watching_since(100);
    watch.session_ended(worker(), true, at(102));
    watch.beats_closed(worker(), 1, at(102));
    watch.dropped(worker(), at(102));
    assert_eq!(waits(&watch), later);
}

#[test]
fn a_worker_that_is_back_or_unwatched_for_a_while_is_not_closed() {
    for forget in [
        (|watch: &mut Watch| watch.attached(worker())) as fn(&mut Watch),
        Watch::lost_contact,
        |watch| watch.forget(worker()),
    ] {
        let mut watch = closed(at(102), at(102));
        forget(&mut watch);
        assert!(!watch.is_closed(worker(), 10));
        assert_ne!(watch.judge(worker(), PATIENCE, at(104)), Expiry::WindowPassed);
    }
}

#[test]
fn many_sessions_that_end_within_a_second_are_a_flood() {
    // Each line: how many end besides, how long after it, how many stay; whether it is a flood.
    for (others, millis, attached, flood) in [
        (2, 0, 0, false),
        (3, 0, 0, true),
        (3, 1000, 0, true),
        (3, 1001, 0, false),
        (9, 500, 40, false),
        (10, 500, 40, true),
    ] {
        let mut watch = closed(at(102), at(102));
        for number in 0..others {
            // However they end.
            watch.session_ended(other(number), number % 2 == 0, after(102, millis));
        }
        assert_eq!(watch.is_closed(worker(), attached), !flood, "{others} in {millis} ms");
        let patience = Patience { attached, ..PATIENCE };
        let expected = if flood { Expiry::WaitUntil(at(107)) } else { Expiry::WindowPassed };
        assert_eq!(watch.judge(worker(), patience, at(104)), expected);
    }
}
