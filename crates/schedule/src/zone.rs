//! Places whose clocks a schedule follows.
//!
//! A zone is named after a place, because only a place has rules for its clock. A fixed offset or
//! an abbreviation says what the clock shows now, and is wrong after the next change. So they are
//! refused. The database is the one in the binary, never the system's: a bare container knows
//! Europe/Vienna, and all servers of one version agree.

mod refused;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Longest name, in bytes; the longest of the database has 32.
pub const NAME_BYTES_MAX: usize = 64;

/// Least likeness of a name that is suggested, from 0 to 1.
const LIKENESS: f64 = 0.75;

/// A place of the IANA time zone database, or UTC.
///
/// Two zones are equal if they have the same name, even where two names mean one clock.
#[derive(Clone)]
pub struct Zone {
    zone: TimeZone,
    name: String,
}

impl Zone {
    /// Returns the zone with this name, such as `Europe/Vienna` or `UTC`, in any case.
    ///
    /// # Errors
    ///
    /// Refuses fixed offsets, abbreviations, and names that the database does not have.
    pub fn named(name: &str) -> Result<Self, ZoneError> {
        let name = name.trim();
        if name.eq_ignore_ascii_case("UTC") {
            return Ok(Self::utc());
        }
        if name.is_empty() {
            return Err(ZoneError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(ZoneError::TooLong);
        }
        refused::check(name)?;
        let zone = database().get(name).ok();
        let canonical = zone.as_ref().and_then(|zone| zone.iana_name()).map(str::to_owned);
        match (zone, canonical) {
            (Some(zone), Some(name)) => Ok(Self { zone, name }),
            _ => Err(ZoneError::Unknown { name: shown(name), nearest: nearest(name) }),
        }
    }

    /// Returns the zone whose clock never changes.
    #[must_use]
    pub fn utc() -> Self {
        Self { zone: TimeZone::UTC, name: "UTC".to_owned() }
    }

    /// Returns the name, written as the database writes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rules of the clock.
    pub(crate) const fn rules(&self) -> &TimeZone {
        &self.zone
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Why a name is no zone that a schedule can follow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// There is no name.
    #[error("a time zone needs a name, such as Europe/Vienna or UTC")]
    Empty,
    /// The name is longer than any zone's.
    #[error("a time zone's name has at most {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// The name is a distance from UTC.
    #[error(
        "`{name}` is a fixed offset and has no daylight saving; name a place, such as \
         Europe/Vienna, or UTC"
    )]
    FixedOffset {
        /// The name as given.
        name: String,
    },
    /// The name is an abbreviation that stands for one offset.
    #[error("`{name}` has no daylight saving; name a place, such as {place}")]
    NoDaylightSaving {
        /// The name as given.
        name: String,
        /// A place that uses the abbreviation.
        place: &'static str,
    },
    /// The name is an abbreviation that different people read differently.
    #[error("`{name}` is an abbreviation, and no place; name a place, such as {place}")]
    Abbreviation {
        /// The name as given.
        name: String,
        /// A place that uses the abbreviation.
        place: &'static str,
    },
    /// The name is another word for UTC.
    #[error("`{name}` is not the name of a place; write UTC")]
    WriteUtc {
        /// The name as given.
        name: String,
    },
    /// The database has no such name.
    #[error("there is no time zone `{name}`{}", suggestion(.nearest.as_deref()))]
    Unknown {
        /// The name as given, without control characters.
        name: String,
        /// The name that is most like it, if one is.
        nearest: Option<String>,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; name a place, such as Europe/Vienna, or UTC".to_owned(),
        |nearest| format!("; did you mean {nearest}?"),
    )
}

/// Returns a name as errors show it.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

fn database() -> &'static TimeZoneDatabase {
    static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
    DATABASE.get_or_init(TimeZoneDatabase::bundled)
}

/// Returns all names of the database.
#[cfg(test)]
pub(crate) fn names() -> Vec<String> {
    database().available().map(|name| name.as_str().to_owned()).collect()
}

/// Returns the zone that is most like a wrong name: by the city alone, or by the whole name.
fn nearest(name: &str) -> Option<String> {
    let simple = |text: &str| text.to_lowercase().replace(' ', "_");
    let city_of = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let wanted = simple(name);
    database()
        .available()
        .filter(|known| refused::check(known.as_str()).is_ok())
        .map(|known| {
            let lower = simple(known.as_str());
            let whole = strsim::jaro_winkler(&wanted, &lower);
            let city = strsim::jaro_winkler(&city_of(&wanted), &city_of(&lower)) * 0.99;
            // A right city under a wrong continent beats a city with a similar beginning.
            (whole.max(city), whole, known.as_str().to_owned())
        })
        .filter(|(like, ..)| *like >= LIKENESS)
        .max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)))
        .map(|(.., known)| known)
}
