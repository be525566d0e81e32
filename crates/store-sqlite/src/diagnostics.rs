//! Whether a store is whole, for `outlast doctor`. Nothing is changed, and a server may be
//! using it.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::error::{OpenError, named};
use crate::guard::{check, latest_time};
use crate::look::{generation, open_to_look};
use crate::read::limited;

/// Longest that one look may take; a large store on a slow disk takes longer.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    /// How often it was restored, from 1.
    pub generation: u64,
    /// What SQLite finds wrong with the file; `None` when the look took too long.
    pub faults: Option<Vec<String>>,
    /// Laws that are broken, and by how many jobs; `None` when the look took too long.
    pub broken: Option<Vec<(&'static str, u64)>>,
}

/// What must hold of every job, as queries that count those of which it does not.
const LAWS: [(&str, &str); 4] = [
    (
        "in two states at once",
        "select count(*) from (select seq from place group by seq having count(*) > 1)",
    ),
    ("in no state", "select count(*) from job_row where seq not in (select seq from place)"),
    (
        "in a state and not stored",
        "select count(*) from place where seq not in (select seq from job_row)",
    ),
    (
        "dead letters that have not ended",
        "select count(*) from dead_letter_row where seq not in (select seq from finished)",
    ),
];

/// Where a job is. A cancelled one has ended while its processes are waited for.
const PLACE: &str = "with place as (select seq from ready union all select seq from waiting
    union all select seq from active where not cancelled
    union all select seq from finished) ";

/// Looks at the store at `path`; `None` when there is none yet.
///
/// # Errors
/// Returns that it belongs to another program, or what it has lost.
pub fn diagnose(path: &Path) -> Result<Option<Diagnostics>, OpenError> {
    check(path)?;
    if std::fs::metadata(path).map_or(true, |found| found.len() == 0) {
        return Ok(None);
    }
    let mut db = open_to_look(path)?;
    if latest_time(&db, path).map_err(|error| named(error, path))?.is_none() {
        return Ok(None);
    }
    let generation = generation(&db)?;
    Ok(Some(Diagnostics { generation, faults: faults(&mut db)?, broken: broken(&mut db)? }))
}

/// Runs a look within its time; `None` when that was not enough.
fn look<T>(
    db: &mut Connection,
    query: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<Option<T>, OpenError> {
    match limited(db, LOOK_MAX, || {}, query) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(None)
        }
        found => Ok(Some(found?)),
    }
}

fn faults(db: &mut Connection) -> Result<Option<Vec<String>>, OpenError> {
    look(db, |db| {
        let mut select = db.prepare("pragma integrity_check(5)")?;
        let lines = select.query_map([], |row| row.get::<_, String>(0))?;
        let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    })
}

fn broken(db: &mut Connection) -> Result<Option<Vec<(&'static str, u64)>>, OpenError> {
    look(db, |db| {
        let mut broken = Vec::new();
        for (law, query) in LAWS {
            let count: u64 = db.query_row(&format!("{PLACE}{query}"), [], |row| row.get(0))?;
            if count > 0 {
                broken.push((law, count));
            }
        }
        Ok(broken)
    })
}
