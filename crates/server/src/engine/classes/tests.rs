use outlast_core::time::Span;
use outlast_store::command::Route;
use outlast_store::reply::Blocked;

use super::*;
use crate::engine::dispatch::tests::claim;

fn key(job_type: &str) -> ClassKey {
    ClassKey {
        queue: "default".into(),
        job_type: job_type.into(),
        route: Route::Plain,
        tenant: None,
        isolated: false,
        keyed: false,
        placement: Default::default(),
    }
}

fn at(secs: u64) -> BootTime {
    BootTime(0).after(Span::from_secs(secs))
}

/// The new id was once forgotten with the old one.
#[test]
fn a_class_that_got_a_new_id_keeps_it_when_the_old_one_is_forgotten() {
    let mut classes = Classes::default();
    classes.learn(ClassId(1), &key("t"), at(0));
    classes.learn(ClassId(2), &key("t"), at(50));
    assert!(classes.forget_unused(at(10)));
    assert!(!classes.contains(ClassId(1)));
    assert_eq!(classes.id_of(&key("t")), Some(ClassId(2)));
}

#[test]
fn only_classes_without_jobs_that_were_not_used_lately_are_forgotten() {
    let mut classes = Classes::default();
    for n in 1..=3 {
        classes.learn(ClassId(n), &key(&n.to_string()), at(0));
    }
    classes.set_ready(ClassId(1), Estimate::of(1));
    classes.add_ready(ClassId(2), 1, at(50));
    classes.set_ready(ClassId(2), Estimate::None);
    assert!(classes.forget_unused(at(10)));
    assert!(!classes.forget_unused(at(10)));
    assert_eq!([1, 2, 3].map(|n| classes.contains(ClassId(n))), [true, true, false]);
    assert_eq!(classes.id_of(&key("3")), None);
}

/// Classes of plain jobs, and those that no session here takes, were once never forgotten: no
/// claim of this server told that their jobs are gone.
#[test]
fn a_class_that_the_backlog_does_not_list_has_no_jobs_unless_it_got_some_since() {
    let mut classes = Classes::default();
    for n in 1..=3 {
        classes.learn(ClassId(n), &key(&n.to_string()), at(0));
        classes.add_ready(ClassId(n), 1, at(10));
    }
    classes.add_ready(ClassId(3), 1, at(20));
    classes.clear_unlisted(&[ClassId(1)].into(), at(20));
    assert_eq!([1, 2, 3].map(|n| classes.is_claimable(ClassId(n))), [true, false, true]);
    assert!(classes.forget_unused(at(15)));
    assert_eq!([1, 2, 3].map(|n| classes.contains(ClassId(n))), [true, false, true]);
}

#[test]
fn a_paused_queue_has_no_claimable_class() {
    let mut classes = Classes::default();
    let other = ClassKey { queue: "other".into(), ..key("t") };
    classes.learn(ClassId(1), &key("t"), at(0));
    classes.learn(ClassId(2), &other, at(0));
    classes.add_ready(ClassId(1), 1, at(0));
    classes.add_ready(ClassId(2), 1, at(0));
    classes.clear_queue("other");
    let claimable: Vec<ClassId> = classes.claimable().map(|(id, _)| id).collect();
    assert_eq!(claimable, [ClassId(1)]);
}

fn blocked(class: ClassId) -> Claims {
    Claims { blocked: vec![Blocked { class, until: None }], ..Claims::default() }
}

#[test]
fn class_whose_jobs_wait_for_a_limit_is_left_out_until_a_slot_is_free_or_more_jobs_come() {
    let mut classes = Classes::default();
    let id = ClassId(1);
    classes.learn(id, &key("t"), BootTime(0));
    classes.add_ready(id, 5, BootTime(0));
    classes.claimed(claim(&[id], 5, false), &[id], &blocked(id));
    assert!(!classes.has_claimable());
    assert_eq!(classes.get(id).map(|class| class.ready), Some(Estimate::Exactly(5)));
    classes.unblock();
    assert!(classes.is_claimable(id));
    classes.claimed(claim(&[id], 5, false), &[], &blocked(id));
    classes.add_ready(id, 1, BootTime(1));
    assert!(classes.is_claimable(id), "the new one may pass another gate");
    classes.claimed(claim(&[id], 5, false), &[], &blocked(id));
    classes.unblock_one(id);
    assert!(classes.is_claimable(id));
    classes.claimed(claim(&[id], 5, false), &[], &Claims::default());
    classes.unblock();
    assert!(!classes.is_claimable(id), "nothing is left of a class that a claim found empty");
}

/// A tenant whose limit was used up hid the jobs of another one behind the first few hundred.
#[test]
fn class_with_shut_jobs_and_others_behind_those_that_were_looked_at_stays_claimable() {
    let mut classes = Classes::default();
    let id = ClassId(1);
    classes.learn(id, &key("t"), BootTime(0));
    classes.add_ready(id, 500, BootTime(0));
    let claims = Claims { passed_over: vec![id], ..blocked(id) };
    classes.claimed(claim(&[id], 64, false), &[id; 25], &claims);
    assert!(classes.is_claimable(id));
}

#[test]
fn one_timer_is_set_for_a_rate_and_an_earlier_one_replaces_it() {
    let mut classes = Classes::default();
    let id = ClassId(1);
    classes.learn(id, &key("t"), BootTime(0));
    assert!(classes.opens_at(id, Timestamp(50)));
    assert!(!classes.opens_at(id, Timestamp(50)) && !classes.opens_at(id, Timestamp(60)));
    assert!(classes.opens_at(id, Timestamp(40)));
    classes.unblock_one(id);
    assert!(classes.opens_at(id, Timestamp(70)));
}

/// Such a claim was repeated at once, again and again.
#[test]
fn a_claim_that_is_cut_and_gets_nothing_is_not_repeated_at_once() {
    let mut classes = Classes::default();
    let id = ClassId(1);
    classes.learn(id, &key("t"), at(0));
    classes.set_ready(id, Estimate::of(5));
    classes.claimed(claim(&[id], 5, false), &[id], &Claims::cut(Vec::new()));
    assert!(classes.is_claimable(id), "it got some");
    classes.claimed(claim(&[id], 5, false), &[], &Claims::cut(Vec::new()));
    assert!(!classes.is_claimable(id));
}
