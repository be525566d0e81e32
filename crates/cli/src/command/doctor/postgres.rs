//! PostgreSQL as it was named with `--database`, looked at from this host.

use std::time::Duration;

use outlast_cli_core::output::span;
use outlast_store_postgres::{Diagnostics, OpenError, diagnose};

use super::check::{Check, Level};
use super::files::laws_check;
use crate::command::store::ENCODING_FIX;

/// Every commit waits for this; slower and it limits everything.
const COMMIT_WARN_MS: f64 = 20.0;
/// What one server takes.
const CONNECTIONS: i64 = 14;
/// Leases do not depend on clocks; shown times and schedules do.
const CLOCK_WARN: f64 = 1.0;
/// A transaction that is open for longer keeps dead rows from being removed.
const OPEN_WARN: Duration = Duration::from_mins(1);
/// The oldest version that works.
const VERSION_MIN: i32 = 150_000;

/// Looks at the database of this address.
pub(super) async fn check(url: &str, checks: &mut Vec<Check>) {
    const NAME: &str = "postgres";
    match diagnose(url).await {
        Ok(found) => checks.extend(evaluate(&found)),
        Err(error @ OpenError::Address { .. }) => {
            checks.push(Check::fail(
                NAME,
                error.to_string(),
                "correct --database or server.database",
            ));
        }
        Err(error) => {
            let fix = "is it running there, and may the user connect? Servers connect the same way";
            checks.push(Check::fail(NAME, error.to_string(), fix));
        }
    }
}

fn evaluate(found: &Diagnostics) -> Vec<Check> {
    let mut checks = vec![version(found), encoding(found), durability(found)];
    checks.extend([writes(found), commit(found)]);
    checks.extend([connections(found), rights(found), migrations(found), clock(found)]);
    checks.extend([vacuum(found), transactions(found), bloat(found)]);
    if found.standing.as_ref().is_ok_and(|standing| standing.pending.is_empty()) {
        checks.push(laws_check("postgres jobs", found.broken.clone()));
    }
    checks
}

fn version(found: &Diagnostics) -> Check {
    let (words, number) = &found.version;
    let fact = format!("PostgreSQL {words} at {}", found.place);
    if *number < VERSION_MIN {
        Check::fail("postgres", fact, "upgrade it to 15 or later")
    } else {
        Check::ok("postgres", fact)
    }
}

fn encoding(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres encoding";
    match &found.bad_encoding {
        None => Check::ok(NAME, "the database's encoding is UTF8"),
        Some(found) => {
            let fact = format!("the database's encoding is {found}; servers refuse to start");
            Check::fail(NAME, fact, ENCODING_FIX)
        }
    }
}

fn durability(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres durability";
    if found.not_durable.is_empty() {
        return Check::ok(NAME, "fsync, synchronous_commit and full_page_writes are on");
    }
    let fact = format!("off: {}; a crash loses accepted jobs", found.not_durable.join(", "));
    Check::fail(NAME, fact, "switch them on; servers refuse to start until then")
}

fn writes(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres writes";
    if found.read_only {
        let fix =
            "name the primary in --database; for a read-only default, alter the role or database";
        return Check::fail(NAME, "it is a replica, or read-only", fix);
    }
    Check::ok(NAME, "it is a primary and takes writes")
}

fn commit(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres commit";
    let Some(commit) = found.commit else {
        return Check::skipped(NAME, "nothing can be written");
    };
    let millis = commit.as_secs_f64() * 1000.0;
    let fact = format!("a commit takes {millis:.2} ms from here");
    let check = if millis > COMMIT_WARN_MS {
        Check::warn(NAME, fact, "put PostgreSQL on a faster disk, and nearer to the servers")
    } else {
        Check::ok(NAME, fact)
    };
    check.with_number(millis, "ms")
}

fn connections(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres connections";
    let (open, most) = found.connections;
    let fact = format!("{open} of {most} in use; a server takes up to {CONNECTIONS}");
    let check = if most - open < CONNECTIONS {
        Check::warn(NAME, fact, "raise max_connections, or close what others hold open")
    } else {
        Check::ok(NAME, fact)
    };
    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    let number = (most - open) as f64;
    check.with_number(number, "free")
}

fn rights(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres rights";
    if found.lacking.is_empty() {
        return Check::ok(NAME, "the role may make schemas and tables");
    }
    let fact = format!("the role lacks: {}", found.lacking.join(", "));
    let pending = found.standing.as_ref().is_ok_and(|standing| !standing.pending.is_empty());
    // Only migrations need them.
    let level = if pending { Level::Fail } else { Level::Ok };
    if pending {
        let fix = "grant them, or run `outlast migrate` as the database's owner";
        return Check::wrong(NAME, level, fact, fix);
    }
    Check::ok(NAME, format!("{fact}; nothing is to be migrated"))
}

fn migrations(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres migrations";
    match &found.standing {
        Ok(standing) if standing.pending.is_empty() => {
            Check::ok(NAME, format!("{} applied, none pending", standing.applied.len()))
        }
        Ok(standing) => {
            let fact = format!("pending: {}", standing.pending.join(", "));
            Check::warn(NAME, fact, "`outlast migrate`, or start a server")
        }
        Err(mismatch) => {
            let fix = "run the version of outlast that created the store, or a later one";
            Check::fail(NAME, mismatch.to_string(), fix)
        }
    }
}

