use outlast_core::time::{Span, Timestamp};
use proptest::prelude::*;
use uuid::Uuid;

use super::{Choice, LastFire, Pause, Progress, QUEUED_MAX, TURN_LOOK, Timing};
use crate::{CatchUp, Expression, Overlap, Zone, jitter};

/// 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp(1_767_225_600_000);

fn timing(expression: &str) -> Timing {
    Timing {
        expression: Expression::parse(expression).expect("an expression"),
        zone: Zone::utc(),
        catch_up: CatchUp::One,
        overlap: Overlap::Skip,
        jitter: Span::ZERO,
        until: None,
    }
}

fn at(seconds: u64) -> Timestamp {
    START.after(Span::from_secs(seconds))
}

fn fires(progress: &Progress, timing: &Timing, now: Timestamp) -> Vec<Timestamp> {
    progress.look("it", timing, now).fires
}

#[test]
fn making_a_schedule_and_resuming_it_fire_nothing() {
    let minutes = timing("* * * * *");
    let progress = Progress::begin(&minutes, at(60));
    assert_eq!(progress.next, Some(at(120)));
    assert_eq!(fires(&progress, &minutes, at(119)), []);
    let pause = Pause { reason: String::new(), by: "me".into(), at: at(61) };
    let paused = progress.pause(pause);
    assert_eq!(paused.due("it", &minutes, at(61)), None);
    assert_eq!(fires(&paused, &minutes, at(1000)), []);
    let resumed = paused.resume(&minutes, at(1000));
    assert_eq!((resumed.next, resumed.paused.clone()), (Some(at(1020)), None));
    assert_eq!(fires(&resumed, &minutes, at(1000)), []);
}

/// riverqueue/river#791: each restart began the interval again.
#[test]
fn every_counts_from_its_anchor_whatever_happens_meanwhile() {
    let weekly = timing("@every 168h");
    let begun = Progress::begin(&weekly, at(0));
    let end = Timing { until: Some(at(10_000_000)), ..weekly.clone() };
    let moved = begun.set("it", &weekly, &end, at(600_000));
    assert_eq!((moved.anchor, moved.next), (at(0), Some(at(604_800))));
    let pause = Pause { reason: String::new(), by: "me".into(), at: at(1) };
    assert_eq!(moved.pause(pause).resume(&end, at(600_000)).next, Some(at(604_800)));
    // Another length begins when it is set.
    let shorter = timing("@every 1h");
    let changed = begun.set("it", &weekly, &shorter, at(600_000));
    assert_eq!((changed.anchor, changed.next), (at(600_000), Some(at(603_600))));
}

#[test]
fn other_times_neither_fire_the_past_nor_lose_what_is_due() {
    let (minutes, daily) = (timing("* * * * *"), timing("0 3 * * *"));
    let progress = Progress::begin(&minutes, at(0));
    let three = at(3 * 3600);
    // The fire of 00:01 is due and has not been carried out yet.
    let changed = progress.set("it", &minutes, &daily, at(62));
    assert_eq!(changed.next, Some(at(60)));
    let due = changed.look("it", &daily, at(63));
    assert_eq!((due.fires, due.missed, due.next), (vec![at(60)], 0, Some(three)));
    // It is long ago, and stays left out.
    let changed = progress.set("it", &minutes, &daily, at(90));
    assert_eq!(changed.next, Some(three));
    // Nothing is due.
    let changed = progress.set("it", &minutes, &daily, at(30));
    assert_eq!(changed.next, Some(three));
}

