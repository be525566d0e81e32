use super::*;

/// Checks the text of the error that a name gets.
fn refuses(name: &str, expected: &str) {
    assert_eq!(Zone::named(name).unwrap_err().to_string(), expected);
}

#[test]
fn places_and_utc_are_zones() {
    for name in ["Europe/Vienna", "America/Argentina/Buenos_Aires", "Australia/Lord_Howe", "UTC"] {
        assert_eq!(Zone::named(name).unwrap().name(), name);
    }
    assert_eq!(Zone::named(" Japan ").unwrap().name(), "Japan");
    assert_eq!(Zone::named("utc").unwrap(), Zone::utc());
}

#[test]
fn a_name_is_kept_as_the_database_writes_it() {
    assert_eq!(Zone::named("europe/vienna").unwrap().name(), "Europe/Vienna");
    assert_eq!(Zone::named("europe/vienna").unwrap(), Zone::named("EUROPE/VIENNA").unwrap());
    assert_ne!(Zone::named("Europe/Vienna").unwrap(), Zone::named("Europe/Berlin").unwrap());
}

#[test]
fn abbreviations_are_refused_and_a_place_is_named() {
    refuses("EST", "`EST` has no daylight saving; name a place, such as America/New_York");
    refuses("CET", "`CET` is an abbreviation, and no place; name a place, such as Europe/Paris");
    refuses(
        "MST7MDT",
        "`MST7MDT` is an abbreviation, and no place; name a place, such as America/Denver",
    );
    refuses("GMT", "`GMT` has no daylight saving; name a place, such as Europe/London, or UTC");
}

#[test]
fn fixed_offsets_are_refused() {
    for name in ["+02:00", "-0500", "UTC+2", "GMT+1", "GMT0", "GMT-0", "Etc/GMT+5", "Etc/GMT0"] {
        let error = Zone::named(name).unwrap_err();
        assert_eq!(error, ZoneError::FixedOffset { name: name.to_owned() });
        assert!(error.to_string().contains("name a place"), "{error}");
    }
}

#[test]
fn other_words_for_utc_are_refused() {
    for name in ["Etc/UTC", "Zulu", "Universal", "Etc/Zulu", "Z", "Greenwich", "Etc/GMT"] {
        refuses(name, &format!("`{name}` is not the name of a place; write UTC"));
    }
}

#[test]
fn a_wrong_name_gets_the_nearest() {
    for (wrong, right) in [
        ("Europe/Viena", "Europe/Vienna"),
        ("Vienna", "Europe/Vienna"),
        ("America/NewYork", "America/New_York"),
        ("New York", "America/New_York"),
        ("Europe/Tokyo", "Asia/Tokyo"),
    ] {
        refuses(wrong, &format!("there is no time zone `{wrong}`; did you mean {right}?"));
    }
    refuses(
        "qqqqqq",
        "there is no time zone `qqqqqq`; name a place, such as Europe/Vienna, or UTC",
    );
}

#[test]
fn hostile_names_are_refused() {
    refuses("  ", "a time zone needs a name, such as Europe/Vienna or UTC");
    refuses(&"x/".repeat(500), "a time zone's name has at most 64 bytes");
    assert!(!Zone::named("Europe/\u{1b}[31m").unwrap_err().to_string().contains('\u{1b}'));
    for name in ["Factory", "Etc/Unknown", "../../etc/passwd", "EST5EDT,M3.2.0,M11.1.0", "Local"] {
        assert!(Zone::named(name).is_err(), "{name}");
    }
}

#[test]
fn every_zone_of_the_database_is_a_place_or_refused_for_a_reason() {
    for known in database().available() {
        match Zone::named(known.as_str()) {
            Ok(zone) => assert_eq!(zone.name(), known.as_str()),
            Err(error) => assert!(refused::check(known.as_str()).is_err(), "{error}"),
        }
    }
}
