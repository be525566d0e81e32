use super::*;

const A: Uuid = Uuid::from_u128(1);
const B: Uuid = Uuid::from_u128(2);
const NOW: Timestamp = Timestamp(1000);
const SPAN: Span = Span(500);

fn taken() -> Leadership {
    hold(None, A, SPAN, NOW).unwrap()
}

#[test]
fn first_who_asks_has_the_leadership_under_epoch_one() {
    assert_eq!(taken(), Leadership { holder: A, epoch: Epoch(1), until: Timestamp(1500) });
}

#[test]
fn holder_holds_it_longer_under_the_same_epoch_and_never_shorter() {
    let longer = hold(Some(taken()), A, SPAN, Timestamp(1400)).unwrap();
    assert_eq!(longer, Leadership { until: Timestamp(1900), ..taken() });
    assert_eq!(hold(Some(longer), A, Span(1), Timestamp(1401)), Ok(longer));
    let late = hold(Some(taken()), A, SPAN, Timestamp(9000)).unwrap();
    assert_eq!((late.epoch, late.until), (Epoch(1), Timestamp(9500)));
}

#[test]
fn another_takes_it_over_when_the_lease_is_over_and_not_before() {
    let refused = hold(Some(taken()), B, SPAN, Timestamp(1499));
    assert_eq!(refused, Err(LeadershipRefusal::Elsewhere(taken())));
    let over = hold(Some(taken()), B, SPAN, Timestamp(1500)).unwrap();
    assert_eq!(over, Leadership { holder: B, epoch: Epoch(2), until: Timestamp(2000) });
}

#[test]
fn leadership_given_back_is_another_s_at_once() {
    let back = give_back(Some(taken()), A, Timestamp(1100)).unwrap();
    assert_eq!(back, Leadership { until: Timestamp(1100), ..taken() });
    assert_eq!(hold(Some(back), B, SPAN, Timestamp(1100)).unwrap().epoch, Epoch(2));
}

#[test]
fn what_another_has_is_not_given_back() {
    assert_eq!(give_back(None, A, NOW), Err(LeadershipRefusal::NeverTaken));
    assert_eq!(give_back(Some(taken()), B, NOW), Err(LeadershipRefusal::Elsewhere(taken())));
}

#[test]
fn work_is_done_under_the_epoch_of_the_latest_holder_only() {
    assert_eq!(check(Some(taken()), A, Epoch(1)), Ok(()));
    assert_eq!(check(None, A, Epoch(1)), Err(LeadershipRefusal::NeverTaken));
    let over = hold(Some(taken()), B, SPAN, Timestamp(1500)).unwrap();
    assert_eq!(check(Some(over), A, Epoch(1)), Err(LeadershipRefusal::Elsewhere(over)));
    let again = hold(Some(over), A, SPAN, Timestamp(2000)).unwrap();
    assert_eq!(check(Some(again), A, Epoch(1)), Err(LeadershipRefusal::Elsewhere(again)));
    assert_eq!(check(Some(again), A, Epoch(3)), Ok(()));
}