#[test]
fn an_end_that_moves_ends_a_schedule_or_goes_on_with_it() {
    let forever = timing("* * * * *");
    let ends = Timing { until: Some(at(60)), ..forever.clone() };
    let progress = Progress::begin(&ends, at(0));
    assert_eq!(progress.next, Some(at(60)));
    let due = progress.look("it", &ends, at(60));
    assert_eq!((due.fires, due.next), (vec![at(60)], None));
    let over = Progress { next: None, ..progress.clone() };
    assert_eq!(over.due("it", &ends, at(100)), None);
    assert_eq!(over.set("it", &ends, &forever, at(100)).next, Some(at(120)));
    let sooner = Timing { until: Some(at(30)), ..forever };
    assert_eq!(progress.set("it", &ends, &sooner, at(10)).next, None);
}

#[test]
fn a_clock_that_jumps_back_changes_nothing() {
    let minutes = timing("* * * * *");
    let progress = Progress { next: Some(at(3660)), ..Progress::begin(&minutes, at(0)) };
    for back in [0, 60, 1000, 3659] {
        let due = progress.look("it", &minutes, at(back));
        assert_eq!((due.fires, due.missed, due.next), (vec![], 0, Some(at(3660))));
    }
}

#[test]
fn an_overlap_counts_what_waits_and_what_runs() {
    let of = |overlap| Timing { overlap, ..timing("* * * * *") };
    let cases = [
        (Overlap::Skip, 0, 0, Choice::Fire),
        (Overlap::Skip, 1, 0, Choice::SkipForOpen),
        (Overlap::Queue, 0, 3, Choice::Fire),
        (Overlap::Queue, 1, 0, Choice::Wait),
        (Overlap::Queue, QUEUED_MAX, 0, Choice::SkipForFull),
        (Overlap::Replace, 0, 0, Choice::Fire),
        (Overlap::Replace, 1, 0, Choice::Replace),
        (Overlap::Replace, 0, 1, Choice::SkipForLater),
        (Overlap::Allow, 7, 7, Choice::Fire),
    ];
    for (overlap, open, later, choice) in cases {
        assert_eq!(of(overlap).choose(open, later), choice, "{overlap} {open} {later}");
    }
}

#[test]
fn jobs_that_wait_for_their_turn_are_looked_at_soon() {
    let queue = Timing { overlap: Overlap::Queue, ..timing("0 3 * * *") };
    let mut progress = Progress::begin(&queue, at(0));
    let fire = |n: u128| LastFire {
        fire_time: at(1),
        at: at(1),
        job: Uuid::from_u128(n),
        is_workflow: false,
    };
    progress.note_fire(fire(1), queue.overlap);
    assert_eq!(progress.due("it", &queue, at(5)), Some(at(3 * 3600)));
    progress.note_fire(fire(2), queue.overlap);
    assert_eq!(progress.due("it", &queue, at(5)), Some(at(5).after(TURN_LOOK)));
    // Also while it is paused: what was stored runs.
    let pause = Pause { reason: String::new(), by: "me".into(), at: at(1) };
    assert_eq!(progress.pause(pause).due("it", &queue, at(5)), Some(at(5).after(TURN_LOOK)));
    progress.note_fire(fire(3), Overlap::Allow);
    assert_eq!((progress.fired, progress.open.len()), (3, 2));
}

#[test]
fn what_is_stored_is_read_back_and_an_empty_object_is_a_beginning() {
    let mut progress = Progress::begin(&timing("* * * * *"), at(0));
    progress.note_fire(
        LastFire { fire_time: at(60), at: at(61), job: Uuid::from_u128(1), is_workflow: false },
        Overlap::Skip,
    );
    let text = serde_json::to_string(&progress).expect("it is written");
    assert_eq!(serde_json::from_str::<Progress>(&text).expect("it is read"), progress);
    assert_eq!(serde_json::from_str::<Progress>("{}").expect("it is read"), Progress::default());
}

