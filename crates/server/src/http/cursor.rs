//! Lists that are read newest first: places in them, and where a page ends.

use std::fmt::Display;
use std::str::FromStr;

use outlast_core::time::Timestamp;
use outlast_wire::Fault;

/// Writes the place after an item.
pub(super) fn write(created: Timestamp, id: impl Display) -> String {
    format!("{}.{id}", created.0)
}

/// Reads a place that [`write`] wrote.
pub(super) fn read<I: FromStr>(text: &str) -> Result<(Timestamp, I), Fault> {
    let parts = text
        .split_once('.')
        .and_then(|(created, id)| Some((Timestamp(created.parse().ok()?), id.parse().ok()?)));
    parts.ok_or_else(|| Fault::field("cursor", "is not a cursor from this server"))
}

/// Takes what was read beyond a page from its end; returns the cursor of the last item if there was more.
pub(super) fn next<T, C>(
    found: &mut Vec<T>,
    limit: u32,
    cursor: impl FnOnce(&T) -> C,
) -> Option<C> {
    let fits = usize::try_from(limit).unwrap_or(usize::MAX);
    if found.len() <= fits {
        return None;
    }
    found.truncate(fits);
    found.last().map(cursor)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn place_is_read_as_it_was_written() {
        let (created, id) = (Timestamp(1_767_225_600_500), Uuid::from_u128(7));
        assert_eq!(read(&write(created, id)), Ok((created, id)));
        for wrong in ["", "5", "5.x", "x.00000000-0000-0000-0000-000000000007"] {
            assert!(read::<Uuid>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn page_has_a_next_one_if_more_was_read_than_fits() {
        let mut found = vec![1, 2, 3];
        assert_eq!(next(&mut found, 3, |last| *last), None);
        assert_eq!((next(&mut found, 2, |last| *last), found), (Some(2), vec![1, 2]));
    }
}
