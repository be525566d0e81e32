//! `outlast workers list --by`: how far a rolling deploy has come, a row for each version, pool or
//! value of a label.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use outlast_cli_core::output::{Column, at, span, text_at};
use serde_json::{Value, json};

/// What stands for workers without the label.
const NONE: &str = "-";

/// One row: the workers that have the same value.
#[derive(Debug, Default)]
struct Group {
    running: u64,
    quiet: u64,
    draining: u64,
    suspect: u64,
    gone: u64,
    in_flight: u64,
    longest: Option<Duration>,
    deadline: Option<Timestamp>,
}

pub(super) const COLUMNS: &[Column] = &[
    ("GROUP", |row| text_at(row, "group")),
    ("RUNNING", |row| text_at(row, "running")),
    ("QUIET", |row| text_at(row, "quiet")),
    ("DRAINING", |row| text_at(row, "draining")),
    ("SUSPECT", |row| text_at(row, "suspect")),
    ("GONE", |row| text_at(row, "gone")),
    ("IN FLIGHT", |row| text_at(row, "in_flight")),
    ("LONGEST", |row| {
        at(row, "longest_seconds")
            .and_then(Value::as_f64)
            .map_or_else(|| NONE.to_owned(), |it| span(Duration::from_secs_f64(it.max(0.0))))
    }),
    ("DEADLINE", |row| text_at(row, "deadline")),
];

/// Returns the rows, by name of the group.
pub(super) fn rows(workers: &[Value], by: &str) -> Vec<Value> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for worker in workers {
        groups.entry(group_of(worker, by)).or_default().add(worker);
    }
    groups.into_iter().map(|(name, group)| group.row(&name)).collect()
}

/// The value of a label. A worker without the label `version` has the version of its build.
fn group_of(worker: &Value, by: &str) -> String {
    let label = worker.get("labels").and_then(|labels| labels.get(by)).and_then(Value::as_str);
    match (label, by) {
        (Some(label), _) => label.to_owned(),
        (None, "version") => text_at(worker, "about.version"),
        (None, _) => NONE.to_owned(),
    }
}

impl Group {
    fn add(&mut self, worker: &Value) {
        match text_at(worker, "state").as_str() {
            "running" => self.running += 1,
            "quiet" => self.quiet += 1,
            "draining" => self.draining += 1,
            "suspect" => self.suspect += 1,
            // What it may still hold is no matter of the deploy.
            _ => {
                self.gone += 1;
                return;
            }
        }
        self.deadline = self.deadline.max(deadline_of(worker));
        self.in_flight += at(worker, "in_flight").and_then(Value::as_u64).unwrap_or(0);
        self.longest = self.longest.max(held_for(worker));
    }

    fn row(&self, name: &str) -> Value {
        json!({
            "group": name,
            "running": self.running,
            "quiet": self.quiet,
            "draining": self.draining,
            "suspect": self.suspect,
            "gone": self.gone,
            "in_flight": self.in_flight,
            "longest_seconds": self.longest.map(|longest| longest.as_secs()),
            "deadline": self.deadline.map(|at| at.to_string()),
        })
    }
}

/// When the grace period of a draining worker is over, if the worker says how long that is.
pub(super) fn deadline_of(worker: &Value) -> Option<Timestamp> {
    if text_at(worker, "state") != "draining" {
        return None;
    }
    let began: Timestamp = at(worker, "updated")?.as_str()?.parse().ok()?;
    let grace = at(worker, "about.shutdown_timeout_seconds")?.as_f64()?;
    began.checked_add(SignedDuration::try_from_secs_f64(grace).ok()?).ok()
}

/// How long the worker has held its oldest attempt, by the server's clock.
pub(super) fn held_for(worker: &Value) -> Option<Duration> {
    let time = |path: &str| at(worker, path)?.as_str()?.parse::<Timestamp>().ok();
    let age = at(worker, "heartbeat_age_seconds")?.as_f64()?;
    let since_beat = time("last_heartbeat")?.duration_since(time("oldest_claim")?);
    let seconds = since_beat.as_secs_f64() + age;
    Duration::try_from_secs_f64(seconds.max(0.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(version: Option<&str>, state: &str, held: u64) -> Value {
        let mut labels = json!({"zone": "a"});
        if let (Some(version), Some(labels)) = (version, labels.as_object_mut()) {
            labels.insert("version".into(), version.into());
        }
        let claimed = if held > 0 { json!("2026-11-26T10:00:00Z") } else { Value::Null };
        json!({"labels": labels, "about": {"version": "0.1.0"}, "state": state, "in_flight": held,
            "last_heartbeat": "2026-11-26T10:01:00Z", "heartbeat_age_seconds": 2.5,
            "oldest_claim": claimed})
    }

    #[test]
    fn workers_are_counted_by_state_in_the_row_of_their_version() {
        let workers = [
            worker(Some("2"), "running", 1),
            worker(Some("1"), "draining", 3),
            worker(Some("1"), "suspect", 0),
            worker(Some("1"), "quiet", 0),
            worker(Some("1"), "stopped", 0),
            worker(Some("1"), "lapsed", 5),
            worker(None, "running", 0),
        ];
        let rows = rows(&workers, "version");
        let counts = |row: &Value| {
            ["running", "quiet", "draining", "suspect", "gone", "in_flight"]
                .map(|name| row[name].as_u64().unwrap())
        };
        let names: Vec<&str> = rows.iter().map(|row| row["group"].as_str().unwrap()).collect();
        assert_eq!(names, ["0.1.0", "1", "2"]);
        assert_eq!(counts(&rows[1]), [0, 1, 1, 1, 2, 3]);
        assert_eq!(
            (&rows[1]["longest_seconds"], &rows[0]["longest_seconds"]),
            (&json!(62), &Value::Null)
        );
        assert_eq!(counts(&rows[2]), [1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn workers_without_the_label_have_a_row_of_their_own() {
        let rows = rows(&[worker(None, "running", 0)], "pool");
        assert_eq!(rows[0]["group"], "-");
    }
}
