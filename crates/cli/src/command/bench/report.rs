//! What is printed: one JSON document, or two tables.

use serde_json::{Value, json};

use super::figures::{Figure, rounded};
use crate::output::{Table, at, text_at};

/// Everything one run found.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) figures: Vec<Figure>,
    pub(super) ceilings: Value,
    pub(super) resident_kib: Value,
    /// Jobs that were in the store beforehand.
    pub(super) preloaded: Value,
    /// Address of the server that was named; none for our own.
    pub(super) server: Option<String>,
}

impl Report {
    pub(super) fn to_json(&self) -> Value {
        let results: Vec<Value> = self.figures.iter().map(Figure::to_json).collect();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        json!({
            "results": results,
            "ceilings": self.ceilings,
            "resident_kib": self.resident_kib,
            "preloaded": self.preloaded,
            "server": self.server,
            "cores": cores,
            "version": env!("CARGO_PKG_VERSION"),
            "at": crate::clock::now().to_string(),
        })
    }
}

/// The document for people.
pub(super) fn table(report: &Value) -> String {
    let mut text = results(report).to_string();
    let mut ceilings = Table::new(&["CEILING OF THIS MACHINE", "PER SECOND"]);
    for (name, words) in [
        ("fsync_per_second", "durable 4 KiB appends"),
        ("sqlite_commits_per_second", "SQLite, a row a commit"),
        ("sqlite_rows_per_second", "SQLite, rows, 100 a commit"),
        ("http_per_second", "HTTP alone, same client"),
    ] {
        let number = report["ceilings"].get(name).and_then(Value::as_f64).unwrap_or(0.0);
        ceilings.row(vec![words.to_owned(), whole(number)]);
    }
    text.push('\n');
    text.push_str(&ceilings.to_string());
    text.push('\n');
    text.push_str(&circumstances(report));
    text
}

fn results(report: &Value) -> Table {
    let mut table = Table::new(&["WHAT", "MEDIAN", "MIN-MAX OF ROUNDS", "P50", "P99"]);
    for result in report["results"].as_array().into_iter().flatten() {
        let number = |name: &str| result.get(name).and_then(Value::as_f64);
        let (least, most) = (number("min").unwrap_or(0.0), number("max").unwrap_or(0.0));
        let (median, range) = match number("per_second") {
            Some(rate) => {
                (format!("{}/s", whole(rate)), format!("{}-{}", whole(least), whole(most)))
            }
            None => ("-".to_owned(), format!("{}-{} ms", precise(least), precise(most))),
        };
        let length =
            |name| number(name).map_or_else(|| "-".to_owned(), |n| format!("{} ms", precise(n)));
        table.row(vec![text_at(result, "name"), median, range, length("p50_ms"), length("p99_ms")]);
    }
    table
}

fn circumstances(report: &Value) -> String {
    let whose = match at(report, "server") {
        Some(_) => "a server that was named",
        None => "a server of its own, client on the same machine",
    };
    let [version, cores, time] = ["version", "cores", "at"].map(|name| text_at(report, name));
    let mut lines = vec![format!("outlast {version}, {cores} cores, {whose}, {time}")];
    for name in ["waiting", "finished"] {
        let count = report["preloaded"].get(name).and_then(Value::as_f64).unwrap_or(0.0);
        if count > 0.0 {
            lines.push(format!("in the store beforehand: {} jobs {name}", whole(count)));
        }
    }
    let memory = report["resident_kib"].as_object();
    for (name, kib) in memory.into_iter().flatten() {
        let mib = kib.as_f64().unwrap_or(0.0) / 1024.0;
        lines.push(format!("resident memory, {}: {mib:.1} MiB", name.replace('_', " ")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Thousands in groups, so that a rate is read at a glance.
fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn precise(number: f64) -> String {
    if number >= 100.0 { whole(number) } else { rounded(number).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{table, whole};

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.8, "1,234,568")];
        for (number, expected) in cases {
            assert_eq!(whole(number), expected);
        }
    }

    #[test]
    fn table_has_a_row_a_result_and_says_what_was_in_the_store() {
        let report = json!({
            "results": [
                {"name": "enqueue", "per_second": 31_000.0, "p50_ms": 0.5, "p99_ms": 1.25,
                 "min": 30_000.0, "max": 32_000.0},
                {"name": "restart.engine", "per_second": null, "p50_ms": 612.0, "p99_ms": 700.0,
                 "min": 600.0, "max": 700.0},
            ],
            "ceilings": {"fsync_per_second": 2400.0},
            "preloaded": {"waiting": 5, "finished": 0},
            "resident_kib": {"server_idle": 30_720},
            "server": null, "cores": 2, "version": "0.1.0", "at": "now",
        });
        let text = table(&report);
        assert!(text.contains("31,000/s") && text.contains("30,000-32,000"), "{text}");
        assert!(text.contains("612 ms") && text.contains("600-700 ms"), "{text}");
        assert!(text.contains("2,400"), "{text}");
        assert!(text.contains("5 jobs waiting") && !text.contains("finished"), "{text}");
        assert!(text.contains("server idle: 30.0 MiB"), "{text}");
    }
}
