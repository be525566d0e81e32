//! Names that look like zones and are none that a schedule should follow.

use super::{ZoneError, shown};

/// Abbreviations that stand for one offset, also while the place has daylight saving.
const NO_DAYLIGHT_SAVING: &[(&str, &str)] = &[
    ("EST", "America/New_York"),
    ("CST", "America/Chicago"),
    ("MST", "America/Denver"),
    ("PST", "America/Los_Angeles"),
    ("HST", "Pacific/Honolulu"),
    ("GMT", "Europe/London, or UTC"),
];

/// Other abbreviations, and the names of the database that are made of them.
const ABBREVIATIONS: &[(&str, &str)] = &[
    ("EST5EDT", "America/New_York"),
    ("CST6CDT", "America/Chicago"),
    ("MST7MDT", "America/Denver"),
    ("PST8PDT", "America/Los_Angeles"),
    ("EDT", "America/New_York"),
    ("CDT", "America/Chicago"),
    ("MDT", "America/Denver"),
    ("PDT", "America/Los_Angeles"),
    ("ET", "America/New_York"),
    ("CT", "America/Chicago"),
    ("MT", "America/Denver"),
    ("PT", "America/Los_Angeles"),
    ("AKST", "America/Anchorage"),
    ("AKDT", "America/Anchorage"),
    ("WET", "Europe/Lisbon"),
    ("WEST", "Europe/Lisbon"),
    ("CET", "Europe/Paris"),
    ("CEST", "Europe/Paris"),
    ("MET", "Europe/Paris"),
    ("MEZ", "Europe/Vienna"),
    ("MESZ", "Europe/Vienna"),
    ("EET", "Europe/Helsinki"),
    ("EEST", "Europe/Helsinki"),
    ("BST", "Europe/London"),
    ("MSK", "Europe/Moscow"),
    ("TRT", "Europe/Istanbul"),
    ("IST", "Asia/Kolkata"),
    ("SGT", "Asia/Singapore"),
    ("HKT", "Asia/Hong_Kong"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
    ("ACST", "Australia/Adelaide"),
    ("AWST", "Australia/Perth"),
    ("NZST", "Pacific/Auckland"),
    ("NZDT", "Pacific/Auckland"),
    ("BRT", "America/Sao_Paulo"),
    ("ART", "America/Argentina/Buenos_Aires"),
    ("SAST", "Africa/Johannesburg"),
];

/// Other words for UTC.
const UTC: &[&str] = &["UCT", "Universal", "Zulu", "Z", "Greenwich"];

/// Refuses offsets, abbreviations and other words for UTC.
pub(super) fn check(name: &str) -> Result<(), ZoneError> {
    let place_of = |table: &[(&str, &'static str)]| {
        table.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, place)| *place)
    };
    let lower = name.to_ascii_lowercase();
    let administrative = lower.strip_prefix("etc/");
    let word = administrative.unwrap_or(&lower);
    if UTC.iter().any(|utc| utc.eq_ignore_ascii_case(word)) || administrative == Some("utc") {
        return Err(ZoneError::WriteUtc { name: shown(name) });
    }
    if is_offset(word) {
        return Err(ZoneError::FixedOffset { name: shown(name) });
    }
    if let Some(place) = place_of(NO_DAYLIGHT_SAVING) {
        return Err(ZoneError::NoDaylightSaving { name: shown(name), place });
    }
    if let Some(place) = place_of(ABBREVIATIONS) {
        return Err(ZoneError::Abbreviation { name: shown(name), place });
    }
    // Neither is a place: the one says that the clock was not set up, the other is UTC.
    match (lower.as_str(), administrative) {
        ("factory" | "etc/unknown", _) => {
            Err(ZoneError::Unknown { name: shown(name), nearest: None })
        }
        (_, Some("gmt")) => Err(ZoneError::WriteUtc { name: shown(name) }),
        _ => Ok(()),
    }
}

/// Whether a name in lower case is a sign and digits, after `utc`, `gmt` or nothing.
fn is_offset(name: &str) -> bool {
    let rest = name.strip_prefix("utc").or_else(|| name.strip_prefix("gmt")).unwrap_or(name);
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == ':')
}