#[test]
fn a_jitter_that_is_longer_than_the_interval_loses_nothing() {
    for catch_up in CatchUp::CHOICES {
        let minutes = Timing { jitter: Span::from_secs(300), catch_up, ..timing("* * * * *") };
        let mut progress = Progress::begin(&minutes, at(0));
        let mut fired = Vec::new();
        for second in 0..3600 {
            let due = progress.look("it", &minutes, at(second));
            assert_eq!(due.missed, 0, "{catch_up} at {second}");
            fired.extend(due.fires);
            progress.next = due.next;
        }
        let all: Vec<Timestamp> = (1..=fired.len()).map(|n| at(60 * n as u64)).collect();
        assert_eq!(fired, all, "{catch_up}");
        assert!(fired.len() >= 54, "{catch_up}: {}", fired.len());
    }
}

#[test]
fn a_fire_that_only_its_jitter_puts_off_is_not_lost_by_other_times() {
    let spread = Timing { jitter: Span::from_secs(600), ..timing("0 * * * *") };
    let progress = Progress::begin(&spread, at(0));
    let ripe = at(3600).after(jitter("it", at(3600), spread.jitter));
    assert!(ripe > at(3610), "another name puts it off by more: {ripe:?}");
    let other = Timing { jitter: spread.jitter, ..timing("30 * * * *") };
    let changed = progress.set("it", &spread, &other, at(3605));
    assert_eq!(changed.next, Some(at(3600)));
    assert_eq!(fires(&changed, &other, at(3606)), []);
    assert_eq!(fires(&changed, &other, ripe), [at(3600)]);
}

/// The store was away after the owner had set other times.
#[test]
fn a_fire_that_was_due_when_other_times_were_set_is_caught_up_with() {
    for (catch_up, fires, missed) in [
        (CatchUp::None, vec![], 1),
        (CatchUp::One, vec![at(60)], 0),
        (CatchUp::All, vec![at(60)], 0),
    ] {
        let minutes = Timing { catch_up, ..timing("* * * * *") };
        let daily = Timing { catch_up, ..timing("0 3 * * *") };
        let changed = Progress::begin(&minutes, at(0)).set("it", &minutes, &daily, at(61));
        let due = changed.look("it", &daily, at(600));
        assert_eq!((due.fires, due.missed, due.next), (fires, missed, Some(at(3 * 3600))));
    }
}

/// The rules of a zone changed: the stored time is none of the timetable's any more.
#[test]
fn a_stored_time_that_the_timetable_lacks_does_not_fire() {
    let daily = timing("0 3 * * *");
    let progress = Progress { next: Some(at(60)), ..Progress::begin(&daily, at(0)) };
    let due = progress.look("it", &daily, at(61));
    assert_eq!((due.fires, due.missed, due.next), (vec![], 0, Some(at(3 * 3600))));
}

proptest! {
    /// Looks at whatever moments, with whatever jitter: each time fires once, in order, never before
    /// it is ripe, and at the first look after that.
    #[test]
    fn each_time_fires_once_and_when_it_is_ripe(
        every in 1_u64..90,
        spread in 0_u64..200_000,
        choice in prop::sample::select(CatchUp::CHOICES.to_vec()),
        pauses in prop::collection::vec(1_u64..9_000, 1..60),
    ) {
        let timing = Timing {
            jitter: Span(spread),
            catch_up: choice,
            ..timing(&format!("@every {every}s"))
        };
        let mut progress = Progress::begin(&timing, START);
        let (mut now, mut fired) = (START, Vec::new());
        for pause in pauses {
            now = now.after(Span(pause));
            let due = progress.look("it", &timing, now);
            for time in &due.fires {
                prop_assert!(time.after(jitter("it", *time, timing.jitter)) <= now);
            }
            prop_assert_eq!(due.missed, 0);
            fired.extend(due.fires);
            progress.next = due.next;
            let next = progress.due("it", &timing, now).expect("it goes on");
            prop_assert!(next > now, "{:?} is not after {:?}", next, now);
        }
        let all: Vec<Timestamp> = (1..=fired.len())
            .map(|n| at(every * u64::try_from(n).expect("few")))
            .collect();
        prop_assert_eq!(fired, all);
    }
}
