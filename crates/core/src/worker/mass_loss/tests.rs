use super::*;

const LEASE: Span = Span::from_secs(15);

fn at(secs: u64) -> BootTime {
    BootTime(0).after(Span::from_secs(secs))
}

fn look(live: usize, ailing: usize, silent: usize) -> FleetCounts {
    FleetCounts { live, ailing, silent, lapsed_lately: 0 }
}

#[test]
fn most_are_more_than_a_few_and_more_than_half() {
    for (lost, all, most) in
        [(3, 3, false), (4, 4, true), (4, 7, true), (4, 8, false), (5, 8, true), (50, 101, false)]
    {
        assert_eq!(are_most(lost, all), most, "{lost} of {all}");
    }
}

/// Those that were found one look earlier were once suspected.
#[test]
fn workers_that_are_found_one_by_one_are_a_mass_loss_from_the_first_to_the_last() {
    let mut mass_loss = MassLoss::default();
    let mut live = 50;
    for second in 0..10 {
        // Five are due at each look; all others that died have missed beats.
        assert!(mass_loss.is_mass(look(live, live, 0), LEASE, at(second)), "second {second}");
        mass_loss.lapsed(5, at(second));
        live -= 5;
    }
    // Later, one of ten that are left.
    assert!(!mass_loss.is_mass(look(10, 1, 0), LEASE, at(9 + 16)));
}

#[test]
fn losses_are_remembered_for_a_window_and_those_of_other_servers_count() {
    let mut mass_loss = MassLoss::default();
    mass_loss.lapsed(9, at(0));
    assert!(mass_loss.is_mass(look(6, 1, 0), LEASE, at(15)));
    assert!(!mass_loss.is_mass(look(6, 1, 0), LEASE, at(16)));
    let elsewhere = FleetCounts { lapsed_lately: 9, ..look(6, 1, 0) };
    assert!(mass_loss.is_mass(elsewhere, LEASE, at(16)));
}

#[test]
fn silence_of_most_is_not_believed_for_a_lease_and_then_it_is() {
    let mut mass_loss = MassLoss::default();
    assert_eq!(mass_loss.hold(look(10, 5, 5), LEASE, at(0)), None);
    assert_eq!(mass_loss.hold(look(10, 6, 6), LEASE, at(1)), Some(at(16)));
    assert_eq!(mass_loss.hold(look(10, 9, 9), LEASE, at(15)), Some(at(16)));
    assert_eq!(mass_loss.hold(look(10, 9, 9), LEASE, at(16)), None);
    // It stays over until they have been heard of.
    assert_eq!(mass_loss.hold(look(10, 9, 9), LEASE, at(17)), None);
    assert_eq!(mass_loss.hold(look(10, 0, 0), LEASE, at(18)), None);
    assert_eq!(mass_loss.hold(look(10, 6, 6), LEASE, at(19)), Some(at(34)));
}

#[test]
fn connections_that_dropped_are_believed_at_once() {
    let mut mass_loss = MassLoss::default();
    assert_eq!(mass_loss.hold(look(10, 10, 0), LEASE, at(0)), None);
}