fn clock(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres clock";
    let direction = if found.ahead < 0.0 { "behind" } else { "ahead of" };
    let apart = Duration::try_from_secs_f64(found.ahead.abs()).unwrap_or_default();
    let fact = format!("its clock is {} {direction} this host's", span(apart));
    let check = if found.ahead.abs() > CLOCK_WARN {
        let fix = "synchronise the clocks with NTP; displayed times and schedules depend on it, leases do not";
        Check::warn(NAME, fact, fix)
    } else {
        Check::ok(NAME, fact)
    };
    check.with_number(found.ahead, "s")
}

fn vacuum(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres vacuum";
    if found.autovacuum {
        return Check::ok(NAME, "autovacuum is on");
    }
    Check::fail(NAME, "autovacuum is off: hot tables grow without bound", "set autovacuum = on")
}

fn transactions(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres transactions";
    let Some((open, whose)) = &found.oldest else {
        return Check::ok(NAME, "none is open beside this one");
    };
    let fact = format!("the oldest has been open for {} ({whose})", span(*open));
    let check = if *open > OPEN_WARN {
        let fix = "end it: it keeps dead rows, which slow down claims; set \
                   idle_in_transaction_session_timeout for its role";
        Check::warn(NAME, fact, fix)
    } else {
        Check::ok(NAME, fact)
    };
    check.with_number(open.as_secs_f64(), "s")
}

fn bloat(found: &Diagnostics) -> Check {
    const NAME: &str = "postgres bloat";
    if found.bloated.is_empty() {
        return Check::ok(NAME, "hot tables hold few dead rows");
    }
    let one = |(name, live, dead): &(String, i64, i64)| format!("{name} {dead} ({live} live)");
    let tables: Vec<String> = found.bloated.iter().map(one).collect();
    let fact = format!("many dead rows: {}", tables.join(", "));
    Check::warn(
        NAME,
        fact,
        "look for old transactions and idle replication slots, then vacuum them",
    )
}

#[cfg(test)]
mod tests {
    use outlast_store_rules::migration::{Mismatch, SchemaStatus};

    use super::*;

    fn well() -> Diagnostics {
        Diagnostics {
            place: "db:5432".into(),
            version: ("15.6".into(), 150_006),
            not_durable: Vec::new(),
            connections: (12, 97),
            commit: Some(Duration::from_millis(2)),
            bad_encoding: None,
            read_only: false,
            lacking: Vec::new(),
            standing: Ok(SchemaStatus { applied: vec!["0001_first"], pending: Vec::new() }),
            ahead: 0.01,
            autovacuum: true,
            oldest: None,
            bloated: Vec::new(),
            broken: Some(Vec::new()),
        }
    }

    #[test]
    fn nothing_is_wrong_with_a_database_that_is_well() {
        let wrong: Vec<Check> =
            evaluate(&well()).into_iter().filter(|check| check.level != Level::Ok).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn each_thing_that_is_wrong_is_one_check_with_a_fix() {
        let standing = SchemaStatus { applied: Vec::new(), pending: vec!["0001_first"] };
        let cases: Vec<(&str, Level, Diagnostics)> = vec![
            ("postgres", Level::Fail, Diagnostics { version: ("14.2".into(), 140_002), ..well() }),
            (
                "postgres durability",
                Level::Fail,
                Diagnostics { not_durable: vec!["fsync"], ..well() },
            ),
            (
                "postgres encoding",
                Level::Fail,
                Diagnostics { bad_encoding: Some("LATIN1".into()), ..well() },
            ),
            ("postgres writes", Level::Fail, Diagnostics { read_only: true, ..well() }),
            (
                "postgres commit",
                Level::Warn,
                Diagnostics { commit: Some(Duration::from_millis(80)), ..well() },
            ),
            ("postgres connections", Level::Warn, Diagnostics { connections: (95, 97), ..well() }),
            ("postgres migrations", Level::Warn, Diagnostics { standing: Ok(standing), ..well() }),
            (
                "postgres migrations",
                Level::Fail,
                Diagnostics { standing: Err(Mismatch::Newer { found: 9, known: 1 }), ..well() },
            ),
            ("postgres clock", Level::Warn, Diagnostics { ahead: -7.0, ..well() }),
            ("postgres vacuum", Level::Fail, Diagnostics { autovacuum: false, ..well() }),
            (
                "postgres transactions",
                Level::Warn,
                Diagnostics { oldest: Some((Duration::from_secs(900), "pid 7".into())), ..well() },
            ),
            (
                "postgres jobs",
                Level::Fail,
                Diagnostics { broken: Some(vec![("in two states at once", 2)]), ..well() },
            ),
            (
                "postgres bloat",
                Level::Warn,
                Diagnostics { bloated: vec![("ready".into(), 10, 900_000)], ..well() },
            ),
        ];
        for (name, level, found) in cases {
            let wrong: Vec<Check> =
                evaluate(&found).into_iter().filter(|check| check.level > Level::Ok).collect();
            let [wrong] = wrong.as_slice() else { panic!("{name}: {wrong:?}") };
            assert_eq!((wrong.name, wrong.level), (name, level), "{wrong:?}");
            assert!(wrong.fix.is_some(), "{wrong:?}");
        }
    }
}
